"""Pages of records: complete, without repetition, in both directions, however often they end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.console_log import ConsoleLog, Ticks, record_of
from tidelog.client.errors import CorruptRecordsFetched
from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.console.messages.cursor import Cursor, Direction, Span
from tidelog.tools.console.messages.decoding import Decoder
from tidelog.tools.console.messages.expression import parse_expression
from tidelog.tools.console.messages.filtering import RecordFilter
from tidelog.tools.console.messages.reading import (
    Ended,
    Limits,
    Page,
    first_cursor,
    read_page,
)
from tidelog.tools.console.messages.scanning import Budget

TEXT = Decoder("text")
ALL = RecordFilter(None, TEXT, TEXT)
TEN = Limits(10)
Place = tuple[int, int]


def only(expression: str) -> RecordFilter:
    return RecordFilter(parse_expression(expression), TEXT, TEXT)


def page_of(
    log: ConsoleLog,
    cursor: Cursor | None = None,
    wanted: RecordFilter = ALL,
    *,
    direction: Direction = Direction.OLDEST_FIRST,
    limits: Limits = TEN,
    seconds: float = 10.0,
) -> Page:
    async def read() -> Page:
        at = first_cursor(direction, await log.bounds()) if cursor is None else cursor
        return await read_page(log, at, wanted, limits, Budget(seconds, log.clock))

    return asyncio.run(read())


def places(records: Sequence[ConsumerRecord]) -> list[Place]:
    return [(record.partition, record.offset) for record in records]


def all_pages(
    log: ConsoleLog, wanted: RecordFilter, direction: Direction, limits: Limits, seconds: float
) -> tuple[list[Place], Cursor]:
    found: list[Place] = []
    page = page_of(log, None, wanted, direction=direction, limits=limits, seconds=seconds)
    idle = 0
    while True:
        found += places(page.records)
        before = page.cursor
        if before.is_done:
            return found, page.cursor
        page = page_of(log, before, wanted, limits=limits, seconds=seconds)
        idle = idle + 1 if page.cursor == before else 0
        assert idle < 3, "a reading that goes on comes to its end"


@st.composite
def _logs(draw: st.DrawFn) -> tuple[list[ConsumerRecord], dict[int, int]]:
    records: list[ConsumerRecord] = []
    ends: dict[int, int] = {}
    for partition in range(draw(st.integers(1, 4))):
        offsets = draw(st.sets(st.integers(0, 60), max_size=40))
        for offset in offsets:
            timestamp = draw(st.integers(0, 20))  # out of order, as producers' clocks are
            value = draw(st.sampled_from([b"red", b"green", b"blue", None]))
            records.append(record_of(offset, value, partition=partition, timestamp=timestamp))
        ends[partition] = max(offsets, default=-1) + 1 + draw(st.integers(0, 3))
    return records, ends


@settings(max_examples=60)
@given(
    _logs(),
    st.sampled_from(Direction),
    st.sampled_from(["", 'value == "red"', 'value contains "e"', "value == null"]),
    st.integers(1, 12),
    st.integers(250, 3_000),
    st.sampled_from([0.0, 0.01, 0.2]),
)
def test_pages_together_hold_every_match_once(
    log: tuple[list[ConsumerRecord], dict[int, int]],
    direction: Direction,
    expression: str,
    limit: int,
    bytes_max: int,
    poll_s: float,
) -> None:
    records, ends = log
    wanted = only(expression) if expression else ALL
    source = ConsoleLog(records, ends, poll_s=poll_s)

    found, cursor = all_pages(source, wanted, direction, Limits(limit, bytes_max), 4.0)

    assert sorted(found) == sorted(places([each for each in records if wanted.accepts(each)]))
    assert cursor.records == len(records)
    for partition in ends:
        own = [offset for each, offset in found if each == partition]
        assert own == sorted(own, reverse=direction is Direction.NEWEST_FIRST)


def test_a_slow_topic_whose_first_window_is_too_large_is_read_to_its_end() -> None:
    counts = {0: 20, 1: 9, 2: 1}
    records = [
        record_of(offset, b"red", partition=partition)
        for partition, count in counts.items()
        for offset in range(count)
    ]
    source = ConsoleLog(records, poll_s=0.2)
    red = only('value == "red"')
    found, _ = all_pages(source, red, Direction.NEWEST_FIRST, Limits(1, 250), 4.0)
    assert sorted(found) == places(records)


def test_the_oldest_of_all_partitions_come_first() -> None:
    log = ConsoleLog(
        record_of(offset, partition=partition, timestamp=10 * offset + partition)
        for partition in range(3)
        for offset in range(20)
    )

    page = page_of(log, limits=Limits(7))

    assert places(page.records) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2)]
    assert page.ended is Ended.FULL
    assert page.cursor.left == {0: Span(3, 20), 1: Span(2, 20), 2: Span(2, 20)}
    assert page.cursor.records == 7


def test_the_newest_of_all_partitions_come_first() -> None:
    log = ConsoleLog(
        record_of(offset, partition=partition, timestamp=10 * offset + partition)
        for partition in range(3)
        for offset in range(20)
    )

    page = page_of(log, direction=Direction.NEWEST_FIRST, limits=Limits(4))

    assert places(page.records) == [(2, 19), (1, 19), (0, 19), (2, 18)]
    assert page.cursor.left == {0: Span(0, 19), 1: Span(0, 19), 2: Span(0, 18)}


def test_a_search_without_time_ends_and_goes_on_where_it_was() -> None:
    log = ConsoleLog((record_of(each) for each in range(100)), poll_records=5, poll_s=1.0)

    page = page_of(log, wanted=only('value == "none"'), seconds=3.0)

    assert page.ended is Ended.LATE
    assert page.records == []
    assert 0 < page.cursor.offsets_done < 100
    assert page.cursor.records == page.cursor.offsets_done


def test_a_search_in_a_silent_log_ends_with_its_time() -> None:
    log = ConsoleLog([], {0: 50})

    async def nothing(seconds: float) -> list[ConsumerRecord]:
        log.clock.now += seconds
        return []

    log.poll = nothing  # type: ignore[method-assign]
    for direction in Direction:
        page = page_of(log, direction=direction, seconds=3.0)
        assert (page.ended, page.records) == (Ended.LATE, [])


def test_offsets_that_retention_has_taken_are_told() -> None:
    log = ConsoleLog(record_of(each) for each in range(20))
    cursor = first_cursor(Direction.OLDEST_FIRST, {0: Span(0, 20)})
    log.starts[0] = 5
    log.records[0] = log.records[0][5:]

    page = page_of(log, cursor, limits=Limits(50))

    assert page.lost_offsets == 5
    assert places(page.records) == [(0, each) for each in range(5, 20)]
    assert page.ended is Ended.DONE


def test_a_cursor_beyond_the_log_reads_nothing() -> None:
    log = ConsoleLog(record_of(each) for each in range(3))
    cursor = Cursor(Direction.OLDEST_FIRST, {0: Span(90, 95), 7: Span(0, 5)}, 10)

    page = page_of(log, cursor)

    assert (page.records, page.ended, page.lost_offsets) == ([], Ended.DONE, 10)


def test_records_that_cannot_be_read_end_the_page_and_keep_its_place() -> None:
    log = ConsoleLog((record_of(each) for each in range(10)), poll_records=4)
    poll = log.poll

    async def poll_or_fail(seconds: float) -> list[ConsumerRecord]:
        if log.polls:
            raise CorruptRecordsFetched("partition t-0: fails its checksum")
        return await poll(seconds)

    log.poll = poll_or_fail  # type: ignore[method-assign]

    page = page_of(log, limits=Limits(50))

    assert page.ended is Ended.UNREADABLE
    assert "checksum" in page.problem
    assert len(page.records) == 4
    assert page.cursor.left == {0: Span(4, 10)}


def test_large_records_fill_a_page_before_its_number_does() -> None:
    log = ConsoleLog(record_of(each, bytes(1_000)) for each in range(100))

    page = page_of(log, limits=Limits(100, 5_000))

    assert len(page.records) == 4
    assert page.cursor.left == {0: Span(4, 100)}


def test_one_record_larger_than_a_page_is_given() -> None:
    log = ConsoleLog([record_of(0, bytes(10_000)), record_of(1)])

    assert len(page_of(log, limits=Limits(10, 100)).records) == 1


@pytest.mark.parametrize("direction", list(Direction))
def test_a_topic_without_records_is_done_at_once(direction: Direction) -> None:
    page = page_of(ConsoleLog([], {0: 0, 1: 0}), direction=direction)

    assert (page.records, page.ended) == ([], Ended.DONE)


def test_a_budget_is_over_when_its_time_is() -> None:
    clock = Ticks()
    budget = Budget(2.0, clock)
    clock.now = 1.5
    assert (budget.left_s, budget.part(0.5).left_s, budget.is_spent) == (0.5, 0.25, False)
    clock.now = 2.0
    assert budget.is_spent
    assert budget.renewed().left_s == 2.0
