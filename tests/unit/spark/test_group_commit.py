from __future__ import annotations

from typing import Any

import pytest

from tidelog.client.errors import ClientError, CommitRefused, RequestTimedOut, UnsupportedByBroker
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

    def commit(self, cluster: object, group_id: str, offsets: PartitionOffsets) -> None:
        if self.problem is not None:
            raise self.problem
        self.commits.append(offsets)


def committer(group: Group) -> GroupCommitter:
    cluster: Any = None
    return GroupCommitter(cluster, "lag", group.commit)


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


def test_a_coordinator_that_is_away_is_committed_to_later() -> None:
    group = Group()
    made = committer(group)
    group.problem = RequestTimedOut("away")
    made.commit({T0: 1})
    group.problem = None
    made.commit({T0: 1})
    assert group.commits == [{T0: 1}]
