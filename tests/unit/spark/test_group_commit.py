from __future__ import annotations

from typing import Any

import pytest

from tidelog.client.errors import (
    ClientError,
    CommitRefused,
    NotAuthorized,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedByBroker,
)
from tidelog.spark.group_commit import GroupCommitter
from tidelog.spark.offsets import PartitionOffsets
from tidelog.spark.options import InvalidOption
from tidelog.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Group:
    """Takes commits, or fails as told."""

    def __init__(self) -> None:
        self.commits: list[PartitionOffsets] = []
        self.problem: ClientError | None = None

    def commit_offsets(self, group_id: str, offsets: PartitionOffsets) -> None:
        if self.problem is not None:
            raise self.problem
        self.commits.append(offsets)


def committer(group: Group) -> GroupCommitter:
    cluster: Any = group
    return GroupCommitter(cluster, "lag")


def test_only_what_moved_is_committed() -> None:
    group = Group()
    made = committer(group)
    made.commit({T0: 1, T1: 5})
    made.commit({T0: 1, T1: 5})
    made.commit({T0: 2, T1: 5})
    assert group.commits == [{T0: 1, T1: 5}, {T0: 2}]


@pytest.mark.parametrize("problem", [UnsupportedByBroker("no groups"), CommitRefused("members")])
def test_a_group_that_cannot_be_committed_to_fails_the_query(problem: ClientError) -> None:
    group = Group()
    group.problem = problem
    with pytest.raises(InvalidOption, match="option commitGroupId: " + problem.message):
        committer(group).commit({T0: 1})


def test_a_group_that_may_not_be_committed_to_is_told_as_such() -> None:
    group = Group()
    group.problem = NotAuthorized("no right", 30)
    with pytest.raises(NotAuthorized, match="no right"):
        committer(group).commit({T0: 1})


@pytest.mark.parametrize("problem", [RequestTimedOut("away"), UnknownTopic("topic t", 3)])
def test_what_cannot_be_committed_for_now_is_committed_later(problem: ClientError) -> None:
    group = Group()
    made = committer(group)
    group.problem = problem
    made.commit({T0: 1})
    group.problem = None
    made.commit({T0: 1})
    assert group.commits == [{T0: 1}]
