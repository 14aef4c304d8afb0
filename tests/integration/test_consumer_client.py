"""tidelog's own consumer against a real broker: reading, seeking, committing, groups, and brokers
and topics that go away. Runs against Apache Kafka too (TIDELOG_TEST_BOOTSTRAP)."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.conftest import StartBroker
from tests.support.broker_process import EXTERNAL_BOOTSTRAP, BrokerProcess
from tests.support.foreign_clients import CODECS
from tests.support.raw_client import RawClient, create_topic
from tidelog.client.blocking.admin import Admin
from tidelog.client.blocking.consumer import Consumer
from tidelog.client.blocking.producer import Producer
from tidelog.client.consumer.consumer import AsyncConsumer
from tidelog.client.consumer.offset_and_metadata import OffsetAndMetadata
from tidelog.client.consumer.rebalance_listener import RebalanceListener
from tidelog.client.errors import (
    Closed,
    CommitFailed,
    FencedInstance,
    IllegalState,
    Interrupted,
    NoOffsetForPartition,
    OffsetOutOfRange,
    RequestTimedOut,
    Serialization,
)
from tidelog.record.kernel import ConsumerRecord
from tidelog.types import TopicPartition

WITHIN_S = 60.0
PROTOCOLS = ["classic", "consumer"]
GROUP_CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "5",
}


def produce(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes],
    *,
    partition: int = 0,
    codec: str = "none",
    timestamps: Sequence[int] | None = None,
) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": codec}
    )
    for index, value in enumerate(values):
        timestamp = timestamps[index] if timestamps else int(time.time() * 1000)
        producer.produce(
            topic,
            value,
            key=b"k%d" % index,
            partition=partition,
            timestamp=timestamp,
            headers=[("h", b"%d" % index)],
        )
    assert producer.flush(WITHIN_S) == 0


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@asynccontextmanager
async def consuming(bootstrap: str, **settings: object) -> AsyncIterator[AsyncConsumer]:
    settings = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, **settings}
    async with AsyncConsumer(bootstrap_servers=bootstrap, **settings) as consumer:  # type: ignore[arg-type]
        yield consumer


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    """Exactly so many, within bounds."""
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + WITHIN_S
    while len(found) < count:
        found += await consumer.poll(0.5)
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
    assert len(found) == count
    return found


async def until(holds: Callable[[], bool], *consumers: AsyncConsumer) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "did not come true"
        for consumer in consumers:
            await consumer.poll(0.05)
        await asyncio.sleep(0.01)


def each_has_one(*consumers: AsyncConsumer) -> bool:
    return all(len(consumer.assignment()) == 1 for consumer in consumers)


class Diary(RebalanceListener):
    def __init__(self) -> None:
        self.entries: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.entries.append(("assigned", [each.partition for each in partitions]))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.entries.append(("revoked", [each.partition for each in partitions]))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.entries.append(("lost", [each.partition for each in partitions]))


# Reading


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_come_with_all_their_fields(
    bootstrap: str, topic: str, codec: str
) -> None:
    now = int(time.time() * 1000)
    produce(bootstrap, topic, numbered(50), codec=codec, timestamps=[now + i for i in range(50)])

    async def story() -> list[ConsumerRecord]:
        async with consuming(bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            return await read(consumer, 50)

    records = asyncio.run(story())
    assert [record.offset for record in records] == list(range(50))
    seventh = records[7]
    assert (seventh.topic, seventh.partition) == (topic, 0)
    assert (seventh.key, seventh.value) == (b"k7", b"7")
    assert seventh.headers == (("h", b"7"),)
    assert (seventh.timestamp, seventh.timestamp_type) == (now + 7, 0)
    assert seventh.leader_epoch is not None


def test_a_poll_gives_at_most_max_poll_records_and_moves_the_position(
    bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, numbered(25))
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with consuming(bootstrap, max_poll_records=10) as consumer:
            consumer.assign([partition])
            assert await consumer.position(partition) == 0
            first = await consumer.poll(WITHIN_S)
            assert len(first) == 10
            assert await consumer.position(partition) == 10
            assert len(await consumer.poll(WITHIN_S, max_records=3)) == 3
            assert await consumer.position(partition) == 13
            await read(consumer, 12)
            assert consumer.lag(partition) == 0
            assert await consumer.poll(0.1) == []

    asyncio.run(story())


def test_an_iteration_counts_records_one_by_one(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, numbered(20))
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with consuming(bootstrap, group_id=f"g-{topic}") as consumer:
            consumer.assign([partition])
            async for record in consumer:
                if record.offset == 6:
                    break
            assert await consumer.position(partition) == 7
            await consumer.commit()
            assert (await consumer.committed([partition]))[partition] == OffsetAndMetadata(7)
            rest = [record.offset for record in await read(consumer, 13)]
            assert rest == list(range(7, 20))

    asyncio.run(story())


def test_seeking_pausing_and_resuming(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, numbered(10))
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with consuming(bootstrap) as consumer:
            consumer.assign([partition])
            await read(consumer, 10)
            consumer.seek(partition, 4)
            assert (await read(consumer, 6))[0].offset == 4
            consumer.seek_to_beginning([partition])
            assert (await read(consumer, 10))[0].offset == 0
            consumer.seek_to_end()
            assert await consumer.position(partition) == 10
            consumer.seek(partition, 8)
            consumer.pause([partition])
            assert consumer.paused() == {partition}
            assert await consumer.poll(0.5) == []
            consumer.resume([partition])
            assert [record.offset for record in await read(consumer, 2)] == [8, 9]
            with pytest.raises(IllegalState, match="not assigned"):
                consumer.seek(TopicPartition(topic, 1), 0)

    asyncio.run(story())


def test_a_partition_paused_with_records_in_the_buffer_goes_on_where_it_stopped(
    bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, numbered(100))
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with consuming(bootstrap, max_poll_records=7) as consumer:
            consumer.assign([partition])
            seen = [record.offset for record in await consumer.poll(WITHIN_S)]
            consumer.pause([partition])
            assert await consumer.poll(0.3) == []
            consumer.resume([partition])
            while len(seen) < 100:
                seen += [record.offset for record in await consumer.poll(WITHIN_S)]
            assert seen == list(range(100))

    asyncio.run(story())


def test_offsets_of_times_beginnings_and_ends(bootstrap: str, topic: str) -> None:
    base = int(time.time() * 1000) - 60_000
    produce(bootstrap, topic, numbered(10), timestamps=[base + 1000 * i for i in range(10)])
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with consuming(bootstrap) as consumer:
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 10}
            found = (await consumer.offsets_for_times({partition: base + 4500}))[partition]
            assert found is not None
            assert (found.offset, found.timestamp) == (5, base + 5000)
            late = await consumer.offsets_for_times({partition: base + 99_000})
            assert late == {partition: None}
            assert set(await consumer.partitions_for(topic)) == {0}
            assert topic in await consumer.list_topics()

    asyncio.run(story())


def test_where_to_begin_is_what_auto_offset_reset_says(bootstrap: str, topic: str) -> None:
    now = int(time.time() * 1000)
    produce(bootstrap, topic, numbered(10), timestamps=[now - 7_200_000] * 5 + [now] * 5)
    partition = TopicPartition(topic, 0)

    async def first_position(reset: str) -> int:
        async with consuming(bootstrap, auto_offset_reset=reset) as consumer:
            consumer.assign([partition])
            return await consumer.position(partition)

    assert asyncio.run(first_position("earliest")) == 0
    assert asyncio.run(first_position("latest")) == 10
    assert asyncio.run(first_position("by_duration:PT1H")) == 5
    with pytest.raises(NoOffsetForPartition, match=topic):
        asyncio.run(first_position("none"))


def test_a_position_outside_the_log_is_reset_or_an_error(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, numbered(5))
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with consuming(bootstrap) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 1_000)
            assert (await read(consumer, 5))[0].offset == 0
        async with consuming(bootstrap, auto_offset_reset="none") as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 1_000)
            with pytest.raises(OffsetOutOfRange, match="1000"):
                await consumer.poll(WITHIN_S)
            consumer.seek(partition, 3)
            assert len(await read(consumer, 2)) == 2

    asyncio.run(story())


def test_only_committed_transactions_are_read_with_read_committed(
    bootstrap: str, topic: str
) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"x-{topic}"}
    )
    producer.init_transactions(WITHIN_S)
    for name, end in (
        (b"a", producer.commit_transaction),
        (b"b", producer.abort_transaction),
        (b"c", producer.commit_transaction),
    ):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, name + b"%d" % number, partition=0)
        producer.flush(WITHIN_S)
        end()

    async def values(level: str, count: int) -> list[bytes | None]:
        async with consuming(bootstrap, isolation_level=level) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found = [record.value for record in await read(consumer, count)]
            assert await consumer.poll(0.3) == []
            ends = await consumer.end_offsets([TopicPartition(topic, 0)])
            assert await consumer.position(TopicPartition(topic, 0)) in ends.values()
            return found

    committed = asyncio.run(values("read_committed", 6))
    assert committed == [b"a0", b"a1", b"a2", b"c0", b"c1", b"c2"]
    assert len(asyncio.run(values("read_uncommitted", 9))) == 9


def test_deserializers_and_a_record_that_they_cannot_read(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [b'{"n": 1}', b'{"n": 2}', b"no json", b'{"n": 4}'])
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with AsyncConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            value_deserializer=json.loads,
            key_deserializer=bytes.decode,
        ) as consumer:
            consumer.assign([partition])
            good = await read(consumer, 2)
            shown: list[object] = [[record.key, record.value] for record in good]
            assert shown == [["k0", {"n": 1}], ["k1", {"n": 2}]]
            for _ in range(2):
                with pytest.raises(Serialization, match="offset 2"):
                    await consumer.poll(WITHIN_S)
            assert await consumer.position(partition) == 2
            consumer.seek(partition, 3)
            last: object = (await read(consumer, 1))[0].value
            assert last == {"n": 4}

    asyncio.run(story())


def test_arrow_and_raw_batches_and_records_are_the_same(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, numbered(1000))
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with consuming(bootstrap) as consumer:
            consumer.assign([partition])
            assert len(await consumer.poll(WITHIN_S, max_records=10)) == 10
            table = await consumer.poll_arrow(WITHIN_S, max_records=90)
            while table.num_rows < 90:
                import pyarrow as pa

                left = 90 - table.num_rows
                table = pa.concat_tables([table, await consumer.poll_arrow(WITHIN_S, left)])
            assert table.column("offset").to_pylist() == list(range(10, 100))
            assert table.column("value").to_pylist() == numbered(90, 10)
            headers = table.column("headers").to_pylist()
            assert headers[0] == [{"key": "h", "value": b"10"}]
            assert await consumer.position(partition) == 100
            count = 0
            while count < 900:
                more = await consumer.poll_arrow(WITHIN_S)
                assert more.column("offset").to_pylist()[0] == 100 + count
                count += more.num_rows
            assert (await consumer.poll_arrow(0.1)).num_rows == 0
            consumer.seek_to_beginning()
            batches = await consumer.poll_batches(WITHIN_S)
            assert batches[0].base_offset == 0
            assert batches[0].data[16] == 2
            assert await consumer.position(partition) == batches[-1].last_offset + 1

    asyncio.run(story())


def test_a_blocking_consumer_reads_iterates_and_is_woken(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, numbered(2000))
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        offsets = []
        for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == 1500:
                break
        while len(offsets) < 2000:
            offsets += [record.offset for record in consumer.poll(WITHIN_S)]
        assert offsets == list(range(2000))
        waker = threading.Timer(0.2, consumer.wakeup)
        waker.start()
        with pytest.raises(Interrupted):
            consumer.poll(WITHIN_S)
        waker.join()
        assert consumer.poll(0.01) == []
    with pytest.raises(Closed):
        consumer.poll(0.1)


# Groups


@pytest.fixture
def group_broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(GROUP_CONFIG)


class Served(Protocol):
    """A broker that the story does not touch."""

    @property
    def bootstrap(self) -> str: ...


def make_topic(broker: Served, name: str, partitions: int) -> None:
    with RawClient(broker.bootstrap) as client:
        create_topic(client, name, partitions=partitions)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_shares_partitions_and_goes_on_from_its_commits(
    group_broker: Served, topic_name: str, protocol: str
) -> None:
    make_topic(group_broker, topic_name, 4)
    for index in range(4):
        produce(group_broker.bootstrap, topic_name, numbered(10), partition=index)
    settings = {"group_id": f"g-{topic_name}", "group_protocol": protocol}

    async def story() -> None:
        first_diary, second_diary = Diary(), Diary()
        async with consuming(group_broker.bootstrap, **settings) as first:
            first.subscribe([topic_name], listener=first_diary)
            await read(first, 40)
            assert len(first.assignment()) == 4
            await first.commit()
            async with consuming(group_broker.bootstrap, **settings) as second:
                second.subscribe([topic_name], listener=second_diary)
                await until(
                    lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second
                )
                assert not first.assignment() & second.assignment()
                for index in range(4):
                    produce(group_broker.bootstrap, topic_name, numbered(5, 10), partition=index)
                both = await asyncio.gather(read(first, 10), read(second, 10))
                offsets = sorted(record.offset for records in both for record in records)
                assert offsets == sorted(list(range(10, 15)) * 4)
            await until(lambda: len(first.assignment()) == 4, first)
        assert first_diary.entries[0] == ("assigned", [0, 1, 2, 3])
        assert [what for what, _ in second_diary.entries if what == "lost"] == []
        assert first_diary.entries[-1][0] == "revoked"

    asyncio.run(story())


def test_a_cooperative_member_keeps_what_it_keeps(group_broker: Served, topic_name: str) -> None:
    make_topic(group_broker, topic_name, 4)
    settings = {
        "group_id": f"g-{topic_name}",
        "partition_assignment_strategy": "cooperative-sticky",
    }

    async def story() -> None:
        diary = Diary()
        async with (
            consuming(group_broker.bootstrap, **settings) as first,
            consuming(group_broker.bootstrap, **settings) as second,
        ):
            first.subscribe([topic_name], listener=diary)
            await until(lambda: len(first.assignment()) == 4, first)
            second.subscribe([topic_name])
            await until(
                lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second
            )
        revoked = [partitions for what, partitions in diary.entries if what == "revoked"]
        assert len(revoked[0]) == 2

    asyncio.run(story())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_automatic_commits_and_the_one_of_closing(
    group_broker: Served, topic_name: str, protocol: str
) -> None:
    make_topic(group_broker, topic_name, 1)
    produce(group_broker.bootstrap, topic_name, numbered(10))
    partition = TopicPartition(topic_name, 0)
    settings = {
        "group_id": f"g-{topic_name}",
        "group_protocol": protocol,
        "auto_commit_interval_ms": 100,
    }

    async def story() -> None:
        async with (
            consuming(group_broker.bootstrap, group_id=f"g-{topic_name}") as observer,
            consuming(group_broker.bootstrap, **settings) as consumer,
        ):
            consumer.subscribe([topic_name])
            await read(consumer, 10)
            found: dict[TopicPartition, OffsetAndMetadata | None] = {}
            deadline = time.monotonic() + WITHIN_S
            while not found.get(partition):
                assert time.monotonic() < deadline
                await consumer.poll(0.1)
                found = await observer.committed([partition])
            assert found[partition] == OffsetAndMetadata(10, 0)
            produce(group_broker.bootstrap, topic_name, numbered(3, 10))
            await read(consumer, 3)
            await consumer.close()
            found = await observer.committed([partition])
            assert found[partition] == OffsetAndMetadata(13, 0)

    asyncio.run(story())


def test_commits_carry_metadata_and_tell_their_outcome_in_order(
    group_broker: Served, topic_name: str
) -> None:
    make_topic(group_broker, topic_name, 1)
    produce(group_broker.bootstrap, topic_name, numbered(10))
    partition = TopicPartition(topic_name, 0)

    async def story() -> None:
        told: list[int] = []

        def note(offsets: object, problem: object) -> None:
            assert problem is None
            assert isinstance(offsets, dict)
            told.append(offsets[partition].offset)

        async with consuming(
            group_broker.bootstrap, group_id=f"g-{topic_name}", enable_auto_commit=False
        ) as consumer:
            consumer.subscribe([topic_name])
            await read(consumer, 10)
            for offset in range(1, 6):
                consumer.commit_soon({partition: offset}, note)
            await consumer.commit({partition: OffsetAndMetadata(7, 0, "seven")})
            assert told == [1, 2, 3, 4, 5]
            found = await consumer.committed([partition])
            assert found == {partition: OffsetAndMetadata(7, 0, "seven")}
            with pytest.raises(IllegalState, match="-1"):
                await consumer.commit({partition: -1})

    asyncio.run(story())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_consumer_that_does_not_poll_leaves_and_cannot_commit(
    group_broker: Served, topic_name: str, protocol: str
) -> None:
    make_topic(group_broker, topic_name, 1)
    produce(group_broker.bootstrap, topic_name, numbered(3))
    settings = {
        "group_id": f"g-{topic_name}",
        "group_protocol": protocol,
        "max_poll_interval_ms": 1_000,
        "enable_auto_commit": False,
    }
    if protocol == "classic":
        settings["session_timeout_ms"] = 1_000
        settings["heartbeat_interval_ms"] = 200

    async def story() -> None:
        diary = Diary()
        async with (
            consuming(group_broker.bootstrap, **settings) as slow,
            consuming(group_broker.bootstrap, **settings) as quick,
        ):
            slow.subscribe([topic_name], listener=diary)
            await read(slow, 3)
            quick.subscribe([topic_name])
            assert len(await read(quick, 3)) == 3
            with pytest.raises(CommitFailed, match=r"max\.poll\.interval\.ms"):
                await slow.commit()
            await slow.poll(0.1)
            assert ("lost", [0]) in diary.entries

    asyncio.run(story())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_comes_back_to_its_partitions(
    group_broker: Served, topic_name: str, protocol: str
) -> None:
    make_topic(group_broker, topic_name, 2)
    settings = {"group_id": f"g-{topic_name}", "group_protocol": protocol}

    async def story() -> None:
        async with consuming(
            group_broker.bootstrap, group_instance_id="other", **settings
        ) as other:
            other.subscribe([topic_name])
            generations = set()
            mine: set[frozenset[TopicPartition]] = set()
            for _ in range(2):
                async with consuming(
                    group_broker.bootstrap, group_instance_id="one", **settings
                ) as one:
                    one.subscribe([topic_name])
                    await until(partial(each_has_one, one, other), one, other)
                    mine.add(one.assignment())
                    generations.add(other.group_metadata().generation_id)
            assert len(mine) == 1
            assert len(generations) == 1

    asyncio.run(story())


def test_who_takes_an_instance_id_fences_the_one_who_had_it(
    group_broker: Served, topic_name: str
) -> None:
    make_topic(group_broker, topic_name, 1)
    settings = {
        "group_id": f"g-{topic_name}",
        "group_instance_id": "same",
        "heartbeat_interval_ms": 200,
    }

    async def story() -> None:
        async with (
            consuming(group_broker.bootstrap, **settings) as old,
            consuming(group_broker.bootstrap, **settings) as new,
        ):
            old.subscribe([topic_name])
            await until(lambda: len(old.assignment()) == 1, old)
            new.subscribe([topic_name])
            await until(lambda: len(new.assignment()) == 1, new)
            with pytest.raises(FencedInstance, match="same"):
                await until(lambda: False, old)

    asyncio.run(story())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pattern_finds_topics_that_come_later(
    group_broker: Served, topic_name: str, protocol: str
) -> None:
    """With the consumer protocol the broker evaluates it."""
    pattern = f"{topic_name}-.*"
    make_topic(group_broker, f"{topic_name}-a", 1)
    make_topic(group_broker, f"other-{topic_name}-a", 1)

    async def story() -> None:
        async with consuming(
            group_broker.bootstrap,
            group_id=f"g-{topic_name}",
            group_protocol=protocol,
            metadata_max_age_ms=200,
        ) as consumer:
            consumer.subscribe(pattern=re.compile(pattern) if protocol == "classic" else pattern)
            await until(lambda: len(consumer.assignment()) == 1, consumer)
            make_topic(group_broker, f"{topic_name}-b", 1)
            await until(lambda: len(consumer.assignment()) == 2, consumer)
            assert consumer.subscription() == {f"{topic_name}-a", f"{topic_name}-b"}

    asyncio.run(story())


def test_a_pattern_for_the_broker_need_not_be_one_of_python(
    group_broker: Served, topic_name: str
) -> None:
    make_topic(group_broker, f"{topic_name}-a", 1)

    async def story() -> None:
        async with consuming(
            group_broker.bootstrap, group_id=f"g-{topic_name}", group_protocol="consumer"
        ) as consumer:
            consumer.subscribe(pattern=rf"{topic_name}-\pL")
            with pytest.raises(IllegalState, match="unsubscribe first"):
                consumer.subscribe([topic_name])
            await until(lambda: len(consumer.assignment()) == 1, consumer)
            assert consumer.subscription() == {f"{topic_name}-a"}

    asyncio.run(story())


def test_what_is_no_pattern_is_refused(bootstrap: str) -> None:
    with (
        Consumer(bootstrap_servers=bootstrap, group_id="g") as consumer,
        pytest.raises(IllegalState, match="no regular expression"),
    ):
        consumer.subscribe(pattern="(a")


def test_offsets_that_the_wire_cannot_hold_are_refused(bootstrap: str, topic: str) -> None:
    first = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, group_id=f"g-{topic}") as consumer:
        consumer.assign([first])
        for wrong in (-1, 1 << 63):
            with pytest.raises(IllegalState, match=str(wrong)):
                consumer.seek(first, wrong)
            with pytest.raises(IllegalState, match=str(wrong)):
                consumer.commit({first: wrong})
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        pytest.raises(IllegalState, match="offset -1"),
    ):
        admin.alter_group_offsets(f"g-{topic}", {first: -1})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_new_partitions_are_found_and_read_from_their_beginning(
    group_broker: Served, topic_name: str, protocol: str
) -> None:
    make_topic(group_broker, topic_name, 1)
    admin = AdminClient({"bootstrap.servers": group_broker.bootstrap})

    async def story() -> None:
        async with consuming(
            group_broker.bootstrap,
            group_id=f"g-{topic_name}",
            group_protocol=protocol,
            metadata_max_age_ms=200,
        ) as consumer:
            consumer.subscribe([topic_name])
            await until(lambda: len(consumer.assignment()) == 1, consumer)
            for done in admin.create_partitions([NewPartitions(topic_name, 3)]).values():
                done.result(WITHIN_S)
            produce(group_broker.bootstrap, topic_name, numbered(5), partition=2)
            assert [record.partition for record in await read(consumer, 5)] == [2] * 5

    asyncio.run(story())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_deleted_under_a_consumer_and_made_anew(
    group_broker: Served, topic_name: str, protocol: str
) -> None:
    make_topic(group_broker, topic_name, 1)
    make_topic(group_broker, f"{topic_name}-stays", 1)
    produce(group_broker.bootstrap, topic_name, numbered(5))
    admin = AdminClient({"bootstrap.servers": group_broker.bootstrap})

    async def story() -> None:
        async with consuming(
            group_broker.bootstrap,
            group_id=f"g-{topic_name}",
            group_protocol=protocol,
            metadata_max_age_ms=200,
            allow_auto_create_topics=False,
        ) as consumer:
            consumer.subscribe([topic_name, f"{topic_name}-stays"])
            await read(consumer, 5)
            for done in admin.delete_topics([topic_name]).values():
                done.result(WITHIN_S)
            await until(lambda: len(consumer.assignment()) == 1, consumer)
            produce(group_broker.bootstrap, f"{topic_name}-stays", numbered(3))
            assert {record.topic for record in await read(consumer, 3)} == {f"{topic_name}-stays"}
            for done in admin.create_topics([NewTopic(topic_name, 1, 1)]).values():
                done.result(WITHIN_S)
            produce(group_broker.bootstrap, topic_name, numbered(4))
            await until(lambda: len(consumer.assignment()) == 2, consumer)

    asyncio.run(story())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_broker_killed_and_started_again_loses_and_repeats_nothing(
    group_broker: BrokerProcess, topic_name: str, protocol: str
) -> None:
    make_topic(group_broker, topic_name, 2)

    async def story() -> None:
        seen: dict[int, list[int]] = {0: [], 1: []}
        async with (
            consuming(
                group_broker.bootstrap,
                group_id=f"g-{topic_name}",
                group_protocol=protocol,
                session_timeout_ms=20_000,
            )
            if protocol == "classic"
            else consuming(
                group_broker.bootstrap, group_id=f"g-{topic_name}", group_protocol=protocol
            ) as consumer
        ):
            consumer.subscribe([topic_name])
            for turn in range(3):
                for index in (0, 1):
                    produce(
                        group_broker.bootstrap,
                        topic_name,
                        numbered(20, 20 * turn),
                        partition=index,
                    )
                deadline = time.monotonic() + WITHIN_S
                while any(len(offsets) < 20 * (turn + 1) for offsets in seen.values()):
                    assert time.monotonic() < deadline, seen
                    for record in await consumer.poll(0.5):
                        seen[record.partition].append(record.offset)
                await consumer.commit()
                if turn < 2:
                    group_broker.kill()
                    await consumer.poll(0.3)
                    group_broker.start()
        assert seen == {0: list(range(60)), 1: list(range(60))}

    asyncio.run(story())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_subscription_is_changed_given_up_and_taken_up_again(
    group_broker: Served, topic_name: str, protocol: str
) -> None:
    names = [f"{topic_name}-{letter}" for letter in "ab"]
    for name in names:
        make_topic(group_broker, name, 1)
        produce(group_broker.bootstrap, name, numbered(5))

    async def story() -> None:
        diary = Diary()
        async with consuming(
            group_broker.bootstrap, group_id=f"g-{topic_name}", group_protocol=protocol
        ) as consumer:
            consumer.subscribe(names[:1], listener=diary)
            await read(consumer, 5)
            consumer.subscribe(names, listener=diary)
            assert {record.topic for record in await read(consumer, 5)} == {names[1]}
            consumer.subscribe(names[1:], listener=diary)
            await until(lambda: len(consumer.assignment()) == 1, consumer)
            await consumer.commit()
            await consumer.unsubscribe()
            assert consumer.assignment() == frozenset()
            assert diary.entries[-1][0] == "revoked"
            with pytest.raises(IllegalState, match="neither subscribed nor assigned"):
                await consumer.poll(0.1)
            produce(group_broker.bootstrap, names[1], numbered(3, 5))
            consumer.subscribe(names, listener=diary)
            assert [record.offset for record in await read(consumer, 3)] == [5, 6, 7]

    asyncio.run(story())


def test_a_listener_that_raises_is_heard_and_the_rebalance_goes_on(
    group_broker: Served, topic_name: str
) -> None:
    make_topic(group_broker, topic_name, 1)
    produce(group_broker.bootstrap, topic_name, numbered(3))

    class Raising(RebalanceListener):
        def on_partitions_assigned(
            self, partitions: Collection[TopicPartition]
        ) -> Awaitable[None] | None:
            raise RuntimeError("the listener's own")

    async def story() -> None:
        async with consuming(group_broker.bootstrap, group_id=f"g-{topic_name}") as consumer:
            consumer.subscribe([topic_name], listener=Raising())
            with pytest.raises(RuntimeError, match="the listener's own"):
                await consumer.poll(WITHIN_S)
            await read(consumer, 3)

    asyncio.run(story())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("ends_by", ["error", "cancel"])
def test_records_come_at_once_after_a_listener_that_did_not_return(
    group_broker: Served, topic_name: str, protocol: str, ends_by: str
) -> None:
    """Without automatic commits, whose time would be the next occasion to look for positions."""
    make_topic(group_broker, topic_name, 1)
    produce(group_broker.bootstrap, topic_name, numbered(3))

    async def story() -> None:
        called = asyncio.Event()

        class Ending(RebalanceListener):
            async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
                if partitions:
                    called.set()
                    if ends_by == "error":
                        raise RuntimeError("the listener's own")
                    await asyncio.Event().wait()

        async with consuming(
            group_broker.bootstrap,
            group_id=f"g-{topic_name}",
            group_protocol=protocol,
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe([topic_name], listener=Ending())
            polling = asyncio.ensure_future(_poll_forever(consumer))
            await asyncio.wait_for(called.wait(), WITHIN_S)
            if ends_by == "cancel":
                polling.cancel()
            outcome = await asyncio.wait_for(
                asyncio.gather(polling, return_exceptions=True), WITHIN_S
            )
            assert isinstance(outcome[0], RuntimeError | asyncio.CancelledError)
            assert len(await read(consumer, 3)) == 3

    asyncio.run(story())


async def _poll_forever(consumer: AsyncConsumer) -> None:
    while True:
        await consumer.poll(1.0)


def test_what_a_blocking_callback_raises_is_raised_and_not_logged_as_well(
    group_broker: Served, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(group_broker, topic_name, 1)

    def raising(*_: object) -> None:
        raise RuntimeError("the callback's own")

    with Consumer(bootstrap_servers=group_broker.bootstrap, group_id=f"g-{topic_name}") as consumer:
        consumer.assign([TopicPartition(topic_name, 0)])
        consumer.commit_async({TopicPartition(topic_name, 0): 0}, raising)
        with pytest.raises(RuntimeError, match="the callback's own"):
            consumer.commit({TopicPartition(topic_name, 0): 1})
        consumer.commit({TopicPartition(topic_name, 0): 2})
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_blocking_listener_may_seek_commit_and_ask(group_broker: Served, topic_name: str) -> None:
    make_topic(group_broker, topic_name, 1)
    produce(group_broker.bootstrap, topic_name, numbered(10))
    partition = TopicPartition(topic_name, 0)
    threads = set()
    with Consumer(
        bootstrap_servers=group_broker.bootstrap,
        group_id=f"g-{topic_name}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:

        class Seeking(RebalanceListener):
            def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
                threads.add(threading.current_thread())
                assert consumer.position(partition) == 0
                consumer.seek(partition, 6)

            def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
                threads.add(threading.current_thread())
                consumer.commit()

        consumer.subscribe([topic_name], listener=Seeking())
        offsets: list[int] = []
        while len(offsets) < 4:
            offsets += [record.offset for record in consumer.poll(WITHIN_S)]
        assert offsets == [6, 7, 8, 9]
        consumer.unsubscribe()
        assert consumer.committed([partition]) == {partition: OffsetAndMetadata(10, 0)}
    assert threads == {threading.current_thread()}


@pytest.mark.parametrize("key", ["default.api.timeout.ms", "max.block.ms"])
def test_a_broker_that_accepts_and_is_silent_holds_nobody_beyond_the_limit(key: str) -> None:
    """Not for request.timeout.ms either, which is longer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        config = {"bootstrap.servers": f"127.0.0.1:{port}", key: 200}
        client: Producer | Consumer
        calls: list[Callable[[], object]]
        if key == "max.block.ms":
            producer = client = Producer(config)
            calls = [lambda: producer.send("t", b"x"), lambda: producer.partitions_for("t")]
        else:
            consumer = client = Consumer(config)
            calls = [lambda: consumer.partitions_for("t"), consumer.list_topics]
        began = time.monotonic()
        for call in calls:
            with pytest.raises(RequestTimedOut, match=rf"after 200 ms \({key}\)"):
                call()
        client.close(timeout=0)
        assert time.monotonic() - began < 25


@pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="needs its own broker's time")
def test_a_consumer_of_no_broker_ends_in_time() -> None:
    async def story() -> None:
        async with consuming("127.0.0.1:1", default_api_timeout_ms=500) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            began = time.monotonic()
            assert await consumer.poll(0.3) == []
            with pytest.raises(Exception, match="gave up"):
                await consumer.position(TopicPartition("t", 0))
            assert time.monotonic() - began < 5
            began = time.monotonic()
            await consumer.close(timeout=1.0)
            assert time.monotonic() - began < 5

    asyncio.run(story())
