"""What a member is told is in the log first; what cannot be written has not happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.consumer_scenario import GROUP, ConsumerScenario, show
from tidelog.coordinator.group.classic.classic_group import ClassicGroup
from tidelog.errors import ErrorCode, KafkaError

HEAD = "with group.consumer.session.timeout.ms=6000 group.consumer.min.session.timeout.ms=6000\n\n"


def flushing(directory: Path) -> ConsumerScenario:
    life = ConsumerScenario(directory, HEAD, flush_messages=1)
    life.do("topics t=2")
    return life


def test_an_answer_waits_for_the_flush_that_flush_messages_demands(tmp_path: Path) -> None:
    life = flushing(tmp_path)
    life.do("join a topics=t")
    assert life.said == [], "answered before it was safe"
    life.stage.flusher.end()
    assert life.said == ["a epoch=2 owns t-0,t-1"]
    life.do("beat a")
    assert life.stage.flusher.waiting == [], "nothing new, nothing to flush"


def test_a_classic_members_answer_waits_too(tmp_path: Path) -> None:
    life = flushing(tmp_path)
    life.do("join a topics=t")
    life.stage.flusher.end()
    life.do("cjoin c topics=t version=3")
    assert len(life.said) == 1
    life.stage.flusher.end()
    assert life.said[1:] == ["c joined generation=3"]


def test_a_flush_that_fails_is_an_error_and_ends_the_partition(tmp_path: Path) -> None:
    life = flushing(tmp_path)
    life.do("join a topics=t")
    life.stage.flusher.end(OSError("no"))
    life.do("join a topics=t")
    assert life.said == ["a NOT_COORDINATOR", "a NOT_COORDINATOR"]
    assert life.stage.clock.pending_timers() == 0


def refuse_writes(life: ConsumerScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    monkeypatch.setattr(life.stage.groups.runtime, "write", refuse)


@pytest.mark.parametrize(
    "command", ["join b topics=t", "leave a", "full a topics=u", "cjoin c topics=t version=3"]
)
def test_what_cannot_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    life = ConsumerScenario(tmp_path, HEAD)
    life.do("topics t=2 u=1")
    life.do("join a topics=t")
    before = list(show(life, life.stage))
    refuse_writes(life, monkeypatch)
    life.do(command)
    assert life.said[-1].endswith("COORDINATOR_NOT_AVAILABLE")
    assert list(show(life, life.stage)) == before


def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = ConsumerScenario(tmp_path, "with group.initial.rebalance.delay.ms=0\n\n")
    life.do("topics t=2")
    for command in ("cjoin c version=3", "advance 0", "csync c"):
        life.do(command)
    with monkeypatch.context() as patched:
        refuse_writes(life, patched)
        life.do("join a topics=t")
    assert isinstance(life.stage.groups.group_or_none(GROUP), ClassicGroup)
    life.do("cbeat c")
    assert life.said[-2:] == ["a COORDINATOR_NOT_AVAILABLE", "c beat NONE"]


def test_a_silent_member_that_cannot_be_removed_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = ConsumerScenario(tmp_path, HEAD)
    life.do("topics t=2")
    life.do("join a topics=t")
    with monkeypatch.context() as patched:
        refuse_writes(life, patched)
        life.do("advance 6000")
    life.do("show")
    assert life.said[-2].startswith("Stable")
    life.do("advance 500")
    life.do("show")
    assert life.said[-1].startswith("Empty")


def test_a_broker_that_stops_leaves_no_timers_behind(tmp_path: Path) -> None:
    life = ConsumerScenario(tmp_path, HEAD)
    life.do("topics t=2")
    for command in ("join a topics=t", "join b topics=t", "beat a", "cjoin c version=3"):
        life.do(command)
    assert life.stage.clock.pending_timers() > 2
    life.stage.groups.runtime.resign_all()
    assert life.stage.clock.pending_timers() == 0


def test_a_silent_member_goes_in_the_end_whatever_its_removal_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = ConsumerScenario(tmp_path, HEAD)
    life.do("topics t=2")
    life.do("join a topics=t")

    def fail(*args: object, **kwargs: object) -> None:
        raise LookupError("nobody expected this")

    with monkeypatch.context() as patch:
        patch.setattr(life.stage.groups.runtime, "write", fail)
        with pytest.raises(LookupError):
            life.stage.clock.advance(ms=6_000)
    group = life.stage.consumer_or_none(GROUP)
    assert group is not None
    assert group.members
    life.stage.clock.advance(ms=1_000)
    assert not group.members
