from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.batches import simple_batch
from tests.support.metadata import in_loop
from tests.support.txn_stage import PARTITIONS, TOPIC, Producer, TxnStage, txn_stage
from tidelog.broker.api_table import API_TABLE
from tidelog.broker.handlers import (
    add_partitions_to_txn,
    api_versions,
    describe_producers,
    describe_transactions,
    find_coordinator,
    list_transactions,
    produce,
    write_txn_markers,
)
from tidelog.controller.metadata_store import StoreUnavailable
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

FENCED, OLD_FENCED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


async def open_transaction(stage: TxnStage, value: bytes = b"v") -> Producer:
    producer = await stage.producer()
    assert await producer.add(0) == [0]
    assert await producer.send(value) == 0
    return producer


def test_transactions_have_the_versions_that_kafka_4_3_offers() -> None:
    versions = {int(api.key): api.max_version for api in API_TABLE}
    assert {key: versions[key] for key in (22, 24, 25, 26, 28, 65, 66)} == {
        22: 5,
        24: 5,
        25: 4,
        26: 5,
        28: 5,
        65: 0,
        66: 2,
    }


# InitProducerId


@in_loop
async def test_each_instance_gets_a_newer_epoch_of_the_same_producer_id(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        first, second = await stage.init(), await stage.init()
        assert (first.producer_epoch, second.producer_epoch) == (0, 1)
        assert first.producer_id == second.producer_id != (await stage.init("other")).producer_id


@pytest.mark.parametrize("transactional_id", [None, "x"])
@in_loop
async def test_a_producer_is_told_to_ask_again_while_no_ids_are_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transactional_id: str | None
) -> None:
    async with txn_stage(tmp_path) as stage:
        await stage.init("other")

        async def unreachable(path: str) -> None:
            raise StoreUnavailable(path)

        ids = stage.broker.producer_ids
        monkeypatch.setattr(ids, "_last", -1)
        monkeypatch.setattr(ids, "_store", SimpleNamespace(get=unreachable))
        answer = await stage.init(transactional_id)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeout_must_be_within_bounds(tmp_path: Path, timeout_ms: int) -> None:
    @in_loop
    async def story() -> None:
        async with txn_stage(tmp_path) as stage:
            answer = await stage.init(transaction_timeout_ms=timeout_ms)
            assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)

    story()


@in_loop
async def test_newer_instance_aborts_what_the_older_one_left_open(tmp_path: Path) -> None:
    """Apache Kafka aborts with epoch + 1 and gives epoch + 2, on the same producer id."""
    async with txn_stage(tmp_path) as stage:
        old = await open_transaction(stage)
        new = await stage.producer()
        assert new.identity == (old.producer_id, old.producer_epoch + 2)
        assert stage.committed(0) == []
        assert stage.log(0).last_stable_offset == 2
        assert await old.end(committed=True, version=1) == OLD_FENCED
        assert await old.end(committed=True, version=2) == FENCED
        assert await old.add(1, version=1) == [OLD_FENCED]
        assert await old.add(1, version=2) == [FENCED]
        assert await old.add_offsets(version=1) == OLD_FENCED
        assert await old.send(b"late") == OLD_FENCED
        assert await old.send(b"late", 1) == OLD_FENCED
        assert await old.commit_offset(1) == OLD_FENCED


@in_loop
async def test_producer_that_names_its_epoch_goes_on(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        named: dict[str, Any] = {"producer_id": producer.producer_id, "producer_epoch": 0}
        assert (await stage.init(**named)).producer_epoch == 1
        assert (await stage.init(**named)).producer_epoch == 1  # repeated
        await stage.init()
        assert (await stage.init(**named)).error_code == FENCED
        assert (await stage.init(version=3, **named)).error_code == OLD_FENCED


# Transactions of clients that keep their epoch


@in_loop
async def test_committed_records_are_seen_once_their_marker_is_there(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage, b"a")
        assert stage.committed(0) == []
        assert stage.log(0).last_stable_offset == 0
        assert await producer.end(committed=True) == 0
        assert stage.committed(0) == [b"a"]
        assert stage.state() == "CompleteCommit"
        await producer.add(0)
        await producer.send(b"b")
        assert await producer.end(committed=False) == 0
        assert stage.committed(0) == [b"a"]
        assert stage.state() == "CompleteAbort"


@in_loop
async def test_repeated_end_succeeds_and_the_opposite_is_refused(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        assert await producer.end(committed=True) == ErrorCode.INVALID_TXN_STATE
        await producer.add(0)
        await producer.send(b"a")
        for _ in range(2):
            assert await producer.end(committed=True) == 0
        assert await producer.end(committed=False) == ErrorCode.INVALID_TXN_STATE
        assert stage.log(0).log_end_offset == 2  # one marker


@in_loop
async def test_partition_that_does_not_exist_keeps_the_others_out(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        codes = await producer.add(0, PARTITIONS)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, unknown]
        assert stage.state() == "Empty"


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
@in_loop
async def test_clients_add_no_partitions_of_internal_topics(tmp_path: Path, topic: str) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[0]),
                AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, PARTITIONS]),
            ],
        )
        answer = await stage.ask(add_partitions_to_txn, 3, request)
        codes = [
            row.partition_error_code
            for each in answer.results_by_topic_v3_and_below
            for row in each.results_by_partition
        ]
        assert codes == [
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert stage.state() == "Empty"


@in_loop
async def test_ids_that_are_not_known_are_refused(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        nobody = Producer(stage, "nobody", 5, 0)
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await nobody.add(0) == [unknown]
        assert await nobody.add_offsets() == unknown
        assert await nobody.end(committed=True) == unknown
        assert await nobody.send(b"a") == unknown
        nameless = Producer(stage, "", 5, 0)
        assert await nameless.end(committed=True) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_TXN_STATE), (10, 48), (11, ErrorCode.TRANSACTION_ABORTABLE), (12, 0)],
)
def test_records_for_a_partition_that_was_not_added(
    tmp_path: Path, version: int, code: int
) -> None:
    @in_loop
    async def story() -> None:
        async with txn_stage(tmp_path) as stage:
            producer = await stage.producer()
            assert await producer.send(b"a", 1, version=version) == code
            assert stage.log(1).log_end_offset == (0 if code else 1)
            assert stage.state() == ("Empty" if code else "Ongoing")

    story()


@in_loop
async def test_late_records_do_not_open_a_transaction_that_nobody_ends(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        await producer.end(committed=True)
        assert await producer.send(b"late") == ErrorCode.INVALID_TXN_STATE
        assert stage.log(0).last_stable_offset == stage.log(0).log_end_offset


# Transactions of clients whose epoch grows (KIP-890 part 2)


@in_loop
async def test_each_end_takes_an_epoch_and_partitions_are_added_by_use(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        for number, value in enumerate((b"a", b"b", b"c")):
            assert producer.producer_epoch == number
            assert await producer.send(value, version=12) == 0
            assert await producer.commit_offset(number, version=5) == 0
            assert await producer.end(committed=value != b"b", version=5) == 0
        assert stage.committed(0) == [b"a", b"c"]
        assert await stage.offset() == 2


@in_loop
async def test_late_records_of_an_ended_transaction_are_fenced(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        late = Producer(stage, "x", *producer.identity)
        await producer.send(b"a", version=12)
        await producer.end(committed=True, version=5)
        for index in range(PARTITIONS):
            assert await late.send(b"late", index, version=12) == OLD_FENCED


@in_loop
async def test_end_may_be_repeated_with_the_old_epoch_until_the_next_one(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        await producer.send(b"a", version=12)
        first = await producer.end_answer(committed=True, version=5)
        assert (first.error_code, first.producer_epoch) == (0, 1)
        assert await producer.end_answer(committed=True, version=5) == first
        opposite = await producer.end_answer(committed=False, version=5)
        assert opposite.error_code == ErrorCode.INVALID_TXN_STATE


@in_loop
async def test_abort_of_nothing_takes_an_epoch(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        for epoch in (1, 2):
            assert await producer.end(committed=False, version=5) == 0
            assert producer.producer_epoch == epoch
        assert await producer.end(committed=True, version=5) == ErrorCode.INVALID_TXN_STATE


@in_loop
async def test_used_up_epochs_bring_a_new_producer_id_with_the_end(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        transactions = stage.broker.transactions
        present = transactions.transaction_or_none("x")
        assert present is not None
        shard = transactions.runtime.shard_for("x")
        shard.transactions["x"] = present._replace(producer_epoch=32_766)
        producer.producer_epoch = 32_766
        old = producer.producer_id
        assert await producer.send(b"a", version=12) == 0
        again = Producer(stage, "x", *producer.identity)
        assert await producer.end(committed=True, version=5) == 0
        assert producer.producer_id != old
        assert producer.producer_epoch == 0
        assert await again.end(committed=True, version=5) == 0
        assert again.identity == producer.identity
        assert await producer.send(b"b", version=12) == 0
        assert await producer.end(committed=True, version=5) == 0
        assert stage.committed(0) == [b"a", b"b"]


@in_loop
async def test_clients_are_told_of_transaction_version_2(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        answer = api_versions.handle(stage.stage.context(4), request)
        finalized = answer.finalized_features[0]
        assert (finalized.name, finalized.max_version_level) == ("transaction.version", 2)
        assert "transaction.version" in [each.name for each in answer.supported_features]
        older = api_versions.handle(stage.stage.context(3), request)
        assert not older.supported_features
        answer.encode(4)
        older.encode(3)


# Offsets


@in_loop
async def test_offsets_count_when_their_transaction_is_committed(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        for offset, committed in ((3, True), (8, False)):
            assert await producer.add_offsets() == 0
            assert await producer.commit_offset(offset) == 0
            assert await stage.offset(require_stable=True) == -ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert await producer.end(committed=committed) == 0
            assert await stage.offset(require_stable=True) == 3


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE), (5, 0)],
)
def test_offsets_of_a_group_that_was_not_added(tmp_path: Path, version: int, code: int) -> None:
    @in_loop
    async def story() -> None:
        async with txn_stage(tmp_path) as stage:
            producer = await stage.producer()
            assert await producer.commit_offset(1, version=version) == code

    story()


@pytest.mark.parametrize("version", [0, 3, 4, 5])
@in_loop
async def test_offsets_of_no_group_are_refused_before_the_transaction_is_looked_at(
    tmp_path: Path, version: int
) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        code = await producer.commit_offset(1, group_id="", version=version)
        assert code == ErrorCode.INVALID_GROUP_ID


@in_loop
async def test_offsets_of_a_member_that_is_not_there_are_refused(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        await producer.add_offsets()
        stale = await producer.commit_offset(1, generation_id=4, member_id="gone")
        assert stale == ErrorCode.ILLEGAL_GENERATION
        assert await producer.commit_offset(1) == 0


# The clock


@in_loop
async def test_transaction_past_its_timeout_is_aborted(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        transactions = stage.broker.transactions
        stage.clock.advance(ms=60_000)
        transactions.abort_timed_out()
        assert stage.state() == "Ongoing"
        stage.clock.advance(ms=1)
        transactions.abort_timed_out()
        assert stage.state() == "CompleteAbort"
        assert stage.log(0).last_stable_offset == stage.log(0).log_end_offset
        assert await producer.end(committed=True) == FENCED
        assert await producer.send(b"late") == OLD_FENCED


@in_loop
async def test_ids_at_rest_are_forgotten_in_time(tmp_path: Path) -> None:
    async with txn_stage(tmp_path, transactional_id_expiration_ms="1000") as stage:
        await open_transaction(stage)
        await stage.init("idle")
        stage.clock.advance(ms=1000)
        stage.broker.transactions.remove_expired()
        assert (stage.state("idle"), stage.state()) == ("", "Ongoing")
    async with txn_stage(tmp_path) as stage:
        assert stage.state("idle") == ""


@in_loop
async def test_marker_of_a_deleted_topic_is_not_waited_for(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        await stage.stage.topic("gone")
        producer = await open_transaction(stage)
        assert await producer.add(0, topic="gone") == [0]
        await stage.broker.topics.delete("gone")
        assert await producer.end(committed=True) == 0
        assert stage.state() == "CompleteCommit"


@in_loop
async def test_partition_that_is_offline_gets_its_marker_later(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        await producer.add(1)
        replicas = stage.broker.replicas
        place = stage.stage.partition(TOPIC, 1).topic_partition
        partition = replicas._partitions.pop(place)
        replicas._offline.add(place)
        assert await producer.end(committed=True) == 0
        assert stage.state() == "PrepareCommit"
        assert await producer.add(0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert await producer.end(committed=True) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert (await stage.init()).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        stage.clock.advance(ms=100)
        assert stage.state() == "PrepareCommit"
        replicas._offline.discard(place)
        replicas._partitions[place] = partition
        stage.clock.advance(ms=200)
        assert stage.state() == "CompleteCommit"
        assert stage.committed(0) == [b"v"]


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_clients_do_not_write_to_the_topics_of_the_coordinators(tmp_path: Path, topic: str) -> None:
    @in_loop
    async def story() -> None:
        async with txn_stage(tmp_path) as stage:
            rows = [PartitionProduceData(index=0, records=memoryview(simple_batch(1)))]
            request = ProduceRequest(
                acks=1, topic_data=[TopicProduceData(name=topic, partition_data=rows)]
            )
            answer = await stage.ask(produce, 9, request)
            row = answer.responses[0].partition_responses[0]
            assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert stage.log(0, topic).log_end_offset == 0

    story()


# For brokers and tools


@in_loop
async def test_many_transactions_are_verified_in_one_request(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        row = AddPartitionsToTxnTransaction(
            transactional_id="x",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, 1])],
        )
        request = AddPartitionsToTxnRequest(transactions=[row])
        answer = await stage.ask(add_partitions_to_txn, 5, request)
        results = answer.results_by_transaction[0].topic_results[0].results_by_partition
        codes = [each.partition_error_code for each in results]
        assert codes == [0, ErrorCode.TRANSACTION_ABORTABLE]
        empty = await stage.ask(add_partitions_to_txn, 4, AddPartitionsToTxnRequest())
        assert empty.error_code == ErrorCode.INVALID_REQUEST


@in_loop
async def test_hanging_transaction_is_found_and_ended_by_hand(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=TOPIC, partition_indexes=[0, 9])]
        )
        answer = await stage.ask(describe_producers, 0, request)
        row, missing = answer.topics[0].partitions
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state = row.active_producers[0]
        assert (state.producer_id, state.current_txn_start_offset) == (producer.producer_id, 0)
        codes = [await write_marker(stage, producer, index) for index in (0, 9)]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert stage.log(0).last_stable_offset == 2


async def write_marker(stage: TxnStage, producer: Producer, index: int, **fields: int) -> int:
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[index])],
        **fields,  # type: ignore[arg-type]
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    answer = await stage.ask(write_txn_markers, 2, request)
    return int(answer.markers[0].topics[0].partitions[0].error_code)


@in_loop
async def test_late_marker_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        await producer.send(b"a", version=12)
        await producer.end(committed=True, version=5)
        await producer.send(b"b", version=12)
        assert await write_marker(stage, producer, 0, transaction_version=2) == OLD_FENCED
        assert stage.log(0).last_stable_offset == 2


@in_loop
async def test_what_is_named_twice_is_described_once(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        request = DescribeTransactionsRequest(transactional_ids=["x", "y", "x"])
        answer = await stage.ask(describe_transactions, 0, request)
        assert [row.transactional_id for row in answer.transaction_states] == ["x", "y"]
        named = [TopicRequest(name=TOPIC, partition_indexes=[each, 0]) for each in (0, 1)]
        answer = await stage.ask(describe_producers, 0, DescribeProducersRequest(topics=named))
        (topic,) = answer.topics
        assert [row.partition_index for row in topic.partitions] == [0, 1]


@in_loop
async def test_transactions_are_listed_and_described(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        await stage.init("idle")
        request = DescribeTransactionsRequest(transactional_ids=["x", "nobody"])
        answer = await stage.ask(describe_transactions, 0, request)
        row, missing = answer.transaction_states
        assert (row.transaction_state, row.producer_id) == ("Ongoing", producer.producer_id)
        assert [(each.topic, each.partitions) for each in row.topics] == [(TOPIC, [0])]
        assert (missing.error_code, missing.producer_id) == (105, 0)
        stage.clock.advance(ms=10)

        async def listed(**filters: object) -> list[str]:
            found = await stage.ask(list_transactions, 1, ListTransactionsRequest(**filters))  # type: ignore[arg-type]
            return [each.transactional_id for each in found.transaction_states]

        assert sorted(await listed()) == ["idle", "x"]
        assert await listed(state_filters=["Ongoing"]) == ["x"]
        assert await listed(producer_id_filters=[producer.producer_id]) == ["x"]
        assert "x" not in await listed(duration_filter=10)
        assert await listed(state_filters=["Odd"]) == []
        odd = ListTransactionsRequest(state_filters=["Odd"])
        assert (await stage.ask(list_transactions, 1, odd)).unknown_state_filters == ["Odd"]


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [
        (None, ["idle", "x", "é 1"]),
        ("", ["idle", "x", "é 1"]),
        ("i", []),
        ("i.*|x", ["idle", "x"]),
        (r"\pL \d", ["é 1"]),
        ("(a+)+b", []),
    ],
)
@in_loop
async def test_transactions_are_listed_by_a_pattern_of_the_whole_id(
    tmp_path: Path, pattern: str | None, ids: list[str]
) -> None:
    async with txn_stage(tmp_path) as stage:
        for transactional_id in ("x", "idle", "é 1"):
            await stage.init(transactional_id)
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        answer = await stage.ask(list_transactions, 2, request)
        assert sorted(each.transactional_id for each in answer.transaction_states) == ids


@in_loop
async def test_a_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        request = ListTransactionsRequest(transactional_id_pattern="(")
        answer = await stage.ask(list_transactions, 2, request)
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@in_loop
async def test_coordinator_of_a_transactional_id_is_found(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        request = FindCoordinatorRequest(key="x", key_type=1)
        answer = await stage.ask(find_coordinator, 1, request)
        assert (answer.error_code, answer.node_id) == (0, stage.broker.broker_id)
        assert "__transaction_state" in stage.broker.topics.topics
