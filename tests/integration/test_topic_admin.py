"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords and Metadata, corner by corner."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from tests.support.eventually import eventually
from tests.support.raw_admin import delete_before
from tests.support.raw_batch import batch
from tests.support.raw_client import (
    EARLIEST,
    LATEST,
    RawClient,
    create_topic,
    fetch,
    list_offset,
    metadata,
    produce,
    topic_id,
    topic_metadata,
    wait_for_leaders,
)

UNKNOWN_SERVER_ERROR = -1
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC_EXCEPTION = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
INVALID_REQUEST = 42
UNKNOWN_TOPIC_ID = 100

CREATABLE = CreateTopicsRequest.CreatableTopic


def creation(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    assignments: Sequence[tuple[int, list[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> Any:
    return CREATABLE(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CREATABLE.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
        configs=[CREATABLE.CreatableTopicConfig(name=k, value=v) for k, v in configs],
    )


def create(client: RawClient, *topics: Any, validate_only: bool = False, version: int = 5) -> Any:
    request = CreateTopicsRequest(
        version=version, topics=list(topics), timeout_ms=20_000, validate_only=validate_only
    )
    return client.call(request).topics


def error_of_creation(client: RawClient, *arguments: Any, **options: Any) -> int:
    (row,) = create(client, creation(*arguments, **options), validate_only=True)
    assert (row.error_code == 0) == (row.error_message is None)
    return int(row.error_code)


class TestCreateTopics:
    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("", INVALID_TOPIC_EXCEPTION),
            (".", INVALID_TOPIC_EXCEPTION),
            ("..", INVALID_TOPIC_EXCEPTION),
            ("a b", INVALID_TOPIC_EXCEPTION),
            ("a/b", INVALID_TOPIC_EXCEPTION),
            ("ñ", INVALID_TOPIC_EXCEPTION),
            ("x" * 250, INVALID_TOPIC_EXCEPTION),
            ("x" * 249, 0),
            ("A.b_c-9", 0),
            ("...", 0),
        ],
        ids=lambda value: str(value)[:12] or "empty",
    )
    def test_topic_names_are_validated(self, client: RawClient, name: str, code: int) -> None:
        assert error_of_creation(client, name) == code

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            ((0, 1), INVALID_PARTITIONS),
            ((-2, 1), INVALID_PARTITIONS),
            ((-1, 1), 0),
            ((1, 0), INVALID_REPLICATION_FACTOR),
            ((1, 2), INVALID_REPLICATION_FACTOR),
            ((1, -1), 0),
        ],
    )
    def test_counts_are_validated(
        self, client: RawClient, topic_name: str, arguments: tuple[int, int], code: int
    ) -> None:
        assert error_of_creation(client, topic_name, *arguments) == code

    @pytest.mark.parametrize(
        ("assignments", "code"),
        [
            ([(0, [0])], 0),
            ([(0, [0]), (1, [0])], 0),
            ([(0, [9])], INVALID_REPLICA_ASSIGNMENT),
            ([(1, [0])], INVALID_REPLICA_ASSIGNMENT),
            ([(0, [0, 0])], INVALID_REPLICA_ASSIGNMENT),
            ([(0, [])], INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    def test_manual_assignments_are_validated(
        self, client: RawClient, topic_name: str, assignments: Any, code: int
    ) -> None:
        found = error_of_creation(client, topic_name, -1, -1, assignments=assignments)
        assert found == code

    def test_a_count_together_with_an_assignment_is_invalid(
        self, client: RawClient, topic_name: str
    ) -> None:
        found = error_of_creation(client, topic_name, 1, 1, assignments=[(0, [0])])
        assert found == INVALID_REQUEST

    @pytest.mark.parametrize(
        ("key", "value", "code"),
        [
            ("no.such.key", "1", INVALID_CONFIG),
            ("retention.ms", "abc", INVALID_CONFIG),
            ("retention.ms", None, INVALID_CONFIG),
            ("retention.ms", "", INVALID_CONFIG),
            ("retention.ms", " 5000 ", 0),
            ("cleanup.policy", "shrink", INVALID_CONFIG),
            ("cleanup.policy", "", 0),
            ("cleanup.policy", "compact,delete", 0),
            ("segment.bytes", "13", INVALID_CONFIG),
            ("segment.bytes", "14", 0),
            ("compression.type", "brotli", INVALID_CONFIG),
            ("message.timestamp.type", "LogAppendTime", 0),
        ],
    )
    def test_configs_are_validated(
        self, client: RawClient, topic_name: str, key: str, value: str | None, code: int
    ) -> None:
        assert error_of_creation(client, topic_name, configs=[(key, value)]) == code

    def test_the_answer_shows_counts_and_every_config(
        self, client: RawClient, topic_name: str
    ) -> None:
        (row,) = create(client, creation(topic_name, 3, 1, configs=[("retention.ms", "5000")]))
        assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 3, 1)
        configs = {c.name: (c.value, c.config_source) for c in row.configs}
        assert configs["retention.ms"] == ("5000", 1)
        assert configs["segment.bytes"] == ("1073741824", 5)
        assert len(configs) >= 30

    def test_validate_only_creates_nothing(self, client: RawClient, topic_name: str) -> None:
        assert error_of_creation(client, topic_name) == 0
        assert topic_metadata(client, topic_name).error_code == UNKNOWN_TOPIC_OR_PARTITION

    def test_a_topic_that_exists_is_refused(self, client: RawClient, topic: str) -> None:
        assert error_of_creation(client, topic) == TOPIC_ALREADY_EXISTS

    def test_names_that_differ_by_dot_and_underscore_clash(
        self, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, f"a.b.{topic_name}")
        assert error_of_creation(client, f"a_b.{topic_name}") == INVALID_TOPIC_EXCEPTION

    def test_a_name_twice_in_one_request_is_refused(
        self, client: RawClient, topic_name: str
    ) -> None:
        rows = create(client, creation(topic_name), creation(topic_name))
        assert [(r.name, r.error_code) for r in rows] == [(topic_name, INVALID_REQUEST)]

    def test_a_bad_topic_does_not_spoil_its_neighbours(
        self, client: RawClient, topic_name: str
    ) -> None:
        rows = create(client, creation("bad name"), creation(topic_name))
        codes = {row.name: row.error_code for row in rows}
        assert codes == {"bad name": INVALID_TOPIC_EXCEPTION, topic_name: 0}
        wait_for_leaders(client, topic_name, 1)


class TestDeleteTopics:
    STATE = DeleteTopicsRequest.DeleteTopicState

    def delete(self, client: RawClient, *states: Any) -> list[Any]:
        request = DeleteTopicsRequest(version=6, topics=list(states), timeout_ms=20_000)
        return list(client.call(request).responses)

    def test_a_deleted_topic_is_gone(self, client: RawClient, topic: str) -> None:
        produce(client, topic, batch(b"a"))
        (row,) = self.delete(client, self.STATE(name=topic))
        assert (row.name, row.error_code) == (topic, 0)
        eventually(lambda: topic_metadata(client, topic).error_code == UNKNOWN_TOPIC_OR_PARTITION)
        eventually(
            lambda: produce(client, topic, batch(b"b")).error_code == UNKNOWN_TOPIC_OR_PARTITION
        )

    def test_a_topic_made_again_is_empty_and_has_a_new_id(
        self, client: RawClient, topic: str
    ) -> None:
        produce(client, topic, batch(b"a"))
        old_id = topic_id(client, topic)
        self.delete(client, self.STATE(name=topic))
        eventually(lambda: topic_metadata(client, topic).error_code == UNKNOWN_TOPIC_OR_PARTITION)
        create_topic(client, topic)
        assert topic_id(client, topic) != old_id
        assert list_offset(client, topic, LATEST).offset == 0

    def test_topics_are_deleted_by_id(self, client: RawClient, topic: str) -> None:
        unknown = uuid.uuid4()
        rows = self.delete(
            client,
            self.STATE(name=None, topic_id=topic_id(client, topic)),
            self.STATE(name=None, topic_id=unknown),
        )
        codes = {row.name: (row.topic_id, row.error_code) for row in rows}
        assert codes[topic][1] == 0
        assert codes[None] == (unknown, UNKNOWN_TOPIC_ID)

    def test_unknown_doubled_and_ambiguous_topics_are_refused(
        self, client: RawClient, topic: str
    ) -> None:
        (unknown,) = self.delete(client, self.STATE(name="no-such-topic"))
        assert unknown.error_code == UNKNOWN_TOPIC_OR_PARTITION
        (doubled,) = self.delete(client, self.STATE(name=topic), self.STATE(name=topic))
        assert doubled.error_code == INVALID_REQUEST
        (both,) = self.delete(client, self.STATE(name=topic, topic_id=uuid.uuid4()))
        assert both.error_code == INVALID_REQUEST
        assert topic_metadata(client, topic).error_code == 0


class TestCreatePartitions:
    TOPIC = CreatePartitionsRequest.CreatePartitionsTopic

    def grow(
        self,
        client: RawClient,
        topic: str,
        count: int,
        assignments: list[list[int]] | None = None,
        validate_only: bool = False,
    ) -> int:
        rows = assignments and [
            self.TOPIC.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments
        ]
        request = CreatePartitionsRequest(
            version=1,
            topics=[self.TOPIC(name=topic, count=count, assignments=rows)],
            timeout_ms=20_000,
            validate_only=validate_only,
        )
        return int(client.call(request).results[0].error_code)

    def test_new_partitions_are_led_and_writable(self, client: RawClient, topic: str) -> None:
        produce(client, topic, batch(b"a"))
        assert self.grow(client, topic, 3) == 0
        wait_for_leaders(client, topic, 3)
        assert produce(client, topic, batch(b"b"), partition=2).base_offset == 0
        assert produce(client, topic, batch(b"c"), partition=0).base_offset == 1

    @pytest.mark.parametrize(
        ("count", "assignments", "code"),
        [
            (1, None, INVALID_PARTITIONS),
            (0, None, INVALID_PARTITIONS),
            (2, [[9]], INVALID_REPLICA_ASSIGNMENT),
            (3, [[0]], INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    def test_bad_counts_and_assignments_are_refused(
        self, client: RawClient, topic: str, count: int, assignments: Any, code: int
    ) -> None:
        assert self.grow(client, topic, count, assignments) == code
        assert len(topic_metadata(client, topic).partitions) == 1

    def test_unknown_topics_and_validation(self, client: RawClient, topic: str) -> None:
        assert self.grow(client, "no-such-topic", 3) == UNKNOWN_TOPIC_OR_PARTITION
        assert self.grow(client, topic, 3, validate_only=True) == 0
        assert len(topic_metadata(client, topic).partitions) == 1


class TestDeleteRecords:
    def test_records_before_an_offset_cannot_be_read_any_more(
        self, client: RawClient, topic: str
    ) -> None:
        for _ in range(3):
            produce(client, topic, batch(b"a", b"b"))
        assert delete_before(client, topic, 3) == (0, 3)
        assert list_offset(client, topic, EARLIEST).offset == 3
        assert fetch(client, topic, 2).error_code == OFFSET_OUT_OF_RANGE
        row = fetch(client, topic, 3)
        assert (row.error_code, row.log_start_offset) == (0, 3)

    def test_the_start_never_moves_back_and_minus_1_is_the_high_watermark(
        self, client: RawClient, topic: str
    ) -> None:
        produce(client, topic, batch(b"a", b"b", b"c"))
        assert delete_before(client, topic, 2) == (0, 2)
        assert delete_before(client, topic, 1) == (0, 2)
        assert delete_before(client, topic, -1) == (0, 3)
        assert produce(client, topic, batch(b"d")).base_offset == 3

    def test_bad_offsets_and_unknown_partitions_are_refused(
        self, client: RawClient, topic: str
    ) -> None:
        produce(client, topic, batch(b"a"))
        assert delete_before(client, topic, 9) == (OFFSET_OUT_OF_RANGE, -1)
        assert delete_before(client, topic, -2) == (OFFSET_OUT_OF_RANGE, -1)
        assert delete_before(client, topic, 0, 7) == (UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert delete_before(client, "no-such", 0) == (UNKNOWN_TOPIC_OR_PARTITION, -1)
        unknown = delete_before(client, "__consumer_offsets", 0, 9999)
        assert unknown == (UNKNOWN_TOPIC_OR_PARTITION, -1)

    def test_of_a_partition_named_twice_the_last_offset_counts(
        self, client: RawClient, topic: str
    ) -> None:
        produce(client, topic, batch(*[b"a"] * 9))
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        rows = [kind.DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (5, 3)]
        topics = [kind(name=topic, partitions=rows), kind(name=topic, partitions=[])]
        request = DeleteRecordsRequest(version=1, topics=topics, timeout_ms=20_000)
        (answer,) = client.call(request).topics
        assert [(row.error_code, row.low_watermark) for row in answer.partitions] == [(0, 3)]
        nothing = DeleteRecordsRequest(version=1, topics=topics[1:], timeout_ms=20_000)
        assert client.call(nothing).topics == []


class TestMetadata:
    def test_metadata_names_leader_replicas_and_isr(
        self, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, topic_name, partitions=4)
        response = metadata(client, [topic_name])
        (node,) = response.brokers
        partitions = {p.partition_index: p for p in response.topics[0].partitions}
        assert set(partitions) == {0, 1, 2, 3}
        for partition in partitions.values():
            assert partition.leader_id == node.node_id
            assert partition.replica_nodes == partition.isr_nodes == [node.node_id]
            assert (partition.leader_epoch, partition.offline_replicas) == (0, [])
        assert response.controller_id == node.node_id
        assert response.cluster_id

    def test_null_topics_means_all_and_an_empty_list_none(
        self, client: RawClient, topic: str
    ) -> None:
        assert topic in {row.name for row in metadata(client, None).topics}
        assert metadata(client, []).topics == []

    def test_an_unknown_topic_without_auto_creation(self, client: RawClient) -> None:
        (row,) = metadata(client, ["no-such-topic"]).topics
        assert (row.error_code, row.partitions) == (UNKNOWN_TOPIC_OR_PARTITION, [])

    def test_a_bad_topic_name_is_invalid(self, client: RawClient) -> None:
        (row,) = metadata(client, ["bad name"], auto_create=True).topics
        assert row.error_code == INVALID_TOPIC_EXCEPTION

    def test_asking_for_a_missing_topic_creates_it(
        self, client: RawClient, topic_name: str
    ) -> None:
        metadata(client, [topic_name], auto_create=True)
        wait_for_leaders(client, topic_name, 1)
        assert produce(client, topic_name, batch(b"a")).error_code == 0

    def test_topics_are_found_by_id_from_v12_on(self, client: RawClient, topic: str) -> None:
        kind = MetadataRequest.MetadataRequestTopic
        identity, unknown = topic_id(client, topic), uuid.uuid4()

        def ask(version: int, **names: Any) -> Any:
            request = MetadataRequest(
                version=version,
                topics=[kind(**{"name": None, **names})],
                allow_auto_topic_creation=False,
            )
            return client.call(request).topics[0]

        found = ask(12, topic_id=identity)
        assert (found.error_code, found.name, len(found.partitions)) == (0, topic, 1)
        missing = ask(12, topic_id=unknown)
        assert (missing.error_code, missing.topic_id) == (UNKNOWN_TOPIC_ID, unknown)
        assert ask(12, topic_id=unknown, name=topic).error_code == UNKNOWN_TOPIC_ID, "the id counts"
        early = ask(10, topic_id=identity)
        assert (early.error_code, early.name, early.partitions) == (INVALID_REQUEST, "", [])
        assert ask(11, topic_id=unknown).error_code == INVALID_REQUEST

    def test_names_do_not_count_beside_ids(self, client: RawClient, topic: str) -> None:
        kind = MetadataRequest.MetadataRequestTopic

        def ask(*topics: Any) -> Any:
            return client.call(
                MetadataRequest(version=12, topics=topics, allow_auto_topic_creation=False)
            )

        by_id = kind(name=None, topic_id=topic_id(client, topic))
        for name in (topic, "no-such", None):
            answer = ask(kind(name=name), by_id)
            assert [(row.error_code, row.name) for row in answer.topics] == [(0, topic)]
        neither = ask(kind(name=None), kind(name=topic))
        assert [row.error_code for row in neither.topics] == [UNKNOWN_SERVER_ERROR] * 2
        assert neither.brokers == []

    def test_unknown_topics_carry_authorised_operations(self, client: RawClient) -> None:
        kind = DescribeTopicPartitionsRequest
        topics = [kind.TopicRequest(name="no-such")]
        (described,) = client.call(
            kind(version=0, topics=topics, response_partition_limit=9, cursor=None)
        ).topics
        (row,) = client.call(
            MetadataRequest(
                version=10,
                topics=[MetadataRequest.MetadataRequestTopic(name="no-such")],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=True,
            )
        ).topics
        assert row.error_code == described.error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert described.topic_authorized_operations > 0
        assert row.authorized_operations, "kafka-python reads the bits as a set"

    def test_describe_topic_partitions_has_at_least_one_partition_a_page(
        self, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, topic_name, partitions=2)
        kind = DescribeTopicPartitionsRequest

        def ask(limit: int, cursor: Any = None) -> Any:
            topics = [kind.TopicRequest(name=topic_name)]
            return client.call(
                kind(version=0, topics=topics, response_partition_limit=limit, cursor=cursor)
            )

        for limit in (0, -1):
            page = ask(limit)
            assert [row.partition_index for row in page.topics[0].partitions] == [0]
            assert page.next_cursor.partition_index == 1
        for cursor in (("elsewhere", 0), (topic_name, -1)):
            named = kind.Cursor(topic_name=cursor[0], partition_index=cursor[1])
            assert [row.error_code for row in ask(9, named).topics] == [INVALID_REQUEST]

    def test_describe_topic_partitions_pages_through_a_topic(
        self, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, topic_name, partitions=5)
        kind = DescribeTopicPartitionsRequest
        first = client.call(
            kind(
                version=0,
                topics=[kind.TopicRequest(name=topic_name)],
                response_partition_limit=3,
                cursor=None,
            )
        )
        assert [p.partition_index for p in first.topics[0].partitions] == [0, 1, 2]
        for row in first.topics[0].partitions:
            assert (row.eligible_leader_replicas, row.last_known_elr) == ([], []), "never null"
        assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == (topic_name, 3)
        second = client.call(
            kind(
                version=0,
                topics=[kind.TopicRequest(name=topic_name)],
                response_partition_limit=3,
                cursor=kind.Cursor(topic_name=topic_name, partition_index=3),
            )
        )
        assert [p.partition_index for p in second.topics[0].partitions] == [3, 4]
        assert second.next_cursor is None

    def test_log_dirs_show_the_size_of_each_partition(self, client: RawClient, topic: str) -> None:
        produce(client, topic, batch(b"x" * 10_000))
        kind = DescribeLogDirsRequest
        response = client.call(
            kind(version=4, topics=[kind.DescribableLogDirTopic(topic=topic, partitions=[0])])
        )
        rows = [
            partition
            for result in response.results
            for row in result.topics
            for partition in row.partitions
        ]
        assert [(row.partition_index, row.offset_lag, row.is_future_key) for row in rows] == [
            (0, 0, False)
        ]
        assert rows[0].partition_size > 10_000
        assert all(result.total_bytes >= result.usable_bytes > 0 for result in response.results)
