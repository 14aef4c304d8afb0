"""How admin calls find the broker to ask, and when they ask again.

A call asks about keys (topics, partitions, groups, ...) and gets a `Result` for each, so one that
fails does not hide the others. Keys whose error may pass are asked about again, after a wait, until
the call's time is up: `timeout` seconds, or default.api.timeout.ms. Where it fits, the keys are
first grouped by who knows about them: partitions by leader (`of_leaders`), groups and transactional
ids by coordinator (`of_coordinators`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from tidelog.client.errors import (
    ClientError,
    ConnectionFailed,
    UnreadableAnswer,
    refused,
)
from tidelog.client.network.backoff import Patience, may_pass
from tidelog.client.network.cluster import Cluster, Purpose, must_be_led
from tidelog.client.network.coordinators import CoordinatorKind
from tidelog.config.client import AdminConfig
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.message import Message
from tidelog.types import NO_CONTROLLER, TopicPartition

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
M = TypeVar("M", bound=Message)

# Retriable in Kafka's table, but asked again they would be answered the same.
FINAL_CODES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """What came of one item: a value, or an error."""

    value: T | None = None
    error: ClientError | None = None

    @property
    def is_ok(self) -> bool:
        return self.error is None

    def get(self) -> T:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None only where T is


Found: TypeAlias = Mapping[K, T | ClientError]
"""What one try found out: for each key a value, or why there is none."""


def problem_of(what: str, code: int, message: str | None = None) -> ClientError | None:
    """The error for a code in an answer; None where it is NONE."""
    return refused(what, code, message) if code else None


def is_worth_another_try(problem: ClientError) -> bool:
    return may_pass(problem) and problem.code not in FINAL_CODES


class Asking:
    """What the calls of an admin client share."""

    def __init__(self, config: AdminConfig, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster

    # Retries

    async def once(
        self, what: str, ask: Callable[[int], Awaitable[T]], timeout: float | None = None
    ) -> T:
        """What `ask` returns, which is given the milliseconds left; again while its error may
        pass."""
        patience = self.cluster.patience(what, timeout_s=timeout)
        retries = self.config.integer("retries")
        last: ClientError | None = None
        while True:
            try:
                return await self._in_time(ask, patience, last)
            except ClientError as problem:
                last = problem
                if retries == 0 or not is_worth_another_try(problem):
                    raise
                retries -= 1
                self._prepare(problem)
                await patience.wait_after(problem)

    async def each(
        self,
        what: str,
        keys: Iterable[K],
        step: Callable[[list[K], int], Awaitable[Found[K, T]]],
        timeout: float | None = None,
        final: Collection[ErrorCode] = (),
    ) -> dict[K, Result[T]]:
        """A result for each key, in their order. `step` asks once about those that are left, and
        is given the milliseconds left. Codes in `final` are not asked about again."""
        left = wanted = list(dict.fromkeys(keys))
        results: dict[K, Result[T]] = {}
        patience = self.cluster.patience(what, timeout_s=timeout)
        retries = self.config.integer("retries")
        problem: ClientError | None = None
        while left:
            problems: dict[K, ClientError] = {}
            for key, outcome in (await self._try(what, left, step, patience, problem)).items():
                if not isinstance(outcome, ClientError):
                    results[key] = Result(value=outcome)
                elif retries and outcome.code not in final and is_worth_another_try(outcome):
                    problems[key] = outcome
                else:
                    results[key] = Result(error=outcome)
            left = list(problems)
            if left:
                retries -= 1
                problem = problems[left[-1]]
                self._prepare(problem)
                try:
                    await patience.wait_after(problem)
                except ClientError:
                    for key, last in problems.items():
                        results[key] = Result(error=patience.given_up(last))
                    break
        return {key: results[key] for key in wanted}

    async def _try(
        self,
        what: str,
        keys: list[K],
        step: Callable[[list[K], int], Awaitable[Found[K, T]]],
        patience: Patience,
        last: ClientError | None,
    ) -> dict[K, T | ClientError]:
        try:
            found = await self._in_time(lambda left_ms: step(keys, left_ms), patience, last)
        except ClientError as problem:
            return dict.fromkeys(keys, problem)
        return {
            key: found[key]
            if key in found
            else UnreadableAnswer(f"{what}: the answer leaves out {key}")
            for key in keys
        }

    async def _in_time(
        self,
        ask: Callable[[int], Awaitable[T]],
        patience: Patience,
        last: ClientError | None,
    ) -> T:
        left_ms = round(min(patience.left_s, self.config.seconds("request.timeout.ms")) * 1000)
        return await patience.within(ask(left_ms), last)

    def _prepare(self, problem: ClientError) -> None:
        """Before another try: the controller may be another broker by now."""
        if problem.code == ErrorCode.NOT_CONTROLLER or isinstance(problem, ConnectionFailed):
            self.cluster.metadata.controller_id = NO_CONTROLLER

    # Whom to ask

    async def of_controller(
        self, request: Message, kind: type[M], *, at_most: int | None = None, at_least: int = 0
    ) -> M:
        answer = await self.cluster.call_controller(request, at_most=at_most, at_least=at_least)
        assert isinstance(answer, kind), answer
        return answer

    async def of_any(
        self, request: Message, kind: type[M], *, at_most: int | None = None, at_least: int = 0
    ) -> M:
        answer = await self.cluster.call_any(request, at_most=at_most, at_least=at_least)
        assert isinstance(answer, kind), answer
        return answer

    async def of_broker(
        self,
        node_id: int,
        request: Message,
        kind: type[M],
        *,
        at_most: int | None = None,
        at_least: int = 0,
    ) -> M:
        if node_id not in self.cluster.metadata.brokers:
            await self.cluster.refresh(())
        answer = await self.cluster.call(node_id, request, at_most=at_most, at_least=at_least)
        assert isinstance(answer, kind), answer
        return answer

    async def of_coordinator(
        self,
        node_id: int,
        request: Message,
        kind: type[M],
        *,
        at_most: int | None = None,
        at_least: int = 0,
    ) -> M:
        """Of a broker that `of_coordinators` found."""
        answer = await self.cluster.call(
            node_id, request, at_most=at_most, at_least=at_least, purpose=Purpose.COORDINATION
        )
        assert isinstance(answer, kind), answer
        return answer

    async def coordinator_of(self, kind: CoordinatorKind, key: str) -> int:
        """Looked up afresh."""
        found = (await self.cluster.coordinators(kind, [key]))[key]
        if found.problem is not None:
            raise found.problem
        return found.node.id

    async def coordinator_version(self, node_id: int, request: type[Message]) -> int:
        versions = await self.cluster.versions(node_id, Purpose.COORDINATION)
        return versions.version(ApiKey(request.API_KEY))

    # Keys by who knows about them

    async def of_brokers(
        self,
        by_broker: Mapping[int, Collection[K]],
        ask: Callable[[int, list[K]], Awaitable[Found[K, T]]],
    ) -> dict[K, T | ClientError]:
        """Of all these brokers at once; a broker that fails fails its own keys."""

        async def ask_one(node_id: int, keys: list[K]) -> Found[K, T]:
            try:
                return await ask(node_id, keys)
            except ClientError as problem:
                return dict.fromkeys(keys, problem)

        answers = await asyncio.gather(
            *(ask_one(node_id, list(keys)) for node_id, keys in by_broker.items())
        )
        return {key: value for answer in answers for key, value in answer.items()}

    async def of_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Found[TopicPartition, T]]],
    ) -> dict[TopicPartition, T | ClientError]:
        """Of the leader of each partition, which is looked up afresh."""
        wanted = list(partitions)
        await self.cluster.refresh({partition.topic for partition in wanted})
        by_leader: dict[int, list[TopicPartition]] = {}
        found: dict[TopicPartition, T | ClientError] = {}
        for partition in wanted:
            try:
                by_leader.setdefault(self._leader(partition), []).append(partition)
            except ClientError as problem:
                found[partition] = problem
        return found | await self.of_brokers(by_leader, ask)

    def _leader(self, partition: TopicPartition) -> int:
        topic = self.cluster.metadata.topics.get(partition.topic)
        if topic is None:
            raise refused(f"topic {partition.topic}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not topic.exists:
            raise refused(f"topic {partition.topic}", topic.error_code)
        return must_be_led(topic, partition)

    async def of_coordinators(
        self,
        kind: CoordinatorKind,
        keys: Iterable[str],
        ask: Callable[[int, list[str]], Awaitable[Found[str, T]]],
    ) -> dict[str, T | ClientError]:
        """Of the coordinator of each key, which is looked up afresh."""
        by_node: dict[int, list[str]] = {}
        found: dict[str, T | ClientError] = {}
        for key, coordinator in (await self.cluster.coordinators(kind, keys)).items():
            if coordinator.problem is not None:
                found[key] = coordinator.problem
            else:
                by_node.setdefault(coordinator.node.id, []).append(key)
        return found | await self.of_brokers(by_node, ask)

    async def broker_ids(self, timeout: float | None = None) -> list[int]:
        """Those there are now."""
        await self.once("the brokers", lambda _: self.cluster.refresh(()), timeout)
        return sorted(self.cluster.metadata.brokers)
