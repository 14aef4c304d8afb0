"""A `.log` file, or a KRaft snapshot (`.checkpoint`), shown batch by batch and record by record."""

from __future__ import annotations

import os
from typing import NamedTuple

from tidelog.errors import KafkaError
from tidelog.tools.dump.decoders import Decoder
from tidelog.tools.dump.output import Output
from tidelog.tools.dump.problems import Disagreements, DumpError
from tidelog.tools.dump.progress import Progress
from tidelog.tools.dump.stored_batch import BatchWalk, StoredBatch


class LogOptions(NamedTuple):
    deep: bool
    decoder: Decoder | None  # shows contents
    max_bytes: int | None


class LogDump:
    """One file, once."""

    def __init__(
        self,
        path: str,
        options: LogOptions,
        output: Output,
        disagreements: Disagreements,
        progress: Progress,
    ) -> None:
        self._path = path
        self._options = options
        self._output = output
        self._disagreements = disagreements
        self._progress = progress
        self._last_offset = -1
        self._unreadable: list[str] = []

    def run(self) -> None:
        self._output.note(self._heading())
        with BatchWalk(self._path, self._options.max_bytes) as walk:
            for batch in walk:
                self._output.batch(batch)
                if self._options.deep:
                    self._show_records(batch)
                self._progress.at(self._path, walk.position, walk.size)
            trailing = walk.size - walk.position
        if trailing and self._options.max_bytes is None:
            name = os.path.basename(self._path)
            self._output.note(f"Found {trailing} invalid bytes at the end of {name}")
        if self._unreadable:
            raise DumpError("; ".join(self._unreadable))

    def _heading(self) -> str:
        name = os.path.basename(self._path)
        stem, suffix = os.path.splitext(name)
        if suffix == ".log":
            return f"Log starting offset: {base_offset_of(self._path)}"
        if stem == "bootstrap":
            return "KRaft bootstrap snapshot"
        offset, _, epoch = stem.partition("-")
        if not (offset.isdecimal() and epoch.isdecimal()):
            raise DumpError(f"{self._path}: a snapshot is named <offset>-<epoch>.checkpoint")
        return f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"

    def _show_records(self, batch: StoredBatch) -> None:
        decoder = self._options.decoder
        try:
            for record in batch.records():
                if self._last_offset not in (-1, record.offset - 1):
                    self._disagreements.gap(self._path, self._last_offset, record.offset)
                self._last_offset = record.offset
                shown = None if decoder is None or batch.is_control else decoder(record)
                self._output.record(batch, record, shown)
        except (KafkaError, DumpError) as problem:
            text = problem.message if isinstance(problem, KafkaError) else problem
            self._unreadable.append(
                f"{self._path}: the records at position {batch.position} cannot be read: {text}"
            )


def base_offset_of(path: str) -> int:
    """By the name of a segment's file."""
    digits = os.path.basename(path).partition(".")[0]
    if not digits.isdecimal():
        raise DumpError(
            f"{path}: a segment's files are named by its base offset, as {0:020d}.log; "
            "copy or rename it so"
        )
    return int(digits)
