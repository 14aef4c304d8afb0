"""Each new epoch of a consumer group is an event that says why."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.consumer_scenario import ConsumerScenario
from tests.support.group_stage import GroupStage
from tidelog.errors import ErrorCode, KafkaError


class Told:
    """A scenario, and the events of epochs since the last question."""

    def __init__(self, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
        self._scenario = ConsumerScenario(directory, "epochs\n\n")
        self._caplog = caplog

    @property
    def stage(self) -> GroupStage:
        return self._scenario.stage

    def after(self, *commands: str) -> list[tuple[int, int, str]]:
        """Epoch, members and reason of each event."""
        self._caplog.clear()
        for command in commands:
            self._scenario.do(command)
        found: list[Any] = [
            each
            for each in self._caplog.records
            if getattr(each, "event", "") == "group-epoch-raised"
        ]
        assert {each.group for each in found} <= {"g"}
        return [(each.epoch, each.members, each.reason) for each in found]


@pytest.fixture
def told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Told:
    caplog.set_level(logging.INFO)
    return Told(tmp_path, caplog)


def test_members_that_join_leave_and_fall_silent(told: Told) -> None:
    assert told.after("topics t=2", "join a topics=t") == [(2, 1, "a joins")]
    assert told.after("join b topics=t") == [(3, 2, "b joins")]
    assert told.after("beat a", "beat b", "beat a") == []
    assert told.after("leave b") == [(4, 1, "b left: it left")]
    assert told.after("advance 60000") == [(5, 0, "a left: its session timed out")]


def test_a_member_that_keeps_partitions_which_it_must_give_up(told: Told) -> None:
    told.after("topics t=2", "join a topics=t timeout=5000", "beat a", "join b topics=t", "beat a")
    found = told.after(*["advance 2000", "beat a owns=t-0,t-1", "beat b"] * 3)
    assert found == [(4, 1, "a left: it did not give up its partitions in time")]


def test_subscriptions_that_change(told: Told) -> None:
    told.after("topics t=2 u=2", "join a topics=t")
    assert told.after("full a topics=t,u") == [(3, 1, "a changes its subscription")]
    assert told.after("full a topics=t,u") == []
    assert told.after("full a topics=t,u assignor=range") == [], "for the next epoch"


def test_topics_that_change(told: Told) -> None:
    told.after("topics t=2 u=2", "join a topics=t,u")
    assert told.after("topics t=4 u=2", "beat a") == [(3, 1, "topics changed: t")]
    assert told.after("delete-topic u", "beat a") == [(4, 1, "topics changed: u")]
    many = " ".join(f"t{number}=1" for number in range(7))
    names = ",".join(f"t{number}" for number in range(7))
    told.after(f"join b topics={names}")
    assert told.after(f"topics t=4 {many}", "beat a") == [
        (6, 2, "topics changed: t0, t1, t2, t3, t4 and 2 more")
    ]


def test_a_pattern_that_stands_for_topics(told: Told) -> None:
    found = told.after("topics t=2", "join a regex=t.*", "advance 10", "beat a")
    assert found == [(1, 1, "a joins"), (2, 1, "a pattern stands for other topics")]


def test_members_of_the_classic_protocol_in_a_consumer_group(told: Told) -> None:
    told.after("topics t=2", "join a topics=t")
    ((_, members, reason),) = told.after("cjoin c topics=t", "cjoin c topics=t")
    assert members == 2
    assert reason.endswith(" joins")


def test_an_epoch_that_could_not_be_written_is_not_told(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    assert told.after("topics t=2", "join a topics=t") == [(2, 1, "a joins")]
    with monkeypatch.context() as patch:
        patch.setattr(told.stage.groups.runtime, "write", fail)
        assert told.after("join b topics=t", "leave a") == []
    assert told.after("join b topics=t") == [(3, 2, "b joins")]
