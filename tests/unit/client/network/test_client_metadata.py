"""What a client knows of a cluster after answers that may be late or wrong."""

from __future__ import annotations

from tidelog.client.network.metadata import LeaderAndEpoch, Metadata, Node
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.types import TopicPartition, Uuid

T0 = TopicPartition("t", 0)
ID = Uuid(b"a" * 16)
OTHER_ID = Uuid(b"b" * 16)


def answer(
    leader_id: int = 1, epoch: int = 5, topic_id: Uuid = ID, error: int = 0, name: str = "t"
) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(partition_index=0, leader_id=leader_id, leader_epoch=epoch)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="h", port=9, rack="r")],
        controller_id=1,
        cluster_id="c",
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=topic_id,
                error_code=error,
                partitions=[] if error else partitions,
            )
        ],
    )


def test_an_answer_tells_of_brokers_topics_and_leaders() -> None:
    metadata = Metadata()
    metadata.merge(answer())
    assert metadata.brokers == {1: Node(1, "h", 9, "r")}
    assert (metadata.cluster_id, metadata.controller_id) == ("c", 1)
    assert metadata.leader_or_none(T0) == LeaderAndEpoch(1, 5)
    assert metadata.name_or_none(ID) == "t"
    assert metadata.topic_id("t") == ID


def test_a_late_answer_does_not_bring_an_old_leader_back() -> None:
    metadata = Metadata()
    metadata.merge(answer(leader_id=2, epoch=7))
    metadata.merge(answer(leader_id=1, epoch=6))
    assert metadata.leader_or_none(T0) == LeaderAndEpoch(2, 7)
    metadata.merge(answer(leader_id=3, epoch=7))
    assert metadata.leader_or_none(T0) == LeaderAndEpoch(3, 7)


def test_a_topic_made_anew_begins_with_its_own_epochs() -> None:
    metadata = Metadata()
    metadata.merge(answer(leader_id=2, epoch=7))
    metadata.merge(answer(leader_id=1, epoch=0, topic_id=OTHER_ID))
    assert metadata.leader_or_none(T0) == LeaderAndEpoch(1, 0)
    assert metadata.name_or_none(ID) is None


def test_brokers_without_epochs_are_believed() -> None:
    metadata = Metadata()
    metadata.merge(answer(leader_id=2, epoch=-1))
    metadata.merge(answer(leader_id=1, epoch=-1))
    assert metadata.leader_or_none(T0) == LeaderAndEpoch(1, -1)


def test_a_topic_that_is_gone_is_known_to_be_gone() -> None:
    metadata = Metadata()
    metadata.merge(answer())
    metadata.merge(answer(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert metadata.topic_or_none("t") is None
    assert metadata.topics["t"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata.leader_or_none(T0) is None


def test_an_answer_on_all_topics_drops_those_it_leaves_out() -> None:
    metadata = Metadata()
    metadata.merge(answer())
    metadata.merge(answer(name="u", topic_id=OTHER_ID), is_of_all_topics=True)
    assert set(metadata.topics) == {"u"}


def test_a_leader_named_by_another_answer_counts_if_it_is_newer() -> None:
    metadata = Metadata()
    metadata.merge(answer(leader_id=1, epoch=5))
    assert not metadata.learn_leader(T0, LeaderAndEpoch(2, 5))
    assert metadata.learn_leader(T0, LeaderAndEpoch(2, 6))
    metadata.learn_nodes([Node(2, "other", 10)])
    assert metadata.leader_or_none(T0) == LeaderAndEpoch(2, 6)
    assert metadata.brokers[2].host == "other"


def test_listeners_hear_of_every_change() -> None:
    metadata = Metadata()
    heard: list[int] = []
    metadata.add_listener(lambda told: heard.append(len(told.topics)))
    metadata.merge(answer())
    metadata.learn_leader(T0, LeaderAndEpoch(2, 6))
    assert heard == [1, 1]
