"""How far a running pipeline is, as lines of at most 79 characters and notes below them.

One line for each sink, and one for the dead letters of each source. Sinks that share a query have
read the same rows. A query that has not finished a batch yet has dashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.queries.checkpoint import LETTERS_PREFIX

if TYPE_CHECKING:
    from tidelog.pipeline.queries.running import QueryProgress, RunningPipeline, RunningQuery

COLUMNS: Final = {
    "in/s": 8,
    "out/s": 8,
    "rows in": 10,
    "rows out": 10,
    "lag": 10,
    "batch": 7,
    "took": 7,
}
NAME_WIDTH: Final = 18
_WHOLE_MAX: Final = 9_999_999
_REASONS_SHOWN: Final = 5


def progress_lines(running: RunningPipeline, now_s: float) -> list[str]:
    lines = [_line("sink", tuple(COLUMNS))]
    lines += [_line(name, _cells(row)) for name, row in running.progress.items()]
    return lines + notes(running, now_s)


def notes(running: RunningPipeline, now_s: float) -> list[str]:
    """What went wrong so far, in rows and in queries."""
    found = [note for row in running.queries.values() for note in _row_notes(row)]
    found += [
        f"  expect {name}: {count:,} rows dropped"
        for name, count in running.unexpected.items()
        if count
    ]
    return found + [note for row in running.queries.values() for note in _failures(row, now_s)]


def summary_line(running: RunningPipeline) -> str:
    rows = running.progress
    letters = sum(row.rows_out for name, row in rows.items() if name.startswith(LETTERS_PREFIX))
    written = sum(row.rows_out for row in rows.values()) - letters
    late = sum(row.rows_too_late for row in rows.values())
    return f"{written:,} rows written, {letters:,} dead letters, {late:,} rows too late"


def _cells(row: QueryProgress) -> Sequence[str]:
    if row.batch_id < 0:
        return ["-"] * len(COLUMNS)
    numbers = (row.rows_in_per_s, row.rows_out_per_s, row.rows_in, row.rows_out, row.lag)
    return [*map(_number, numbers), f"{row.batch_id}", f"{row.batch_ms / 1000:.1f} s"]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value <= _WHOLE_MAX else f"{value / 1e6:,.1f}M"


def _line(name: str, cells: Sequence[str]) -> str:
    shown = name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"
    columns = zip(cells, COLUMNS.values(), strict=True)
    return f" {shown:<{NAME_WIDTH}}" + "".join(f"{text:>{width}}" for text, width in columns)


def _row_notes(row: RunningQuery) -> Iterator[str]:
    for name, progress in row.progress.items():
        if progress.rows_too_late:
            yield f"  {name}: {progress.rows_too_late:,} rows came too late and are left out"
        if name.startswith(LETTERS_PREFIX) and progress.rows_out:
            reasons = row.counts.reasons if row.counts is not None else progress.reasons
            told = ", ".join(f"{why} {n:,}" for why, n in reasons.most_common(_REASONS_SHOWN))
            more = ", ..." if len(reasons) > _REASONS_SHOWN else ""
            yield f"  {name}: {progress.rows_out:,} ({told}{more})"


def _failures(row: RunningQuery, now_s: float) -> Iterator[str]:
    if row.failure:
        yield f"  {row.name} has failed: {row.failure}"
    elif row.is_waiting:
        wait_s = max(0.0, row.retry_at_s - now_s)
        yield f"  {row.name} starts again in {wait_s:.0f} s: {row.last_error}"
