"""Groups of a real broker that do well and badly, as `tidelog top` and the console judge them.

Members really hold their partitions, and offsets are really committed. Only the clock of those who
look is the test's: it moves by LOOK_MS between two looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import StartBroker
from tests.support.clock import FakeClock
from tests.support.console_client import ConsoleClient
from tidelog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.tools.cli.top import health_of
from tidelog.tools.cluster_view import frame, look
from tidelog.tools.console.pages import groups
from tidelog.tools.console.settings import ConsoleSettings
from tidelog.tools.group_watch import JUDGED_FROM_MS, LOOK_EVERY_MS, GroupWatch

LOOK_MS = LOOK_EVERY_MS + 1_000
LOOKS = JUDGED_FROM_MS // LOOK_MS + 2
PLACE = TopicPartition("orders", 0)
WRITTEN = 10  # before each look
# How each group is judged: its partition, and the group.
EXPECTED = {
    "current": ("OK", "OK"),  # reads and commits all there is
    "slow": ("WARN", "WARN"),  # commits one record of the ten
    "stuck": ("STALL", "ERR"),  # has the partition, and commits nothing
    "stopped": ("STOP", "ERR"),  # has no member any more
    "rewound": ("REWIND", "ERR"),  # commits less than before
}


class Groups:
    """With a member each, but for the stopped one, whose member has committed and left."""

    def __init__(self, bootstrap: str, admin: Admin) -> None:
        self._servers = {"bootstrap.servers": bootstrap}
        self._admin = admin
        self._written = 0
        self._open = ExitStack()
        self._producer = self._open.enter_context(Producer(self._servers))
        self._write()
        self._members = {group: self._joined(group) for group in EXPECTED}
        for member in self._members.values():
            member.commit({PLACE: 5})
        self._members.pop("stopped").close()

    def close(self) -> None:
        for member in self._members.values():
            member.close()
        self._open.close()

    def _joined(self, group: str) -> Consumer:
        settings = {**self._servers, "group.id": group, "enable.auto.commit": False}
        member = Consumer(settings, auto_offset_reset="earliest")
        member.subscribe(["orders"])
        while not member.assignment():
            member.poll(timeout=0.1)
        return member

    def _write(self) -> None:
        for _ in range(WRITTEN):
            self._producer.send("orders", b"x")
        self._producer.flush()
        self._written += WRITTEN

    def go_on(self, number: int) -> None:
        self._write()
        committed = {
            "current": self._written,
            "slow": 6 + number,
            "rewound": 5 if number < LOOKS // 2 else 2,
        }
        for group, offset in committed.items():
            self._members[group].commit({PLACE: offset})


@pytest.fixture
def bootstrap(start_broker: StartBroker) -> str:
    return start_broker({"group.initial.rebalance.delay.ms": "0"}).bootstrap


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap) as made:
        made.create_topics([NewTopic("orders", 1)])["orders"].get()
        yield made


@pytest.fixture
def scripted(bootstrap: str, admin: Admin) -> Iterator[Groups]:
    made = Groups(bootstrap, admin)
    yield made
    made.close()


def test_top_shows_how_real_groups_do(admin: Admin, scripted: Groups) -> None:
    clock, watch = FakeClock(), GroupWatch()
    before, now = None, look(admin, (), clock.monotonic)
    for number in range(LOOKS):
        scripted.go_on(number)
        before, now = now, look(admin, (), clock.monotonic)
        health = health_of(watch, now)
        if number == 1:
            assert set(health.values()) == {"unknown"}, "two looks are too few"
        clock.advance(ms=LOOK_MS)
    lines = frame(now, before, health=health)
    shown = {words[0]: words[1:3] for words in map(str.split, lines) if words[:1]}
    assert {group: shown[group][1] for group in EXPECTED} == {
        group: of_group for group, (_, of_group) in EXPECTED.items()
    }
    assert shown["stopped"][0] == "Empty"
    assert shown["stuck"][0] == "Stable"


def test_the_console_shows_how_real_groups_do(
    bootstrap: str, scripted: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(groups, "SystemClock", lambda: clock)
    with ConsoleClient(ConsoleSettings({"bootstrap.servers": bootstrap})) as console:
        for number in range(LOOKS):
            scripted.go_on(number)
            listed = console.get("/groups").text
            clock.advance(ms=LOOK_MS)
        rows = re.findall(r"<tr>.*?</tr>", listed, re.DOTALL)
        for group, (of_partition, of_group) in EXPECTED.items():
            (row,) = [each for each in rows if f">{group}<" in each]
            assert f">{of_group}<" in row, row
            page = console.get(f"/groups/one?group={group}")
            assert f"Health {of_group} " in page.words
            partition = page.text.partition("orders-0<")[2].partition("</tr>")[0]
            assert f">{of_partition}<" in partition, partition
