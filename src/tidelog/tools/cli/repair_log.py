"""`tidelog repair-log DIR`: does what recovery would do, now, and keeps a copy of what it changes.

Refused while a broker uses the directory. Exit codes: 0 nothing is wrong any more, 1 something is,
2 wrong usage. With --dry-run nothing is changed, and 1 means that there is something to repair.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.tools.cli.main import fail
from tidelog.tools.cli.verify_log import as_json, directory, lines_of

if TYPE_CHECKING:
    from tidelog.tools.repair.directory_repair import RepairSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directories", nargs="+", type=directory, metavar="DIR", help="a directory of log.dirs"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument(
        "--backup",
        type=Path,
        metavar="FOLDER",
        help="where copies go; by default a new folder beside DIR",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="logs to check at once; one a processor by default"
    )
    parser.add_argument("--verbose", action="store_true", help="the lines that recovery logs")


class WrongUsage(Exception):
    pass


def run(arguments: argparse.Namespace) -> int:
    try:
        return repair_all(arguments)
    except WrongUsage as problem:
        fail(str(problem))
        return 2


def repair_all(arguments: argparse.Namespace) -> int:
    set_up_logging(arguments.verbose)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    summaries = []
    for path in arguments.directories:
        summary = repair(path, backup_folder(path, arguments.backup, stamp), arguments)
        summaries.append(summary)
        if not arguments.json:
            show(summary, arguments.dry_run)
    if arguments.json:
        print(json.dumps([summary_json(each) for each in summaries], indent=2))
    return 1 if any(each.remaining for each in summaries) else 0


def set_up_logging(verbose: bool) -> None:
    import logging

    logging.basicConfig(
        stream=sys.stderr, format="  %(message)s", level="INFO" if verbose else "CRITICAL"
    )


def backup_folder(path: Path, given: Path | None, stamp: str) -> Path:
    path = path.resolve()
    if given is None:
        return path.with_name(f"{path.name}.repair-{stamp}")
    folder = given.resolve()
    if folder == path or path in folder.parents:
        raise WrongUsage(f"{given} lies in {path}: a broker would not start on it")
    return folder / path.name


def repair(path: Path, backup: Path, arguments: argparse.Namespace) -> RepairSummary:
    from tidelog.tools.repair.directory_repair import DirectoryRepair

    work = DirectoryRepair(path, backup, jobs=arguments.jobs)
    return work.plan() if arguments.dry_run else work.run()


def show(summary: RepairSummary, dry_run: bool) -> None:
    path = summary.before.path
    if not summary.found:
        print(f"{path}: no damage, nothing to do")
        return
    count = len(summary.found)
    verb = "would be repaired" if dry_run else "found"
    print(f"{path}: {count} problem{'s' if count > 1 else ''} {verb}")
    for finding in summary.found:
        print("\n".join(lines_of(finding, path)))
    if dry_run:
        print("nothing was changed; without --dry-run a copy of everything that changes is kept")
        return
    if summary.backup is not None:
        print(f"copies of what was changed: {summary.backup}")
    if not summary.remaining:
        print("repaired: no damage is left")
        return
    print("left, because nobody but you can know:")
    for finding in summary.remaining:
        print("\n".join(lines_of(finding, path)))


def summary_json(summary: RepairSummary) -> dict[str, object]:
    return {
        **as_json([summary.after or summary.before]),
        "found": [finding.as_json() for finding in summary.found],
        "remaining": [finding.as_json() for finding in summary.remaining],
        "backup": None if summary.backup is None else str(summary.backup),
    }
