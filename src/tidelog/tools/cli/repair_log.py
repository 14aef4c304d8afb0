"""`tidelog repair-log DIR`: does what recovery would do, now, and keeps a copy of what it changes.

Recovery cuts a log at its first damage; with --salvage the damaged batches go alone. What is lost
is said before anything is changed.

Refused while a broker uses the directory. Exit codes: 0 nothing is wrong any more, 1 something is,
2 wrong usage. With --dry-run nothing is changed, and 1 means that there is something to repair.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from tidelog.log.directory.log_directory import LOCK_FILE
from tidelog.tools.cli.frame import Command
from tidelog.tools.cli.main import fail
from tidelog.tools.cli.verify_log import (
    as_json,
    holds_segments,
    lines_of,
    nothing_checked,
    targets_argument,
)

if TYPE_CHECKING:
    from tidelog.tools.repair.directory_repair import RepairSummary
    from tidelog.tools.repair.salvage_plan import Cut, Loss, LostMarker, SalvagePlan
    from tidelog.tools.verify.target import Target


class WrongUsage(Exception):
    pass


class Wishes(NamedTuple):
    """What the options say."""

    salvage: bool
    dry_run: bool
    json: bool
    jobs: int | None


@click.command("repair-log", cls=Command)
@targets_argument
@click.option(
    "--salvage",
    is_flag=True,
    help="Drop only the batches that are damaged, and keep the good ones behind them.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--backup",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where copies go; by default a new folder beside DIR.",
)
@click.option("--json", "as_json_", is_flag=True, help="One JSON object instead of text.")
@click.option(
    "--jobs", type=int, metavar="N", help="Logs to check at once; one a processor by default."
)
@click.option("--verbose", is_flag=True, help="The lines that recovery logs.")
def command(
    targets: tuple[Target, ...],
    salvage: bool,
    dry_run: bool,
    backup: Path | None,
    as_json_: bool,
    jobs: int | None,
    verbose: bool,
) -> int:
    """Do what recovery would do, keeping a copy of what it changes.

    DIR is a directory of log.dirs, or the folder of one partition.
    """
    set_up_logging(verbose)
    try:
        return repair_all(targets, backup, Wishes(salvage, dry_run, as_json_, jobs))
    except WrongUsage as problem:
        fail(str(problem))
        return 2


def repair_all(targets: Sequence[Target], backup_given: Path | None, wishes: Wishes) -> int:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    backups = backup_folders(targets, backup_given, stamp)
    summaries = []
    for target, backup in zip(targets, backups, strict=True):
        summary = repair(target, backup, wishes)
        summaries.append(summary)
        if not wishes.json:
            show_end(summary, wishes.dry_run)
    if wishes.json:
        print(json.dumps([summary_json(each) for each in summaries], indent=2))
    if any(each.remaining for each in summaries):
        return 1
    checked = [each.before for each in summaries]
    is_idle = not any(each.found for each in summaries) and not holds_segments(checked)
    return nothing_checked(checked) if is_idle else 0


def set_up_logging(verbose: bool) -> None:
    import logging

    logging.basicConfig(
        stream=sys.stderr, format="  %(message)s", level="INFO" if verbose else "CRITICAL"
    )


def backup_folders(targets: Sequence[Target], given: Path | None, stamp: str) -> list[Path]:
    """One for each; a folder that is there may hold the copies of an earlier repair."""
    folders = [backup_folder(target, given, stamp) for target in targets]
    for folder in folders:
        for target in targets:
            if target.directory in (folder, *folder.parents) and not target.is_alone:
                raise WrongUsage(
                    f"{folder} lies in {target.directory}: a broker would not start on it"
                )
            if target.path in (folder, *folder.parents):
                raise WrongUsage(f"{folder} lies in {target.path}, which is to be repaired")
        if folder.exists():
            raise WrongUsage(f"{folder} is there already: copies go into a new folder")
        if folders.count(folder) > 1:
            raise WrongUsage(f"copies of two directories would go to {folder}: repair one by one")
    return folders


def backup_folder(target: Target, given: Path | None, stamp: str) -> Path:
    """Beside the log directory, never in it."""
    home = target.path if target.is_alone else target.directory
    if given is None:
        return home.with_name(f"{home.name}.repair-{stamp}")
    return given.resolve() / home.name


def repair(target: Target, backup: Path, wishes: Wishes) -> RepairSummary:
    from tidelog.tools.repair.directory_repair import DirectoryRepair

    def announce(summary: RepairSummary) -> None:
        if not wishes.json:
            show_plan(summary, salvage=wishes.salvage, dry_run=wishes.dry_run)

    work = DirectoryRepair(target, backup, jobs=wishes.jobs, salvage=wishes.salvage)
    if not wishes.dry_run:
        return work.run(announce)
    summary = work.plan()
    if summary.found:
        announce(summary)
    return summary


def show_plan(summary: RepairSummary, *, salvage: bool, dry_run: bool) -> None:
    """Before anything is changed."""
    path, name = summary.before.path, summary.before.target.path
    for finding in summary.before.findings:
        if Path(finding.path).name == LOCK_FILE:
            print("\n".join(lines_of(finding, path)))
    count = len(summary.found)
    verb = "would be repaired" if dry_run else "found"
    print(f"{name}: {count} problem{'s' if count > 1 else ''} {verb}")
    for finding in summary.found:
        # What recovery would do is not what a salvage does.
        print("\n".join(lines_of(finding, path)[: 1 if salvage else 2]))
    for plan in summary.plans:
        for line in lines_of_plan(plan, salvage=salvage):
            print(line)
    sys.stdout.flush()


def show_end(summary: RepairSummary, dry_run: bool) -> None:
    path, name = summary.before.path, summary.before.target.path
    if not summary.found:
        if holds_segments([summary.before]):
            print(f"{name}: no damage, nothing to do")
        return
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
        "plans": [plan_as_json(plan) for plan in summary.plans],
        "found": [finding.as_json() for finding in summary.found],
        "remaining": [finding.as_json() for finding in summary.remaining],
        "backup": None if summary.backup is None else str(summary.backup),
    }


def lines_of_plan(plan: SalvagePlan, *, salvage: bool) -> Iterator[str]:
    """What is about to be taken from a log, in records, offsets and bytes."""
    name = os.path.basename(plan.folder)
    if not salvage:
        if plan.cut is not None:
            yield f"  {name}: {_cut_text(plan.cut)}"
            if plan.cut.good_records:
                yield (
                    f"          {plan.cut.good_records:,} good records go with the damage; "
                    "repair-log --salvage keeps them"
                )
        return
    if not plan.has_changes:
        yield f"  {name}: no batch is lost, all {plan.good_records:,} records stay"
        return
    yield f"  {name}: {plan.good_records:,} good records stay; {_total_text(plan)}"
    if plan.restored_batches:
        yield (
            f"          {_count(plan.restored_batches, 'batch', 'batches')} of them get back the "
            "offset, length, format or epoch that was damaged"
        )
    for loss in plan.losses:
        where = f"{os.path.relpath(loss.path, plan.folder)} at position {loss.position}"
        yield f"    lost  {where}: {loss.bytes_count:,} bytes, {_offsets_text(loss)}"
    for marker in plan.lost_markers:
        yield f"    transaction  {_marker_text(marker)}"


def _cut_text(cut: Cut) -> str:
    text = f"cut at offset {cut.offset}: {cut.bytes_count:,} bytes"
    if cut.segments_count:
        text += f", among them {_count(cut.segments_count, 'whole segment', 'whole segments')}"
    if cut.end_offset > cut.offset:
        text += f", offsets {cut.offset}-{cut.end_offset - 1}"
    return text


def _total_text(plan: SalvagePlan) -> str:
    if not plan.losses:
        return "nothing is lost"
    counts = [loss.offsets_count for loss in plan.losses]
    known = sum(count for count in counts if count is not None)
    bound = "at most " if plan.gaps_allowed else ""
    text = f"lost: {bound}{_count(known, 'record', 'records')}"
    if None in counts:
        text += " and an unknown number at the end of the log"
    return f"{text}, {plan.bytes_lost:,} bytes"


def _offsets_text(loss: Loss) -> str:
    if loss.end_offset is None:
        return f"whatever there was from offset {loss.first_offset} on"
    if loss.end_offset == loss.first_offset:
        return "no offsets"
    return f"offsets {loss.first_offset}-{loss.end_offset - 1}"


def _marker_text(marker: LostMarker) -> str:
    text = f"of producer {marker.producer_id} from offset {marker.first_offset}: "
    if marker.is_known_aborted:
        text += f"it was aborted, and its marker is lost ({_offsets_text(marker.loss)})"
    else:
        text += f"it was open where {_offsets_text(marker.loss)} are lost, maybe with its marker"
    if marker.ended_at is None:
        return (
            f"{text}; it counts as open now, and read_committed consumers wait at offset "
            f"{marker.first_offset} until its producer, or `tidelog transactions abort`, ends it"
        )
    return f"{text}; now the marker at offset {marker.ended_at} {marker.ended_by} its records too"


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def plan_as_json(plan: SalvagePlan) -> dict[str, object]:
    return {
        "folder": plan.folder,
        "good_records": plan.good_records,
        "restored_batches": plan.restored_batches,
        "cut": None if plan.cut is None else plan.cut._asdict(),
        "losses": [loss._asdict() for loss in plan.losses],
        "transactions": [
            {**marker._asdict(), "loss": marker.loss._asdict()} for marker in plan.lost_markers
        ],
    }
