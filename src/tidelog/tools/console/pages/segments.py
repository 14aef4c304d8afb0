"""Log segments of data directories on this machine: what `dump-log` and `verify-log` say, as pages.

Only directories that the console was given (`--logs`) are looked into, and only by plain names of
what lies in them. Nothing is written. The files know no ACLs, so where visitors log in as users of
the cluster, this is for those who may ALTER the cluster.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.acls import AclOperation
from tidelog.tools.console.page import problem, render
from tidelog.tools.console.rights import require_on_cluster
from tidelog.tools.dump.collected_output import Collected, collected
from tidelog.tools.dump.decoders import Decoder, decode_group_record, decode_transaction
from tidelog.tools.dump.dump_errors import DumpError
from tidelog.tools.dump.segment_map import (
    BatchContent,
    BatchOnMap,
    LogFolder,
    OutsideTheFolder,
    SegmentFile,
    SegmentMap,
    content_of,
    inside,
    log_folders,
    map_of,
    segments_of,
)
from tidelog.tools.dump.stored_batch import DumpedRecord
from tidelog.tools.dump.text_output import control_text
from tidelog.tools.verify.directory_check import DirectoryCheck, DirectorySummary
from tidelog.tools.verify.target import NotALog, find_target

NAVIGATION: Final = ("Log segments", "/segments")
FOLDERS_SHOWN: Final = 500
SEGMENTS_SHOWN: Final = 1_000
CHECK_BYTES_MAX: Final = 256 << 20
FINDINGS_SHOWN: Final = 200
CONTENT_CHARACTERS: Final = 2_000
MAP_WIDTH: Final = 1_000.0
RECT_WIDTH_MIN: Final = 0.6
DECODERS: Final[dict[str, Decoder]] = {
    "__consumer_offsets": decode_group_record,
    "__transaction_state": decode_transaction,
}

ENTRIES_SHOWN: Final = 500
ENTRY_FILES: Final = {
    "index": "Offset index",
    "timeindex": "Time index",
    "txnindex": "Transaction index",
    "snapshot": "Producers",
}

T = TypeVar("T")


class Block(NamedTuple):
    """A batch as a rectangle of the map."""

    x: float
    width: float
    kind: str  # damaged, control, transactional, compressed or plain


class ShownRecord(NamedTuple):
    offset: int
    timestamp: int
    sequence: int
    key: str | None
    value: str | None
    headers: Sequence[tuple[str, str | None]]


async def guarded(request: Request, look: Callable[[], T]) -> T:
    """`look` in a thread, for a visitor who may."""
    await require_on_cluster(request, AclOperation.ALTER, "Files")
    return await asyncio.to_thread(look)


def directory_of(request: Request) -> tuple[int, Path]:
    """The one that the address names by its number."""
    directories: Sequence[Path] = request.app.state.settings.logs
    text = request.query_params.get("dir", "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else -1
    if not 0 <= number < len(directories):
        raise OutsideTheFolder("there is no such directory")
    return number, directories[number]


def _segment_name(request: Request) -> str:
    text = request.query_params.get("segment", "")
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise OutsideTheFolder("a segment is named by its first offset")
    return f"{int(text):020d}.log"


def _position(request: Request) -> int:
    text = request.query_params.get("position", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise OutsideTheFolder("a position is a number")
    return int(text)


async def answered(request: Request, answer: Callable[[], T]) -> T | Response:
    """What `answer` found; a page that says why there is nothing."""
    try:
        return await guarded(request, answer)
    except OutsideTheFolder as error:
        return problem(request, "There is no such log", f"{error}.", status=404)
    except (DumpError, NotALog) as error:
        return problem(request, "This cannot be shown", f"{error}.", status=400)
    except OSError as error:
        return problem(request, "The file cannot be read", f"{error.strerror}.", status=404)


# Directories and logs


async def show_directories(request: Request) -> Response:
    directories: Sequence[Path] = request.app.state.settings.logs
    text = request.query_params.get("text", "").strip()

    def look() -> list[tuple[str, list[LogFolder], str]]:
        found: list[tuple[str, list[LogFolder], str]] = []
        for path in directories:
            try:
                folders = [each for each in log_folders(path) if text in each.name]
            except OSError as error:
                found.append((str(path), [], f"{error.strerror}"))
            else:
                found.append((str(path), folders, ""))
        return found

    found = await answered(request, look)
    if isinstance(found, Response):
        return found
    return render(request, "segments/directories.html", found=found, shown=FOLDERS_SHOWN, text=text)


async def show_log(request: Request) -> Response:
    name = request.query_params.get("folder", "")

    def look() -> tuple[int, Path, list[SegmentFile]]:
        number, root = directory_of(request)
        return number, root, segments_of(inside(root, name))

    found = await answered(request, look)
    if isinstance(found, Response):
        return found
    number, root, segments = found
    return render(
        request,
        "segments/log.html",
        number=number,
        root=str(root),
        folder=name,
        segments=segments[:SEGMENTS_SHOWN],
        count=len(segments),
    )


# One segment


async def show_map(request: Request) -> Response:
    name = request.query_params.get("folder", "")

    def look() -> tuple[int, SegmentMap]:
        number, root = directory_of(request)
        path = inside(root, name, _segment_name(request))
        return number, map_of(path, _position(request))

    found = await answered(request, look)
    if isinstance(found, Response):
        return found
    number, shown = found
    return render(
        request,
        "segments/map.html",
        number=number,
        folder=name,
        segment=request.query_params.get("segment", ""),
        shown=shown,
        blocks=blocks_of(shown),
        kinds=[(each, kind_of(each)) for each in shown.batches],
        damaged=sum(not each.is_valid for each in shown.batches),
        records=sum(max(each.records_count, 0) for each in shown.batches),
        width=MAP_WIDTH,
    )


def kind_of(batch: BatchOnMap) -> str:
    if not batch.is_valid:
        return "damaged"
    if batch.is_control:
        return "control"
    if batch.is_transactional:
        return "transactional"
    return "plain" if batch.codec == "none" else "compressed"


def blocks_of(shown: SegmentMap) -> list[Block]:
    """As wide as the batches are long, and never so narrow that nobody sees them."""
    length = max(shown.end_position - shown.position, 1)
    scale = MAP_WIDTH / length
    return [
        Block(
            round((each.position - shown.position) * scale, 2),
            round(max(each.size * scale, RECT_WIDTH_MIN), 2),
            kind_of(each),
        )
        for each in shown.batches
    ]


async def show_batch(request: Request) -> Response:
    name = request.query_params.get("folder", "")
    found = await answered(request, partial(_batch, request, name))
    if isinstance(found, Response):
        return found
    number, content, records = found
    return render(
        request,
        "segments/batch.html",
        number=number,
        folder=name,
        segment=request.query_params.get("segment", ""),
        batch=content.batch,
        kind=kind_of(content.batch),
        content=content,
        records=records,
    )


def _batch(request: Request, name: str) -> tuple[int, BatchContent, list[ShownRecord]]:
    number, root = directory_of(request)
    position = _position(request)
    content = content_of(inside(root, name, _segment_name(request)), position)
    if content is None:
        raise OutsideTheFolder(f"no whole batch begins at {position}")
    decoder = DECODERS.get(name.rpartition("-")[0])
    records = [shown_record(each, decoder, content.batch) for each in content.records]
    return number, content, records


def shown_record(record: DumpedRecord, decoder: Decoder | None, batch: BatchOnMap) -> ShownRecord:
    key, value = content_text(record.key), content_text(record.value)
    if batch.is_control:
        key, value = control_text(record), None
    elif decoder is not None:
        decoded = decoder(record)
        key, value = _json_text(decoded.key), _json_text(decoded.payload)
    return ShownRecord(
        record.offset,
        record.timestamp,
        record.sequence,
        key,
        value,
        [(name[:CONTENT_CHARACTERS], content_text(each)) for name, each in record.headers],
    )


def content_text(content: bytes | None) -> str | None:
    """Text where it is UTF-8, else hex; cut where it is long."""
    if content is None:
        return None
    cut = content[: 4 * CONTENT_CHARACTERS]
    try:
        text = cut.decode("utf-8", "strict" if len(cut) == len(content) else "ignore")
    except UnicodeDecodeError:
        text = "0x" + cut[:CONTENT_CHARACTERS].hex()
    return _cut(text, len(text) > CONTENT_CHARACTERS or len(cut) < len(content))


def _json_text(value: object) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _cut(text, len(text) > CONTENT_CHARACTERS)


def _cut(text: str, is_long: bool) -> str:
    return text[:CONTENT_CHARACTERS] + " …" if is_long else text


# Indexes and snapshots


async def show_entries(request: Request) -> Response:
    name, kind = request.query_params.get("folder", ""), request.query_params.get("kind", "")

    def look() -> tuple[int, Collected]:
        number, root = directory_of(request)
        if kind not in ENTRY_FILES:
            raise OutsideTheFolder("there is no such kind of file")
        file = _segment_name(request).removesuffix(".log") + f".{kind}"
        return number, collected(str(inside(root, name, file)), ENTRIES_SHOWN)

    found = await answered(request, look)
    if isinstance(found, Response):
        return found
    number, entries = found
    folder = str(directory_of(request)[1] / name) + "/"
    return render(
        request,
        "segments/entries.html",
        number=number,
        folder=name,
        segment=request.query_params.get("segment", ""),
        what=ENTRY_FILES[kind],
        columns=list(entries.rows[0]) if entries.rows else [],
        entries=entries,
        disagreements=[each.replace(folder, "") for each in entries.disagreements[:ENTRIES_SHOWN]],
    )


# Check


async def check(request: Request) -> Response:
    """What `verify-log` says of one log; one at a time, and none that takes long."""
    name = request.query_params.get("folder", "")
    state = request.app.state
    if not hasattr(state, "log_check"):
        state.log_check = asyncio.Lock()

    def look() -> tuple[int, DirectorySummary]:
        number, root = directory_of(request)
        path = inside(root, name)
        size = sum(each.log_bytes for each in segments_of(path))
        if size > CHECK_BYTES_MAX:
            raise DumpError(
                f"the log has {size >> 20} MB, and more than {CHECK_BYTES_MAX >> 20} MB would "
                f"hold up the console: tidelog verify-log {path} checks it"
            )
        return number, DirectoryCheck(find_target(str(path)), jobs=1).run()

    async with state.log_check:
        found = await answered(request, look)
    if isinstance(found, Response):
        return found
    number, summary = found
    return render(
        request,
        "segments/check.html",
        number=number,
        folder=name,
        summary=summary,
        findings=summary.all_findings[:FINDINGS_SHOWN],
        damage=sum(each.is_damage for each in summary.all_findings),
        count=len(summary.all_findings),
    )


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/segments", show_directories),
    Route("/segments/log", show_log),
    Route("/segments/map", show_map),
    Route("/segments/batch", show_batch),
    Route("/segments/entries", show_entries),
    Route("/segments/check", check),
)
