"""Messages of a topic: pages of them, search, live tail, single records, export, import, produce.

What is asked for stands in the address (messages/selection.py), so a search can be kept and shared.
Records are read in threads (messages/apart.py) with the credentials of the user who asks. A search
goes on for SEARCH_S and then offers to go on exactly where it ended.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from tidelog.config.client import ConsumerConfig, ProducerConfig
from tidelog.record.kernel import ConsumerRecord
from tidelog.spark.codecs.errors import RegistryError
from tidelog.tools.cli.record_input import InputRecord
from tidelog.tools.console.clients import clients_of
from tidelog.tools.console.events import Event, event_stream
from tidelog.tools.console.messages.apart import Busy, Readings
from tidelog.tools.console.messages.cursor import (
    OFFSET_MAX,
    PARTITION_MAX,
    BadCursor,
    Cursor,
    Direction,
    Span,
    decode,
)
from tidelog.tools.console.messages.decoding import DECODERS, Decoder
from tidelog.tools.console.messages.filtering import RecordFilter
from tidelog.tools.console.messages.reading import Ended, Limits, Page, first_cursor, read_page
from tidelog.tools.console.messages.scanning import Budget
from tidelog.tools.console.messages.schemas import Schemas
from tidelog.tools.console.messages.selection import (
    LIMITS,
    PLACES,
    BadSelection,
    Selection,
    parse_selection,
    spans_of,
)
from tidelog.tools.console.messages.source import (
    PAGE_FETCH_BYTES,
    SCAN_FETCH_BYTES,
    TopicSource,
)
from tidelog.tools.console.messages.tail import Glimpse, follow
from tidelog.tools.console.messages.transfer import (
    EXPORT_PIECE_S,
    IMPORT_BYTES_MAX,
    BadLine,
    Import,
    exported,
    parse_lines,
    write,
)
from tidelog.tools.console.messages.typed_input import BadInput, encoders, typed_record
from tidelog.tools.console.messages.view import RecordView, Viewer
from tidelog.tools.console.page import (
    field_of,
    form_of,
    link,
    part,
    parts_event,
    problem,
    render,
    told,
)

T = TypeVar("T")

NAVIGATION: Final = ("Messages", "/messages")
SEARCH_S: Final = 10.0
ONE_RECORD_S: Final = 8.0
TAIL_ROWS: Final = 50
TOPICS_SHOWN: Final = 500
LIST_AGE_S: Final = 5.0
WRITE_LIMITS: Final = {"max.block.ms": "10000", "delivery.timeout.ms": "20000"}
JSON_LINES: Final = "application/x-ndjson"
FIELDS: Final = (
    "topic",
    "from",
    "at",
    "to",
    "partitions",
    "limit",
    "committed",
    "key",
    "value",
    "header",
    "filter",
    "key-decoder",
    "value-decoder",
)
FILTER_FIELDS: Final = ("key", "value", "header", "filter")
MORE_FIELDS: Final = ("key", "header", "committed")  # seldom used, so they are folded away


class _Surroundings:
    """Of one console."""

    def __init__(self, source: str | None) -> None:
        self.readings = Readings()
        self._source = source
        self._schemas: Schemas | None = None

    def schemas(self) -> Schemas | None:
        """In a thread: a folder is read when it is first asked for."""
        if self._schemas is None and self._source is not None:
            try:
                self._schemas = Schemas(self._source)
            except (OSError, RegistryError, ValueError) as wrong:
                raise HTTPException(503, f"the schemas cannot be read: {wrong}") from None
        return self._schemas


def _around(request: Request) -> _Surroundings:
    state = request.app.state
    if not hasattr(state, "messages_around"):
        state.messages_around = _Surroundings(state.settings.schemas)
    around: _Surroundings = state.messages_around
    return around


async def _apart(request: Request, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What it gives, run in a thread of its own."""
    try:
        return await _around(request).readings.run(work)
    except Busy as busy:
        raise HTTPException(503, str(busy)) from None


class _Reader:
    """What a reading needs of the request; used in the thread."""

    def __init__(self, request: Request, selection: Selection) -> None:
        self.selection = selection
        self._around = _around(request)
        self._properties = clients_of(request).settings(ConsumerConfig)

    def source(self, *, is_search: bool) -> TopicSource:
        asked = self.selection
        return TopicSource(
            self._properties,
            asked.topic,
            asked.partitions,
            is_committed=asked.is_committed,
            fetch_bytes=SCAN_FETCH_BYTES if is_search else PAGE_FETCH_BYTES,
        )

    def decoders(self) -> tuple[Decoder, Decoder]:
        schemas = self._around.schemas()
        asked = self.selection
        return Decoder(asked.key_decoder, schemas), Decoder(asked.value_decoder, schemas)

    def wanted(self) -> RecordFilter:
        return RecordFilter(self.selection.condition, *self.decoders())

    def viewer(self) -> Viewer:
        return Viewer(self.selection.topic, *self.decoders())


class Found(NamedTuple):
    """A page, and its records as they are shown."""

    page: Page
    rows: list[RecordView]
    seconds: float


# The page


async def show(request: Request) -> Response:
    asked = _asked(request)
    if not asked["topic"]:
        return await _choose_topic(request)
    found: Found | None = None
    wrong: BadSelection | None = None
    try:
        selection = parse_selection(asked, _now_ms())
        text = request.query_params.get("cursor", "")
        cursor = decode(text) if text else None
        found = await _searched(request, selection, cursor)
    except BadSelection as problem_found:
        wrong = problem_found
    except BadCursor as bad:
        wrong = BadSelection("cursor", str(bad))
    return render(
        request,
        "messages/list.html",
        status=400 if wrong is not None else 200,
        found=found,
        wrong=wrong,
        **_form_context(asked),
        **({} if found is None else _progress(asked, found)),
    )


async def _choose_topic(request: Request) -> Response:
    clients = clients_of(request)
    topics = await clients.shared("messages-topics", LIST_AGE_S, clients.admin.list_topics)
    words = request.query_params.get("q", "").strip()
    names = sorted(each.name for each in topics if words.casefold() in each.name.casefold())
    return render(
        request,
        "messages/topics.html",
        names=names[:TOPICS_SHOWN],
        count=len(names),
        words=words,
    )


def _asked(request: Request) -> dict[str, str]:
    return {name: request.query_params.get(name, "") for name in FIELDS}


def _query(asked: Mapping[str, str], **changes: object) -> dict[str, object]:
    """For `link`: what is empty is left out."""
    return {name: value or None for name, value in asked.items()} | changes


def _form_context(asked: Mapping[str, str]) -> dict[str, Any]:
    is_search = any(asked[name].strip() for name in FILTER_FIELDS)
    return {
        "asked": asked,
        "places": list(PLACES.items()),
        "limits": [(str(each), str(each)) for each in LIMITS],
        "decoders": list(DECODERS.items()),
        "topic": asked["topic"],
        "is_search": is_search,
        "has_more": any(asked[name] for name in MORE_FIELDS)
        or any(asked[name] not in ("", "auto") for name in ("key-decoder", "value-decoder")),
        "live": link("messages", "+live", **_query(asked)),
        "tail": link("messages", "+tail", **_query(asked)),
        "export": link("messages", "+export", **_query(asked)),
        "shown_with": _query(
            {name: asked[name] for name in ("topic", "committed", "key-decoder", "value-decoder")}
        ),
    }


def _progress(asked: Mapping[str, str], found: Found) -> dict[str, Any]:
    cursor = found.page.cursor
    following = None
    if not cursor.is_done:
        following = link("messages", **_query(asked, cursor=cursor.encode()))
    return {
        "following": following,
        "following_label": "Go on searching"
        if found.page.ended is Ended.LATE
        else ("Older" if cursor.direction is Direction.NEWEST_FIRST else "Newer"),
    }


async def _searched(request: Request, selection: Selection, cursor: Cursor | None) -> Found:
    reader = _Reader(request, selection)
    began_s = time.monotonic()

    async def read() -> Found:
        wanted = reader.wanted()
        async with reader.source(is_search=not wanted.accepts_all) as source:
            await source.open()
            at = cursor or first_cursor(selection.direction, await spans_of(selection, source))
            budget = Budget(SEARCH_S, time.monotonic)
            page = await read_page(source, at, wanted, Limits(selection.limit), budget)
        rows = reader.viewer().rows(_in_time_order(page))
        return Found(page, rows, time.monotonic() - began_s)

    return await _apart(request, read)


def _in_time_order(page: Page) -> list[ConsumerRecord]:
    """Records of one partition in the order of their offsets, also where their times are not."""
    is_newest = page.cursor.direction is Direction.NEWEST_FIRST
    sign = -1 if is_newest else 1
    if len({record.partition for record in page.records}) == 1:
        return sorted(page.records, key=lambda record: sign * record.offset)
    return sorted(page.records, key=lambda record: sign * record.timestamp)


def _now_ms() -> int:
    return int(time.time() * 1_000)


# Live


async def show_tail(request: Request) -> Response:
    asked = _asked(request)
    try:
        parse_selection(asked, _now_ms())
    except BadSelection as wrong:
        return problem(request, "This cannot be followed", str(wrong))
    return render(request, "messages/tail.html", rows=[], **_form_context(asked), **_counts())


def _counts(seen: int = 0, matches: int = 0, left_out: int = 0, skipped: int = 0) -> dict[str, int]:
    return {"seen": seen, "matches": matches, "left_out": left_out, "skipped": skipped}


async def live(request: Request) -> Response:
    asked = _asked(request)
    try:
        selection = parse_selection(asked, _now_ms())
    except BadSelection as wrong:
        return PlainTextResponse(str(wrong), 400)
    return event_stream(request, _tail(request, selection, asked))


async def _tail(
    request: Request, selection: Selection, asked: Mapping[str, str]
) -> AsyncGenerator[Event, None]:
    reader = _Reader(request, selection)

    async def glimpses() -> AsyncGenerator[tuple[Glimpse, list[RecordView]], None]:
        viewer = reader.viewer()
        async with reader.source(is_search=False) as source:
            await source.open()
            async for glimpse in follow(source, reader.wanted(), time.monotonic):
                yield glimpse, viewer.rows(glimpse.records)

    rows: deque[RecordView] = deque(maxlen=TAIL_ROWS)
    totals = _counts()
    context = _form_context(asked)
    stream = _around(request).readings.stream(glimpses)
    try:
        async for glimpse, views in stream:
            rows.extendleft(views)
            told_now = (glimpse.seen, glimpse.matches, glimpse.left_out, glimpse.skipped)
            totals = {
                name: totals[name] + count for name, count in zip(totals, told_now, strict=True)
            }
            parts = {"counts": part(request, "messages/counts.html", **totals)}
            if views:
                parts["rows"] = part(request, "messages/rows.html", rows=rows, **context)
            yield parts_event(parts)
    except Busy as busy:
        yield "problem", str(busy)
    except HTTPException as wrong:
        yield "problem", wrong.detail
    finally:
        await stream.aclose()


# One record


async def show_record(request: Request) -> Response:
    record, reader = await _one(request)
    if record is None:
        return problem(
            request,
            "There is no such record",
            "It was deleted, compacted away, or not written yet, or it is a marker of a "
            "transaction.",
            status=404,
        )
    shown = await _apart(request, _made(lambda: reader.viewer().whole(record)))
    asked = _asked(request)
    return render(
        request,
        "messages/record.html",
        record=shown,
        **_form_context(asked),
    )


async def download(request: Request) -> Response:
    record, _ = await _one(request)
    name = request.query_params.get("part", "value")
    data = None if record is None else record.key if name == "key" else record.value
    if record is None or data is None:
        return problem(request, "There is nothing to download", "It is null.", status=404)
    file = f"{record.partition}-{record.offset}-{'key' if name == 'key' else 'value'}.bin"
    return Response(
        data,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{file}"'},
    )


async def _one(request: Request) -> tuple[ConsumerRecord | None, _Reader]:
    """The record at `partition` and `offset`; None where there is none."""
    asked = request.query_params
    partition, offset = _number(asked, "partition"), _number(asked, "offset")
    given = _asked(request) | dict.fromkeys(("from", "at", "to", *FILTER_FIELDS), "")
    if partition is None or offset is None or partition > PARTITION_MAX or offset >= OFFSET_MAX:
        offset = partition = -1
    given["partitions"] = str(partition) if partition >= 0 else ""
    reader = _Reader(request, _selection(given))
    if partition < 0:
        return None, reader

    async def read() -> ConsumerRecord | None:
        wanted = RecordFilter(None, *reader.decoders())
        async with reader.source(is_search=False) as source:
            await source.open()
            cursor = first_cursor(Direction.OLDEST_FIRST, {partition: Span(offset, offset + 1)})
            budget = Budget(ONE_RECORD_S, time.monotonic)
            page = await read_page(source, cursor, wanted, Limits(1), budget)
            return page.records[0] if page.records else None

    return await _apart(request, read), reader


def _selection(asked: Mapping[str, str]) -> Selection:
    try:
        return parse_selection(asked, _now_ms())
    except BadSelection:
        return Selection(asked["topic"])


def _made(make: Callable[[], T]) -> Callable[[], Coroutine[Any, Any, T]]:
    async def made() -> T:
        return make()

    return made


def _number(asked: Mapping[str, str], name: str) -> int | None:
    text = asked.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


# Out


async def export(request: Request) -> Response:
    try:
        selection = parse_selection(_asked(request), _now_ms())
    except BadSelection as wrong:
        return problem(request, "This cannot be exported", str(wrong))
    reader = _Reader(request, selection)

    async def pieces() -> AsyncGenerator[bytes, None]:
        wanted = reader.wanted()
        async with reader.source(is_search=True) as source:
            await source.open()
            cursor = first_cursor(Direction.OLDEST_FIRST, await spans_of(selection, source))
            budget = Budget(EXPORT_PIECE_S, time.monotonic)
            yield b""  # what is wrong with the topic is said before the download begins
            async for piece in exported(source, cursor, wanted, budget):
                yield piece

    stream = _around(request).readings.stream(pieces)
    try:
        await anext(stream)
    except Busy as busy:
        return problem(request, "The messages cannot be exported", str(busy), status=503)

    async def rest() -> AsyncGenerator[bytes, None]:
        try:
            async for piece in stream:
                yield piece
        finally:
            await stream.aclose()

    safe = "".join(each if each.isalnum() or each in "._-" else "_" for each in selection.topic)
    return StreamingResponse(
        rest(),
        media_type=JSON_LINES,
        headers={"content-disposition": f'attachment; filename="{safe[:100]}.jsonl"'},
    )


# In


async def show_produce(request: Request) -> Response:
    return _produce_page(request, request.query_params)


def _produce_page(
    request: Request, values: Mapping[str, str], wrong: str = "", status: int = 200
) -> Response:
    names = ("topic", "partition", "key", "key-form", "value", "value-form", "headers", "timestamp")
    return render(
        request,
        "messages/produce.html",
        status=status,
        topic=values.get("topic", ""),
        values={name: values.get(name, "") for name in names},
        forms=encoders(),
        wrong=wrong,
    )


async def produce(request: Request) -> Response:
    values = {name: rows[0] for name, rows in form_of(request).items() if rows}
    topic = field_of(request, "topic")
    try:
        record = typed_record(values)
    except BadInput as wrong:
        return _produce_page(request, values, str(wrong), 400)
    known = await _partitions(request, topic)
    if record.partition is not None and record.partition not in known:
        missing = f"partition: the topic has no {record.partition}"
        return _produce_page(request, values, missing, 400)
    done = await _written(request, topic, [(1, record)])
    if done.failed:
        return _produce_page(request, values, done.failures[0][1], 502)
    partition = next(iter(done.partitions))
    return told(
        request,
        link("messages", topic=topic, partitions=partition),
        f"The record is written to partition {partition}.",
    )


async def show_import(request: Request) -> Response:
    return _import_page(request, request.query_params.get("topic", ""))


def _import_page(
    request: Request,
    topic: str,
    *,
    done: Import | None = None,
    wrong: str = "",
    lines: str = "",
    keeps: bool = False,
) -> Response:
    return render(
        request,
        "messages/import.html",
        status=400 if wrong else 200,
        topic=topic,
        bytes_max=IMPORT_BYTES_MAX,
        lines=lines,
        keeps=keeps,
        wrong=wrong,
        done=done,
    )


async def take_import(request: Request) -> Response:
    """A form, or a file that the page's script sends as it is."""
    is_form = bool(form_of(request))
    if is_form:
        topic, keeps = field_of(request, "topic"), field_of(request, "keep") == "1"
        data = field_of(request, "lines").replace("\r\n", "\n").encode(errors="replace")
    else:
        topic = request.query_params.get("topic", "")
        keeps = request.query_params.get("keep") == "1"
        body = await _body_or_none(request)
        if body is None:
            return PlainTextResponse(f"a file has at most {IMPORT_BYTES_MAX >> 20} MiB", 413)
        data = body
    partitions = await _partitions(request, topic)

    async def imported() -> list[tuple[int, InputRecord]]:
        return parse_lines(data, partitions, keeps_partitions=keeps)

    try:
        records = await _apart(request, imported)
        done = await _written(request, topic, records)
    except BadLine as wrong:
        said = f"Nothing was written: {wrong}."
        if not is_form:
            return PlainTextResponse(said, 400)
        return _import_page(request, topic, wrong=said, lines=data.decode(), keeps=keeps)
    return _import_page(request, topic, done=done, keeps=keeps)


async def _partitions(request: Request, topic: str) -> set[int]:
    found = (await clients_of(request).admin.describe_topics([topic]))[topic].get()
    return {each.partition for each in found.partitions}


async def _body_or_none(request: Request) -> bytes | None:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > IMPORT_BYTES_MAX:
            return None
    return bytes(body)


async def _written(
    request: Request, topic: str, records: Sequence[tuple[int, InputRecord]]
) -> Import:
    properties = WRITE_LIMITS | clients_of(request).settings(ProducerConfig)
    return await _apart(request, lambda: write(properties, topic, records))


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/messages", show),
    Route("/messages/+tail", show_tail),
    Route("/messages/+live", live),
    Route("/messages/+record", show_record),
    Route("/messages/+bytes", download),
    Route("/messages/+export", export),
    Route("/messages/+produce", show_produce),
    Route("/messages/+produce", produce, methods=["POST"]),
    Route("/messages/+import", show_import),
    Route("/messages/+import", take_import, methods=["POST"]),
)
