"""A group whose members come, go, read and commit, each in its own thread, while records are
written.

In a pause nobody writes or commits, so what the broker tells of the group then can be compared with
what it answers when asked. Members go on reading and rebalancing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Final

from tests.support.eventually import eventually
from tidelog.client import Admin, Consumer, NewTopic, Producer
from tidelog.client.errors import ClientError
from tidelog.protocol.listed_timestamps import LATEST

GROUP, TOPIC = "moving", "orders"
LAG = re.compile(
    rf'^kafka_consumergroup_lag\{{consumergroup="{GROUP}",topic="(\w+)",partition="(\d+)"\}} '
    r"(\d+)$",
    re.MULTILINE,
)
POLL_S = 0.1
MEMBERS_MAX = 4
WRITTEN_MAX = 60  # in one move


class _Commits:
    """Those of all members. While they are stopped, none is under way and none begins."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._are_stopped = False
        self._under_way = 0
        self.answered = 0

    def commit(self, member: Consumer) -> None:
        with self._turn:
            if self._are_stopped:
                return
            self._under_way += 1
        is_answered = False
        try:
            member.commit()
            is_answered = True
        except ClientError:
            pass  # the group rebalances without it
        finally:
            with self._turn:
                self.answered += is_answered
                self._under_way -= 1
                self._turn.notify_all()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        with self._turn:
            self._are_stopped = True
            assert self._turn.wait_for(lambda: not self._under_way, timeout=60)
        yield
        with self._turn:
            self._are_stopped = False


class _Member(threading.Thread):
    def __init__(self, reading: Mapping[str, object], commits: _Commits) -> None:
        super().__init__(daemon=True)
        self._reading, self._commits = reading, commits
        self._leaves = threading.Event()
        self.start()

    def run(self) -> None:
        with Consumer(self._reading) as consumer:
            consumer.subscribe([TOPIC])
            while not self._leaves.is_set():
                if consumer.poll(POLL_S, max_records=3):
                    self._commits.commit(consumer)

    def leave(self) -> None:
        self._leaves.set()


class MovingGroup:
    """Called "moving"; it reads the topic "orders"."""

    PARTITIONS: Final = 6

    def __init__(self, servers: Mapping[str, str], protocol: str) -> None:
        self._random = Random(7)
        self._members: list[_Member] = []
        self._left: list[_Member] = []
        self._commits = _Commits()
        self._reading: dict[str, object] = {
            **servers,
            "group.id": GROUP,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self._admin = Admin(servers)
        self._producer = Producer({**servers, "linger.ms": 0})

    def close(self) -> None:
        for member in self._members:
            member.leave()
        for member in (*self._members, *self._left):
            member.join()
        self._producer.close()
        self._admin.close()

    @contextmanager
    def pause_after_a_move(self) -> Iterator[None]:
        """A member comes or goes, records are written, and members commit some."""
        before = self._commits.answered
        self._come_or_go()
        self._write()
        eventually(lambda: self._commits.answered > before + len(self._members))
        self._write()
        with self._commits.stopped():
            yield

    def _come_or_go(self) -> None:
        count = len(self._members)
        if count < MEMBERS_MAX and (count < 2 or self._random.random() < 0.5):
            self._members.append(_Member(self._reading, self._commits))
        else:
            self._left.append(self._members.pop(self._random.randrange(count)))
            self._left[-1].leave()

    def _write(self) -> None:
        for _ in range(self._random.randrange(WRITTEN_MAX // 2, WRITTEN_MAX)):
            partition = self._random.randrange(self.PARTITIONS)
            self._producer.send(TOPIC, b"x", partition=partition)
        self._producer.flush()

    # What the broker answers

    def lags(self) -> dict[tuple[str, int], int]:
        """End offset minus committed offset."""
        answered = self._admin.list_group_offsets(GROUP)
        committed = {place: row.offset for place, row in answered.items() if row is not None}
        ends = self._admin.list_offsets(dict.fromkeys(committed, LATEST))
        return {
            (place.topic, place.partition): ends[place].get().offset - offset
            for place, offset in committed.items()
        }

    def member_count(self) -> int:
        return len(self._admin.describe_groups([GROUP])[GROUP].get().members)


@contextmanager
def group_in_a_new_topic(
    servers: Mapping[str, str], protocol: str, replicas: int = 1
) -> Iterator[MovingGroup]:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, MovingGroup.PARTITIONS, replicas)])[TOPIC].get()
    group = MovingGroup(servers, protocol)
    try:
        yield group
    finally:
        group.close()


def scraped_lags(pages: Iterable[str]) -> dict[tuple[str, int], int]:
    """Of the group, by partition; each may be told once."""
    rows = [row for page in pages for row in LAG.findall(page)]
    found = {(topic, int(index)): int(lag) for topic, index, lag in rows}
    assert len(found) == len(rows), rows
    return found
