"""The record accumulator: which batches there are, when they are due, in which order they leave."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.producer_stage import HeldExecutor, ProducerStage, idempotent_manager
from tidelog.client.errors import ClientError, InvalidRow, MessageTooLarge
from tidelog.client.network.metadata import LeaderAndEpoch
from tidelog.client.producer.accumulator import NoMemory
from tidelog.client.producer.partitioners import TopicPartitions
from tidelog.record.batch import BatchHeader, Codec, crc_holds
from tidelog.record.columns import columns_of, part_of
from tidelog.types import TopicPartition

T0 = TopicPartition("t", 0)


def values_of(data: bytearray | None) -> list[bytes | None]:
    assert data is not None
    header = BatchHeader(data)
    columns = columns_of([part_of(memoryview(data), header.attributes, 0, header.records_count)])
    return [record.value for record in columns]


# When a batch is due


def test_records_of_a_partition_gather_in_one_batch() -> None:
    stage = ProducerStage()
    for value in (b"a", b"b", b"c"):
        stage.append(value)
    stage.clock.advance(ms=5)
    batch = stage.drain_one()
    assert (batch.partition, batch.records_count) == (T0, 3)
    assert values_of(batch.data) == [b"a", b"b", b"c"]


def test_a_batch_waits_for_linger_ms() -> None:
    stage = ProducerStage(linger_s=0.1)
    stage.append()
    check = stage.accumulator.ready(stage.now)
    assert (check.nodes, round(check.next_check_s, 3)) == (set(), 0.1)
    stage.clock.advance(ms=99)
    assert stage.ready_nodes() == set()
    stage.clock.advance(ms=1)
    assert stage.ready_nodes() == {0}


def test_without_linger_a_batch_is_due_at_once() -> None:
    stage = ProducerStage(linger_s=0.0)
    stage.append()
    assert stage.ready_nodes() == {0}


def test_a_full_batch_is_due_at_once() -> None:
    stage = ProducerStage(linger_s=60.0)
    stage.append(b"x" * 600)
    assert stage.ready_nodes() == set()
    stage.append(b"x" * 600)
    assert stage.ready_nodes() == {0}
    assert stage.drain_one().records_count == 1


def test_the_sender_hears_of_every_batch_that_is_begun_and_of_no_other_record() -> None:
    stage = ProducerStage()
    stage.append()
    stage.append()
    assert stage.news == 1
    stage.append(partition=1)
    assert stage.news == 2


def test_a_flush_makes_everything_due() -> None:
    stage = ProducerStage(linger_s=60.0)
    stage.append()
    batches = stage.accumulator.begin_flush()
    assert stage.ready_nodes() == {0}
    assert [batch.partition for batch in batches] == [T0]
    stage.accumulator.end_flush()
    assert stage.ready_nodes() == set()


def test_a_closed_accumulator_makes_everything_due_and_takes_no_more() -> None:
    stage = ProducerStage(linger_s=60.0)
    stage.append()
    stage.accumulator.close()
    assert stage.ready_nodes() == {0}
    assert stage.accumulator.append("t", b"v", None, 0, 0, (), None) is None


def test_a_partition_without_a_leader_is_told_of_and_not_drained() -> None:
    stage = ProducerStage(linger_s=0.0)
    del stage.leaders[T0]
    stage.append()
    check = stage.accumulator.ready(stage.now)
    assert (check.nodes, check.unknown_leaders) == (set(), {"t"})
    assert stage.drain() == []


# Memory


def test_a_batch_takes_its_room_when_it_is_begun_and_gives_it_back_when_it_is_done() -> None:
    stage = ProducerStage()
    stage.append()
    stage.append()
    assert stage.accumulator.pool.available_bytes == 9_000
    stage.accumulator.complete(stage.drain_one(), 0, -1)
    assert stage.accumulator.pool.available_bytes == 10_000


def test_a_record_without_room_says_how_much_it_needs() -> None:
    stage = ProducerStage(buffer_bytes=1500)
    stage.append(partition=0)
    with pytest.raises(NoMemory) as raised:
        stage.append(partition=1)
    assert raised.value.size == 1000


def test_who_waits_for_room_makes_everything_due() -> None:
    stage = ProducerStage(buffer_bytes=1000, linger_s=60.0)
    stage.append(partition=0)
    with pytest.raises(NoMemory):
        stage.append(partition=1)
    stage.accumulator.pool.stand_in_line(1000, lambda: None)
    assert stage.ready_nodes() == {0}


def test_room_that_was_granted_is_used_or_given_back() -> None:
    stage = ProducerStage()
    stage.accumulator.pool.take(1000)
    stage.append(partition=0, reserved_bytes=1000)
    assert stage.accumulator.pool.available_bytes == 9_000
    stage.accumulator.pool.take(1000)
    stage.append(partition=0, reserved_bytes=1000)
    assert stage.accumulator.pool.available_bytes == 9_000


def test_a_record_larger_than_a_batch_gets_a_batch_of_its_own() -> None:
    stage = ProducerStage(linger_s=60.0)
    stage.append(b"x" * 3000)
    stage.append(b"y")
    assert stage.drain_one().records_count == 1


@pytest.mark.parametrize(
    ("request_bytes_max", "buffer_bytes", "key"),
    [(2000, 9000, "max.request.size"), (9000, 2000, "buffer.memory")],
)
def test_a_record_that_no_request_could_hold_is_refused(
    request_bytes_max: int, buffer_bytes: int, key: str
) -> None:
    stage = ProducerStage(request_bytes_max=request_bytes_max, buffer_bytes=buffer_bytes)
    with pytest.raises(MessageTooLarge, match=key):
        stage.append(b"x" * 2500)


@pytest.mark.parametrize(
    ("request_bytes_max", "buffer_bytes", "key"),
    [(500, 9000, "max.request.size"), (9000, 500, "buffer.memory")],
)
def test_the_limits_hold_for_records_that_fit_into_a_batch_too(
    request_bytes_max: int, buffer_bytes: int, key: str
) -> None:
    stage = ProducerStage(
        batch_bytes=2000, request_bytes_max=request_bytes_max, buffer_bytes=buffer_bytes
    )
    with pytest.raises(MessageTooLarge, match=key):
        stage.append(b"x" * 500)
    stage.append(b"x" * 100)
    with pytest.raises(MessageTooLarge, match=key):
        stage.append(b"x" * 500)  # there is room in the batch of the record before
    assert stage.drain_one().records_count == 1


@pytest.mark.parametrize(
    ("headers", "overhead_bytes"),
    [((), 61 + 21 + 1 + 2 + 1), ((("é" * 50, b"12345678"),) * 20, 61 + 21 + 1 + 2 + 1 + 20 * 111)],
)
def test_a_record_that_just_fits_into_a_request_is_taken(
    headers: Sequence[tuple[str, bytes]], overhead_bytes: int
) -> None:
    """As Kafka's client counts: the batch's header, the fixed fields, varints, UTF-8."""
    stage = ProducerStage(batch_bytes=500, request_bytes_max=4000)
    largest = 4000 - overhead_bytes
    with pytest.raises(MessageTooLarge, match=r"takes up to 4001 bytes, more than max\.request"):
        stage.append(b"x" * (largest + 1), headers=headers)
    stage.append(b"x" * largest, headers=headers)
    assert stage.drain_one().records_count == 1


# Partitions


def test_records_without_a_key_stay_with_one_partition_for_a_batch() -> None:
    stage = ProducerStage()
    partitions = [stage.append(b"x" * 90, partition=None)[0].partition for _ in range(9)]
    assert len(set(partitions)) == 1


def test_records_without_a_key_reach_every_partition_in_time() -> None:
    stage = ProducerStage(buffer_bytes=10_000_000)
    seen = {stage.append(b"x" * 300, partition=None)[0].partition for _ in range(500)}
    assert len(seen) == 3


def test_a_key_decides_unless_keys_are_ignored() -> None:
    stage = ProducerStage()
    assert len({stage.append(key=b"k", partition=None)[0].partition for _ in range(20)}) == 1
    ignoring = ProducerStage(hashes_keys=False, buffer_bytes=10_000_000)
    keyed = {ignoring.append(b"x" * 500, key=b"k", partition=None)[0].partition for _ in range(200)}
    assert len(keyed) == 3


def test_a_partitioner_of_the_application_decides() -> None:
    def by_size(
        topic: str, key: bytes | None, value: bytes | None, partitions: TopicPartitions
    ) -> int:
        assert (topic, key, partitions.total) == ("t", b"k", 3)
        return len(value or b"") % partitions.total

    stage = ProducerStage(partitioner=by_size)
    assert stage.append(b"xx", key=b"k", partition=None)[0].partition.partition == 2


def test_a_partitioner_that_names_no_partition_is_refused() -> None:
    stage = ProducerStage(partitioner=lambda *_: 3)
    with pytest.raises(InvalidRow, match="partition 3 of topic t is not there"):
        stage.append(partition=None)


def test_a_partition_that_is_not_known_yet_has_to_be_asked_for() -> None:
    stage = ProducerStage()
    assert stage.accumulator.append("t", b"v", None, 3, 0, (), None) is None
    assert stage.accumulator.append("other", b"v", None, 0, 0, (), None) is None


def test_a_broker_that_takes_nothing_for_long_gets_no_records_without_a_key() -> None:
    stage = ProducerStage(
        batch_bytes=100, linger_s=0.0, buffer_bytes=10_000_000, availability_timeout_s=1.0
    )
    for partition in range(3):
        stage.append(b"x" * 90, partition=partition)
    for can_take in (True, False):
        for node_id in range(3):
            stage.accumulator.note_node(node_id, stage.now, can_take=can_take or node_id != 2)
        stage.clock.advance(ms=1001)
    stage.accumulator.note_node(2, stage.now, can_take=False)
    stage.append(b"x" * 90, partition=None)
    seen = {stage.append(b"x" * 90, partition=None)[0].partition.partition for _ in range(200)}
    assert seen == {0, 1}


# Draining


def test_a_request_has_one_batch_of_a_partition() -> None:
    stage = ProducerStage(linger_s=0.0)
    for _ in range(3):
        stage.append(b"x" * 900)
    assert [batch.records_count for batch in stage.drain()] == [1]


def test_a_request_has_batches_of_all_partitions_of_a_node_up_to_its_size() -> None:
    stage = ProducerStage(linger_s=0.0, request_bytes_max=2000)
    for index in range(3):
        stage.leaders[TopicPartition("t", index)] = LeaderAndEpoch(0, 0)
        stage.append(b"x" * 900, partition=index)
    assert len(stage.drain(0)) == 2
    assert len(stage.drain(0)) == 1


def test_a_batch_larger_than_a_request_still_leaves_alone() -> None:
    stage = ProducerStage(linger_s=0.0, request_bytes_max=1500, buffer_bytes=100_000)
    stage.append(b"x" * 1300)
    assert stage.drain_one().records_count == 1


def test_partitions_that_stayed_behind_come_first() -> None:
    stage = ProducerStage(linger_s=0.0, request_bytes_max=1100, buffer_bytes=100_000)
    for index in range(3):
        stage.leaders[TopicPartition("t", index)] = LeaderAndEpoch(0, 0)
        for _ in range(2):
            stage.append(b"x" * 900, partition=index)
    order = [stage.drain(0)[0].partition.partition for _ in range(6)]
    assert order == [0, 1, 2, 0, 1, 2]


def test_nodes_that_are_not_asked_for_keep_their_batches() -> None:
    stage = ProducerStage(linger_s=0.0)
    stage.append(partition=0)
    stage.append(partition=1)
    assert [batch.partition.partition for batch in stage.drain(1)] == [1]
    assert stage.ready_nodes() == {0}


def test_a_muted_partition_keeps_its_batches() -> None:
    stage = ProducerStage(linger_s=0.0)
    stage.append()
    stage.accumulator.mute(T0)
    assert (stage.ready_nodes(), stage.drain()) == (set(), [])
    stage.accumulator.unmute(T0)
    assert stage.ready_nodes() == {0}


def test_a_record_that_comes_while_a_batch_is_away_begins_another() -> None:
    stage = ProducerStage(linger_s=0.0)
    stage.append(b"a")
    first = stage.drain_one()
    stage.append(b"b")
    assert stage.drain_one() is not first


# Batches that come back


def test_a_batch_that_failed_waits_twice_as_long_each_time() -> None:
    stage = ProducerStage(linger_s=0.0)
    stage.append()
    waits = []
    for _ in range(6):
        batch = stage.drain_one()
        stage.accumulator.put_back(batch, stage.now)
        assert stage.ready_nodes() == set()
        waits.append(batch.retry_at - stage.now)
        stage.clock.advance(ms=1300)
    expected = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert all(
        0.8 * wait <= found <= 1.2 * wait for wait, found in zip(expected, waits, strict=True)
    )


def test_a_new_leader_ends_the_wait() -> None:
    stage = ProducerStage(linger_s=0.0)
    stage.append()
    stage.accumulator.put_back(stage.drain_one(), stage.now)
    stage.leaders[T0] = LeaderAndEpoch(1, 1)
    assert stage.ready_nodes() == {1}


def test_a_batch_that_failed_leaves_before_those_behind_it() -> None:
    stage = ProducerStage(linger_s=0.0)
    stage.append(b"a" * 900)
    stage.append(b"b" * 900)
    first = stage.drain_one()
    stage.accumulator.put_back(first, stage.now)
    stage.clock.advance(ms=200)
    assert stage.drain_one() is first


def test_idempotent_batches_come_back_in_the_order_of_their_sequences() -> None:
    stage = ProducerStage(linger_s=0.0, transactions=idempotent_manager())
    for letter in b"abcd":
        stage.append(bytes([letter]) * 900)
    first, second, third = (stage.drain_one() for _ in range(3))
    assert [batch.base_sequence for batch in (first, second, third)] == [0, 1, 2]
    for batch in (second, first, third):
        stage.accumulator.put_back(batch, stage.now)
    stage.clock.advance(ms=300)
    # One at a time: the next follows when the first is acknowledged.
    assert stage.drain_one() is first
    assert stage.drain() == []
    assert stage.transactions is not None
    stage.transactions.sequences.completed(first, 0)
    assert stage.drain_one() is second


# The end


def test_a_batch_expires_in_its_queue() -> None:
    stage = ProducerStage(delivery_timeout_s=10.0)
    delivery = stage.append()
    assert stage.accumulator.next_expiry == 10.0
    stage.clock.advance(ms=9_999)
    assert stage.accumulator.expired(stage.now) == []
    stage.clock.advance(ms=1)
    (batch,) = stage.accumulator.expired(stage.now)
    stage.accumulator.fail(batch, stage.accumulator.expiry_error(batch))
    assert "1 records for t-0 were not acknowledged within 10000 ms" in str(delivery.exception())
    assert stage.accumulator.next_expiry == float("inf")
    assert stage.accumulator.pool.available_bytes == 10_000


def test_a_batch_expires_in_flight_too_and_the_oldest_first() -> None:
    stage = ProducerStage(linger_s=0.0)
    stage.append(partition=0)
    stage.clock.advance(ms=100)
    stage.append(partition=1)
    old, young = stage.drain()
    assert stage.accumulator.next_expiry == old.deadline
    stage.clock.advance(ms=9_900)
    assert stage.accumulator.expired(stage.now) == [old]
    stage.clock.advance(ms=100)
    stage.accumulator.complete(old, 0, -1)
    assert stage.accumulator.expired(stage.now) == [young]


def test_the_halves_of_a_batch_take_its_place_and_its_time() -> None:
    stage = ProducerStage(linger_s=0.0)
    deliveries = [stage.append(bytes([letter]) * 100) for letter in b"abcde"]
    stage.clock.advance(ms=1000)
    stage.append(b"later", partition=1)
    batch, other = stage.drain()
    stage.accumulator.split(batch)
    assert stage.accumulator.next_expiry == 10.0
    first = stage.drain_one()
    assert values_of(first.data) == [b"a" * 100, b"b" * 100]
    stage.accumulator.complete(first, 40, -1)
    assert [delivery.done() for delivery in deliveries] == [True, True, False, False, False]
    assert not batch.outcome.is_done
    second = stage.drain_one()
    stage.accumulator.fail(second, ClientError("no"))
    assert str(batch.outcome.error) == "no"
    assert deliveries[1].result().offset == 41
    assert str(deliveries[2].exception()) == "no"
    stage.accumulator.complete(other, 0, -1)
    assert stage.accumulator.pool.available_bytes == 10_000


def test_halves_keep_the_sequences_of_the_whole() -> None:
    stage = ProducerStage(linger_s=0.0, transactions=idempotent_manager())
    for _ in range(5):
        stage.append()
    batch = stage.drain_one()
    stage.append(b"next")
    follower = stage.drain_one()
    stage.accumulator.split(batch)
    assert stage.transactions is not None
    first = stage.drain_one()
    stage.transactions.sequences.completed(first, 0)
    second = stage.drain_one()
    assert (first.base_sequence, second.base_sequence, follower.base_sequence) == (0, 2, 5)
    assert first.order < second.order < follower.order


def test_callbacks_of_done_batches_are_handed_out_once() -> None:
    stage = ProducerStage(linger_s=0.0)
    stage.append(on_delivery=lambda *_: None)
    batch = stage.drain_one()
    assert stage.accumulator.take_callbacks_due() == []
    stage.accumulator.complete(batch, 0, -1)
    assert stage.accumulator.take_callbacks_due() == [batch]
    assert stage.accumulator.take_callbacks_due() == []


def test_topics_that_nobody_sends_to_are_forgotten() -> None:
    stage = ProducerStage(linger_s=0.0)
    stage.append()
    stage.clock.advance(ms=1000)
    assert stage.accumulator.forget_idle_topics(stage.now) == []
    stage.accumulator.complete(stage.drain_one(), 0, -1)
    assert stage.accumulator.forget_idle_topics(stage.now) == ["t"]
    assert stage.accumulator.append("t", b"v", None, 0, 0, (), None) is None


# Compression in threads

LARGE = b"x" * 20_000


def compressing_stage(**settings: object) -> tuple[ProducerStage, HeldExecutor]:
    executor = HeldExecutor()
    values: dict[str, object] = {
        "batch_bytes": 30_000,
        "buffer_bytes": 300_000,
        "request_bytes_max": 100_000,
        "linger_s": 0.0,
        "codec": Codec.GZIP,
        **settings,
    }
    transactions = idempotent_manager()
    return ProducerStage(executor=executor, transactions=transactions, **values), executor  # type: ignore[arg-type]


def test_a_batch_that_takes_long_to_compress_is_drained_once_a_thread_has_done_it() -> None:
    stage, executor = compressing_stage()
    stage.append(LARGE)
    assert stage.ready_nodes() == {0}
    assert stage.drain() == []
    assert (stage.ready_nodes(), executor.held) == (set(), 1)
    news = stage.news
    executor.do_one()
    assert stage.news == news + 1
    batch = stage.drain_one()
    assert values_of(batch.data) == [LARGE]
    assert batch.data is not None
    header = BatchHeader(batch.data)
    assert (header.producer_id, header.base_sequence, header.codec_id) == (7, 0, Codec.GZIP)
    assert crc_holds(memoryview(batch.data))


def test_a_small_batch_is_compressed_where_it_is_drained() -> None:
    stage, executor = compressing_stage()
    stage.append(b"small")
    assert values_of(stage.drain_one().data) == [b"small"]
    assert executor.held == 0


@pytest.mark.parametrize(
    ("codec", "level", "is_aside"),
    [
        (Codec.NONE, None, False),
        (Codec.LZ4, 9, False),
        (Codec.LZ4, 12, True),
        (Codec.SNAPPY, None, False),
        (Codec.ZSTD, 3, False),
        (Codec.ZSTD, 19, True),
        (Codec.GZIP, -1, True),
    ],
)
def test_only_a_slow_codec_sends_a_batch_of_16_kib_to_a_thread(
    codec: Codec, level: int | None, is_aside: bool
) -> None:
    stage, executor = compressing_stage(codec=codec, level=level)
    stage.append(b"x" * 16_000)
    drained = stage.drain()
    assert (len(drained), executor.held) == ((0, 1) if is_aside else (1, 0))


def test_a_full_batch_is_compressed_before_it_is_its_turn_and_does_not_overtake() -> None:
    stage, executor = compressing_stage()
    for letter in (b"a", b"b", b"c"):
        stage.append(letter * 20_000)
    assert executor.held == 2
    executor.do_last()
    assert stage.drain() == []
    executor.do_one()
    first, second = stage.drain_one(), stage.drain_one()
    assert [values_of(batch.data) for batch in (first, second)] == [
        [b"a" * 20_000],
        [b"b" * 20_000],
    ]
    assert (first.base_sequence, second.base_sequence) == (0, 1)


def test_other_partitions_do_not_wait_for_a_thread() -> None:
    stage, executor = compressing_stage()
    stage.append(LARGE, partition=0)
    stage.append(b"small", partition=1)
    assert [batch.partition.partition for batch in stage.drain()] == [1]
    assert executor.held == 1


def test_no_record_joins_a_batch_that_a_thread_compresses() -> None:
    stage, executor = compressing_stage(linger_s=0.005)
    stage.append(LARGE)
    stage.clock.advance(ms=5)
    assert stage.drain() == []
    stage.append(b"later")
    executor.do_one()
    assert values_of(stage.drain_one().data) == [LARGE]
    stage.clock.advance(ms=5)
    assert values_of(stage.drain_one().data) == [b"later"]


def test_a_batch_in_a_thread_expires_in_time_and_gives_its_room_back() -> None:
    stage, executor = compressing_stage(delivery_timeout_s=1.0)
    delivery = stage.append(LARGE)
    stage.drain()
    stage.clock.advance(ms=1000)
    (expired,) = stage.accumulator.expired(stage.now)
    stage.accumulator.fail(expired, stage.accumulator.expiry_error(expired))
    assert stage.accumulator.pool.available_bytes == 300_000
    executor.do_one()
    assert (stage.drain(), stage.ready_nodes()) == ([], set())
    assert delivery.exception() is not None


def test_a_flush_waits_for_a_batch_in_a_thread() -> None:
    stage, _ = compressing_stage()
    delivery = stage.append(LARGE)
    stage.drain()
    assert stage.accumulator.begin_flush() == [delivery[0]]


def test_halves_of_a_batch_are_compressed_and_keep_their_sequences() -> None:
    stage, executor = compressing_stage(batch_bytes=60_000)
    for letter in (b"a", b"b"):
        stage.append(letter * 20_000)
    stage.drain()
    executor.do_one()
    stage.accumulator.split(stage.drain_one())
    sequences = []
    for letter in (b"a", b"b"):
        assert stage.drain() == []
        executor.do_one()
        half = stage.drain_one()
        assert half.data is not None
        assert values_of(half.data) == [letter * 20_000]
        sequences.append(BatchHeader(half.data).base_sequence)
        assert stage.transactions is not None
        stage.transactions.sequences.completed(half, 0)
    assert sequences == [0, 1]


def test_a_batch_that_cannot_be_compressed_fails_and_lets_the_next_one_go() -> None:
    stage, executor = compressing_stage(level=99)
    stage.append(LARGE)
    stage.append(b"y" * 20_000)
    executor.do_one()
    assert stage.drain() == []
    ((batch, problem),) = stage.accumulator.take_not_compressed()
    assert "1 records for t-0" in str(problem)
    stage.accumulator.fail(batch, problem)
    assert stage.ready_nodes() == {0}
