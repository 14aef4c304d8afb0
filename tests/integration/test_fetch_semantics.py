"""Fetch, ListOffsets and OffsetForLeaderEpoch on the wire."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

import pytest
import zstandard
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest

from tests.support.raw_batch import (
    batch,
    encode_record,
    encode_records,
    read_batches,
    read_messages,
)
from tests.support.raw_client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    RawClient,
    create_topic,
    fetch,
    fetch_partition,
    fetch_request,
    list_offset,
    produce,
    topic_id,
)

UNKNOWN_SERVER_ERROR = -1
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
UNSUPPORTED_VERSION = 35
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNSUPPORTED_COMPRESSION_TYPE = 76
UNKNOWN_TOPIC_ID = 100
ZSTD = 4
LONG_WAIT_MS = 50_000  # who has waited for half of it has waited in vain


def rows_of(response: Any) -> dict[int, Any]:
    return {row.partition_index: row for topic in response.responses for row in topic.partitions}


def offsets_in(row: Any) -> list[int]:
    return [r.offset for b in read_batches(row.records or b"") for r in b.records()]


def elapsed_ms(since: float) -> float:
    return (time.monotonic() - since) * 1000


class TestReading:
    def test_a_read_starts_at_the_batch_that_holds_the_offset(
        self, client: RawClient, topic: str
    ) -> None:
        for values in ([b"a", b"b", b"c"], [b"d", b"e"], [b"f"]):
            produce(client, topic, batch(*values))
        assert offsets_in(fetch(client, topic, 0)) == [0, 1, 2, 3, 4, 5]
        assert offsets_in(fetch(client, topic, 2)) == [0, 1, 2, 3, 4, 5]
        assert offsets_in(fetch(client, topic, 3)) == [3, 4, 5]
        assert offsets_in(fetch(client, topic, 5)) == [5]

    def test_a_read_at_the_end_is_empty_and_past_it_out_of_range(
        self, client: RawClient, topic: str
    ) -> None:
        produce(client, topic, batch(b"a", b"b"))
        at_end = fetch(client, topic, 2)
        assert (at_end.error_code, at_end.records, at_end.high_watermark) == (0, b"", 2)
        for offset in (3, -5):
            past = fetch(client, topic, offset)
            assert past.error_code == OFFSET_OUT_OF_RANGE
            assert (past.high_watermark, past.last_stable_offset, past.log_start_offset) == (
                -1,
                -1,
                -1,
            )

    def test_unknown_topics_and_partitions_are_named_in_the_answer(
        self, client: RawClient, topic: str
    ) -> None:
        assert fetch(client, "no-such-topic").error_code == UNKNOWN_TOPIC_OR_PARTITION
        response = client.call(fetch_request(topic, [fetch_partition(9, 0), fetch_partition(0, 0)]))
        rows = rows_of(response)
        assert (rows[9].error_code, rows[9].high_watermark) == (UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert rows[0].error_code == 0

    def test_partition_max_bytes_cuts_the_answer(self, client: RawClient, topic: str) -> None:
        one = batch(b"x" * 1000)
        for _ in range(10):
            produce(client, topic, one)
        row = fetch(client, topic, partition_max_bytes=2 * len(one) + 100)
        assert len(row.records) == 2 * len(one) + 100, "a cut batch at the end is legal"
        assert len(read_batches(row.records)) == 2

    def test_a_first_batch_larger_than_max_bytes_is_sent_whole(
        self, client: RawClient, topic: str
    ) -> None:
        large = batch(b"x" * 100_000)
        produce(client, topic, large)
        produce(client, topic, large)
        row = fetch(client, topic, max_bytes=10, partition_max_bytes=10)
        assert len(row.records) == len(large)

    def test_only_the_first_partition_with_data_may_exceed_max_bytes(
        self, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, topic_name, partitions=3)
        large = batch(b"x" * 50_000)
        for partition in (1, 2):
            produce(client, topic_name, large, partition)
        request = fetch_request(
            topic_name, [fetch_partition(p, 0, max_bytes=100) for p in range(3)], max_bytes=100
        )
        rows = rows_of(client.call(request))
        assert [len(rows[p].records) for p in range(3)] == [0, len(large), 0]

    def test_max_bytes_bounds_all_partitions_together(
        self, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, topic_name, partitions=4)
        one = batch(b"x" * 10_000)
        for partition in range(4):
            produce(client, topic_name, one, partition)
        request = fetch_request(
            topic_name, [fetch_partition(p, 0) for p in range(4)], max_bytes=2 * len(one)
        )
        rows = rows_of(client.call(request))
        assert sum(len(row.records) for row in rows.values()) <= 2 * len(one)
        assert len(rows[0].records) == len(one)

    def test_fetch_by_topic_id(self, client: RawClient, topic: str) -> None:
        produce(client, topic, batch(b"a"))
        identity = topic_id(client, topic)
        response = client.call(fetch_request(topic, 0, version=13, topic_id=identity))
        assert response.responses[0].topic_id == identity
        assert offsets_in(rows_of(response)[0]) == [0]

    def test_fetch_by_an_unknown_topic_id(self, client: RawClient, topic: str) -> None:
        response = client.call(fetch_request(topic, 0, version=13, topic_id=uuid.uuid4()))
        assert response.error_code == 0
        assert rows_of(response)[0].error_code == UNKNOWN_TOPIC_ID

    def test_a_newer_leader_epoch_is_unknown_and_the_current_one_fine(
        self, client: RawClient, topic: str
    ) -> None:
        assert fetch(client, topic, current_leader_epoch=5).error_code == UNKNOWN_LEADER_EPOCH
        assert fetch(client, topic, current_leader_epoch=0).error_code == 0
        assert fetch(client, topic, current_leader_epoch=-7).error_code == 0, "negative is none"

    def test_a_zstd_topic_needs_fetch_v10(self, client: RawClient, topic_name: str) -> None:
        create_topic(client, topic_name, configs={"compression.type": "zstd"})
        produce(client, topic_name, batch(b"x"))
        assert fetch(client, topic_name, version=9).error_code == UNSUPPORTED_COMPRESSION_TYPE
        assert fetch(client, topic_name, version=10).error_code == 0

    def test_zstd_batches_cannot_be_converted_for_old_fetch_versions(
        self, client: RawClient, topic: str
    ) -> None:
        records = zstandard.compress(encode_records([b"x"]))
        produce(client, topic, batch(records=records, count=1, attributes=ZSTD))
        assert fetch(client, topic, version=3).error_code == UNSUPPORTED_COMPRESSION_TYPE
        assert fetch(client, topic, version=4).error_code == 0

    def test_read_committed_reads_all_where_there_are_no_transactions(
        self, client: RawClient, topic: str
    ) -> None:
        produce(client, topic, batch(b"a"))
        row = fetch(client, topic, isolation_level=1)
        assert (row.last_stable_offset, offsets_in(row)) == (1, [0])
        assert row.aborted_transactions == []
        assert fetch(client, topic, isolation_level=0).aborted_transactions is None

    def test_many_segments_are_read_across_their_borders(
        self, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, topic_name, configs={"segment.bytes": "4096"})
        for i in range(40):
            produce(client, topic_name, batch(b"%d" % i + b"x" * 500))
        offset, read = 0, []
        while offset < 40:
            found = offsets_in(fetch(client, topic_name, offset))
            assert found[0] == offset
            read += found
            offset = found[-1] + 1
        assert read == list(range(40))


class TestLongPoll:
    def test_an_empty_fetch_waits_max_wait_and_no_longer(
        self, client: RawClient, topic: str
    ) -> None:
        started = time.monotonic()
        assert fetch(client, topic, max_wait_ms=400, min_bytes=1).error_code == 0
        assert 380 <= elapsed_ms(started) < LONG_WAIT_MS / 2

    def test_min_bytes_0_answers_at_once(self, client: RawClient, topic: str) -> None:
        started = time.monotonic()
        fetch(client, topic, max_wait_ms=LONG_WAIT_MS, min_bytes=0)
        assert elapsed_ms(started) < LONG_WAIT_MS / 2

    def test_a_produce_wakes_a_waiting_fetch(
        self, bootstrap: str, client: RawClient, topic: str
    ) -> None:
        request = fetch_request(topic, 0, max_wait_ms=LONG_WAIT_MS, min_bytes=1)
        started = time.monotonic()
        client.send(request)
        with RawClient(bootstrap) as producer:
            time.sleep(0.1)
            produce(producer, topic, batch(b"wake up"))
        assert offsets_in(rows_of(client.receive(request))[0]) == [0]
        assert elapsed_ms(started) < LONG_WAIT_MS / 2

    def test_a_fetch_waits_until_min_bytes_are_there(
        self, bootstrap: str, client: RawClient, topic: str
    ) -> None:
        one = batch(b"x" * 1000)
        request = fetch_request(topic, 0, max_wait_ms=LONG_WAIT_MS, min_bytes=2 * len(one))
        client.send(request)
        with RawClient(bootstrap) as producer:
            produce(producer, topic, one)
            client.socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                client.read_frame()
            client.socket.settimeout(LONG_WAIT_MS / 1000)
            produce(producer, topic, one)
        assert len(rows_of(client.receive(request))[0].records) == 2 * len(one)

    def test_an_offset_out_of_range_answers_at_once(
        self, client: RawClient, topic_name: str
    ) -> None:
        create_topic(client, topic_name, partitions=2)
        started = time.monotonic()
        request = fetch_request(
            topic_name,
            [fetch_partition(0, 0), fetch_partition(1, 100)],
            max_wait_ms=LONG_WAIT_MS,
            min_bytes=1,
        )
        assert rows_of(client.call(request))[1].error_code == OFFSET_OUT_OF_RANGE
        assert elapsed_ms(started) < LONG_WAIT_MS / 2

    def test_a_waiting_client_that_hangs_up_is_forgotten(
        self, bootstrap: str, client: RawClient, topic: str
    ) -> None:
        for _ in range(20):
            with RawClient(bootstrap) as waiting:
                waiting.send(fetch_request(topic, 0, max_wait_ms=30_000, min_bytes=1))
        assert produce(client, topic, batch(b"a")).error_code == 0

    def test_many_waiters_all_wake(self, bootstrap: str, client: RawClient, topic: str) -> None:
        answers: list[list[int]] = []

        def wait() -> None:
            with RawClient(bootstrap) as waiting:
                row = fetch(waiting, topic, max_wait_ms=LONG_WAIT_MS, min_bytes=1)
                answers.append(offsets_in(row))

        threads = [threading.Thread(target=wait) for _ in range(16)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        produce(client, topic, batch(b"a"))
        for thread in threads:
            thread.join(LONG_WAIT_MS / 1000)
        assert answers == [[0]] * 16


class TestSessions:
    @pytest.fixture
    def two_partitions(self, client: RawClient, topic_name: str) -> str:
        create_topic(client, topic_name, partitions=2)
        return topic_name

    def open_session(self, client: RawClient, topic: str) -> int:
        response = client.call(
            fetch_request(topic, [fetch_partition(p, 0) for p in (0, 1)], session_epoch=0)
        )
        assert response.error_code == 0
        assert response.session_id > 0
        assert set(rows_of(response)) == {0, 1}
        return int(response.session_id)

    def incremental(self, topic: str, session_id: int, epoch: int, **options: Any) -> Any:
        return fetch_request(
            topic, session_id=session_id, session_epoch=epoch, **{"no_topics": True, **options}
        )

    def test_an_incremental_fetch_answers_only_what_changed(
        self, client: RawClient, two_partitions: str
    ) -> None:
        session = self.open_session(client, two_partitions)
        quiet = client.call(self.incremental(two_partitions, session, 1))
        assert (quiet.session_id, rows_of(quiet)) == (session, {})
        produce(client, two_partitions, batch(b"a"), 1)
        changed = client.call(self.incremental(two_partitions, session, 2))
        assert set(rows_of(changed)) == {1}
        assert offsets_in(rows_of(changed)[1]) == [0]

    def test_a_session_remembers_changed_positions(
        self, client: RawClient, two_partitions: str
    ) -> None:
        session = self.open_session(client, two_partitions)
        produce(client, two_partitions, batch(b"a"))
        moved = self.incremental(
            two_partitions, session, 1, offset=[fetch_partition(0, 1)], no_topics=False
        )
        client.call(moved)
        produce(client, two_partitions, batch(b"b"))
        rows = rows_of(client.call(self.incremental(two_partitions, session, 2)))
        assert offsets_in(rows[0]) == [1]

    def test_forgotten_partitions_leave_the_session(
        self, client: RawClient, two_partitions: str
    ) -> None:
        session = self.open_session(client, two_partitions)
        client.call(self.incremental(two_partitions, session, 1, forgotten=[1]))
        produce(client, two_partitions, batch(b"a"), 0)
        produce(client, two_partitions, batch(b"a"), 1)
        rows = rows_of(client.call(self.incremental(two_partitions, session, 2)))
        assert set(rows) == {0}

    def test_a_wrong_epoch_is_71_and_an_unknown_session_70(
        self, client: RawClient, two_partitions: str
    ) -> None:
        session = self.open_session(client, two_partitions)
        wrong = client.call(self.incremental(two_partitions, session, 5))
        assert (wrong.error_code, wrong.responses) == (INVALID_FETCH_SESSION_EPOCH, [])
        unknown = client.call(self.incremental(two_partitions, 1234567, 1))
        assert (unknown.error_code, unknown.responses) == (FETCH_SESSION_ID_NOT_FOUND, [])

    def test_epoch_minus_1_closes_the_session(self, client: RawClient, two_partitions: str) -> None:
        session = self.open_session(client, two_partitions)
        final = client.call(fetch_request(two_partitions, 0, session_id=session, session_epoch=-1))
        assert (final.error_code, final.session_id) == (0, 0)
        gone = client.call(self.incremental(two_partitions, session, 1))
        assert gone.error_code == FETCH_SESSION_ID_NOT_FOUND

    def test_unknown_partitions_in_a_session_are_answered_every_time(
        self, client: RawClient, two_partitions: str
    ) -> None:
        opening = fetch_request(
            two_partitions, [fetch_partition(0, 0), fetch_partition(9, 0)], session_epoch=0
        )
        session = client.call(opening).session_id
        for epoch in (1, 2, 3):
            rows = rows_of(client.call(self.incremental(two_partitions, session, epoch)))
            assert {index: row.error_code for index, row in rows.items()} == {
                9: UNKNOWN_TOPIC_OR_PARTITION
            }

    def test_sessions_work_with_topic_ids(self, client: RawClient, two_partitions: str) -> None:
        identity = topic_id(client, two_partitions)
        opening = fetch_request(two_partitions, 0, version=13, topic_id=identity, session_epoch=0)
        session = client.call(opening).session_id
        produce(client, two_partitions, batch(b"a"))
        response = client.call(
            fetch_request(
                two_partitions, version=13, session_id=session, session_epoch=1, no_topics=True
            )
        )
        assert response.responses[0].topic_id == identity
        assert offsets_in(rows_of(response)[0]) == [0]


class TestOffsets:
    def stamped(self, *timestamps: int) -> bytes:
        base = timestamps[0]
        records = b"".join(
            encode_record(b"x", offset_delta=i, timestamp_delta=t - base)
            for i, t in enumerate(timestamps)
        )
        return batch(
            records=records,
            count=len(timestamps),
            base_timestamp=base,
            max_timestamp=max(timestamps),
        )

    def test_earliest_and_latest(self, client: RawClient, topic: str) -> None:
        produce(client, topic, batch(b"a", b"b"))
        assert list_offset(client, topic, EARLIEST).offset == 0
        latest = list_offset(client, topic, LATEST)
        assert (latest.offset, latest.timestamp, latest.leader_epoch) == (2, -1, 0)

    def test_a_timestamp_is_found_exactly_inside_a_batch(
        self, client: RawClient, topic: str
    ) -> None:
        produce(client, topic, self.stamped(1000, 2000, 3000))
        produce(client, topic, self.stamped(4000, 5000))
        for timestamp, found in [
            (0, (0, 1000)),
            (1000, (0, 1000)),
            (1001, (1, 2000)),
            (3000, (2, 3000)),
            (3001, (3, 4000)),
            (5000, (4, 5000)),
            (5001, (-1, -1)),
        ]:
            row = list_offset(client, topic, timestamp)
            assert (row.offset, row.timestamp) == found, timestamp

    def test_a_timestamp_is_found_inside_a_compressed_batch(
        self, client: RawClient, topic: str
    ) -> None:
        records = b"".join(
            encode_record(b"x" * 100, offset_delta=i, timestamp_delta=10 * i) for i in range(50)
        )
        compressed = batch(
            records=zstandard.compress(records),
            count=50,
            attributes=ZSTD,
            base_timestamp=1000,
            max_timestamp=1490,
        )
        produce(client, topic, compressed)
        row = list_offset(client, topic, 1101)
        assert (row.offset, row.timestamp) == (11, 1110)

    def test_max_timestamp_names_the_first_record_that_has_it(
        self, client: RawClient, topic: str
    ) -> None:
        produce(client, topic, self.stamped(1000, 9000, 9000))
        produce(client, topic, self.stamped(2000))
        row = list_offset(client, topic, MAX_TIMESTAMP)
        assert (row.offset, row.timestamp) == (1, 9000)

    def test_max_timestamp_of_an_empty_log_is_none(self, client: RawClient, topic: str) -> None:
        row = list_offset(client, topic, MAX_TIMESTAMP)
        assert (row.error_code, row.offset, row.timestamp) == (0, -1, -1)

    @pytest.mark.parametrize(("timestamp", "version"), [(-9, 7), (MAX_TIMESTAMP, 6), (-4, 7)])
    def test_positions_the_version_does_not_know_are_refused(
        self, client: RawClient, topic: str, timestamp: int, version: int
    ) -> None:
        for partition in (0, 5):
            row = list_offset(client, topic, timestamp, partition, version)
            assert (row.error_code, row.offset) == (UNSUPPORTED_VERSION, -1)

    def test_unknown_partitions_are_named(self, client: RawClient, topic: str) -> None:
        row = list_offset(client, topic, LATEST, partition=3)
        assert (row.error_code, row.offset) == (UNKNOWN_TOPIC_OR_PARTITION, -1)

    def test_one_partition_twice_is_an_invalid_request(self, client: RawClient, topic: str) -> None:
        kind = ListOffsetsRequest.ListOffsetsTopic
        rows = [
            kind.ListOffsetsPartition(partition_index=0, timestamp=LATEST, current_leader_epoch=-1)
        ] * 2
        response = client.call(
            ListOffsetsRequest(version=5, replica_id=-1, topics=[kind(name=topic, partitions=rows)])
        )
        assert {row.error_code for row in response.topics[0].partitions} == {42}

    def old_style(self, client: RawClient, topic: str, *rows: tuple[int, int]) -> list[Any]:
        """Answers of v0 for (timestamp, at most how many offsets)."""
        kind = ListOffsetsRequest.ListOffsetsTopic
        partitions = [
            kind.ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
            for timestamp, count in rows
        ]
        request = ListOffsetsRequest(
            version=0, replica_id=-1, topics=[kind(name=topic, partitions=partitions)]
        )
        return list(client.call(request).topics[0].partitions)

    def test_old_style_lists_begin_with_the_log_end(self, client: RawClient, topic: str) -> None:
        produce(client, topic, batch(b"a", b"b", b"c"))
        rows = self.old_style(
            client, topic, (LATEST, 9), (LATEST, 1), (EARLIEST, 9), (1 << 60, 9), (1000, 9)
        )
        assert [list(row.old_style_offsets) for row in rows] == [[3, 0], [3], [0], [3, 0], []]

    def test_old_style_requests_know_two_positions_and_no_negative_counts(
        self, client: RawClient, topic: str
    ) -> None:
        rows = self.old_style(client, topic, (MAX_TIMESTAMP, 1), (LATEST, -1))
        assert [row.error_code for row in rows] == [UNSUPPORTED_VERSION, UNKNOWN_SERVER_ERROR]

    def test_an_epoch_below_minus_1_is_fenced_except_in_a_fetch(
        self, client: RawClient, topic: str
    ) -> None:
        kind = ListOffsetsRequest.ListOffsetsTopic
        row = kind.ListOffsetsPartition(
            partition_index=0, timestamp=LATEST, current_leader_epoch=-2
        )
        request = ListOffsetsRequest(
            version=5, replica_id=-1, topics=[kind(name=topic, partitions=[row])]
        )
        assert client.call(request).topics[0].partitions[0].error_code == FENCED_LEADER_EPOCH
        assert fetch(client, topic, current_leader_epoch=-2).error_code == 0

    def test_an_unknown_isolation_level_is_an_unknown_error(
        self, client: RawClient, topic: str
    ) -> None:
        kind = ListOffsetsRequest.ListOffsetsTopic
        row = kind.ListOffsetsPartition(
            partition_index=0, timestamp=LATEST, current_leader_epoch=-1
        )
        request = ListOffsetsRequest(
            version=5,
            replica_id=-1,
            isolation_level=2,
            topics=[kind(name=topic, partitions=[row])],
        )
        assert client.call(request).topics[0].partitions[0].error_code == UNKNOWN_SERVER_ERROR

    def test_the_end_of_a_leader_epoch(self, client: RawClient, topic: str) -> None:
        produce(client, topic, batch(b"a", b"b", b"c"))
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

        def end_of(epoch: int, current: int = -1, partition: int = 0) -> Any:
            row = kind.OffsetForLeaderPartition(
                partition=partition, current_leader_epoch=current, leader_epoch=epoch
            )
            request = OffsetForLeaderEpochRequest(
                version=3, replica_id=-1, topics=[kind(topic=topic, partitions=[row])]
            )
            return client.call(request).topics[0].partitions[0]

        here = end_of(0)
        assert (here.error_code, here.leader_epoch, here.end_offset) == (0, 0, 3)
        later = end_of(7)
        assert (later.error_code, later.leader_epoch, later.end_offset) == (0, -1, -1)
        assert end_of(0, current=9).error_code == UNKNOWN_LEADER_EPOCH
        assert end_of(0, current=-2).error_code == FENCED_LEADER_EPOCH
        assert end_of(0, partition=5).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_last_fetched_epoch_above_the_log_is_out_of_range(client: RawClient, topic: str) -> None:
    produce(client, topic, batch(b"a"))
    row = fetch_partition(0, 0, last_fetched_epoch=9, current_leader_epoch=0)
    response = client.call(fetch_request(topic, [row], version=12))
    assert rows_of(response)[0].error_code == OFFSET_OUT_OF_RANGE


def test_a_consumer_may_not_pose_as_an_unassigned_replica(client: RawClient, topic: str) -> None:
    request = fetch_request(topic, 0)
    request.replica_id = 4711
    row = rows_of(client.call(request))[0]
    assert (row.error_code, row.high_watermark) == (6, -1)


def test_fetch_answers_in_every_isolation_level_carry_log_start_offset(
    client: RawClient, topic: str
) -> None:
    produce(client, topic, batch(b"a"))
    for isolation_level in (0, 1):
        assert fetch(client, topic, isolation_level=isolation_level).log_start_offset == 0


def test_fetch_of_nothing_is_answered(client: RawClient) -> None:
    response = client.call(FetchRequest(version=11, replica_id=-1, max_wait_ms=0, topics=[]))
    assert (response.error_code, response.responses) == (0, [])


def test_a_fetch_of_nothing_opens_a_session(client: RawClient, topic: str) -> None:
    opening = client.call(fetch_request(topic, session_epoch=0, no_topics=True))
    assert opening.session_id
    added = fetch_request(topic, session_id=opening.session_id, session_epoch=1)
    assert set(rows_of(client.call(added))) == {0}


@pytest.mark.parametrize("version", [2, 3])
def test_converted_records_take_no_more_room_than_the_batches_they_were(
    client: RawClient, topic: str, version: int
) -> None:
    batches = [batch(*[b"0123456789"] * 5, key=b"k") for _ in range(4)]
    for data in batches:
        produce(client, topic, data)
    records = fetch(client, topic, version=version).records
    assert len(records) == sum(map(len, batches))
    offsets = [row[0] for row in read_messages(records)]
    assert offsets == list(range(len(offsets)))
    assert 5 <= len(offsets) < 20


@pytest.mark.parametrize("version", [4, 11, 12])
def test_an_unknown_isolation_level_is_an_unknown_error(
    client: RawClient, topic: str, version: int
) -> None:
    produce(client, topic, batch(b"a"))
    response = client.call(fetch_request(topic, version=version, isolation_level=2))
    assert rows_of(response)[0].error_code == UNKNOWN_SERVER_ERROR
    if version >= 7:
        assert response.error_code == UNKNOWN_SERVER_ERROR


def test_negative_limits_are_an_unknown_error(client: RawClient, topic: str) -> None:
    produce(client, topic, batch(b"a"))
    assert fetch(client, topic, partition_max_bytes=-1).error_code == UNKNOWN_SERVER_ERROR
    assert fetch(client, topic, max_bytes=-1).error_code == UNKNOWN_SERVER_ERROR
    assert fetch(client, topic, 1, partition_max_bytes=-1).error_code == 0


def test_what_could_not_be_read_has_no_list_of_aborted_transactions(
    client: RawClient, topic: str
) -> None:
    assert fetch(client, topic, 99, isolation_level=1).aborted_transactions is None
    assert fetch(client, topic, 0, isolation_level=1).aborted_transactions == []
    (unknown,) = rows_of(client.call(fetch_request(topic, [fetch_partition(9, 0)]))).values()
    assert unknown.aborted_transactions == []


def test_unknown_partitions_come_last(client: RawClient, topic: str) -> None:
    request = fetch_request(topic, [fetch_partition(9, 0), fetch_partition(0, 0)])
    assert list(rows_of(client.call(request))) == [0, 9]
