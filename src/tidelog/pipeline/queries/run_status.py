"""What a running pipeline tells other processes, and what they may ask of it.

    .tidelog/status.json        how far each query is, replaced about once a second
    .tidelog/restart/<query>    a wish to start the query again; removed when that is done

Both are in the pipeline's folder. A run that has ended leaves its last status behind; one whose
process is gone, or has not written for a while, does not run any more.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.pipeline.declaration.parts import PipelineError, Place, Problem
from tidelog.pipeline.queries.checkpoint import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.pipeline.queries.running import RunningPipeline, RunningQuery

FOLDER: Final = ".tidelog"  # beside the pipeline's file
INTERVAL_S: Final = 1.0
STALE_S: Final = 60.0

RUNNING, WAITING, FAILED, ENDED = "running", "waiting", "failed", "ended"


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A sink, or the dead letters of a source."""

    name: str
    query: str
    state: str
    batch_id: int
    rows_in: int
    rows_out: int
    lag: int
    rows_too_late: int
    restarts: int
    error: str
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunStatus:
    pid: int
    name: str
    started_at_s: float  # since 1970
    told_at_s: float
    has_ended: bool
    members: tuple[MemberStatus, ...]
    dropped: dict[str, int]  # rows, by expectation

    def runs(self, now_s: float, is_alive: Callable[[int], bool]) -> bool:
        if self.has_ended or now_s - self.told_at_s > STALE_S:
            return False
        return is_alive(self.pid)


S = TypeVar("S", MemberStatus, RunStatus)
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "int": int,
    "float": (int, float),
    "str": str,
    "bool": bool,
}


class StatusFile:
    """Kept by `run`."""

    def __init__(self, folder: Path, now_s: Callable[[], float] = time.time) -> None:
        self.file = folder / FOLDER / "status.json"
        self._wishes = folder / FOLDER / "restart"
        self._now_s = now_s
        self._started_at_s = now_s()
        self._told_at_s = float("-inf")

    def tell(self, running: RunningPipeline, *, has_ended: bool = False) -> None:
        """At most once a second, but for the last word."""
        now_s = self._now_s()
        if now_s - self._told_at_s < INTERVAL_S and not has_ended:
            return
        self._told_at_s = now_s
        status = RunStatus(
            pid=os.getpid(),
            name=running.pipeline.name,
            started_at_s=self._started_at_s,
            told_at_s=now_s,
            has_ended=has_ended,
            members=tuple(_members(running)),
            dropped=running.unexpected,
        )
        write_whole(self.file, json.dumps(asdict(status)))

    def grant_wishes(self, running: RunningPipeline) -> list[str]:
        """Restarts what was asked for; their names."""
        if not self._wishes.is_dir():
            return []
        granted = []
        for file in self._wishes.iterdir():
            if file.name in running.queries:
                running.restart(file.name)
                granted.append(file.name)
            file.unlink(missing_ok=True)
        return granted


def _members(running: RunningPipeline) -> list[MemberStatus]:
    return [
        MemberStatus(
            name=name,
            query=query.name,
            state=_state(query),
            batch_id=row.batch_id,
            rows_in=row.rows_in,
            rows_out=row.rows_out,
            lag=row.lag,
            rows_too_late=row.rows_too_late,
            restarts=query.restarts,
            error=query.failure or (query.last_error if query.failures_in_a_row else ""),
            reasons=dict(row.reasons if query.counts is None else query.counts.reasons),
        )
        for query in running.queries.values()
        for name, row in query.progress.items()
    ]


def _state(query: RunningQuery) -> str:
    if query.failure:
        return FAILED
    if query.is_waiting:
        return WAITING
    return ENDED if query.is_done else RUNNING


def read_status(folder: Path) -> RunStatus | None:
    """None when no run has told anything."""
    file = folder / FOLDER / "status.json"
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        members = tuple(_must_fit(MemberStatus(**row)) for row in told.pop("members"))
        return _must_fit(RunStatus(members=members, **told))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, LookupError, AttributeError) as problem:
        told_problem = f"is no status of this version of tidelog ({problem}); delete it"
        raise PipelineError(Problem(Place(file, 0), told_problem)) from None


def _must_fit(told: S) -> S:
    """TypeError for a field of another type: who shows the status relies on them."""
    for each in fields(told):
        value = getattr(told, each.name)
        is_table = each.type == "dict[str, int]" and isinstance(value, dict)
        fits = (
            all(isinstance(count, int) for count in value.values())
            if is_table
            else isinstance(value, _TYPES.get(str(each.type), tuple))
        )
        if not fits:
            raise TypeError(f"{each.name} is {value!r:.50}")
    return told


def wish_restart(folder: Path, query: str) -> Path:
    """The file that goes away once the query has been started again."""
    file = folder / FOLDER / "restart" / query
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()  # nothing is ever there but wishes: `grant_wishes` takes away what it finds
    return file


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def status_lines(status: RunStatus, *, runs: bool, now_s: float) -> list[str]:
    """For people; at most 79 characters wide but for errors."""
    word = f"runs, process {status.pid}" if runs else "does not run"
    ago = f"told {max(0, round(now_s - status.told_at_s)):,} s ago"
    lines = [f"{status.name} {word}; {ago}", ""]
    heads = ("state", "batch", "rows in", "rows out", "lag", "restarts")
    lines.append(_line("sink", heads))
    for row in status.members:
        batch = "-" if row.batch_id < 0 else str(row.batch_id)
        state = row.state if runs else ENDED
        numbers = (f"{row.rows_in:,}", f"{row.rows_out:,}", f"{row.lag:,}", str(row.restarts))
        lines.append(_line(row.name, (state, batch, *numbers)))
    for row in status.members:
        if row.rows_too_late:
            lines.append(f"  {row.name}: {row.rows_too_late:,} rows came too late")
        if row.name.startswith("dead-letter.") and row.reasons:
            told = ", ".join(f"{why} {count:,}" for why, count in row.reasons.items())
            lines.append(f"  {row.name}: {told}")
        if row.error:
            lines.append(f"  {row.name}: {row.error}")
    lines += [f"  expect {name}: {n:,} rows dropped" for name, n in status.dropped.items() if n]
    return lines


def _line(name: str, cells: Sequence[str]) -> str:
    columns = zip(cells, (9, 8, 12, 12, 10, 9), strict=True)
    return f" {name[:18]:<18}" + "".join(f"{text:>{width}}" for text, width in columns)
