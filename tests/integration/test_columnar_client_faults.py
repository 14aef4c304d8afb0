"""The columnar client against a cluster that fails on command: nothing lost or twice, no hang.

Small loopback model (tests/support/scripted_cluster.py), no broker process.
"""

from __future__ import annotations

import gc
import gzip
import random
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.support.clock import FakeClock
from tests.support.column_writer import ColumnCluster, ColumnWriter, close_writers
from tests.support.raw_batch import batch as raw_batch
from tests.support.scripted_cluster import (
    CLOSE,
    CLOSE_AFTER,
    SILENCE,
    VERSIONS_OF_0_11,
    Fault,
    ScriptedCluster,
)
from tidelog.client.columns.range_reader import FetchRange, RangeReader
from tidelog.client.errors import (
    BrokerRefused,
    ClientError,
    CorruptRecordsFetched,
    LogTruncation,
    MessageTooLarge,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopic,
    UnreadableAnswer,
    UnsupportedByBroker,
)
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.header import decode_request_header
from tidelog.protocol.messages.fetch import EpochEndOffset
from tidelog.types import TopicPartition

QUICK = {
    "request.timeout.ms": 500,
    "default.api.timeout.ms": 20_000,
    "delivery.timeout.ms": 20_000,
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 5,
    "reconnect.backoff.ms": 1,
    "reconnect.backoff.max.ms": 5,
    "fetch.max.wait.ms": 5,
}

# An answer that nobody receives is given up after so long: a test that waits for it has failed.
PATIENT_S = 60
PATIENT: dict[str, Any] = {
    "request_timeout_ms": PATIENT_S * 1000,
    "default_api_timeout_ms": PATIENT_S * 3000,
}


@pytest.fixture(autouse=True)
def no_writer_stays_open() -> Iterator[None]:
    yield
    close_writers()


@pytest.fixture
def model() -> Iterator[ScriptedCluster]:
    with ScriptedCluster(2) as cluster:
        cluster.create_topic("t", 3)
        yield cluster


def connect(
    model: ScriptedCluster, clock: FakeClock | None = None, **options: Any
) -> ColumnCluster:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return ColumnCluster({"bootstrap.servers": model.bootstrap, **QUICK, **given}, clock)


class ClockOfLooks(FakeClock):
    """Every look takes a millisecond: time passes with what the client does, however slowly."""

    def monotonic(self) -> float:
        self.advance(ms=1)
        return super().monotonic()


def rows(start: int, stop: int, partitions: int = 3) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([b"%d" % row for row in range(start, stop)]),
            "value": pa.array([b"%06d" % row for row in range(start, stop)]),
            "partition": pa.array([row % partitions for row in range(start, stop)], pa.int32()),
        }
    )


def deliver(producer: ColumnWriter, batch: pa.RecordBatch) -> dict[TopicPartition, int]:
    producer.write(batch)
    return producer.flush()


def read_all(cluster: ColumnCluster, topic: str = "t", partitions: int = 3) -> dict[int, list[int]]:
    wanted = [TopicPartition(topic, index) for index in range(partitions)]
    ends = cluster.latest_offsets(wanted)
    found: dict[int, list[int]] = {index: [] for index in range(partitions)}
    ranges = [FetchRange(partition, 0, ends[partition]) for partition in wanted]
    for batch in RangeReader(cluster).fetch_ranges(ranges):
        for row in batch.to_pylist():
            found[row["partition"]].append(int(row["value"]))
    return found


def expected(count: int, partitions: int = 3) -> dict[int, list[int]]:
    return {index: list(range(index, count, partitions)) for index in range(partitions)}


PRODUCE_FAULTS = [
    CLOSE,
    CLOSE_AFTER,
    Fault(code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    Fault(code=ErrorCode.NOT_ENOUGH_REPLICAS),
    Fault(code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, applied=True),
    Fault(code=ErrorCode.REQUEST_TIMED_OUT, applied=True),
    Fault(code=ErrorCode.KAFKA_STORAGE_ERROR),
    Fault(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
]


class TestProducing:
    @pytest.mark.parametrize("fault", PRODUCE_FAULTS, ids=str)
    def test_one_failed_request_in_the_middle_loses_and_doubles_nothing(
        self, model: ScriptedCluster, fault: Fault
    ) -> None:
        seen = 0

        def fail_the_third(broker_id: int, api_key: int, request: Any) -> Fault | None:
            nonlocal seen
            seen += api_key == ApiKey.PRODUCE
            return fault if api_key == ApiKey.PRODUCE and seen == 3 else None

        model.on_request = fail_the_third
        with connect(model, batch_size=200) as cluster:
            with ColumnWriter(cluster, topic="t") as producer:
                producer.write(rows(0, 300))
                last = producer.flush()
            assert {tp.partition: offset for tp, offset in last.items()} == {0: 99, 1: 99, 2: 99}
            assert read_all(cluster) == expected(300)

    @pytest.mark.parametrize("seed", range(8))
    def test_any_mixture_of_failures_loses_and_doubles_nothing(self, seed: int) -> None:
        chance = random.Random(seed)
        with ScriptedCluster(3, max_message_bytes=chance.choice([400, 1 << 20])) as model:
            model.create_topic("t", 3)

            def fail_often(broker_id: int, api_key: int, request: Any) -> Fault | None:
                if api_key == ApiKey.PRODUCE and chance.random() < 0.3:
                    return chance.choice(PRODUCE_FAULTS)
                if api_key == ApiKey.METADATA and chance.random() < 0.1:
                    return CLOSE
                if chance.random() < 0.05:
                    chance.choice(model.topics["t"]).leader = chance.randrange(3)
                return None

            model.on_request = fail_often
            with connect(model, batch_size=chance.choice([1, 300, 1 << 20])) as cluster:
                with ColumnWriter(cluster, topic="t") as producer:
                    for start in range(0, 600, 60):
                        producer.write(rows(start, start + 60))
                    producer.flush()
                model.on_request = lambda *request: None
                assert read_all(cluster) == expected(600)

    def test_no_answer_is_a_timeout_and_then_a_retry(self, model: ScriptedCluster) -> None:
        silences = [SILENCE]
        model.on_request = lambda broker, key, request: (
            silences.pop() if key == ApiKey.PRODUCE and silences else None
        )
        with connect(model) as cluster:
            with ColumnWriter(cluster, topic="t") as producer:
                producer.write(rows(0, 30))
            assert read_all(cluster) == expected(30)

    def test_a_batch_too_large_for_the_topic_is_halved_in_order(self) -> None:
        with ScriptedCluster(1, max_message_bytes=300) as model:
            model.create_topic("t", 1)
            with connect(model) as cluster, ColumnWriter(cluster, topic="t") as producer:
                producer.write(rows(0, 100, 1))
                producer.flush()
                assert read_all(cluster, "t", 1) == expected(100, 1)

    @pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
    def test_halves_keep_codec_and_headers(self, codec: str) -> None:
        type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        headers = pa.array([[{"key": "h", "value": b"%d" % row}] for row in range(200)], type)
        batch = rows(0, 200, 1).append_column("headers", headers)
        with ScriptedCluster(1, max_message_bytes=900) as model:
            model.create_topic("t", 1)
            with connect(model, compression_type=codec) as cluster:
                with ColumnWriter(cluster, topic="t") as producer:
                    producer.write(batch)
                reader = RangeReader(cluster, with_headers=True)
                table = pa.Table.from_batches(
                    list(reader.fetch_columns(TopicPartition("t", 0), 0, 200))
                )
                assert table.column("headers").to_pylist() == headers.to_pylist()

    def test_one_record_too_large_for_the_topic_is_an_error_that_names_it(self) -> None:
        with ScriptedCluster(1, max_message_bytes=300) as model:
            model.create_topic("t", 1)
            with connect(model) as cluster:
                producer = ColumnWriter(cluster, topic="t")
                large = pa.record_batch({"value": pa.array([b"x" * 1000])})
                with pytest.raises(MessageTooLarge, match="1 records to t-0"):
                    deliver(producer, large)
                assert deliver(producer, rows(0, 1, 1)) == {TopicPartition("t", 0): 0}

    def test_a_record_larger_than_a_request_is_never_sent(self, model: ScriptedCluster) -> None:
        with connect(model, max_request_size=1000) as cluster:
            producer = ColumnWriter(cluster, topic="t")
            with pytest.raises(MessageTooLarge, match=r"max.request.size=1000"):
                producer.write(pa.record_batch({"value": pa.array([b"x" * 1000])}))
        assert model.count(ApiKey.PRODUCE) == 0

    def test_what_is_not_delivered_in_time_fails_with_the_reason(
        self, model: ScriptedCluster
    ) -> None:
        model.on_request = lambda broker, key, request: (
            Fault(code=ErrorCode.NOT_ENOUGH_REPLICAS) if key == ApiKey.PRODUCE else None
        )
        with connect(model, delivery_timeout_ms=600) as cluster:
            producer = ColumnWriter(cluster, topic="t")
            with pytest.raises(
                RequestTimedOut, match=r"10 records for t-\d.*600 ms.*NOT_ENOUGH_REPLICAS"
            ):
                deliver(producer, rows(0, 30))

    def test_an_unreachable_broker_is_waited_for_max_block_ms(self) -> None:
        config = {**QUICK, "bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 600_000}
        told = r"gave up after 100 ms \(max\.block\.ms\)"
        with (
            ColumnCluster({**config, "max.block.ms": 100}) as cluster,
            pytest.raises(RequestTimedOut, match=told),
        ):
            ColumnWriter(cluster, topic="t").write(rows(0, 1))

    def test_a_closed_cluster_leaves_no_connection_open(self, model: ScriptedCluster) -> None:
        model.on_request = lambda broker, key, request: (
            Fault(code=ErrorCode.NOT_ENOUGH_REPLICAS) if key == ApiKey.PRODUCE else None
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with connect(model, retries=1) as cluster:
                producer = ColumnWriter(cluster, topic="t")
                with pytest.raises(ClientError, match="NOT_ENOUGH_REPLICAS"):
                    deliver(producer, rows(0, 30))
            del producer, cluster
            gc.collect()
        assert [str(each.message) for each in caught if "unclosed" in str(each.message)] == []

    def test_a_broker_that_offers_nothing_leaves_no_connection_open(
        self, model: ScriptedCluster
    ) -> None:
        model.versions = {ApiKey.API_VERSIONS: (9, 9)}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with (
                connect(model) as cluster,
                pytest.raises(BrokerRefused, match="UNSUPPORTED_VERSION"),
            ):
                cluster.topics(None)
            gc.collect()
        assert [str(each.message) for each in caught if "unclosed" in str(each.message)] == []

    def test_retries_are_bounded(self, model: ScriptedCluster) -> None:
        model.on_request = lambda broker, key, request: (
            Fault(code=ErrorCode.NOT_ENOUGH_REPLICAS) if key == ApiKey.PRODUCE else None
        )
        with connect(model, retries=2) as cluster:
            producer = ColumnWriter(cluster, topic="t")
            with pytest.raises(ClientError, match="NOT_ENOUGH_REPLICAS"):
                deliver(producer, rows(0, 1))
        assert model.count(ApiKey.PRODUCE) == 3

    def test_writing_waits_while_too_much_is_unacknowledged(self, model: ScriptedCluster) -> None:
        with connect(model, buffer_memory=2000, batch_size=500) as cluster:
            with ColumnWriter(cluster, topic="t") as producer:
                for start in range(0, 900, 90):
                    producer.write(rows(start, start + 90))
                    assert producer.unacknowledged_bytes <= 2000
            assert read_all(cluster) == expected(900)

    @pytest.mark.parametrize("acks", ["0", "1", "all"])
    def test_all_acks_are_served(self, model: ScriptedCluster, acks: str) -> None:
        with connect(model, acks=acks) as cluster:
            with ColumnWriter(cluster, topic="t") as producer:
                for start in range(0, 90, 30):
                    producer.write(rows(start, start + 30))
                last = producer.flush()
            assert set(last.values()) == ({-1} if acks == "0" else {29})
            wanted = [TopicPartition("t", index) for index in range(3)]
            for _ in range(1000):
                if set(cluster.latest_offsets(wanted).values()) == {30}:
                    break
            assert read_all(cluster) == expected(90)

    def test_a_topic_that_never_comes_is_an_error_in_time(self, model: ScriptedCluster) -> None:
        with connect(model, max_block_ms=1_000) as cluster:
            producer = ColumnWriter(cluster, topic="nope")
            with pytest.raises(UnknownTopic, match="topic nope"):
                producer.write(rows(0, 1))


class TestFetching:
    @pytest.fixture
    def filled(self, model: ScriptedCluster) -> ScriptedCluster:
        with (
            connect(model, batch_size=300) as cluster,
            ColumnWriter(cluster, topic="t") as producer,
        ):
            producer.write(rows(0, 600))
        return model

    @pytest.mark.parametrize(
        "fault",
        [
            CLOSE,
            SILENCE,
            Fault(code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
            Fault(code=ErrorCode.FENCED_LEADER_EPOCH),
            Fault(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            Fault(code=ErrorCode.KAFKA_STORAGE_ERROR),
        ],
        ids=str,
    )
    def test_failures_that_pass_leave_no_trace(self, filled: ScriptedCluster, fault: Fault) -> None:
        seen = 0

        def fail_every_third(broker_id: int, api_key: int, request: Any) -> Fault | None:
            nonlocal seen
            seen += api_key == ApiKey.FETCH
            limit = 4 if fault.silent else 30
            return fault if api_key == ApiKey.FETCH and seen % 3 == 2 and seen < limit else None

        filled.on_request = fail_every_third
        with connect(filled, max_partition_fetch_bytes=1) as cluster:
            assert read_all(cluster) == expected(600)

    @pytest.mark.parametrize(
        "fault",
        [Fault(code=ErrorCode.NOT_LEADER_OR_FOLLOWER), Fault(code=ErrorCode.KAFKA_STORAGE_ERROR)],
        ids=str,
    )
    def test_a_new_leader_is_asked_for_at_once(self, filled: ScriptedCluster, fault: Fault) -> None:
        """Over the connection that the range is read from, if there is no other."""
        filled.topics["t"][0].leader = 0
        seen = 0

        def fail_the_second(broker_id: int, api_key: int, request: Any) -> Fault | None:
            nonlocal seen
            seen += api_key == ApiKey.FETCH
            return fault if api_key == ApiKey.FETCH and seen == 2 else None

        filled.on_request = fail_the_second
        began = time.monotonic()
        with connect(filled, max_partition_fetch_bytes=1, **PATIENT) as cluster:
            batches = RangeReader(cluster).fetch_columns(TopicPartition("t", 0), 0, 200)
            assert sum(batch.num_rows for batch in batches) == 200
        assert time.monotonic() - began < PATIENT_S / 2

    def test_a_start_outside_the_log_is_told_at_once(self, filled: ScriptedCluster) -> None:
        where = TopicPartition("t", 0)
        began = time.monotonic()
        with connect(filled, **PATIENT) as cluster:
            assert cluster.latest_offsets([where]) == {where: 200}  # now there is a connection
            batches = RangeReader(cluster).fetch_columns(where, 5000, 5001)
            with pytest.raises(OffsetOutOfRange, match="holds offsets 0 to 200"):
                list(batches)
        assert time.monotonic() - began < PATIENT_S / 2

    def test_other_things_may_be_asked_between_two_batches(self, filled: ScriptedCluster) -> None:
        where = TopicPartition("t", 0)
        began = time.monotonic()
        with connect(filled, max_partition_fetch_bytes=1, **PATIENT) as cluster:
            found = 0
            for batch in RangeReader(cluster).fetch_columns(where, 0, 200):
                found += batch.num_rows
                assert cluster.latest_offsets([where]) == {where: 200}
            assert found == 200
        assert time.monotonic() - began < PATIENT_S / 2

    def test_a_broker_of_0_10_is_read(self, filled: ScriptedCluster) -> None:
        filled.versions = {
            **VERSIONS_OF_0_11,
            ApiKey.FETCH: (0, 2),
            ApiKey.LIST_OFFSETS: (0, 1),
            ApiKey.METADATA: (0, 1),
        }
        with connect(filled, isolation_level="read_committed") as cluster:
            assert read_all(cluster) == expected(600)

    def test_leaders_may_move_in_the_middle(self, filled: ScriptedCluster) -> None:
        chance = random.Random(1)

        def move_often(broker_id: int, api_key: int, request: Any) -> None:
            if api_key == ApiKey.FETCH and chance.random() < 0.3:
                chance.choice(filled.topics["t"]).leader = chance.randrange(2)

        filled.on_request = move_often
        with connect(filled, max_partition_fetch_bytes=1) as cluster:
            assert read_all(cluster) == expected(600)

    def test_one_request_serves_all_partitions_of_a_leader(self, filled: ScriptedCluster) -> None:
        with connect(filled) as cluster:
            filled.requests.clear()
            assert read_all(cluster) == expected(600)
            assert filled.count(ApiKey.FETCH) == 2

    def test_every_start_and_end_gives_exactly_its_rows(self, filled: ScriptedCluster) -> None:
        partition = TopicPartition("t", 1)
        with connect(filled) as cluster:
            reader = RangeReader(cluster)
            for start, end in ((0, 1), (7, 8), (5, 93), (0, 200), (199, 200), (50, 50), (60, 50)):
                batches = list(reader.fetch_columns(partition, start, end))
                offsets = [offset for b in batches for offset in b.column("offset").to_pylist()]
                assert offsets == list(range(start, end))

    def test_two_ranges_of_one_partition_are_both_read(self, filled: ScriptedCluster) -> None:
        where = TopicPartition("t", 0)
        ranges = [FetchRange(where, 0, 120), FetchRange(where, 100, 200)]
        with connect(filled, max_partition_fetch_bytes=1) as cluster:
            found: list[int] = []
            for batch in RangeReader(cluster).fetch_ranges(ranges):
                found += batch.column("offset").to_pylist()
        assert sorted(found) == sorted([*range(120), *range(100, 200)])

    def test_a_start_before_the_log_says_what_the_log_holds(self, filled: ScriptedCluster) -> None:
        filled.topics["t"][0].log_start_offset = 50
        with (
            connect(filled) as cluster,
            pytest.raises(OffsetOutOfRange, match=r"t-0 from offset 10.*holds offsets 50 to 200"),
        ):
            list(RangeReader(cluster).fetch_columns(TopicPartition("t", 0), 10, 100))

    def test_an_end_beyond_the_log_is_an_error_in_time(self, filled: ScriptedCluster) -> None:
        with (
            connect(filled, default_api_timeout_ms=1_000) as cluster,
            pytest.raises(
                OffsetOutOfRange, match=r"t-0 cannot be read beyond offset 200.*up to 1000"
            ),
        ):
            list(RangeReader(cluster).fetch_columns(TopicPartition("t", 0), 0, 1000))

    def test_a_topic_deleted_while_it_is_read_is_an_error(self, filled: ScriptedCluster) -> None:
        with connect(filled, max_partition_fetch_bytes=1, batch_size=1) as cluster:
            batches = RangeReader(cluster).fetch_columns(TopicPartition("t", 0), 0, 200)
            next(batches)
            del filled.topics["t"]
            with pytest.raises(UnknownTopic, match=r"topic t|partition t-0"):
                list(batches)

    def test_a_topic_made_anew_is_not_taken_for_the_old_one(self, filled: ScriptedCluster) -> None:
        with connect(filled, max_partition_fetch_bytes=1) as cluster:
            batches = RangeReader(cluster).fetch_columns(TopicPartition("t", 0), 0, 200)
            next(batches)
            filled.create_topic("t", 3)
            with pytest.raises(UnknownTopic, match="made anew"):
                list(batches)

    def test_an_unknown_topic_is_an_error_at_once(self, model: ScriptedCluster) -> None:
        with connect(model) as cluster, pytest.raises(UnknownTopic, match="topic nope"):
            list(RangeReader(cluster).fetch_columns(TopicPartition("nope", 0), 0, 1))

    def test_an_unknown_partition_is_an_error_at_once(self, model: ScriptedCluster) -> None:
        with connect(model) as cluster, pytest.raises(UnknownTopic, match=r"t-7: .* 3 partitions"):
            list(RangeReader(cluster).fetch_columns(TopicPartition("t", 7), 0, 1))

    def test_a_reader_that_stops_half_way_leaves_the_cluster_usable(
        self, filled: ScriptedCluster
    ) -> None:
        with connect(filled, max_partition_fetch_bytes=1) as cluster:
            for _ in range(3):
                batches: Any = RangeReader(cluster).fetch_columns(TopicPartition("t", 0), 0, 200)
                next(batches)
                batches.close()
            assert read_all(cluster) == expected(600)

    def test_a_slow_caller_meets_no_timeout(self, filled: ScriptedCluster) -> None:
        clock = ClockOfLooks()
        with connect(
            filled,
            clock,
            max_partition_fetch_bytes=1,
            default_api_timeout_ms=10_000,
            request_timeout_ms=10_000,
        ) as cluster:
            found: list[int] = []
            for batch in RangeReader(cluster).fetch_columns(TopicPartition("t", 0), 0, 200):
                if len(found) in (0, 60):
                    clock.advance(ms=30_000)
                    filled.hang_up()
                found += batch.column("offset").to_pylist()
            assert found == list(range(200))

    def test_two_readers_may_take_turns(self, filled: ScriptedCluster) -> None:
        with connect(filled, max_partition_fetch_bytes=1) as cluster:
            reader = RangeReader(cluster)
            first, second = (
                reader.fetch_columns(TopicPartition("t", index), 0, 200) for index in (0, 2)
            )
            for one, other in zip(first, second, strict=True):
                assert one.column("offset").to_pylist() == other.column("offset").to_pylist()


class LyingCluster(ScriptedCluster):
    """What it answers to a fetch may be altered: each partition's row, or the bytes of all."""

    def __init__(self) -> None:
        super().__init__(1)
        self.pause_s = 0.0  # in the middle of each answer
        self.alter_row: Callable[[Any, Any], None] = lambda asked, row: None
        self.alter_frame: Callable[[bytes], bytes] = lambda frame: frame
        self.create_topic("t", 1)

    def _send(self, sock: socket.socket, frame: bytes) -> None:
        if self.pause_s:
            middle = len(frame) // 2
            sock.sendall(frame[:middle])
            time.sleep(self.pause_s)
            frame = frame[middle:]
        super()._send(sock, frame)

    def _fetch_row(self, found: Any, row: Any) -> Any:
        answer = super()._fetch_row(found, row)
        self.alter_row(row, answer)
        return answer

    def _handle(self, broker_id: int, frame: memoryview) -> bytes | None:
        answer = super()._handle(broker_id, frame)
        is_fetch = decode_request_header(frame).api_key == ApiKey.FETCH
        return self.alter_frame(answer) if answer and is_fetch else answer


class TestLies:
    @pytest.fixture
    def liar(self) -> Iterator[LyingCluster]:
        cluster = LyingCluster()
        with cluster:
            with (
                connect(cluster, batch_size=300) as connected,
                ColumnWriter(connected, topic="t") as producer,
            ):
                producer.write(rows(0, 200, 1))
            yield cluster

    def read(self, liar: LyingCluster, **options: Any) -> list[int]:
        with connect(liar, max_partition_fetch_bytes=1, **options) as cluster:
            return read_all(cluster, "t", 1)[0]

    def test_a_batch_that_fails_its_checksum_is_told_with_its_offset(
        self, liar: LyingCluster
    ) -> None:
        def flip(asked: Any, row: Any) -> None:
            row.records = row.records[:-1] + bytes([row.records[-1] ^ 1])

        liar.alter_row = flip
        told = r"t-0, batch at offset 0 cannot be read: it fails its checksum"
        with pytest.raises(CorruptRecordsFetched, match=told):
            self.read(liar)

    def test_batches_out_of_order_are_refused(self, liar: LyingCluster) -> None:
        first, second = liar.topics["t"][0].batches[:2]
        liar.alter_row = lambda asked, row: setattr(row, "records", second + first)
        with pytest.raises(CorruptRecordsFetched, match="comes after offset"):
            self.read(liar)

    def test_batches_from_before_the_offset_asked_for_are_refused(self, liar: LyingCluster) -> None:
        first = liar.topics["t"][0].batches[0]
        liar.alter_row = lambda asked, row: setattr(row, "records", first)
        with pytest.raises(CorruptRecordsFetched, match="only batches that end before it"):
            self.read(liar)

    def test_bytes_that_are_no_batch_are_refused(self, liar: LyingCluster) -> None:
        liar.alter_row = lambda asked, row: setattr(row, "records", b"\xff" * 200)
        with pytest.raises(CorruptRecordsFetched, match="no batch"):
            self.read(liar)

    def test_a_batch_that_inflates_without_end_is_refused(self, liar: LyingCluster) -> None:
        bomb = gzip.compress(bytes(200 << 20), 9)
        batch = raw_batch(records=bomb, attributes=1, count=1)
        liar.alter_row = lambda asked, row: setattr(row, "records", batch)
        with pytest.raises(CorruptRecordsFetched, match=r"t-0, batch at offset 0 cannot be read"):
            self.read(liar)

    @pytest.mark.parametrize(
        ("told", "alter"),
        [
            ("correlation id", lambda frame: bytes(4) + frame[4:]),
            ("no such answer", lambda frame: frame[:-20]),
        ],
    )
    def test_an_answer_to_something_else_is_told_as_such(
        self, liar: LyingCluster, told: str, alter: Callable[[bytes], bytes]
    ) -> None:
        liar.alter_frame = alter
        with pytest.raises(UnreadableAnswer, match=told):
            self.read(liar)

    def test_a_log_that_was_truncated_below_what_was_read_is_told(self, liar: LyingCluster) -> None:
        def diverge(asked: Any, row: Any) -> None:
            if asked.last_fetched_epoch == 0 and asked.fetch_offset >= 50:
                row.diverging_epoch = EpochEndOffset(epoch=0, end_offset=40)

        liar.alter_row = diverge
        told = r"t-0 was read up to offset \d+, but its log was truncated to offset 40 meanwhile"
        with pytest.raises(LogTruncation, match=told):
            self.read(liar)

    def test_an_answer_that_comes_with_pauses_is_waited_for(self, liar: LyingCluster) -> None:
        liar.pause_s = 0.02
        assert self.read(liar) == list(range(200))

    def test_memory_for_answers_does_not_grow_with_their_number(self, liar: LyingCluster) -> None:
        liar.create_topic("large", 1)
        with connect(liar, max_partition_fetch_bytes=1, batch_size=200_000) as cluster:
            with ColumnWriter(cluster, topic="large") as producer:
                values = pa.array([b"x" * 10_000] * 1000)
                producer.write(pa.record_batch({"value": values}))
            found = 0
            for batch in RangeReader(cluster).fetch_columns(TopicPartition("large", 0), 0, 1000):
                found += batch.num_rows
                kept = cluster.network._memory._kept
                assert sum(map(len, kept)) <= 2 << 20
            assert found == 1000
        assert liar.count(ApiKey.FETCH) > 40


class TestCluster:
    def test_a_broker_of_0_11_can_be_written_and_read(self) -> None:
        with ScriptedCluster(2, versions=VERSIONS_OF_0_11) as model:
            model.create_topic("t", 3)
            with connect(model) as cluster:
                with ColumnWriter(cluster, topic="t") as producer:
                    producer.write(rows(0, 90))
                assert read_all(cluster) == expected(90)
                cluster.commit_offsets("g", {TopicPartition("t", 0): 5})
            assert model.committed == {("g", "t", 0): 5}

    def test_zstd_on_a_broker_that_does_not_know_it_is_an_error(self) -> None:
        with ScriptedCluster(1, versions=VERSIONS_OF_0_11) as model:
            model.create_topic("t", 1)
            with connect(model, compression_type="zstd") as cluster:
                producer = ColumnWriter(cluster, topic="t")
                with pytest.raises(UnsupportedByBroker, match=r"compression.type=zstd"):
                    deliver(producer, rows(0, 1, 1))

    def test_a_broker_that_nobody_can_reach_is_named(self) -> None:
        with ScriptedCluster(1) as model:
            address = model.bootstrap
        with (
            ColumnCluster(
                {"bootstrap.servers": address, **QUICK, "default.api.timeout.ms": 2000}
            ) as cluster,
            pytest.raises(RequestTimedOut, match=f"2000 ms.*{address}: cannot connect"),
        ):
            cluster.topics(None)

    def test_one_bootstrap_server_of_several_is_enough(self, model: ScriptedCluster) -> None:
        with ColumnCluster(
            {"bootstrap.servers": f"127.0.0.1:1,{model.bootstrap}", **QUICK}
        ) as cluster:
            assert set(cluster.topics(None)) == {"t"}

    def test_offsets_are_committed_through_the_coordinator(self, model: ScriptedCluster) -> None:
        with connect(model) as cluster:
            cluster.commit_offsets("g", {TopicPartition("t", p): 10 + p for p in range(3)})
        assert model.committed == {("g", "t", 0): 10, ("g", "t", 1): 11, ("g", "t", 2): 12}

    def test_a_broker_without_a_coordinator_is_an_error(self) -> None:
        versions = {key: row for key, row in VERSIONS_OF_0_11.items() if key != 10}
        with (
            ScriptedCluster(1, versions=versions) as model,
            connect(model) as cluster,
            pytest.raises(UnsupportedByBroker, match="no group coordinator"),
        ):
            cluster.commit_offsets("g", {TopicPartition("t", 0): 5})

    def test_an_idle_connection_that_the_broker_closed_is_replaced(
        self, model: ScriptedCluster
    ) -> None:
        with connect(model) as cluster:
            cluster.topics(None)
            model.hang_up()
            assert set(cluster.topics(None)) == {"t"}
