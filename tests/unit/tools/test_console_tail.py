"""The live tail: at once after a silence, then so often; samples, and leaves a flood behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tests.support.console_log import Ticks, record_of
from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.console.messages.cursor import Span
from tidelog.tools.console.messages.decoding import Decoder
from tidelog.tools.console.messages.expression import parse_expression
from tidelog.tools.console.messages.filtering import RecordFilter
from tidelog.tools.console.messages.tail import (
    BEHIND_MAX,
    GLIMPSE_S,
    SHOWN_MAX,
    Glimpse,
    follow,
)

TEXT = Decoder("text")
ALL = RecordFilter(None, TEXT, TEXT)


class Script:
    """Polls that bring what is written here, each after so many seconds."""

    def __init__(self, clock: Ticks, polls: list[tuple[float, list[ConsumerRecord]]]) -> None:
        self.clock = clock
        self.polls = polls
        self.sought: list[dict[int, int]] = []
        self.lags: list[int] = []

    async def bounds(self) -> dict[int, Span]:
        return {0: Span(0, 1_000)}

    def seek(self, starts: Mapping[int, int]) -> None:
        self.sought.append(dict(starts))

    async def poll(self, seconds: float) -> list[ConsumerRecord]:
        if not self.polls or self.polls[0][0] > seconds:
            self.clock.now += seconds
            if self.polls:
                self.polls[0] = (self.polls[0][0] - seconds, self.polls[0][1])
            return []
        after_s, records = self.polls.pop(0)
        self.clock.now += after_s
        return records

    def lag(self) -> int:
        return self.lags.pop(0) if self.lags else 0


def glimpses(script: Script, count: int, wanted: RecordFilter = ALL) -> list[tuple[float, Glimpse]]:
    """Without the empty one that says where the tail begins."""

    async def take() -> list[tuple[float, Glimpse]]:
        found = []
        stream = follow(script, wanted, script.clock)
        assert await anext(stream) == Glimpse([], 0, 0, 0, 0)
        assert script.sought == [{0: 1_000}]
        async for glimpse in stream:
            found.append((script.clock.now, glimpse))
            if len(found) == count:
                break
        await stream.aclose()
        return found

    return asyncio.run(take())


def test_a_record_after_a_silence_is_shown_at_once_and_the_next_ones_together() -> None:
    clock = Ticks()
    script = Script(
        clock,
        [(1.0, [record_of(0)]), (0.03, [record_of(1)]), (0.03, [record_of(2), record_of(3)])],
    )

    first, second = glimpses(script, 2)

    assert first[0] == 1.0
    assert [record.offset for record in first[1].records] == [0]
    assert second[0] <= first[0] + GLIMPSE_S + 1e-9
    assert [record.offset for record in second[1].records] == [1, 2, 3]
    assert script.sought == [{0: 1_000}]


def test_a_silence_is_told_now_and_then() -> None:
    assert glimpses(Script(Ticks(), []), 1)[0][1] == Glimpse([], 0, 0, 0, 0)


def test_more_than_can_be_shown_is_left_out_and_counted() -> None:
    records = [record_of(each) for each in range(500)]

    glimpse = glimpses(Script(Ticks(), [(0.0, records)]), 1)[0][1]

    assert glimpse.records == records[-SHOWN_MAX:]
    assert (glimpse.seen, glimpse.matches, glimpse.left_out) == (500, 500, 500 - SHOWN_MAX)


def test_records_that_do_not_match_are_counted_only() -> None:
    wanted = RecordFilter(parse_expression('value == "b"'), TEXT, TEXT)
    script = Script(Ticks(), [(0.0, [record_of(0, b"a"), record_of(1, b"b")])])

    glimpse = glimpses(script, 1, wanted)[0][1]

    assert [record.offset for record in glimpse.records] == [1]
    assert (glimpse.seen, glimpse.matches, glimpse.left_out) == (2, 1, 0)


def test_a_tail_far_behind_goes_to_the_end_and_says_what_it_skipped() -> None:
    script = Script(Ticks(), [(0.0, [record_of(0)])])
    script.lags = [BEHIND_MAX + 1]

    glimpse = glimpses(script, 1)[0][1]

    assert glimpse.skipped == BEHIND_MAX + 1
    assert script.sought == [{0: 1_000}, {0: 1_000}]
