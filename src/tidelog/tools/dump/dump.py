"""Files given to `tidelog dump-log`, each shown by what its name says it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.tools.dump.index_dump import (
    IndexOptions,
    dump_offset_index,
    dump_snapshot,
    dump_time_index,
    dump_txn_index,
)
from tidelog.tools.dump.log_dump import LogDump, LogOptions
from tidelog.tools.dump.output import Output
from tidelog.tools.dump.problems import Disagreements, DumpError, NothingToShow
from tidelog.tools.dump.progress import Progress

LOG_SUFFIXES: Final = (".log", ".checkpoint")


class DumpOptions(NamedTuple):
    log: LogOptions
    indexes: IndexOptions


def dump_files(
    paths: Sequence[str], options: DumpOptions, output: Output, progress: Progress
) -> bool:
    """Whether every file could be read to its end; what could not is said on standard error.

    Files of other names are ignored, as Kafka does; NothingToShow if all of them are.
    """
    disagreements = Disagreements()
    complete, is_any_known = True, False
    for path in paths:
        output.begin_file(path)
        try:
            is_any_known |= _dump(path, options, output, disagreements, progress)
        except (DumpError, OSError) as problem:
            is_any_known = True
            output.flush()
            progress.end()
            print(f"tidelog: error: {_text(problem)}", file=sys.stderr)
            complete = False
    output.close()
    progress.end()
    for line in disagreements.lines():
        print(line, file=sys.stderr)
    if not is_any_known:
        raise NothingToShow("no segment, index or snapshot was given: nothing was shown")
    return complete


def _dump(
    path: str,
    options: DumpOptions,
    output: Output,
    disagreements: Disagreements,
    progress: Progress,
) -> bool:
    """False if the name says that it is none of the files that can be shown."""
    suffix = os.path.splitext(path)[1]
    if suffix in LOG_SUFFIXES:
        LogDump(path, options.log, output, disagreements, progress).run()
    elif suffix == ".index":
        dump_offset_index(path, options.indexes, output, disagreements)
    elif suffix == ".timeindex":
        dump_time_index(path, options.indexes, output, disagreements)
    elif suffix == ".snapshot":
        dump_snapshot(path, output)
    elif suffix == ".txnindex":
        dump_txn_index(path, output)
    else:
        output.flush()
        print(f"Ignoring unknown file {path}", file=sys.stderr)
        return False
    return True


def _text(problem: DumpError | OSError) -> str:
    if isinstance(problem, OSError) and problem.filename:
        return f"{problem.filename}: {problem.strerror}"
    return str(problem)
