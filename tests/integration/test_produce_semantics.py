"""Produce on the wire: acknowledgements, validation and its codes, idempotence, old formats."""

from __future__ import annotations

import gzip
import struct

import lz4.frame
import pytest
import zstandard
from kafka.protocol.producer import InitProducerIdRequest

from tests.support.broker_process import unlike_apache_kafka
from tests.support.raw_batch import (
    batch,
    encode_record,
    encode_records,
    message,
    now_ms,
    read_batches,
    read_messages,
)
from tests.support.raw_client import (
    RawClient,
    create_topic,
    fetch,
    list_offset,
    new_producer_id,
    produce,
    produce_request,
)

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CONTROL, TRANSACTIONAL = 1 << 5, 1 << 4
HOUR_MS = 3_600_000

UNKNOWN_SERVER_ERROR = -1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
RECORD_LIST_TOO_LARGE = 18
INVALID_REQUIRED_ACKS = 21
INVALID_TIMESTAMP = 32
INVALID_REQUEST = 42
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87


def values(client: RawClient, topic: str) -> list[bytes | None]:
    data = fetch(client, topic, 0, partition_max_bytes=1 << 24).records or b""
    return [r.value for b in read_batches(data) for r in b.records()]


def test_acks_1_and_all_answer_with_the_base_offset(client: RawClient, topic: str) -> None:
    first = produce(client, topic, batch(b"a", b"b"), acks=1)
    second = produce(client, topic, batch(b"c"), acks=-1)
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert (second.log_append_time_ms, second.log_start_offset) == (-1, 0)
    assert values(client, topic) == [b"a", b"b", b"c"]


def test_acks_0_is_written_and_never_answered(client: RawClient, topic: str) -> None:
    client.send(produce_request(topic, batch(b"quiet"), acks=0))
    assert produce(client, topic, batch(b"loud")).base_offset == 1
    assert values(client, topic) == [b"quiet", b"loud"]


def test_acks_0_with_an_error_closes_the_connection(bootstrap: str, topic: str) -> None:
    with RawClient(bootstrap) as client:
        client.send(produce_request(topic, batch(b"x", crc=1), acks=0))
        assert client.is_closed_by_broker()


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_acks_other_than_0_1_and_all_are_refused(client: RawClient, topic: str, acks: int) -> None:
    row = produce(client, topic, batch(b"x"), acks=acks)
    assert (row.error_code, row.base_offset) == (INVALID_REQUIRED_ACKS, -1)
    assert values(client, topic) == []


def test_min_insync_replicas_counts_at_most_the_replicas_there_are(
    client: RawClient, topic_name: str
) -> None:
    create_topic(client, topic_name, configs={"min.insync.replicas": "2"})
    assert produce(client, topic_name, batch(b"x"), acks=-1).error_code == 0


@pytest.mark.parametrize("name", ["no-such-topic", "bad name", "", "x" * 250])
def test_produce_to_a_missing_or_badly_named_topic_is_unknown(client: RawClient, name: str) -> None:
    assert produce(client, name, batch(b"x")).error_code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("partition", [1, -1])
def test_produce_to_a_missing_partition_is_unknown(
    client: RawClient, topic: str, partition: int
) -> None:
    row = produce(client, topic, batch(b"x"), partition)
    assert (row.index, row.error_code) == (partition, UNKNOWN_TOPIC_OR_PARTITION)


def test_one_partition_twice_gives_one_row_and_one_append(client: RawClient, topic: str) -> None:
    request = produce_request(topic, [(0, batch(b"first")), (0, batch(b"second"))])
    (row,) = client.call(request).responses[0].partition_responses
    assert row.error_code == 0
    assert len(values(client, topic)) == 1


def test_a_bad_partition_does_not_spoil_its_neighbours(client: RawClient, topic_name: str) -> None:
    create_topic(client, topic_name, partitions=2)
    request = produce_request(topic_name, {0: batch(b"x", crc=1), 1: batch(b"good")})
    rows = client.call(request).responses[0].partition_responses
    codes = {row.index: row.error_code for row in rows}
    assert codes == {0: CORRUPT_MESSAGE, 1: 0}


ONE = batch(b"x")
BAD_BATCHES = [
    pytest.param(batch(b"x", crc=12345), CORRUPT_MESSAGE, id="wrong checksum"),
    pytest.param(ONE[:-3] + b"\xff" + ONE[-2:], CORRUPT_MESSAGE, id="flipped byte"),
    pytest.param(batch(b"x", magic=3), CORRUPT_MESSAGE, id="magic 3"),
    pytest.param(batch(b"x", length=20), CORRUPT_MESSAGE, id="length below the header"),
    pytest.param(b"", INVALID_RECORD, id="empty records"),
    pytest.param(ONE + batch(b"y"), INVALID_RECORD, id="two batches"),
    pytest.param(batch(b"x", base_offset=5), INVALID_RECORD, id="base offset other than 0"),
    pytest.param(batch(b"x", last_offset_delta=4), INVALID_RECORD, id="count against delta"),
    pytest.param(batch(records=encode_record(b"x"), count=2), INVALID_RECORD, id="missing record"),
    pytest.param(
        batch(records=encode_record(b"x") + b"\xff" * 4, count=1),
        INVALID_RECORD,
        id="bytes after the last record",
    ),
    pytest.param(batch(records=b"", count=0), INVALID_RECORD, id="no record in the batch"),
    pytest.param(batch(b"x", attributes=CONTROL), INVALID_RECORD, id="control batch"),
    pytest.param(batch(b"x", attributes=5), UNKNOWN_SERVER_ERROR, id="unknown codec"),
    pytest.param(
        batch(records=b"not gzip", count=1, attributes=GZIP), UNKNOWN_SERVER_ERROR, id="bad gzip"
    ),
    pytest.param(
        batch(
            records=lz4.frame.compress(encode_records([b"x" * 70_000] * 4), block_linked=True),
            count=4,
            attributes=LZ4,
        ),
        UNKNOWN_SERVER_ERROR,
        id="lz4 with linked blocks",
    ),
]


@pytest.mark.parametrize(("records", "code"), BAD_BATCHES)
def test_a_bad_batch_is_refused_with_kafkas_code_and_nothing_is_written(
    client: RawClient, topic: str, records: bytes, code: int
) -> None:
    row = produce(client, topic, records)
    assert (row.error_code, row.base_offset) == (code, -1)
    assert produce(client, topic, batch(b"good")).base_offset == 0
    assert values(client, topic) == [b"good"]


def test_bytes_after_one_batch_are_accepted_and_dropped(client: RawClient, topic: str) -> None:
    assert produce(client, topic, batch(b"x") + b"tail").error_code == 0
    assert values(client, topic) == [b"x"]


@unlike_apache_kafka
def test_null_records_are_answered_with_an_error(bootstrap: str, topic: str) -> None:
    """Apache Kafka never answers this one."""
    with RawClient(bootstrap) as client:
        row = produce(client, topic, None)
        assert (row.error_code, row.base_offset) == (INVALID_RECORD, -1)


def test_a_batch_larger_than_max_message_bytes_is_too_large(
    client: RawClient, topic_name: str
) -> None:
    create_topic(client, topic_name, configs={"max.message.bytes": "1000"})
    assert produce(client, topic_name, batch(b"x" * 1001)).error_code == MESSAGE_TOO_LARGE
    largest = batch(b"x" * (1000 - len(batch(b"x" * 900)) + 900))
    assert len(largest) == 1000
    assert produce(client, topic_name, largest).error_code == 0


def test_a_batch_larger_than_a_segment_is_refused(client: RawClient, topic_name: str) -> None:
    create_topic(
        client, topic_name, configs={"segment.bytes": "1000", "max.message.bytes": "10000"}
    )
    assert produce(client, topic_name, batch(b"x" * 1001)).error_code == RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(
    ("key", "limit_ms", "timestamp_shift_ms", "code"),
    [
        ("message.timestamp.before.max.ms", HOUR_MS, -2 * HOUR_MS, INVALID_TIMESTAMP),
        ("message.timestamp.before.max.ms", HOUR_MS, -HOUR_MS // 2, 0),
        ("message.timestamp.after.max.ms", HOUR_MS, 2 * HOUR_MS, INVALID_TIMESTAMP),
        ("message.timestamp.after.max.ms", HOUR_MS, HOUR_MS // 2, 0),
    ],
)
def test_timestamps_outside_the_topics_bounds_are_refused(
    client: RawClient, topic_name: str, key: str, limit_ms: int, timestamp_shift_ms: int, code: int
) -> None:
    create_topic(client, topic_name, configs={key: str(limit_ms)})
    records = batch(b"x", base_timestamp=now_ms() + timestamp_shift_ms)
    row = produce(client, topic_name, records, version=8)
    assert row.error_code == code
    if code:
        assert row.record_errors[0].batch_index == 0


def test_a_compacted_topic_refuses_a_record_without_key(client: RawClient, topic_name: str) -> None:
    create_topic(client, topic_name, configs={"cleanup.policy": "compact"})
    row = produce(client, topic_name, batch(b"x"), version=8)
    assert row.error_code == INVALID_RECORD
    assert [error.batch_index for error in row.record_errors] == [0]
    assert produce(client, topic_name, batch(b"x", key=b"k")).error_code == 0


def test_append_time_topics_stamp_the_brokers_time_and_say_so(
    client: RawClient, topic_name: str
) -> None:
    create_topic(client, topic_name, configs={"message.timestamp.type": "LogAppendTime"})
    row = produce(client, topic_name, batch(b"a", b"b", base_timestamp=1000))
    (stored,) = read_batches(fetch(client, topic_name).records)
    assert abs(row.log_append_time_ms - now_ms()) < 60_000
    assert stored.max_timestamp == row.log_append_time_ms
    assert stored.attributes & 8


def test_zstd_needs_produce_v7(client: RawClient, topic: str) -> None:
    records = batch(records=zstandard.compress(encode_records([b"x"])), count=1, attributes=ZSTD)
    assert produce(client, topic, records, version=6).error_code == UNSUPPORTED_COMPRESSION_TYPE
    assert produce(client, topic, records, version=7).error_code == 0


def test_a_topics_compression_type_recompresses_batches(client: RawClient, topic_name: str) -> None:
    create_topic(client, topic_name, configs={"compression.type": "gzip"})
    assert produce(client, topic_name, batch(b"x" * 100, b"y" * 100)).error_code == 0
    (stored,) = read_batches(fetch(client, topic_name).records)
    assert stored.attributes & 7 == GZIP
    assert gzip.decompress(stored.payload) == encode_records([b"x" * 100, b"y" * 100])


def test_compressed_batches_are_stored_and_sent_unchanged(client: RawClient, topic: str) -> None:
    payload = gzip.compress(encode_records([b"x" * 1000] * 10), compresslevel=1, mtime=0)
    sent = batch(records=payload, count=10, attributes=GZIP)
    assert produce(client, topic, sent).error_code == 0
    received = fetch(client, topic).records
    assert received[16:] == sent[16:], "only base offset and leader epoch are stamped"


def test_stored_batches_carry_the_leader_epoch(client: RawClient, topic: str) -> None:
    produce(client, topic, batch(b"x", leader_epoch=77))
    (stored,) = read_batches(fetch(client, topic).records)
    assert stored.leader_epoch == 0


class TestIdempotence:
    def numbered(self, producer: tuple[int, int], sequence: int, *vals: bytes) -> bytes:
        return batch(
            *(vals or (b"v%d" % sequence,)),
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            base_timestamp=1_700_000_000_000 + sequence,
        )

    def test_producer_ids_are_unique(self, client: RawClient) -> None:
        ids = [new_producer_id(client) for _ in range(5)]
        assert len({producer_id for producer_id, _ in ids}) == 5
        assert {epoch for _, epoch in ids} == {0}

    @pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 5), (5, -1)])
    def test_a_producer_id_without_its_epoch_is_an_invalid_request(
        self, client: RawClient, producer_id: int, epoch: int
    ) -> None:
        request = InitProducerIdRequest(
            version=3,
            transactional_id=None,
            transaction_timeout_ms=60_000,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        assert client.call(request).error_code == INVALID_REQUEST

    def test_each_of_the_last_five_batches_repeated_gets_its_old_offset(
        self, client: RawClient, topic: str
    ) -> None:
        producer = new_producer_id(client)
        for sequence in range(6):
            assert produce(client, topic, self.numbered(producer, sequence)).base_offset == sequence
        for sequence in range(1, 6):
            row = produce(client, topic, self.numbered(producer, sequence))
            assert (row.error_code, row.base_offset) == (0, sequence)
            assert row.log_append_time_ms == 1_700_000_000_000 + sequence
        assert produce(client, topic, self.numbered(producer, 6)).base_offset == 6

    def test_a_repeated_batch_older_than_five_is_out_of_order(
        self, client: RawClient, topic: str
    ) -> None:
        producer = new_producer_id(client)
        for sequence in range(6):
            produce(client, topic, self.numbered(producer, sequence))
        row = produce(client, topic, self.numbered(producer, 0))
        assert row.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert len(values(client, topic)) == 6

    def test_a_sequence_gap_is_out_of_order_until_the_missing_batch_comes(
        self, client: RawClient, topic: str
    ) -> None:
        producer = new_producer_id(client)
        produce(client, topic, self.numbered(producer, 0, b"a", b"b"))
        gap = produce(client, topic, self.numbered(producer, 3))
        assert gap.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(client, topic, self.numbered(producer, 2)).base_offset == 2
        assert produce(client, topic, self.numbered(producer, 3)).base_offset == 3

    def test_an_unknown_producer_may_start_at_any_sequence(
        self, client: RawClient, topic: str
    ) -> None:
        producer = new_producer_id(client)
        assert produce(client, topic, self.numbered(producer, 1234)).error_code == 0

    def test_an_older_producer_epoch_is_fenced(self, client: RawClient, topic: str) -> None:
        producer_id, _ = new_producer_id(client)
        assert produce(client, topic, self.numbered((producer_id, 3), 0)).error_code == 0
        row = produce(client, topic, self.numbered((producer_id, 2), 1))
        assert row.error_code == INVALID_PRODUCER_EPOCH

    def test_a_newer_producer_epoch_starts_at_sequence_0(
        self, client: RawClient, topic: str
    ) -> None:
        producer_id, _ = new_producer_id(client)
        produce(client, topic, self.numbered((producer_id, 0), 0))
        row = produce(client, topic, self.numbered((producer_id, 1), 5))
        assert row.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(client, topic, self.numbered((producer_id, 1), 0)).error_code == 0

    def test_sequences_wrap_after_the_largest_int(self, client: RawClient, topic: str) -> None:
        producer = new_producer_id(client)
        assert produce(client, topic, self.numbered(producer, 2**31 - 1)).error_code == 0
        assert produce(client, topic, self.numbered(producer, 0)).base_offset == 1

    def test_two_producers_and_two_partitions_have_sequences_of_their_own(
        self, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, topic_name, partitions=2)
        one, two = new_producer_id(client), new_producer_id(client)
        for producer in (one, two):
            for partition in (0, 1):
                row = produce(client, topic_name, self.numbered(producer, 0), partition)
                assert row.error_code == 0


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (1, 1), (2, 1)])
def test_old_message_sets_are_taken_by_old_produce_versions(
    client: RawClient, topic: str, version: int, magic: int
) -> None:
    message_set = b"".join(message(b"v%d" % i, b"k%d" % i, magic=magic, offset=i) for i in range(3))
    row = produce(client, topic, message_set, version=version)
    assert (row.error_code, row.base_offset) == (0, 0)
    stored = [r for b in read_batches(fetch(client, topic).records) for r in b.records()]
    assert [(r.offset, r.key, r.value) for r in stored] == [
        (i, b"k%d" % i, b"v%d" % i) for i in range(3)
    ]


@pytest.mark.parametrize(
    "records", [b"", b"\0\0", message(b"value")[:-3]], ids=["empty", "two bytes", "cut"]
)
def test_old_produce_versions_take_a_message_set_without_a_whole_message(
    client: RawClient, topic: str, records: bytes
) -> None:
    assert produce(client, topic, records, version=2).error_code == 0
    assert list_offset(client, topic, -1).offset == 0


def test_offsets_inside_an_old_message_set_do_not_matter(client: RawClient, topic: str) -> None:
    message_set = b"".join(message(b"v%d" % i, offset=77) for i in range(3))
    assert produce(client, topic, message_set, version=2).base_offset == 0
    assert values(client, topic) == [b"v0", b"v1", b"v2"]


@pytest.mark.parametrize("timestamp", [-2, -5])
def test_an_old_message_with_a_negative_timestamp_is_refused(
    client: RawClient, topic: str, timestamp: int
) -> None:
    row = produce(client, topic, message(b"a", timestamp=timestamp), version=2)
    assert row.error_code == UNKNOWN_SERVER_ERROR
    assert produce(client, topic, message(b"a", timestamp=-1), version=2).error_code == 0
    assert produce(client, topic, batch(b"a", base_timestamp=timestamp)).error_code == 0


def test_old_produce_versions_take_zstd_batches(client: RawClient, topic: str) -> None:
    packed = zstandard.compress(encode_records([b"a"]))
    data = batch(b"a", records=packed, attributes=ZSTD)
    assert produce(client, topic, data, version=2).error_code == 0
    assert list_offset(client, topic, -1).offset == 1


@pytest.mark.parametrize("version", [0, 2, 9])
def test_a_topic_without_partitions_is_not_in_the_answer(
    client: RawClient, topic: str, version: int
) -> None:
    assert client.call(produce_request(topic, [], version=version)).responses == []


def test_records_that_the_log_refuses_are_answered_with_its_start(
    client: RawClient, topic: str
) -> None:
    assert produce(client, topic, batch(b"a", count=5)).log_start_offset == 0
    assert produce(client, topic, batch(b"a", crc=1)).log_start_offset == -1
    assert produce(client, topic, b"").log_start_offset == -1


def test_a_recursive_message_set_is_unpacked(client: RawClient, topic: str) -> None:
    inner = b"".join(message(b"v%d" % i, offset=i) for i in range(4))
    wrapper = message(gzip.compress(inner), attributes=GZIP, offset=3)
    assert produce(client, topic, wrapper, version=2).error_code == 0
    assert list_offset(client, topic, -1).offset == 4
    old = fetch(client, topic, version=2)
    outer = struct.unpack_from(">q", old.records)[0]
    assert outer == 3, "a wrapper carries the offset of its last message"
    assert old.records[17] & 7 == GZIP


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_old_fetch_versions_get_old_formats_without_headers(
    client: RawClient, topic: str, version: int, magic: int
) -> None:
    record = encode_record(b"value", b"key", [("h", b"1")])
    produce(client, topic, batch(records=record, count=1))
    row = fetch(client, topic, version=version)
    assert read_messages(row.records) == [(0, magic, b"key", b"value")]


def test_an_old_message_set_with_a_wrong_checksum_is_corrupt(client: RawClient, topic: str) -> None:
    damaged = bytearray(message(b"value"))
    damaged[-1] ^= 1
    assert produce(client, topic, bytes(damaged), version=2).error_code == CORRUPT_MESSAGE


@pytest.mark.parametrize("version", [3, 9])
def test_old_message_sets_are_refused_by_newer_produce_versions(
    client: RawClient, topic: str, version: int
) -> None:
    assert produce(client, topic, message(b"value"), version=version).error_code == INVALID_RECORD


def test_a_transactional_batch_without_transactional_id_is_refused(
    client: RawClient, topic: str
) -> None:
    producer_id, epoch = new_producer_id(client)
    records = batch(
        b"x",
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    assert produce(client, topic, records).error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert values(client, topic) == []


def test_a_producer_id_without_sequence_is_refused(client: RawClient, topic: str) -> None:
    producer_id, epoch = new_producer_id(client)
    records = batch(b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=-1)
    assert produce(client, topic, records).error_code == INVALID_RECORD


def test_a_lying_max_timestamp_is_put_right(client: RawClient, topic: str) -> None:
    assert produce(client, topic, batch(b"x", base_timestamp=1000, max_timestamp=5)).error_code == 0
    (stored,) = read_batches(fetch(client, topic).records)
    assert stored.max_timestamp == 1000


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_decompression_bomb_is_refused_quickly_and_others_are_served(
    client: RawClient, topic: str, codec: int
) -> None:
    zeros = bytes(256 << 20)
    compress = {
        GZIP: lambda: gzip.compress(zeros, 1),
        LZ4: lambda: lz4.frame.compress(zeros, block_linked=False),
        ZSTD: lambda: zstandard.compress(zeros),
    }[codec]
    bomb = batch(records=compress(), count=1, attributes=codec)
    if len(bomb) > 1_000_000:
        bomb = batch(records=compress()[:900_000], count=1, attributes=codec)
    assert produce(client, topic, bomb).error_code in (INVALID_RECORD, MESSAGE_TOO_LARGE)
    assert produce(client, topic, batch(b"fine")).base_offset == 0
