"""Calls that block their thread: for start-up, before the loop serves requests.

They go past the queue of the loop's calls, with the same rules: a write whose answer was lost is
looked for before it is sent again, and what gets no answer within the session timeout fails.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kazoo import exceptions
from kazoo.protocol.serialization import GetChildren, GetData

from tidelog.clock import Clock
from tidelog.controller.metadata_store import (
    Operation,
    Outcome,
    OutcomeUnknown,
    Stat,
    StoreUnavailable,
)
from tidelog.controller.zookeeper import requests, write_steps
from tidelog.controller.zookeeper.requests import Chroot
from tidelog.controller.zookeeper.session import Connection, ZooKeeperSession
from tidelog.controller.zookeeper.write_steps import LostAnswer, Steps

_NO_ANSWER: Final = exceptions.OperationTimeoutError


class BlockingReply:
    def __init__(self) -> None:
        self._done = threading.Event()
        self._value: Any = None
        self._error: Exception | None = None

    def set(self, value: Any) -> None:
        self._value = value
        self._done.set()

    def set_exception(self, error: Exception) -> None:
        self._error = error
        self._done.set()

    def wait(self, timeout_s: float) -> Any:
        if not self._done.wait(max(timeout_s, 0)):
            raise _NO_ANSWER
        if self._error is not None:
            raise self._error
        return self._value


class BlockingCalls:
    def __init__(
        self,
        session: ZooKeeperSession,
        *,
        chroot: Chroot,
        timeout_s: float,
        in_flight_max: int,
        clock: Clock,
    ) -> None:
        self._session = session
        self._chroot = chroot
        self._timeout_s = timeout_s
        self._in_flight_max = in_flight_max
        self._clock = clock

    def connection(self) -> Connection:
        """Waits for one where there is none."""
        return self._connection("/", self._clock.monotonic() + self._timeout_s, was_sent=False)

    def write(self, operations: Sequence[Operation]) -> list[Outcome]:
        path = operations[0].path if operations else "/"
        deadline = self._clock.monotonic() + self._timeout_s
        zxid_before = self._session.zxid_seen
        was_sent = False
        while True:
            connection = self._connection(path, deadline, was_sent=was_sent)
            lost = LostAnswer(connection.session_id, zxid_before) if was_sent else None
            was_sent = True
            try:
                return self._drive(
                    write_steps.write(operations, self._chroot, lost), connection, deadline
                )
            except requests.LOST:
                continue
            except _NO_ANSWER:
                raise OutcomeUnknown(path) from None
            except requests.ZOOKEEPER_ERROR as error:
                raise requests.store_error(error, path) from error

    def subtree(self, path: str) -> Iterator[tuple[str, bytes, Stat]]:
        """Level by level from the server, parents first and siblings by name to the caller."""
        nodes: dict[str, tuple[bytes, Stat]] = {}
        children: dict[str, list[str]] = {}
        level = [path]
        while level:
            found = self._read_all(GetData, level)
            for each, answer in found:
                nodes[each] = (answer[0] or b"", requests.stat_of(answer[1]))
            parents = [each for each, _ in found if nodes[each][1].num_children]
            level = []
            for parent, names in self._read_all(GetChildren, parents):
                prefix = "" if parent == "/" else parent
                children[parent] = [f"{prefix}/{name}" for name in sorted(names)]
                level += children[parent]
        waiting = [path]
        while waiting:
            each = waiting.pop()
            if each in nodes:
                yield (each, *nodes[each])
                waiting += reversed(children.get(each, ()))

    def _read_all(self, kind: type, paths: Sequence[str]) -> list[tuple[str, Any]]:
        """Those that are there, with several requests under way; again after a loss."""
        deadline = self._clock.monotonic() + self._timeout_s
        answers: dict[str, Any] = {}
        while len(answers) < len(paths):
            connection = self._connection(paths[0], deadline, was_sent=False)
            remaining = [path for path in paths if path not in answers]
            try:
                for path, answer in self._pipelined(kind, remaining, connection):
                    answers[path] = answer
                    deadline = self._clock.monotonic() + self._timeout_s
            except requests.LOST:
                continue
            except _NO_ANSWER:
                raise StoreUnavailable(paths[0]) from None
            except requests.ZOOKEEPER_ERROR as error:
                raise requests.store_error(error, paths[0]) from error
        return [(path, answer) for path, answer in answers.items() if answer is not None]

    def _pipelined(
        self, kind: type, paths: Iterable[str], connection: Connection
    ) -> Iterator[tuple[str, Any]]:
        under_way: deque[tuple[str, BlockingReply]] = deque()
        for path in paths:
            if len(under_way) >= self._in_flight_max:
                yield self._answer(under_way)
            request = kind(self._chroot.full(path), None)
            under_way.append((path, self._submit(request, connection)))
        while under_way:
            yield self._answer(under_way)

    def _submit(self, request: Any, connection: Connection) -> BlockingReply:
        reply = BlockingReply()
        if not self._session.submit(request, reply, connection.number):
            raise exceptions.ConnectionLoss
        return reply

    def _answer(self, under_way: deque[tuple[str, BlockingReply]]) -> tuple[str, Any]:
        path, reply = under_way.popleft()
        try:
            return path, reply.wait(self._timeout_s)
        except exceptions.NoNodeError:
            return path, None

    def _drive(
        self, steps: Steps[list[Outcome]], connection: Connection, deadline: float
    ) -> list[Outcome]:
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                request = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as stop:
                outcomes: list[Outcome] = stop.value
                return outcomes
            answer = error = None
            reply = self._submit(request, connection)
            try:
                answer = reply.wait(deadline - self._clock.monotonic())
            except exceptions.NoNodeError as absent:
                error = absent

    def _connection(self, path: str, deadline: float, *, was_sent: bool) -> Connection:
        while True:
            connection = self._session.connection_or_none()
            if connection is not None:
                return connection
            remaining_s = deadline - self._clock.monotonic()
            if remaining_s <= 0:
                raise OutcomeUnknown(path) if was_sent else StoreUnavailable(path)
            self._session.wait_until_connected(remaining_s)
