"""What the live pages about the whole cluster look at: topics, ends of logs, lag, metrics, disks.

A user has one `ClusterWatch`. It looks every LOOK_S while somebody has a live page open, less often
where a look takes long, and not at all otherwise. Rates are differences between two looks, so they
are there for any Kafka; bytes and latencies come from the brokers' metrics where the console was
given their addresses. Everything is bounded: SAMPLES_MAX looks are kept as numbers, and of the
partitions, groups and metrics no more than the limits below are looked at. What was left out is
told.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from starlette.requests import Request

from tidelog.acls import AclOperation
from tidelog.client.admin.brokers import ClusterDescription, LogDirDescription
from tidelog.client.admin.topics import TopicDescription
from tidelog.client.errors import ClientError
from tidelog.clock import SystemClock
from tidelog.protocol.listed_timestamps import LATEST
from tidelog.supervisor import keep_going
from tidelog.tools.cluster_view import BrokerMetrics, metrics_or_none
from tidelog.tools.console.clients import Clients, clients_of
from tidelog.tools.console.settings import LoginMode
from tidelog.types import NO_LEADER, TopicPartition

LOOK_S: Final = 2.0
COMPARED_S: Final = 60.0  # a rate over a longer time says nothing
LOAD_MAX: Final = 0.1  # a look may take this share of the time
SAMPLES_MAX: Final = 300
TOPIC_SAMPLES_MAX: Final = 60
TOPICS_WITH_RATES_MAX: Final = 2_000
PARTITIONS_MAX: Final = 20_000
GROUPS_MAX: Final = 50
TOPICS_AGE_S: Final = 1.5
DISKS_AGE_S: Final = 15.0
RIGHTS_AGE_S: Final = 30.0


class Sample(NamedTuple):
    """One look as numbers; None where there was nothing to compare with, or nobody answered."""

    at_ms: int
    records_per_s: float | None
    lag: int | None
    under_replicated: int
    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    produce_p99_ms: float | None = None


@dataclass(frozen=True)
class Look:
    """What was there at one moment."""

    at_s: float
    at_ms: int
    cluster: ClusterDescription
    topics: Mapping[str, TopicDescription]
    ends: Mapping[TopicPartition, int]
    lags: Mapping[str, int]  # of the groups that were looked at
    group_count: int | None  # None where the cluster does not tell
    metrics: Sequence[BrokerMetrics | None]
    partitions_left_out: int = 0


@dataclass(frozen=True)
class Health:
    """How the partitions are."""

    partitions: int
    leaderless: int
    under_replicated: int
    leads: Mapping[int, int]
    holds: Mapping[int, int]


@dataclass
class Rates:
    """Records per second of each topic, by two looks."""

    by_topic: dict[str, float] = field(default_factory=dict)
    history: dict[str, deque[tuple[int, float]]] = field(default_factory=dict)

    def note(self, before: Look, now: Look) -> float:
        """The rate of all topics together."""
        seconds = max(now.at_s - before.at_s, 1e-3)
        gained: Counter[str] = Counter()
        for place, end in now.ends.items():
            earlier = before.ends.get(place)
            if earlier is not None and end > earlier:
                gained[place.topic] += end - earlier
        self.by_topic = {topic: count / seconds for topic, count in gained.items()}
        for gone in self.history.keys() - now.topics.keys():
            del self.history[gone]
        for topic in {*self.history, *self.by_topic}:
            known = self.history.get(topic)
            if known is None:
                if len(self.history) >= TOPICS_WITH_RATES_MAX:
                    continue
                known = self.history[topic] = deque(maxlen=TOPIC_SAMPLES_MAX)
            known.append((now.at_ms, self.by_topic.get(topic, 0.0)))
        return gained.total() / seconds


class ClusterWatch:
    """Of one `Clients`, on the console's loop."""

    def __init__(
        self,
        clients: Clients,
        metrics_urls: Sequence[str],
        time_ms: Callable[[], int] | None = None,
        *,
        asks_cluster: bool = False,
    ) -> None:
        """`asks_cluster`: metrics, which know no ACLs, are for those who may describe it."""
        self._clients = clients
        self._metrics_urls = metrics_urls
        self._asks_cluster = asks_cluster
        self._time_ms = time_ms or SystemClock().time_ms
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.rates = Rates()
        self.latest: Look | None = None
        self.problem = ""
        self._serial = 0  # of the last look, also of one that failed
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None
        self._looked = asyncio.Condition()

    # One look

    async def topics(self) -> Mapping[str, TopicDescription]:
        """All of them, internal ones too; one request, shared by everybody who asks."""

        async def take() -> Mapping[str, TopicDescription]:
            return await self._clients.admin.describe_all_topics(include_internal=True)

        return await self._clients.shared("all topics", TOPICS_AGE_S, take)

    async def cluster(self) -> ClusterDescription:
        return await self._clients.shared(
            "cluster", TOPICS_AGE_S, self._clients.admin.describe_cluster
        )

    async def disks(self) -> Mapping[int, Mapping[str, LogDirDescription] | ClientError]:
        """By broker and path, or why a broker does not tell."""

        async def take() -> dict[int, Mapping[str, LogDirDescription] | ClientError]:
            answers = await self._clients.admin.describe_log_dirs()
            return {
                broker: result.get() if result.error is None else result.error
                for broker, result in answers.items()
            }

        return await self._clients.shared("disks", DISKS_AGE_S, take)

    async def metrics(self, url: str) -> BrokerMetrics | None:
        """None if nobody answers, or the cluster does not let this user see it."""
        if self._asks_cluster and not await self._may_describe_cluster():
            return None

        async def take() -> BrokerMetrics | None:
            return await asyncio.to_thread(metrics_or_none, url)

        return await self._clients.shared(f"metrics {url}", TOPICS_AGE_S, take)

    async def _may_describe_cluster(self) -> bool:
        async def take() -> ClusterDescription:
            return await self._clients.admin.describe_cluster(include_authorized_operations=True)

        found = await self._clients.shared("operations on the cluster", RIGHTS_AGE_S, take)
        return AclOperation.DESCRIBE in (found.authorized_operations or ())

    async def look(self) -> Look:
        """Takes a look and keeps it."""
        cluster, topics = await asyncio.gather(self.cluster(), self.topics())
        places = [
            TopicPartition(topic.name, each.partition)
            for topic in topics.values()
            for each in topic.partitions
            if each.leader_id != NO_LEADER
        ]
        shown = places[:PARTITIONS_MAX]
        listed, (count, committed), metrics = await asyncio.gather(
            self._clients.admin.list_offsets(dict.fromkeys(shown, LATEST)),
            self._committed(),
            asyncio.gather(*(self.metrics(url) for url in self._metrics_urls)),
        )
        at_s, at_ms = self._clients.clock(), self._time_ms()
        ends = {
            place: result.get().offset for place, result in listed.items() if result.error is None
        }
        lags = {
            group: sum(max(ends.get(place, 0) - offset, 0) for place, offset in offsets.items())
            for group, offsets in committed.items()
        }
        found = Look(
            at_s, at_ms, cluster, topics, ends, lags, count, metrics, len(places) - len(shown)
        )
        self._keep(found)
        return found

    async def _committed(self) -> tuple[int | None, dict[str, dict[TopicPartition, int]]]:
        """How many groups there are, and what they have committed; none where that is not told."""
        admin = self._clients.admin
        try:
            listings = await admin.list_groups()
        except ClientError:
            return None, {}
        names = [each.group_id for each in listings[:GROUPS_MAX]]
        answers = await asyncio.gather(
            *(admin.list_group_offsets(name) for name in names), return_exceptions=True
        )
        found: dict[str, dict[TopicPartition, int]] = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, ClientError):
                continue  # not allowed, or gone meanwhile; its page says which
            if isinstance(answer, BaseException):
                raise answer
            found[name] = {place: row.offset for place, row in answer.items() if row is not None}
        return len(listings), found

    def _keep(self, now: Look) -> None:
        before, self.latest = self.latest, now
        if before is not None and now.at_s - before.at_s > COMPARED_S:
            before = None  # nobody watched meanwhile
        rate = None if before is None else self.rates.note(before, now)
        traffic = _traffic(before, now)
        self.samples.append(
            Sample(
                now.at_ms,
                rate,
                sum(now.lags.values()) if now.group_count is not None else None,
                health(now.topics).under_replicated,
                *traffic,
            )
        )
        self.problem = ""

    # Looking while somebody watches

    async def looks(self) -> AsyncGenerator[str, None]:
        """After every look from now on: why it failed, or "". It looks until this is closed."""
        self._begin()
        try:
            serial = self._serial
            while True:
                serial = await self._later_than(serial)
                yield self.problem
        finally:
            await self._end()

    def _begin(self) -> None:
        self._watchers += 1
        if self._task is None:
            self._task = asyncio.ensure_future(
                keep_going("looking at the cluster", self._run, asyncio.get_running_loop())
            )

    async def _end(self) -> None:
        self._watchers -= 1
        if self._watchers == 0 and self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])

    async def _later_than(self, serial: int) -> int:
        """The number of the last look, once there is a later one than that."""
        async with self._looked:
            await self._looked.wait_for(lambda: self._serial > serial)
        return self._serial

    async def _run(self) -> None:
        while True:
            began_s = self._clients.clock()
            try:
                await self.look()
            except ClientError as error:
                self.problem = str(error)
            async with self._looked:
                self._serial += 1
                self._looked.notify_all()
            took_s = self._clients.clock() - began_s
            await asyncio.sleep(max(LOOK_S - took_s, took_s * (1 / LOAD_MAX - 1), 0.0))


def health(topics: Mapping[str, TopicDescription]) -> Health:
    leads: Counter[int] = Counter()
    holds: Counter[int] = Counter()
    count = leaderless = under = 0
    for topic in topics.values():
        for each in topic.partitions:
            count += 1
            leads[each.leader_id] += 1
            holds.update(each.replicas)
            leaderless += each.leader_id == NO_LEADER
            under += len(each.isr) < len(each.replicas)
    return Health(count, leaderless, under, leads, holds)


def _traffic(before: Look | None, now: Look) -> tuple[float | None, float | None, float | None]:
    """Bytes in and out per second, and the worst broker's time to answer a Produce."""
    told = [each for each in now.metrics if each is not None]
    times = [each.produce_p99_ms for each in told if each.produce_p99_ms is not None]
    worst = max(times) if times else None
    if before is None or not told or len(before.metrics) != len(now.metrics):
        return None, None, worst
    seconds = max(now.at_s - before.at_s, 1e-3)
    pairs = [
        (old, new)
        for old, new in zip(before.metrics, now.metrics, strict=True)
        if old is not None and new is not None
    ]
    received = sum(max(new.bytes_in - old.bytes_in, 0.0) for old, new in pairs)
    sent = sum(max(new.bytes_out - old.bytes_out, 0.0) for old, new in pairs)
    return received / seconds, sent / seconds, worst


def sizes_by_topic(
    disks: Mapping[int, Mapping[str, LogDirDescription] | ClientError],
) -> Counter[str]:
    """Bytes of all replicas of each topic."""
    sizes: Counter[str] = Counter()
    for folders in disks.values():
        if not isinstance(folders, ClientError):
            for folder in folders.values():
                for place, replica in folder.replicas.items():
                    sizes[place.topic] += replica.size_bytes
    return sizes


def watch_of(request: Request) -> ClusterWatch:
    """The one of the user who asks."""
    clients, settings = clients_of(request), request.app.state.settings
    asks = settings.login_mode is LoginMode.CLUSTER
    return clients.kept(
        ClusterWatch, lambda: ClusterWatch(clients, settings.metrics_urls, asks_cluster=asks)
    )
