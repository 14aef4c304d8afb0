"""Pipelines of a project: the folders that have one, what their runs tell, where letters go.

A run tells in `.tidelog/status.json` (`run_status`), from another process, which may be gone or may
never have been. The declaration is read for the topics of dead letters alone; references to secrets
in it stay in memory for as long as that takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.pipeline.declaration.file import FILE_NAME, load_pipeline
from tidelog.pipeline.declaration.parts import PipelineError
from tidelog.pipeline.queries.run_status import (
    ENDED,
    FAILED,
    FOLDER,
    MemberStatus,
    RunStatus,
    is_alive,
    read_status,
)

FOLDERS_MAX: Final = 200
LOOKED_AT_MAX: Final = 2_000
QUERY_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class UnknownFolder(Exception):
    """There is no pipeline of this name."""


class PipelineLook(NamedTuple):
    """`problem` says why there is no status, where one cannot be read."""

    name: str  # of the folder, from the project's
    status: RunStatus | None
    runs: bool
    problem: str = ""

    @property
    def members(self) -> tuple[MemberStatus, ...]:
        """Of a run that is over, no query runs any more."""
        if self.status is None:
            return ()
        if self.runs:
            return self.status.members
        return tuple(
            member if member.state == FAILED else replace(member, state=ENDED)
            for member in self.status.members
        )

    @property
    def state(self) -> str:
        if self.problem:
            return "unreadable"
        if self.status is None:
            return "never ran"
        if any(member.state == FAILED for member in self.status.members):
            return "failed"
        return "runs" if self.runs else "does not run"

    @property
    def lag(self) -> int:
        """Sinks that share a query have read the same rows."""
        by_query = {member.query: member.lag for member in self.members}
        return sum(by_query.values())

    @property
    def letters(self) -> int:
        return sum(
            member.rows_out for member in self.members if member.name.startswith("dead-letter.")
        )


class LetterTopic(NamedTuple):
    source: str
    topic: str


def pipeline_folders(root: Path) -> list[str]:
    """Of the project itself and two levels below it; `.` is the project. Links are not followed."""
    return sorted(islice(_folders(root), FOLDERS_MAX))


def _folders(root: Path) -> Iterator[str]:
    if _has_pipeline(root):
        yield "."
    looked_at = 0
    pending = [(root, 0)]
    while pending:
        parent, depth = pending.pop()
        for each in _children(parent):
            looked_at += 1
            if looked_at > LOOKED_AT_MAX:
                return
            if _has_pipeline(each):
                yield each.relative_to(root).as_posix()
            if depth == 0:
                pending.append((each, 1))


def _children(folder: Path) -> list[Path]:
    try:
        return [
            each
            for each in sorted(folder.iterdir())
            if not each.name.startswith(".") and not each.is_symlink() and each.is_dir()
        ]
    except OSError:  # not ours to read: no pipeline of ours is there
        return []


def _has_pipeline(folder: Path) -> bool:
    return (folder / FILE_NAME).is_file() or (folder / FOLDER / "status.json").is_file()


def folder_of(root: Path, name: str) -> Path:
    """One of `pipeline_folders`; raises UnknownFolder for anything else."""
    if name not in pipeline_folders(root):
        raise UnknownFolder(f"there is no pipeline {name}")
    return root / name


def look_at(
    root: Path, name: str, now_s: float, alive: Callable[[int], bool] = is_alive
) -> PipelineLook:
    try:
        status = read_status(root / name)
        return PipelineLook(name, status, status is not None and status.runs(now_s, alive))
    except (PipelineError, OSError, ValueError, TypeError) as error:
        return PipelineLook(name, None, False, str(error))


def letter_topics(folder: Path) -> tuple[list[LetterTopic], str]:
    """By source, and why they are not known."""
    try:
        declared = load_pipeline(folder)
    except (PipelineError, OSError, ValueError) as error:
        return [], str(error)
    return [LetterTopic(source.name, source.dead_letter) for source in declared.sources], ""


def queries_of(look: PipelineLook) -> list[str]:
    """Those that can be wished to start again."""
    names = {member.query for member in look.members}
    return sorted(name for name in names if QUERY_NAME.fullmatch(name))
