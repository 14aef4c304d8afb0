"""Dead letters of pipelines: read with their reasons, and written again to where they came from.

A dead letter is the record as it came, with headers that say why (`tidelog.spark.decoding`). They
are read newest first, a page at a time. A replay names letters by partition and offset, reads them
again, and writes key, value and the record's own headers; the headers that say why stay behind. The
letter itself stays where it is. Headers are anybody's to write: the source topic of a letter is
shown before anything is written to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.client.errors import ClientError
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.record.kernel import ConsumerRecord
from tidelog.spark.decoding import HEADER_PREFIX
from tidelog.tools.console.messages.cursor import Cursor, Direction, decode
from tidelog.tools.console.messages.decoding import Decoder
from tidelog.tools.console.messages.expression import Comparison, Field, Literal
from tidelog.tools.console.messages.filtering import RecordFilter
from tidelog.tools.console.messages.reading import Limits, Page, first_cursor, read_page
from tidelog.tools.console.messages.scanning import Budget, bytes_of
from tidelog.tools.console.messages.source import PAGE_FETCH_BYTES, TopicSource
from tidelog.types import TopicPartition

PAGE_LETTERS: Final = 50
PAGE_S: Final = 3.0
CHOSEN_MAX: Final = 200
CHOSEN_S: Final = 10.0
CHOSEN_BYTES_MAX: Final = 64 << 20
POLL_S: Final = 0.2
REASON: Final = HEADER_PREFIX + "reason"

Place = tuple[int, int]
"""The partition and the offset of a letter in its own topic."""


class DeadLetter(NamedTuple):
    place: Place
    timestamp: int
    reason: str
    source: str  # as the pipeline calls it
    origin: TopicPartition | None  # where the record came from, as far as its headers say
    origin_offset: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]  # the record's own


class Replayed(NamedTuple):
    written: int
    problems: list[str]


class BadChoice(ValueError):
    """Names letters that cannot be replayed; the text says why."""


def letter_of(record: ConsumerRecord) -> DeadLetter:
    told = {
        name.removeprefix(HEADER_PREFIX): (value or b"").decode(errors="replace")
        for name, value in record.headers
        if name.startswith(HEADER_PREFIX)
    }
    partition, offset = _number(told.get("partition")), _number(told.get("offset"))
    topic = told.get("topic", "")
    return DeadLetter(
        (record.partition, record.offset),
        record.timestamp,
        told.get("reason", ""),
        told.get("source", ""),
        TopicPartition(topic, partition or 0) if topic else None,
        offset,
        record.key,
        record.value,
        tuple(row for row in record.headers if not row[0].startswith(HEADER_PREFIX)),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else None


# Reading


async def letters_page(
    properties: Mapping[str, str], topic: str, reason: str = "", cursor: str = ""
) -> Page:
    """The newest first; `page.cursor` has what is left. Raises BadCursor and ClientError."""
    wanted = reason_filter(reason)
    begun = decode(cursor) if cursor else None
    async with TopicSource(
        properties, topic, None, is_committed=True, fetch_bytes=PAGE_FETCH_BYTES
    ) as source:
        await source.open()
        place = begun or first_cursor(Direction.NEWEST_FIRST, await source.bounds())
        budget = Budget(PAGE_S, time.monotonic)
        return await read_page(source, place, wanted, Limits(PAGE_LETTERS), budget)


def reason_filter(reason: str) -> RecordFilter:
    reading = Decoder("auto")
    if not reason:
        return RecordFilter(None, reading, reading)
    node = Comparison("contains", Field("headers", header=REASON), Literal(reason))
    return RecordFilter(node, reading, reading)


def places_of(texts: Iterable[str]) -> list[Place]:
    """Of `partition:offset`, each once; BadChoice where they are not, or are too many."""
    found: dict[Place, None] = {}
    for text in texts:
        partition, _, offset = text.partition(":")
        numbers = (_number(partition), _number(offset))
        if numbers[0] is None or numbers[1] is None:
            raise BadChoice("the form names something that is no dead letter")
        found[numbers[0], numbers[1]] = None
    if not found:
        raise BadChoice("no dead letter was chosen")
    if len(found) > CHOSEN_MAX:
        raise BadChoice(f"at most {CHOSEN_MAX} dead letters are replayed at once")
    return sorted(found)


async def chosen_letters(
    properties: Mapping[str, str], topic: str, places: Collection[Place]
) -> list[DeadLetter]:
    """Those of them that are still there, and can be read in CHOSEN_S."""
    wanted = set(places)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for partition, offset in sorted(wanted):
        first.setdefault(partition, offset)
        last[partition] = offset
    found: list[DeadLetter] = []
    size = 0
    async with TopicSource(
        properties, topic, list(first), is_committed=True, fetch_bytes=PAGE_FETCH_BYTES
    ) as source:
        await source.open()
        bounds = await source.bounds()
        starts = {
            partition: max(offset, bounds[partition].start)
            for partition, offset in first.items()
            if offset < bounds[partition].stop and last[partition] >= bounds[partition].start
        }
        if starts:
            source.seek(starts)
        budget = Budget(CHOSEN_S, time.monotonic)
        ends = {each: min(last[each] + 1, bounds[each].stop) for each in starts}
        while ends and not budget.is_spent and size <= CHOSEN_BYTES_MAX:
            for record in await source.poll(min(POLL_S, budget.left_s)):
                if (record.partition, record.offset) in wanted:
                    found.append(letter_of(record))
                    size += bytes_of(record)
            at = source.positions()
            done = {each for each, end in ends.items() if at.get(each, 0) >= end}
            source.leave(done)
            ends = {each: end for each, end in ends.items() if each not in done}
    return sorted(found, key=lambda letter: letter.place)


# Replay


def targets_of(letters: Sequence[DeadLetter], topic: str) -> list[str]:
    """Where each goes: to `topic`, or where its headers say it came from. BadChoice if they do
    not."""
    if topic:
        return [topic] * len(letters)
    found = [letter.origin.topic if letter.origin is not None else "" for letter in letters]
    if "" in found:
        partition, offset = letters[found.index("")].place
        raise BadChoice(
            f"the letter at offset {offset} of partition {partition} does not say where it came "
            "from; choose a topic"
        )
    return found


async def replay(
    properties: Mapping[str, str], letters: Sequence[DeadLetter], targets: Sequence[str]
) -> Replayed:
    """Each goes to the partition that its key leads to. What fails is told, the others are
    written."""
    problems: list[str] = []

    async def write(letter: DeadLetter, topic: str) -> bool:
        try:
            delivery = await producer.send(topic, letter.value, letter.key, headers=letter.headers)
            await delivery
        except ClientError as error:
            partition, offset = letter.place
            problems.append(f"offset {offset} of partition {partition}: {error}")
            return False
        return True

    async with AsyncProducer({**properties, "linger.ms": "5"}) as producer:
        written = await asyncio.gather(*map(write, letters, targets))
    return Replayed(sum(written), problems)


def counted_reasons(letters: Iterable[DeadLetter]) -> list[tuple[str, int]]:
    """The most frequent first."""
    counts: dict[str, int] = {}
    for letter in letters:
        counts[letter.reason] = counts.get(letter.reason, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def cursor_text(cursor: Cursor) -> str | None:
    """None where nothing is left."""
    return None if cursor.is_done else cursor.encode()
