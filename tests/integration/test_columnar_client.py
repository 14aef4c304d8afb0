"""The columnar client with a real broker: what others wrote is read as Arrow, what it writes others
read, ranges are exact, and a broker that restarts costs neither a row nor a doubled one.

With TIDELOG_TEST_BOOTSTRAP the black-box tests run against that broker (Apache Kafka, say).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

from tests.conftest import StartBroker
from tests.support.column_writer import ColumnCluster, ColumnWriter, close_writers
from tests.support.foreign_clients import (
    CODECS,
    ConfluentKafka,
    ForeignClient,
    KafkaPython,
    Message,
)
from tests.support.raw_batch import batch as raw_batch
from tests.support.raw_client import RawClient, create_topic, produce
from tidelog.client.admin.offsets import NO_OFFSET
from tidelog.client.columns.arrow import SCHEMA_WITH_HEADERS
from tidelog.client.columns.range_reader import FetchRange, RangeReader
from tidelog.client.errors import (
    MessageTooLarge,
    OffsetOutOfRange,
    UnknownTopic,
    UnsupportedByBroker,
)
from tidelog.client.network.versions import BrokerVersions
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.listed_timestamps import EARLIEST, LATEST
from tidelog.types import TopicPartition

NOW = 1_700_000_000_000
HEADERS = SCHEMA_WITH_HEADERS.field("headers").type


@pytest.fixture(autouse=True)
def no_writer_stays_open() -> Iterator[None]:
    yield
    close_writers()


def message_of(row: int, *, null_headers: bool = True) -> Message:
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if row % 3 == 0:
        headers = (("trace", b"%d" % row), ("empty", b""))
        headers += (("null", None),) if null_headers else ()
    return Message(
        value=None if row % 11 == 5 else b"value-%d" % row + b"x" * (row % 50),
        key=None if row % 7 == 3 and row % 11 != 5 else b"key-%d" % row,
        headers=headers,
        timestamp_ms=NOW + row,
    )


def messages(count: int, **options: bool) -> list[Message]:
    return [message_of(row, **options) for row in range(count)]


def as_messages(batches: list[pa.RecordBatch]) -> list[Message]:
    found = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == SCHEMA_WITH_HEADERS
        for row in batch.to_pylist():
            headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
            timestamp_ms = round(row["timestamp"].timestamp() * 1000)
            found.append(
                Message(
                    row["value"],
                    row["key"],
                    headers,
                    timestamp_ms,
                    row["offset"],
                    row["timestampType"] == 1,
                )
            )
    return found


def as_arrow(rows: list[Message], **columns: Any) -> pa.RecordBatch:
    headers = [[{"key": key, "value": value} for key, value in row.headers] or None for row in rows]
    timestamps = [None if row.timestamp_ms is None else row.timestamp_ms * 1000 for row in rows]
    return pa.record_batch(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "timestamp": pa.array(timestamps, pa.timestamp("us", tz="UTC")),
            **columns,
        }
    )


def read(
    cluster: ColumnCluster, topic: str, partition: int = 0, start: int = 0, end: int | None = None
) -> list[Message]:
    where = TopicPartition(topic, partition)
    if end is None:
        end = cluster.latest_offsets([where])[where]
    return as_messages(
        list(RangeReader(cluster, with_headers=True).fetch_columns(where, start, end))
    )


def offsets_read(cluster: ColumnCluster, ranges: list[FetchRange]) -> list[tuple[int, int]]:
    return [
        (row["partition"], row["offset"])
        for batch in RangeReader(cluster).fetch_ranges(ranges)
        for row in batch.select(["partition", "offset"]).to_pylist()
    ]


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[ColumnCluster]:
    with ColumnCluster({"bootstrap.servers": bootstrap}) as connected:
        yield connected


class TestReadingWhatOthersWrote:
    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("writer", [ConfluentKafka(), KafkaPython()], ids=lambda w: w.name)
    def test_records_come_out_equal(
        self, bootstrap: str, cluster: ColumnCluster, topic: str, writer: ForeignClient, codec: str
    ) -> None:
        written = messages(500, null_headers=writer.writes_null_headers)
        writer.produce(bootstrap, topic, 0, codec, written)
        found = read(cluster, topic)
        assert [row.offset for row in found] == list(range(500))
        assert [row.as_carried(headers=True, timestamp=True) for row in found] == written

    @pytest.mark.parametrize("release", [(0, 9), (0, 10)], ids=str)
    def test_old_producers_are_read(
        self, bootstrap: str, cluster: ColumnCluster, topic: str, release: tuple[int, ...]
    ) -> None:
        if not offers_old_formats(cluster):
            pytest.skip("the broker takes no old formats")
        written = [Message(b"v%d" % row, b"k", timestamp_ms=NOW) for row in range(20)]
        KafkaPython(release).produce(bootstrap, topic, 0, "gzip", written)
        assert [row.value for row in read(cluster, topic)] == [row.value for row in written]

    def test_append_time_is_told_from_create_time(self, client: RawClient, topic_name: str) -> None:
        create_topic(client, topic_name, configs={"message.timestamp.type": "LogAppendTime"})
        before_ms = time.time_ns() // 1_000_000 - 1
        produce(client, topic_name, raw_batch(b"a", b"b"))
        host, port = client.socket.getpeername()[:2]
        with ColumnCluster({"bootstrap.servers": f"{host}:{port}"}) as cluster:
            found = read(cluster, topic_name)
        assert [row.append_time for row in found] == [True, True]
        assert all((row.timestamp_ms or 0) > before_ms for row in found)

    def test_records_larger_than_a_fetch_are_read(
        self, bootstrap: str, topic: str, client: RawClient
    ) -> None:
        produce(client, topic, raw_batch(b"x" * 500_000))
        produce(client, topic, raw_batch(b"y" * 900_000))
        with ColumnCluster(
            {"bootstrap.servers": bootstrap, "max.partition.fetch.bytes": 1000}
        ) as small:
            assert [len(row.value or b"") for row in read(small, topic)] == [500_000, 900_000]


def offers_old_formats(cluster: ColumnCluster) -> bool:
    ranges = versions_of(cluster).ranges
    return ranges[ApiKey.PRODUCE][0] == 0 and ranges[ApiKey.FETCH][0] == 0


def versions_of(cluster: ColumnCluster) -> BrokerVersions:
    async def ask() -> BrokerVersions:
        return await cluster.network.versions(await cluster.network.any_node())

    return cluster.run(ask())


class TestRanges:
    @pytest.fixture
    def filled(self, client: RawClient, topic_name: str) -> str:
        """Two partitions of 300 records in batches of 1 to 24."""
        create_topic(client, topic_name, partitions=2)
        for partition in range(2):
            for size in range(1, 25):
                produce(client, topic_name, raw_batch(*[b"v" * size] * size), partition=partition)
        return topic_name

    def test_every_range_gives_exactly_its_offsets(
        self, cluster: ColumnCluster, filled: str
    ) -> None:
        where = TopicPartition(filled, 0)
        for start, end in ((0, 300), (0, 1), (299, 300), (17, 18), (100, 250), (7, 7), (9, 3)):
            found = offsets_read(cluster, [FetchRange(where, start, end)])
            assert found == [(0, offset) for offset in range(start, end)]

    def test_split_ranges_make_up_the_whole(self, cluster: ColumnCluster, filled: str) -> None:
        where = TopicPartition(filled, 0)
        cuts = [0, 13, 14, 99, 100, 101, 250, 300]
        found = []
        for start, end in pairwise(cuts):
            found += offsets_read(cluster, [FetchRange(where, start, end)])
        assert found == [(0, offset) for offset in range(300)]

    def test_ranges_of_several_partitions_share_requests(
        self, cluster: ColumnCluster, filled: str
    ) -> None:
        ranges = [
            FetchRange(TopicPartition(filled, 0), 10, 200),
            FetchRange(TopicPartition(filled, 1), 50, 300),
        ]
        found = offsets_read(cluster, ranges)
        assert [row for row in found if row[0] == 0] == [(0, offset) for offset in range(10, 200)]
        assert [row for row in found if row[0] == 1] == [(1, offset) for offset in range(50, 300)]

    def test_batches_have_the_size_asked_for(self, cluster: ColumnCluster, filled: str) -> None:
        reader = RangeReader(cluster, rows_max=40)
        sizes = [b.num_rows for b in reader.fetch_columns(TopicPartition(filled, 0), 0, 300)]
        assert sum(sizes) == 300
        assert max(sizes) <= 40

    def test_reading_to_the_end_does_not_wait_there(self, bootstrap: str, filled: str) -> None:
        with ColumnCluster(
            {"bootstrap.servers": bootstrap, "fetch.max.wait.ms": 50_000}
        ) as patient:
            started = time.monotonic()
            assert len(read(patient, filled)) == 300
            assert time.monotonic() - started < 40

    def test_a_start_outside_the_log_says_what_the_log_holds(
        self, cluster: ColumnCluster, filled: str
    ) -> None:
        where = TopicPartition(filled, 0)
        with pytest.raises(OffsetOutOfRange, match=r"from offset 5000.*holds offsets 0 to 300"):
            list(RangeReader(cluster).fetch_columns(where, 5000, 5001))

    def test_an_unknown_topic_is_an_error_and_is_not_made(
        self, cluster: ColumnCluster, topic_name: str
    ) -> None:
        where = TopicPartition(topic_name, 0)
        with pytest.raises(UnknownTopic, match=topic_name):
            list(RangeReader(cluster).fetch_columns(where, 0, 1))
        with pytest.raises(UnknownTopic, match=topic_name):
            cluster.latest_offsets([where])
        assert topic_name not in cluster.topics(None)


class TestOffsets:
    def test_earliest_latest_and_timestamps_of_many_partitions(
        self, cluster: ColumnCluster, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, topic_name, partitions=3)
        rows = [Message(b"v", timestamp_ms=NOW + 10 * row) for row in range(5)]
        with ColumnWriter(cluster, topic=topic_name) as producer:
            producer.write(as_arrow(rows, partition=pa.array([1] * 5, pa.int32())))
        where = [TopicPartition(topic_name, index) for index in range(3)]
        assert cluster.earliest_offsets(where) == dict.fromkeys(where, 0)
        assert list(cluster.latest_offsets(where).values()) == [0, 5, 0]
        asked = {where[0]: LATEST, where[1]: NOW + 11, where[2]: EARLIEST}
        found = cluster.list_offsets(asked)
        assert (found[where[1]].offset, found[where[1]].timestamp) == (2, NOW + 20)
        assert cluster.list_offsets({where[1]: NOW + 999})[where[1]].offset == NO_OFFSET


class TestWriting:
    @pytest.mark.parametrize("codec", CODECS)
    def test_others_read_what_was_written(self, bootstrap: str, topic: str, codec: str) -> None:
        written = messages(500)
        with ColumnCluster({"bootstrap.servers": bootstrap, "compression.type": codec}) as cluster:
            with ColumnWriter(cluster, topic=topic) as producer:
                producer.write(as_arrow(written[:200]))
                producer.write(as_arrow(written[200:]))
                last = producer.flush()
            assert last == {TopicPartition(topic, 0): 499}
            ours = read(cluster, topic)
        theirs = ConfluentKafka().consume(bootstrap, topic, {0: 500})[0]
        assert [row.as_carried(headers=True, timestamp=True) for row in theirs] == written
        assert ours == theirs

    def test_keys_go_to_the_partitions_of_javas_producer(
        self, bootstrap: str, cluster: ColumnCluster, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, topic_name, partitions=10)
        keys = [b"key-%d" % row for row in range(1000)]
        theirs = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 20}
        )
        chosen = {}

        def delivered(error: Any, message: Any) -> None:
            chosen[message.key()] = message.partition()

        for key in keys:
            theirs.produce(topic_name, b"", key=key, on_delivery=delivered)
        assert theirs.flush(30) == 0
        ends = cluster.latest_offsets([TopicPartition(topic_name, index) for index in range(10)])
        with ColumnWriter(cluster, topic=topic_name) as producer:
            producer.write(pa.record_batch({"key": pa.array(keys), "value": pa.array(keys)}))
            last = producer.flush()
        ranges = [FetchRange(where, ends[where], offset + 1) for where, offset in last.items()]
        found = pa.Table.from_batches(list(RangeReader(cluster).fetch_ranges(ranges)))
        assert found.num_rows == 1000
        ours = dict(zip(found["key"].to_pylist(), found["partition"].to_pylist(), strict=True))
        assert ours == chosen

    def test_topics_and_partitions_may_be_columns(
        self, cluster: ColumnCluster, client: RawClient, topic_name: str
    ) -> None:
        names = [f"{topic_name}-a", f"{topic_name}-b"]
        for name in names:
            create_topic(client, name, partitions=3)
        rows = range(300)
        batch = pa.record_batch(
            {
                "topic": pa.array([names[row % 2] for row in rows]),
                "partition": pa.array([row % 3 for row in rows], pa.int32()),
                "value": pa.array([str(row) for row in rows]),
            }
        )
        with ColumnWriter(cluster) as producer:
            producer.write(batch)
        for row in range(6):
            found = read(cluster, names[row % 2], row % 3)
            assert [int(m.value or b"") for m in found] == list(range(row, 300, 6))

    def test_a_record_that_the_topic_does_not_take_is_a_typed_error(
        self, cluster: ColumnCluster, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, topic_name, configs={"max.message.bytes": "1000"})
        producer = ColumnWriter(cluster, topic=topic_name)
        small = pa.record_batch({"value": pa.array([b"x" * 100] * 50)})
        producer.write(small)
        assert producer.flush() == {TopicPartition(topic_name, 0): 49}
        large = pa.record_batch({"value": pa.array([b"x" * 2000])})
        with pytest.raises(MessageTooLarge, match=topic_name):
            write_and_flush(producer, large)
        assert len(read(cluster, topic_name)) == 50

    def test_a_table_of_many_chunks_is_written(self, cluster: ColumnCluster, topic: str) -> None:
        chunks = [as_arrow(messages(100)) for _ in range(5)]
        with ColumnWriter(cluster, topic=topic) as producer:
            producer.write(pa.Table.from_batches(chunks))
        assert len(read(cluster, topic)) == 500


def write_and_flush(producer: ColumnWriter, batch: pa.RecordBatch) -> None:
    producer.write(batch)
    producer.flush()


class TestTransactions:
    def test_read_committed_leaves_out_what_was_aborted(
        self, bootstrap: str, cluster: ColumnCluster, topic: str
    ) -> None:
        if not versions_of(cluster).offers(ApiKey.END_TXN):
            pytest.skip("the broker has no transactions")
        theirs = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 5}
        )
        theirs.init_transactions(30)
        for transaction in range(6):
            theirs.begin_transaction()
            for row in range(100):
                theirs.produce(topic, b"%d-%d" % (transaction, row), partition=0)
            theirs.flush(30)
            (theirs.abort_transaction if transaction % 2 else theirs.commit_transaction)(30)
        where = TopicPartition(topic, 0)
        deadline = time.monotonic() + 20
        while cluster.latest_offsets([where])[where] < 606 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(read(cluster, topic)) == 600
        with ColumnCluster(
            {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
        ) as committed:
            found = [row.value for row in read(committed, topic)]
            assert found == [b"%d-%d" % (t, row) for t in (0, 2, 4) for row in range(100)]
            assert [row.offset for row in read(committed, topic, 0, 150, 250)] == list(
                range(202, 250)
            )


class TestGroups:
    def test_a_commit_reaches_the_group_or_says_why_not(
        self, bootstrap: str, cluster: ColumnCluster, topic: str
    ) -> None:
        where = TopicPartition(topic, 0)
        if not versions_of(cluster).offers(ApiKey.FIND_COORDINATOR):
            with pytest.raises(UnsupportedByBroker, match="no group coordinator"):
                cluster.commit_offsets(f"group-{topic}", {where: 7})
            return
        cluster.commit_offsets(f"group-{topic}", {where: 7})
        reader = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"group-{topic}"}
        )
        (found,) = reader.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=60)
        reader.close()
        assert found.offset == 7


class TestRestarts:
    ROWS = 60_000
    PIECE = 1000

    @pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
    def test_a_restart_in_the_middle_of_writing_loses_and_doubles_nothing(
        self, start_broker: StartBroker, topic_name: str, kill: bool
    ) -> None:
        broker = start_broker()
        with RawClient(broker.bootstrap) as client:
            create_topic(client, topic_name, partitions=3)
        options = {
            "bootstrap.servers": broker.bootstrap,
            "batch.size": 4000,
            "reconnect.backoff.max.ms": 100,
        }
        with ColumnCluster(options) as cluster:
            with ColumnWriter(cluster, topic=topic_name) as producer:
                for start in range(0, self.ROWS, self.PIECE):
                    if start in (20_000, 40_000):
                        (broker.kill if kill else broker.stop)()
                        broker.spawn()
                    rows = range(start, start + self.PIECE)
                    producer.write(
                        pa.record_batch(
                            {
                                "value": pa.array([str(row) for row in rows]),
                                "partition": pa.array([row % 3 for row in rows], pa.int32()),
                            }
                        )
                    )
            for partition in range(3):
                where = TopicPartition(topic_name, partition)
                end = cluster.latest_offsets([where])[where]
                batches = RangeReader(cluster).fetch_columns(where, 0, end)
                found = [int(value) for b in batches for value in b.column("value").to_pylist()]
                assert found == list(range(partition, self.ROWS, 3))

    @pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
    def test_a_restart_in_the_middle_of_reading_is_not_seen(
        self, start_broker: StartBroker, topic_name: str, kill: bool
    ) -> None:
        broker = start_broker()
        with RawClient(broker.bootstrap) as client:
            create_topic(client, topic_name)
        options = {
            "bootstrap.servers": broker.bootstrap,
            "batch.size": 4000,
            "max.partition.fetch.bytes": 50_000,
            "reconnect.backoff.max.ms": 100,
        }
        with ColumnCluster(options) as cluster:
            with ColumnWriter(cluster, topic=topic_name) as producer:
                values = pa.array([str(row) for row in range(self.ROWS)])
                producer.write(pa.record_batch({"value": values}))
            where = TopicPartition(topic_name, 0)
            found: list[int] = []
            restarts = 0
            for batch in RangeReader(cluster).fetch_columns(where, 0, self.ROWS):
                found += batch.column("offset").to_pylist()
                if len(found) > (restarts + 1) * self.ROWS // 3 and restarts < 2:
                    restarts += 1
                    (broker.kill if kill else broker.stop)()
                    broker.start()
            assert restarts == 2
            assert found == list(range(self.ROWS))
