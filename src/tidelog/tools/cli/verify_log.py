"""`tidelog verify-log DIR`: checks a data directory and says what recovery would do.

Changes nothing. Exit codes: 0 sound, 1 damage was found, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.tools.verify.directory_check import DirectorySummary
    from tidelog.tools.verify.finding import Finding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directories", nargs="+", type=directory, metavar="DIR", help="a directory of log.dirs"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="logs to check at once; one a processor by default"
    )


def directory(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no directory")
    return path


def run(arguments: argparse.Namespace) -> int:
    summaries = check_all(arguments.directories, arguments.jobs)
    if arguments.json:
        print(json.dumps(as_json(summaries), indent=2))
    else:
        show(summaries)
    return 1 if any(f.is_damage for each in summaries for f in each.all_findings) else 0


def check_all(directories: Sequence[Path], jobs: int | None) -> list[DirectorySummary]:
    from tidelog.tools.verify.directory_check import DirectoryCheck

    return [DirectoryCheck(path, jobs=jobs).run(draw_progress) for path in directories]


def draw_progress(done: int, total: int) -> None:
    if sys.stderr.isatty() and total > 1:
        end = "\r\x1b[K" if done == total else ""
        sys.stderr.write(f"\r{done} of {total} logs checked\x1b[K{end}")
        sys.stderr.flush()


def show(summaries: Sequence[DirectorySummary]) -> None:
    for summary in summaries:
        show_directory(summary)
    damage = [f for each in summaries for f in each.all_findings if f.is_damage]
    paths = " ".join(str(each.path) for each in summaries)
    if not damage:
        print("no damage")
        return
    print(f"{len(damage)} problem{'s' if len(damage) > 1 else ''} found.")
    print(f"`tidelog repair-log {paths}` does what recovery would and keeps a copy of what it")
    print("changes; with --dry-run it says what that would be.")


def show_directory(summary: DirectorySummary) -> None:
    segments = sum(each.segments_count for each in summary.partitions)
    size = sum(each.bytes_count for each in summary.partitions)
    state = "closed cleanly" if summary.is_clean else "not closed cleanly"
    logs = len(summary.partitions)
    print(f"{summary.path}: {logs} logs, {segments} segments, {size:,} bytes, {state}")
    for finding in summary.all_findings:
        print("\n".join(lines_of(finding, summary.path)))


def lines_of(finding: Finding, root: Path) -> list[str]:
    word = "DAMAGE" if finding.is_damage else "remark"
    where = os.path.relpath(finding.path, root)
    if finding.position is not None:
        where += f" at position {finding.position}, offset {finding.offset}"
    return [f"  {word}  {where}: {finding.problem}", f"          recovery: {finding.recovery}"]


def as_json(summaries: Sequence[DirectorySummary]) -> dict[str, object]:
    return {
        "damaged": any(f.is_damage for each in summaries for f in each.all_findings),
        "directories": [
            {
                "path": str(each.path),
                "closed_cleanly": each.is_clean,
                "logs": [
                    {
                        "folder": log.folder,
                        "segments": log.segments_count,
                        "bytes": log.bytes_count,
                        "first_offset": log.first_offset,
                        "end_offset": log.end_offset,
                    }
                    for log in each.partitions
                ],
                "findings": [finding.as_json() for finding in each.all_findings],
            }
            for each in summaries
        ],
    }
