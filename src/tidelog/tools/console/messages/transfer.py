"""Records as JSON lines, out and in, and single records in.

The lines are those of `tidelog consume -o jsonl` and `tidelog produce --json`
(tools/cli/record_input.py). An import checks every line before it sends the first record: what the
lines say, how long they are, and that the topic has the partitions they name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.client.errors import ClientError
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.client.producer.delivery import Delivery
from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.cli.frame import CommandFailed
from tidelog.tools.cli.output import json_line
from tidelog.tools.cli.record_format import record_as_json
from tidelog.tools.cli.record_input import InputRecord, parse_json_record
from tidelog.tools.console.messages.cursor import Cursor
from tidelog.tools.console.messages.documents import parse
from tidelog.tools.console.messages.filtering import RecordFilter
from tidelog.tools.console.messages.reading import Ended, Limits, Source, read_page
from tidelog.tools.console.messages.scanning import Budget

IMPORT_BYTES_MAX: Final = 64 << 20
IMPORT_LINES_MAX: Final = 200_000
FAILURES_SHOWN: Final = 20
SENT_TOGETHER: Final = 5_000
EXPORT_LIMITS: Final = Limits(2_000, 4 << 20)
EXPORT_PIECE_S: Final = 5.0


class BadLine(ValueError):
    """Names the line."""


class Import(NamedTuple):
    """What became of an import; `failures` has the first ones, as line number and reason."""

    written: int
    partitions: Mapping[int, int]  # how many in each
    failed: int
    failures: Sequence[tuple[int, str]]


def lines_of(records: Iterable[ConsumerRecord]) -> bytes:
    return "".join(f"{json_line(record_as_json(record))}\n" for record in records).encode()


async def exported(
    source: Source, cursor: Cursor, wanted: RecordFilter, budget: Budget
) -> AsyncGenerator[bytes, None]:
    """All matches, a bounded piece at a time. If records cannot be read, the last line says so: no
    import takes it for a record."""
    while not cursor.is_done:
        page = await read_page(source, cursor, wanted, EXPORT_LIMITS, budget.renewed())
        if page.records:
            yield lines_of(page.records)
        if page.ended is Ended.UNREADABLE:
            yield f"{json_line({'error': page.problem})}\n".encode()
            return
        cursor = page.cursor


def parse_lines(
    data: bytes, partitions: Collection[int], *, keeps_partitions: bool
) -> list[tuple[int, InputRecord]]:
    """Records with the numbers of their lines; raises BadLine."""
    found: list[tuple[int, InputRecord]] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        if len(found) >= IMPORT_LINES_MAX:
            raise BadLine(f"there are more than {IMPORT_LINES_MAX:,} records; import them in parts")
        try:
            record = parse_json_record(parse(line.decode()))
        except (CommandFailed, ValueError, RecursionError) as problem:
            raise BadLine(f"line {number}: {problem}") from None
        if not keeps_partitions:
            record = record._replace(partition=None)
        elif record.partition is not None and record.partition not in partitions:
            raise BadLine(f"line {number}: the topic has no partition {record.partition}")
        found.append((number, record))
    return found


async def write(
    properties: Mapping[str, str], topic: str, records: Sequence[tuple[int, InputRecord]]
) -> Import:
    """Sends all; what a broker refuses is counted, and the others are written."""
    partitions: Counter[int] = Counter()
    failures: list[tuple[int, str]] = []
    failed = 0
    async with AsyncProducer(properties) as producer:
        for first in range(0, len(records), SENT_TOGETHER):
            own = records[first : first + SENT_TOGETHER]
            sent = [(number, await _sent(producer, topic, record)) for number, record in own]
            for number, delivery in sent:
                try:
                    if isinstance(delivery, ClientError):
                        raise delivery
                    partitions[(await delivery).partition] += 1
                except ClientError as problem:
                    failed += 1
                    if len(failures) < FAILURES_SHOWN:
                        failures.append((number, str(problem)))
    return Import(partitions.total(), dict(sorted(partitions.items())), failed, failures)


async def _sent(producer: AsyncProducer, topic: str, record: InputRecord) -> Delivery | ClientError:
    """One after the other, so that the order of the lines is the order in each partition."""
    try:
        return await producer.send(
            topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition,
            timestamp=record.timestamp,
        )
    except ClientError as problem:
        return problem
