r"""`tidelog produce TOPIC [FILE...]`: writes records from standard input or files.

    echo hello | tidelog produce greetings
    tidelog produce orders -K : < lines          key:value
    tidelog produce orders --json < dump.jsonl   what `tidelog consume -o jsonl` printed
    tidelog produce images --whole *.png         a record for each file

Records leave in their order. The first that cannot be written ends the command with exit code 1,
and the message says how many were written before it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.frame import CommandFailed, KeyValue
from tidelog.tools.cli.output import counted, json_line, say, show_data
from tidelog.tools.cli.record_format import BadFormat, compile_format
from tidelog.tools.cli.record_input import (
    InputRecord,
    LineParser,
    parse_json_lines,
    split_records,
    whole_files,
)
from tidelog.tools.cli.session import ClusterCommand, Session, pass_session

if TYPE_CHECKING:
    from tidelog.client.blocking.producer import Producer
    from tidelog.client.producer.delivery import Delivery

PENDING_MAX: Final = 50_000
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command("produce", cls=ClusterCommand)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="A line is KEY, this text, VALUE.")
@click.option("-k", "--key", metavar="TEXT", help="The key of all records that have none.")
@click.option(
    "-H",
    "--header",
    "headers",
    type=KeyValue(),
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of all records; may be given often.",
)
@click.option("--json", "is_json", is_flag=True, help="Lines are JSON, as consume -o jsonl prints.")
@click.option("--whole", is_flag=True, help="Each FILE is one record.")
@click.option(
    "-D", "--delimiter", default="\\n", metavar="TEXT", help=r"What stands between records: '\n'."
)
@click.option(
    "-p", "--partition", type=click.IntRange(min=0), metavar="N", help="Write to this one."
)
@click.option("-z", "--compression", type=click.Choice(CODECS), help="Compress batches.")
@click.option("--acks", type=click.Choice(("all", "1", "0")), help="Who has to have it: all.")
@click.option("-Z", "--null", metavar="TEXT", help="This text stands for an absent key or value.")
@click.option("--timestamp", type=click.IntRange(min=0), metavar="MS", help="Of all records.")
@click.option("-q", "--quiet", is_flag=True, help="Do not say how many were written.")
@click.option("--dry-run", is_flag=True, help="Print the records as JSON lines, write nothing.")
@pass_session
def command(
    session: Session,
    topic: str,
    files: tuple[Path, ...],
    key: str | None,
    headers: tuple[tuple[str, str], ...],
    partition: int | None,
    compression: str | None,
    acks: str | None,
    timestamp: int | None,
    quiet: bool,
    dry_run: bool,
    **reading: Any,
) -> int:
    """Write records to TOPIC: the lines of FILEs or of standard input."""
    more_headers = tuple((name, value.encode()) for name, value in headers)
    fixed_key = None if key is None else key.encode()
    records = (
        record._replace(
            key=fixed_key if record.key is None else record.key,
            headers=(*record.headers, *more_headers),
            partition=partition if partition is not None else record.partition,
            timestamp=timestamp if timestamp is not None else record.timestamp,
        )
        for record in read_records(files, **reading)
    )
    if dry_run:
        for record in records:
            print(json_line({"topic": topic, **record._asdict(), "headers": _shown(record)}))
        return 0
    settings = {"compression.type": compression, "acks": acks}
    with session.producer({name: text for name, text in settings.items() if text}) as producer:
        there = producer.partitions_for(topic)
        if partition is not None and partition not in there:
            raise CommandFailed(f"topic {topic} has no partition {partition}, only {len(there)}")
        written = send_all(producer, topic, records, session)
    if not quiet and session.output_format is None and sys.stderr.isatty():
        say(f"{counted(written, 'record')} written to {topic}")
    return 0


def _shown(record: InputRecord) -> list[dict[str, object]]:
    return [{"key": name, "value": value} for name, value in record.headers]


def read_records(
    files: tuple[Path, ...],
    *,
    key_delimiter: str | None,
    is_json: bool,
    whole: bool,
    delimiter: str,
    null: str | None,
) -> Iterator[InputRecord]:
    """Refuses wrong usage at once, and reads later."""
    if is_json and key_delimiter is not None:
        raise click.UsageError("--json and --key-delimiter exclude each other")
    if whole and (is_json or not files):
        raise click.UsageError("--whole needs FILEs and excludes --json")
    parser = LineParser(_literal(key_delimiter), None if null is None else null.encode())
    if whole:
        return parser.parse(whole_files(files))
    between = _literal(delimiter)
    if not between:
        raise click.UsageError("--delimiter is empty")
    pieces = _pieces(files, between)
    return parse_json_lines(pieces) if is_json else parser.parse(pieces)


def _literal(text: str | None) -> bytes | None:
    r"""With its escapes, such as \t, resolved."""
    if text is None:
        return None
    try:
        literal: Any = compile_format(text.replace("%", "%%"))
        return bytes(literal(None))
    except BadFormat as problem:
        raise click.UsageError(str(problem)) from problem


def _pieces(files: tuple[Path, ...], delimiter: bytes) -> Iterator[bytes]:
    if not files:
        if sys.stdin.isatty():
            say("Type records, one a line; Ctrl-D ends.", style="dim")
        yield from split_records(sys.stdin.buffer, delimiter)
    for file in files:
        stream: IO[bytes]
        if str(file) == "-":
            yield from split_records(sys.stdin.buffer, delimiter)
            continue
        with file.open("rb") as stream:
            yield from split_records(stream, delimiter)


def send_all(
    producer: Producer, topic: str, records: Iterator[InputRecord], session: Session
) -> int:
    """How many were written; raises CommandFailed for the first that was not."""
    pending: deque[Delivery] = deque()
    written = 0

    def settle(until: int) -> None:
        """Waits for the oldest until only so many are open."""
        nonlocal written
        while pending and (len(pending) > until or pending[0].done()):
            delivery = pending.popleft()
            metadata = _outcome(delivery, written, topic)
            written += 1
            if session.output_format in ("json", "jsonl", "yaml"):
                show_data("jsonl", metadata)

    for record in records:
        pending.append(
            producer.send(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp=record.timestamp,
                headers=record.headers,
            )
        )
        settle(PENDING_MAX)
    producer.flush()
    settle(0)
    return written


def _outcome(delivery: Delivery, written: int, topic: str) -> dict[str, object]:
    from tidelog.client.errors import ClientError

    try:
        metadata = delivery.result()
    except ClientError as error:
        raise CommandFailed(
            f"record {written + 1} was not written to {topic}: {error}; {written} before it were"
        ) from error
    return {
        "topic": metadata.topic,
        "partition": metadata.partition,
        "offset": metadata.offset,
        "timestamp": metadata.timestamp,
    }
