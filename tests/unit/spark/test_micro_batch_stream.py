from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import FakeClock
from tests.support.spark_offset_lookup import FakeOffsetLookup
from tidelog.client.errors import UnknownTopic
from tidelog.spark.micro_batch_stream import MicroBatchStream, TriggerDelay, limited
from tidelog.spark.offset_ranges import OffsetRange
from tidelog.spark.offsets import PartitionOffsets, StreamOffset
from tidelog.spark.options import DataLoss, InvalidOption, source_options
from tidelog.types import TopicPartition, Uuid

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
P = [TopicPartition("t", number) for number in range(4)]


class Query:
    """A query over logs in memory; `restart` forgets all but the logs."""

    def __init__(self, logs: dict[TopicPartition, tuple[int, int]], **options: str) -> None:
        self.given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options}
        self.lookup = FakeOffsetLookup(logs, {"t"})
        self.clock = FakeClock()
        self.restart()

    def restart(self) -> None:
        lookup: Any = self.lookup
        self.stream = MicroBatchStream(source_options(self.given), lookup, self.clock)

    def initial_offsets(self) -> PartitionOffsets:
        return self.stream.initial_offset().offsets

    def latest_without_start(self) -> PartitionOffsets:
        return self.stream.latest_without_start().offsets

    def next_end(self, start: PartitionOffsets, *, is_limited: bool) -> PartitionOffsets:
        return self.stream.next_end(StreamOffset(start, {}), is_limited=is_limited).offsets

    def plan(self, start: PartitionOffsets, end: PartitionOffsets) -> list[OffsetRange]:
        return self.stream.plan(StreamOffset(start, {}), StreamOffset(end, {}))


def test_a_query_begins_at_latest_with_an_empty_batch() -> None:
    query = Query({T0: (0, 10)})
    assert query.initial_offsets() == {T0: 10}
    query.lookup.logs[T0] = (0, 15)
    assert query.next_end({T0: 10}, is_limited=False) == {T0: 10}
    assert query.plan({T0: 10}, {T0: 10}) == []
    assert query.next_end({T0: 10}, is_limited=False) == {T0: 15}
    assert query.plan({T0: 10}, {T0: 15}) != []


def test_batch_zero_run_again_later_still_ends_where_it_ended() -> None:
    query = Query({T0: (0, 10)})
    query.initial_offsets()
    query.next_end({T0: 10}, is_limited=False)
    query.lookup.logs[T0] = (0, 99)
    query.restart()
    assert query.plan(query.initial_offsets(), {T0: 10}) == []
    assert query.next_end({T0: 10}, is_limited=False) == {T0: 99}


def test_a_query_from_earliest_reads_in_batch_zero() -> None:
    query = Query({T0: (3, 10)}, startingOffsets="earliest")
    assert query.initial_offsets() == {T0: 3}
    assert query.next_end({T0: 3}, is_limited=False) == {T0: 10}
    assert query.plan({T0: 3}, {T0: 10}) == [(T0, 3, 10)]


def test_the_initial_offsets_stay_the_same_within_a_run() -> None:
    query = Query({T0: (0, 10)})
    query.initial_offsets()
    query.lookup.logs[T0] = (0, 20)
    assert query.initial_offsets() == {T0: 10}


def test_a_limit_holds_unless_spark_wants_everything() -> None:
    query = Query({T0: (0, 100)}, maxOffsetsPerTrigger="10")
    assert query.next_end({T0: 0}, is_limited=True) == {T0: 10}
    assert query.next_end({T0: 0}, is_limited=False) == {T0: 100}


def test_a_small_batch_waits_for_more_but_not_in_available_now() -> None:
    query = Query({T0: (0, 100)}, minOffsetsPerTrigger="50", maxTriggerDelay="1m")
    assert query.next_end({T0: 0}, is_limited=True) == {T0: 100}
    query.lookup.logs[T0] = (0, 149)
    assert query.next_end({T0: 100}, is_limited=True) == {T0: 100}
    query.clock.advance(ms=60_000)
    assert query.next_end({T0: 100}, is_limited=True) == {T0: 149}
    query.stream.is_available_now = True
    query.stream.latest = StreamOffset({T0: 150}, {})
    assert query.next_end({T0: 149}, is_limited=True) == {T0: 150}


def test_available_now_ends_where_the_log_ended_at_first() -> None:
    query = Query({T0: (0, 100)}, maxOffsetsPerTrigger="60")
    query.stream.is_available_now = True
    assert query.next_end({T0: 0}, is_limited=True) == {T0: 60}
    query.lookup.logs[T0] = (0, 500)
    assert query.next_end({T0: 60}, is_limited=True) == {T0: 100}
    assert query.next_end({T0: 100}, is_limited=True) == {T0: 100}


def test_an_added_partition_begins_at_its_first_offset() -> None:
    query = Query({T0: (0, 10), T1: (0, 7)})
    assert query.next_end({T0: 10}, is_limited=False) == {T0: 10, T1: 7}
    assert query.plan({T0: 10}, {T0: 10, T1: 7}) == [(T1, 0, 7)]


def test_an_added_partition_counts_for_the_limit() -> None:
    query = Query({T0: (0, 10), T1: (0, 30)}, maxOffsetsPerTrigger="10")
    assert query.next_end({T0: 0}, is_limited=True) == {T0: 2, T1: 7}


def test_an_added_partition_that_lost_records_already_is_data_loss() -> None:
    query = Query({T0: (0, 10), T1: (5, 7)})
    end = query.next_end({T0: 10}, is_limited=False)
    with pytest.raises(DataLoss, match="t-1 begins at 5 instead of 0"):
        query.plan({T0: 10}, end)


def test_a_topic_that_is_gone_is_data_loss_or_left_out() -> None:
    with pytest.raises(DataLoss, match="t-1, which are no longer there"):
        Query({T0: (0, 10)}).next_end({T0: 0, T1: 5}, is_limited=False)
    query = Query({T0: (0, 10)}, failOnDataLoss="false")
    assert query.next_end({T0: 0, T1: 5}, is_limited=False) == {T0: 10}


def test_a_topic_made_anew_with_less_is_data_loss_or_goes_on_from_its_end() -> None:
    with pytest.raises(DataLoss, match="t-0 was read up to 100, but ends at 3"):
        Query({T0: (0, 3)}).next_end({T0: 100}, is_limited=False)
    query = Query({T0: (0, 3)}, failOnDataLoss="false")
    assert query.next_end({T0: 100}, is_limited=False) == {T0: 3}
    assert query.plan({T0: 100}, {T0: 3}) == []


def test_a_checkpoint_of_another_topic_is_named_as_such() -> None:
    other = TopicPartition("payments", 0)
    with pytest.raises(DataLoss, match=r"belongs to another query.*\(payments\)"):
        Query({T0: (0, 3)}).next_end({other: 4}, is_limited=False)


def test_a_topic_that_was_never_there_is_an_error() -> None:
    with pytest.raises(UnknownTopic):
        Query({}).initial_offsets()


def test_a_batch_of_an_earlier_run_is_held_against_the_log() -> None:
    with pytest.raises(DataLoss, match="was to be read up to 20, but ends at 10"):
        Query({T0: (0, 10)}).plan({T0: 5}, {T0: 20})
    query = Query({T0: (0, 10)}, failOnDataLoss="false")
    assert query.plan({T0: 5}, {T0: 20}) == [(T0, 5, 10)]


def test_a_batch_is_split_as_the_options_say() -> None:
    query = Query({T0: (0, 10)}, maxRecordsPerPartition="4")
    assert [row.size for row in query.plan({T0: 0}, {T0: 10})] == [3, 3, 4]


def test_pyspark_without_a_start_works_but_takes_no_limits() -> None:
    query = Query({T0: (0, 10)})
    query.initial_offsets()
    query.lookup.logs[T0] = (0, 12)
    assert query.latest_without_start() == {T0: 10}
    assert query.plan({T0: 10}, {T0: 10}) == []
    assert query.latest_without_start() == {T0: 12}
    assert query.plan({T0: 10}, {T0: 12}) == [(T0, 10, 12)]
    with pytest.raises(DataLoss, match="t-1"):
        query.plan({T0: 10, T1: 5}, {T0: 12})
    with pytest.raises(InvalidOption, match=r"maxOffsetsPerTrigger: needs pyspark 4\.2"):
        Query({T0: (0, 1)}, maxOffsetsPerTrigger="5").latest_without_start()


def test_segment_files_cannot_be_streamed() -> None:
    with pytest.raises(InvalidOption, match="path"):
        Query({}, path="/data")


class TestATopicThatIsMadeAnew:
    OLD, NEW = {"t": Uuid(b"o" * 16)}, {"t": Uuid(b"n" * 16)}

    def query(self, **options: str) -> Query:
        query = Query({T0: (0, 150)}, **options)
        query.lookup.ids = self.NEW
        return query

    def test_fails_the_query_though_it_has_more_records_than_were_read(self) -> None:
        with pytest.raises(DataLoss, match="t: deleted and made anew"):
            self.query().stream.next_end(StreamOffset({T0: 100}, self.OLD), is_limited=False)

    def test_fails_the_query_when_pyspark_gives_no_start(self) -> None:
        state = self.query(startingOffsets="earliest").stream
        end = state.latest_without_start()
        assert end == StreamOffset({T0: 150}, self.NEW)
        with pytest.raises(DataLoss, match="t: deleted and made anew"):
            state.plan(StreamOffset({T0: 100}, self.OLD), end)

    def test_fails_a_batch_that_an_earlier_run_had_planned(self) -> None:
        start, end = (StreamOffset({T0: offset}, self.OLD) for offset in (100, 120))
        with pytest.raises(DataLoss, match="t: deleted and made anew"):
            self.query().stream.plan(start, end)
        assert self.query(failOnDataLoss="false").stream.plan(start, end) == []

    def test_is_read_from_its_beginning_where_loss_is_tolerated(self) -> None:
        state = self.query(failOnDataLoss="false", maxOffsetsPerTrigger="60").stream
        start = StreamOffset({T0: 100}, self.OLD)
        end = state.next_end(start, is_limited=True)
        assert end == StreamOffset({T0: 60}, self.NEW)
        assert state.plan(start, end) == [(T0, 0, 60)]
        assert state.next_end(end, is_limited=True) == StreamOffset({T0: 120}, self.NEW)

    def test_is_not_suspected_where_the_checkpoint_has_no_id(self) -> None:
        state = self.query().stream
        end = state.next_end(StreamOffset({T0: 100}, {}), is_limited=False)
        assert end == StreamOffset({T0: 150}, self.NEW)
        assert state.plan(StreamOffset({T0: 100}, {}), end) == [(T0, 100, 150)]

    def test_is_not_suspected_where_the_broker_tells_no_id(self) -> None:
        query = self.query()
        query.lookup.ids = {}
        start = StreamOffset({T0: 100}, self.OLD)
        assert query.stream.next_end(start, is_limited=False) == StreamOffset({T0: 150}, {})


def test_each_partition_gets_its_share_rounded_down() -> None:
    end = limited(10, {P[0]: 0, P[1]: 100}, {P[0]: 1000, P[1]: 2100})
    assert end == {P[0]: 3, P[1]: 106}


def test_a_share_below_one_becomes_one() -> None:
    end = limited(10, {P[0]: 0, P[1]: 0}, {P[0]: 1, P[1]: 100_000})
    assert end[P[0]] == 1


def test_what_is_within_the_limit_is_taken_whole() -> None:
    assert limited(10, {P[0]: 0, P[1]: 5}, {P[0]: 4, P[1]: 11}) == {P[0]: 4, P[1]: 11}


def test_a_partition_that_went_back_keeps_its_end() -> None:
    assert limited(5, {P[0]: 50, P[1]: 0}, {P[0]: 3, P[1]: 100}) == {P[0]: 3, P[1]: 5}


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**6)), min_size=1, max_size=4),
)
def test_a_batch_makes_progress_and_exceeds_the_limit_by_the_partitions_at_most(
    limit: int, rows: list[tuple[int, int]]
) -> None:
    start = {P[number]: row[0] for number, row in enumerate(rows)}
    latest = {P[number]: sum(row) for number, row in enumerate(rows)}
    end = limited(limit, start, latest)
    taken = [end[row] - start[row] for row in start]
    assert all(start[row] <= end[row] <= latest[row] for row in start)
    assert sum(taken) <= limit + len(rows)
    assert sum(taken) > 0 or latest == start


def test_the_first_batch_does_not_wait_and_later_ones_do() -> None:
    delay = TriggerDelay(100, 15_000, FakeClock())
    assert not delay.waits(1)
    assert delay.waits(99)
    assert not delay.waits(100)


def test_a_small_batch_is_taken_once_the_delay_has_passed() -> None:
    clock = FakeClock()
    delay = TriggerDelay(100, 15_000, clock)
    delay.waits(0)
    clock.advance(ms=14_999)
    assert delay.waits(5)
    clock.advance(ms=1)
    assert not delay.waits(5)
    assert delay.waits(5)
