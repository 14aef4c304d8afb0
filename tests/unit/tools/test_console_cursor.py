"""Cursors of the console's scans: they survive an address, and anything may stand in one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.tools.console.messages.cursor import (
    OFFSET_MAX,
    BadCursor,
    Cursor,
    Direction,
    Span,
    decode,
)

_SPANS = st.tuples(st.integers(0, OFFSET_MAX - 1), st.integers(1, 10**6)).map(
    lambda row: Span(row[0], min(row[0] + row[1], OFFSET_MAX))
)
_CURSORS = st.builds(
    Cursor,
    st.sampled_from(Direction),
    st.dictionaries(st.integers(0, 5_000), _SPANS, max_size=20),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.integers(0, 5_000),
)


@given(_CURSORS)
def test_a_cursor_comes_back_from_its_text(cursor: Cursor) -> None:
    text = cursor.encode()

    assert decode(text) == cursor
    assert text.replace("-", "a").replace("_", "a").isalnum()


def test_a_thousand_partitions_fit_an_address() -> None:
    left = {each: Span(each * 977, each * 977 + 123_456) for each in range(1_000)}

    assert len(Cursor(Direction.OLDEST_FIRST, left, 1).encode()) < 10_000


@given(st.one_of(st.text(max_size=40), st.binary(max_size=40).map(lambda data: data.hex())))
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        decode(text)


@given(_CURSORS, st.integers(0, 200), st.sampled_from("Aa0_-"))
def test_a_changed_cursor_is_refused_or_is_another_one(
    cursor: Cursor, place: int, char: str
) -> None:
    text = cursor.encode()
    place %= len(text)
    try:
        found = decode(text[:place] + char + text[place + 1 :])
    except BadCursor:
        return
    assert all(span.start < span.stop for span in found.left.values())


def test_a_cursor_that_inflates_without_end_is_refused() -> None:
    import base64
    import zlib

    bomb = base64.urlsafe_b64encode(zlib.compress(bytes(8 << 20), 9)).decode()

    with pytest.raises(BadCursor, match="too long"):
        decode(bomb)


def test_progress_is_told_in_offsets() -> None:
    cursor = Cursor(Direction.OLDEST_FIRST, {0: Span(70, 100)}, 100)

    assert (cursor.offsets_left, cursor.offsets_done, cursor.is_done) == (30, 70, False)
