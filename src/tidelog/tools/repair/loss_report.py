"""What a repair is about to take from a log, in records, offsets and bytes, as text and as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tidelog.tools.repair.salvage_plan import Cut, Loss, LostMarker, SalvagePlan


def lines_of_plan(plan: SalvagePlan, *, salvage: bool) -> Iterator[str]:
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
