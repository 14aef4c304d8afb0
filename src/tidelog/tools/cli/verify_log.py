"""`tidelog verify-log DIR`: checks a data directory, or one partition of it, and says what recovery
would do.

Changes nothing. Exit codes: 0 sound, 1 damage was found, 2 wrong usage or nothing to check.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.tools.cli.frame import Command, Parsed
from tidelog.tools.cli.main import fail
from tidelog.tools.verify.target import NotALog, Target, find_target

if TYPE_CHECKING:
    from tidelog.tools.verify.directory_check import DirectorySummary
    from tidelog.tools.verify.finding import Finding


def target(text: str) -> Target:
    try:
        return find_target(text)
    except NotALog as problem:
        raise ValueError(str(problem)) from problem


targets_argument = click.argument(
    "targets", nargs=-1, required=True, type=Parsed("DIR", target), metavar="DIR..."
)


@click.command("verify-log", cls=Command)
@targets_argument
@click.option("--json", "as_json_", is_flag=True, help="One JSON object instead of text.")
@click.option(
    "--jobs", type=int, metavar="N", help="Logs to check at once; one a processor by default."
)
def command(targets: tuple[Target, ...], as_json_: bool, jobs: int | None) -> int:
    """Check a data directory and say what recovery would do.

    DIR is a directory of log.dirs, or the folder of one partition. Nothing is changed.
    """
    summaries = check_all(targets, jobs)
    if as_json_:
        print(json.dumps(as_json(summaries), indent=2))
    else:
        show(summaries)
    if any(f.is_damage for each in summaries for f in each.all_findings):
        return 1
    return 0 if holds_segments(summaries) else nothing_checked(summaries)


def holds_segments(summaries: Sequence[DirectorySummary]) -> bool:
    return any(log.segments_count for each in summaries for log in each.partitions)


def nothing_checked(summaries: Sequence[DirectorySummary]) -> int:
    paths = " ".join(str(each.target.path) for each in summaries)
    fail(f"no segment in {paths}: nothing was checked")
    return 2


def check_all(targets: Sequence[Target], jobs: int | None) -> list[DirectorySummary]:
    from tidelog.tools.verify.directory_check import DirectoryCheck

    return [DirectoryCheck(each, jobs=jobs).run(draw_progress) for each in targets]


def draw_progress(done: int, total: int) -> None:
    if sys.stderr.isatty() and total > 1:
        end = "\r\x1b[K" if done == total else ""
        sys.stderr.write(f"\r{done} of {total} logs checked\x1b[K{end}")
        sys.stderr.flush()


def show(summaries: Sequence[DirectorySummary]) -> None:
    for summary in summaries:
        show_directory(summary)
    damage = [f for each in summaries for f in each.all_findings if f.is_damage]
    paths = " ".join(str(each.target.path) for each in summaries)
    if not damage:
        if holds_segments(summaries):
            print("no damage")
        return
    print(f"{len(damage)} problem{'s' if len(damage) > 1 else ''} found.")
    print(f"`tidelog repair-log {paths}` does what recovery would and keeps a copy of what it")
    print("changes; with --dry-run it says what that would be.")
    if any(f.kind == "log" and f.position is not None for f in damage):
        print("With --salvage it keeps the good records behind the damage.")


def show_directory(summary: DirectorySummary) -> None:
    segments = sum(each.segments_count for each in summary.partitions)
    size = sum(each.bytes_count for each in summary.partitions)
    state = "closed cleanly" if summary.is_clean else "not closed cleanly"
    logs = len(summary.partitions)
    print(
        f"{summary.target.path}: {logs} log{'' if logs == 1 else 's'}, "
        f"{segments} segments, {size:,} bytes, {state}"
    )
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
                "path": str(each.target.path),
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
