"""Any life of a consumer group: the log holds it, partitions have one owner, and it settles."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.support.consumer_scenario import GROUP, ConsumerScenario, show
from tests.support.group_stage import GroupStage
from tidelog.coordinator.group.classic.classic_group import ClassicGroup
from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupState

STEPS = 250
HEAD = (
    "with group.initial.rebalance.delay.ms=0 group.min.session.timeout.ms=1000 "
    "group.consumer.session.timeout.ms=6000 group.consumer.min.session.timeout.ms=6000\n\n"
)
CONSUMERS = ("a", "b", "s", "t")
CLASSICS = ("c", "d", "e")


class RandomLife(ConsumerScenario):
    """A group to which anything may happen, in any order: members of both protocols come, go, are
    silent, are slow to give up, change their subscription; so do topics.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, HEAD)
        self._random = Random(seed)
        self.do("topics one=3 two=2")

    def anything(self) -> None:
        pick = self._random.choice
        name, classic = pick(CONSUMERS), pick(CLASSICS)
        instance = f" instance=i{name}" if name in "st" else ""
        topics = pick(("one", "two", "one,two", "two,three"))
        place = pick(("one-0", "one-1", "two-1"))
        command = pick(
            (
                f"join {name}{instance} topics={topics}",
                f"join {name}{instance} regex={pick(('t.*', 'one|two', '.*e'))}",
                f"beat {name}",
                f"beat {name}",
                f"beat {name}",
                f"full {name} topics={topics} assignor={pick(('range', 'uniform'))}",
                f"full {name} regex=",
                f"beat {name} owns=null",
                f"beat {name} epoch={self._random.randrange(6)}",
                f"leave {name}",
                f"leave {name} away",
                f"forget {name}",
                f"cjoin {classic} topics={topics} session=3000 rebalance=2000",
                f"cjoin {classic} topics={topics} session=3000 rebalance=2000",
                f"csync {classic}",
                f"cbeat {classic}",
                f"cjoin {classic} instance=ic topics=one",
                f"cleave {classic}",
                f"forget {classic}",
                f"commit {name} {place}=5",
                f"commit {classic} {place}=6",
                f"commit - {place}=7 epoch=-1",
                "advance 0",
                "advance 500",
                "advance 2500",
                f"topics three={self._random.randrange(1, 3)}",
                f"topics one={max(3, len(self.topics.topics['one'].partitions)) + 1}"
                if len(self.topics.topics["one"].partitions) < 7
                else "advance 1",
                "expire",
                "delete-group",
                "delete-topic three" if "three" in self.topics.topics else "topics three=1",
            )
        )
        self.do(command)

    def settle(self) -> None:
        """Everybody does what is asked for, in turn, until nothing moves any more."""
        self.do("join a topics=one,two")
        for _ in range(12):
            group = self.stage.groups.group_or_none(GROUP)
            assert isinstance(group, ConsumerGroup)
            for member in tuple(group.members.values()):
                client = self._client_of(member.member_id)
                if client is None:
                    continue
                if member.classic is None:
                    self.do(f"beat {client}")
                else:
                    self.do(f"cbeat {client}")
                    self.do(f"cjoin {client} topics=one")
                    self.do(f"csync {client}")
            self.do("advance 200")

    def _client_of(self, member_id: str) -> str | None:
        names = (name for name, each in self.clients.items() if each.member_id == member_id)
        return next(names, None)


def as_logged(life: RandomLife, stage: GroupStage) -> list[str]:
    """Without what a rebalance of a classic group has in memory only."""
    lines = list(show(life, stage))
    group = stage.groups.group_or_none(GROUP)
    if isinstance(group, ClassicGroup):
        return [line for line in lines if " at " in line]
    if isinstance(group, ConsumerGroup):
        lines.append(f"subscribed {sorted(group.subscribed_topics)} {group.subscription_metadata}")
        lines += [repr(member) for member in sorted(group.members.values())]
    return lines


def must_be_sound(group: ConsumerGroup) -> None:
    owned = [
        (topic_id, number)
        for member in group.members.values()
        for held in (member.assigned, member.revoking)
        for topic_id, numbers in held.items()
        for number in numbers
    ]
    assert len(owned) == len(set(owned)), "a partition has two owners"
    assert group.target_epoch <= group.group_epoch
    assert all(member.member_epoch <= group.target_epoch for member in group.members.values())
    targets = [
        (topic_id, number)
        for target in group.target.values()
        for topic_id, numbers in target.items()
        for number in numbers
    ]
    assert len(targets) == len(set(targets)), "a partition has two targets"
    assert set(group.target) <= set(group.members)


@pytest.mark.parametrize("seed", range(8))
def test_any_life_is_sound_and_the_same_after_a_restart(tmp_path: Path, seed: int) -> None:
    life = RandomLife(tmp_path, seed)
    kinds: set[type] = set()
    for number in range(STEPS):
        life.anything()
        group = life.stage.groups.group_or_none(GROUP)
        kinds.add(type(group))
        if isinstance(group, ConsumerGroup):
            must_be_sound(group)
        if number % 5 == 0:
            other = GroupStage.reading(life.stage)
            loaded = other.groups.group_or_none(GROUP)
            if type(loaded) is type(group) or isinstance(group, ConsumerGroup):
                assert as_logged(life, other) == as_logged(life, life.stage), f"step {number}"
    assert {ConsumerGroup, ClassicGroup} <= kinds


@pytest.mark.parametrize("seed", range(8))
def test_any_group_settles_once_its_members_do_as_they_are_told(tmp_path: Path, seed: int) -> None:
    life = RandomLife(tmp_path, 100 + seed)
    for _ in range(60):
        life.anything()
    if isinstance(life.stage.groups.group_or_none(GROUP), ClassicGroup):
        life.do("advance 20000")
    life.do("join a topics=one,two")
    group = life.stage.consumer_or_none(GROUP)
    assert group is not None
    for _ in range(40):  # the silent ones, whom no client speaks for, are removed meanwhile
        life.settle()
        if group.state is ConsumerGroupState.STABLE:
            break
    assert group.state is ConsumerGroupState.STABLE
    assert life.stage.groups.group_or_none(GROUP) is group
    subscribed = {
        (topic.topic_id, number)
        for topic in group.subscription_metadata.values()
        for number in range(topic.partition_count)
    }
    owned = {
        (topic_id, number)
        for member in group.members.values()
        for topic_id, numbers in member.assigned.items()
        for number in numbers
    }
    assert owned == subscribed
