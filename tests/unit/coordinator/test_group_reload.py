"""What records make is the same whether they were replayed live or read back (decide, replay)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.support.group_scenario import GROUP, GroupScenario, show
from tests.support.group_stage import GroupStage
from tests.support.new_offsets import new_offset
from tidelog.coordinator.group.classic.classic_group import ClassicGroupState

STEPS = 300
NAMES = ("a", "b", "c", "d")
HEAD = "with group.initial.rebalance.delay.ms=0 offsets.retention.minutes=1\n\n"


class RandomLife(GroupScenario):
    """A group to which anything may happen, in any order."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, HEAD)
        self._random = Random(seed)

    def step(self) -> None:
        if self._random.random() < 0.1:
            self._settle()
        else:
            self._anything()

    def _settle(self) -> None:
        """Everybody does what is asked: the group becomes stable, if it can."""
        for verb in ("join", "join", "sync"):
            for name in NAMES:
                instance = f" instance=i{name}" if name in "cd" else ""
                options = "a=p1 b=p2 c=p3 d=p4" if verb == "sync" else instance
                self._run(f"{verb} {name} {options}")
            self._run("advance 0")

    def _anything(self) -> None:
        name = self._random.choice(NAMES)
        instance = f" instance=i{name}" if name in "cd" else ""
        assignments = " ".join(f"{each}=p{self._random.randrange(99)}" for each in NAMES)
        places = " ".join(
            f"{topic}-{self._random.randrange(3)}={self._random.randrange(99)}" for topic in "tu"
        )
        command = self._random.choice(
            (
                f"join {name}{instance}",
                f"join {name}{instance} topics=t,u",
                f"join {name}{instance} protocols=sticky,range",
                f"sync {name} {assignments}",
                f"sync {name} {assignments}",
                f"beat {name}",
                f"leave {name}",
                f"reborn {name}",
                f"commit {name} {places}",
                f"commit - {places}",
                "advance 500",
                "advance 5000",
                "expire",
                "delete-offsets t-0 u-1",
                "delete-topic u",
                "delete-group",
            )
        )
        self._run(command)


def settled(stage: GroupStage) -> list[str]:
    """The group as the log has it: without a rebalance under way."""
    group = stage.classic_or_none(GROUP)
    lines = list(show(stage, GROUP))
    if group is not None and group.state in (ClassicGroupState.STABLE, ClassicGroupState.EMPTY):
        timeouts = [
            f"{member.member_id} {member.session_timeout_ms} {member.rebalance_timeout_ms}"
            for member in group.members.values()
        ]
        return [*lines, *timeouts, f"subscribed {sorted(group.subscribed_topics or ())}"]
    return lines


@pytest.mark.parametrize("seed", range(6))
def test_any_life_is_the_same_after_a_restart(tmp_path: Path, seed: int) -> None:
    life = RandomLife(tmp_path, seed)
    stable = 0
    for number in range(STEPS):
        life.step()
        group = life.stage.classic_or_none(GROUP)
        before, after = settled(life.stage), settled(GroupStage.reading(life.stage))
        if group is not None and (
            group.state not in (ClassicGroupState.STABLE, ClassicGroupState.EMPTY)
            or group.generation_id == 0
        ):
            # A rebalance under way, and a group that never had a generation, are not in the log.
            before, after = offsets_only(before), offsets_only(after)
        elif group is not None and group.state is ClassicGroupState.STABLE:
            stable += 1
        assert after == before, f"step {number}"
    assert stable > 3


def offsets_only(lines: list[str]) -> list[str]:
    return [line for line in lines if " at " in line]


def test_a_group_of_which_the_log_knows_nothing_is_not_there_after_a_restart(
    tmp_path: Path,
) -> None:
    life = RandomLife(tmp_path, 0)
    life._run("join a")
    assert life.stage.groups.group_or_none(GROUP) is not None
    life.stage.restart()
    assert life.stage.groups.group_or_none(GROUP) is None


def test_a_thousand_groups_of_ten_partitions_load_in_time(tmp_path: Path) -> None:
    from time import thread_time

    stage = GroupStage(tmp_path)
    for number in range(1000):
        offsets = [new_offset("topic", index, number, 0, "", 1) for index in range(10)]
        stage.groups.commit_offsets(
            f"group-{number}",
            offsets,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            knows_member_epochs=True,
        )
    stage.groups.runtime.resign_all()
    stage.start()
    began = thread_time()
    stage.load()
    assert thread_time() - began < 2.0
    assert len(stage.groups.list_groups()) == 1000
    assert sum(len(stage.groups.offsets_of(f"group-{n}") or ()) for n in range(1000)) == 10_000
