"""Errors of a pipeline: what is wrong, where it stands in the file, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tidelog.errors import StartupError


class Place(NamedTuple):
    """A line of a file; 0 when the whole file is meant."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else str(self.file)


class Problem(NamedTuple):
    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class PipelineError(StartupError):
    """One problem or several; the text has one line for each."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
