r"""`tidelog consume TOPIC...`: prints records, from any place to any place, or as they come.

    tidelog consume orders                       everything, then whatever comes
    tidelog consume orders -e                    everything there is now
    tidelog consume orders --from -10 -e         the last ten of each partition
    tidelog consume orders --from @-1h --to end  the last hour
    tidelog consume orders -f '%o %k: %s\n'      offset, key and value
    tidelog consume orders -o jsonl | jq .value
    tidelog consume orders --group readers       as a member of a group, which commits

Places are those of record_selection.py and formats those of record_format.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import click

from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode
from tidelog.tools.cli.completion import complete_groups, complete_topics
from tidelog.tools.cli.frame import CommandFailed
from tidelog.tools.cli.output import json_line, plain, require_reader, say, yaml_lines
from tidelog.tools.cli.record_format import compile_format, record_as_json
from tidelog.tools.cli.record_selection import (
    Place,
    RecordFilter,
    Span,
    parse_place,
    resolve_spans,
)
from tidelog.tools.cli.session import ClusterCommand, Session, pass_session
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.blocking.consumer import Consumer
    from tidelog.record.kernel import ConsumerRecord

POLL_S: Final = 0.5
RECORDS_A_POLL: Final = 10_000
BEGINNING: Final = Place("beginning")


class RecordWriter:
    """Puts records on standard output, whole polls at a time. `encode` makes bytes of one."""

    opening, between, closing = b"", b"", b""

    def __init__(self, encode: Callable[[ConsumerRecord], bytes]) -> None:
        self._encode = encode
        self._has_begun = False

    def write(self, records: list[ConsumerRecord]) -> None:
        if not records:
            return
        sys.stdout.flush()
        lead = self.between if self._has_begun else self.opening
        self._has_begun = True
        stream = sys.stdout.buffer
        stream.write(lead + self.between.join([self._encode(each) for each in records]))
        stream.flush()

    def end(self) -> None:
        if self.closing:
            sys.stdout.buffer.write(self.closing if self._has_begun else self.opening + b"]\n")
            sys.stdout.buffer.flush()


class JsonArrayWriter(RecordWriter):
    opening, between, closing = b"[\n  ", b",\n  ", b"\n]\n"


def make_writer(
    format: str | None, text: str | None, key_delimiter: str | None, null: bytes
) -> RecordWriter:
    """Raises BadFormat."""
    if format in ("json", "jsonl", "yaml"):
        if text is not None or key_delimiter is not None:
            raise click.UsageError(
                f"-o {format} and --format or --key-delimiter exclude each other"
            )
        if format == "json":
            return JsonArrayWriter(lambda record: json_line(record_as_json(record)).encode())
        if format == "jsonl":
            return RecordWriter(lambda record: json_line(record_as_json(record)).encode() + b"\n")
        return RecordWriter(_as_yaml)
    if text is not None and key_delimiter is not None:
        raise click.UsageError("--format and --key-delimiter exclude each other")
    if key_delimiter is not None:
        text = f"%k{key_delimiter.replace('%', '%%')}%s\\n"
    return RecordWriter(
        compile_format("%s\\n" if text is None else text, null=null, escape=sys.stdout.isatty())
    )


def _as_yaml(record: ConsumerRecord) -> bytes:
    return "".join(f"{line}\n" for line in yaml_lines([plain(record_as_json(record))])).encode()


class Limit:
    """How many records are still wanted; without one, any number."""

    def __init__(self, count: int | None) -> None:
        self._left = count

    @property
    def is_reached(self) -> bool:
        return self._left is not None and self._left <= 0

    def most(self, count: int) -> int:
        return count if self._left is None else max(1, min(count, self._left))

    def take(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        if self._left is None:
            return records
        taken = records[: self._left]
        self._left -= len(taken)
        return taken


@click.command("consume", cls=ClusterCommand)
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics
)
@click.option(
    "--from",
    "first",
    metavar="PLACE",
    help="Where to begin: beginning (the default), end, an offset, -N (before the end), +N, "
    "@TIME (@-1h, @2026-01-31T13:00, @1700000000000).",
)
@click.option("--to", "last", metavar="PLACE", help="Where to end; the same places.")
@click.option(
    "-e",
    "--exit-at-end",
    is_flag=True,
    help="End where the topic ends now, instead of following. With --group, where the partitions "
    "end that the group has assigned to this member; at once if it has none for it.",
)
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="End after N records.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this partition; may be given often.",
)
@click.option(
    "-g",
    "--group",
    metavar="ID",
    shell_complete=complete_groups,
    help="Read as a member of this group, from where it has come to.",
)
@click.option(
    "-f",
    "--format",
    "format_text",
    metavar="TEXT",
    help=r"Tokens: %t topic, %p partition, %o offset, %k key, %s value, %h headers, %T timestamp, "
    r"%i ISO time, %K and %S lengths, %R binary length. Default: '%s\n'.",
)
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Print the key and this before values.")
@click.option(
    "-Z", "--null", "null", default="", metavar="TEXT", help="For absent keys and values."
)
@click.option("--key", metavar="REGEX", help="Only records whose key matches.")
@click.option("--value", metavar="REGEX", help="Only records whose value matches.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME[=REGEX]",
    help="Only records with such a header; may be given often.",
)
@click.option(
    "--committed", is_flag=True, help="Leave out records of open and aborted transactions."
)
@pass_session
def command(
    session: Session,
    topics: tuple[str, ...],
    first: str | None,
    last: str | None,
    exit_at_end: bool,
    count: int | None,
    partitions: tuple[int, ...],
    group: str | None,
    format_text: str | None,
    key_delimiter: str | None,
    null: str,
    key: str | None,
    value: str | None,
    headers: tuple[str, ...],
    committed: bool,
) -> int:
    """Print the records of topics.

    A TOPIC that begins with ^ is a regular expression. Without --exit-at-end, --to or --count the
    command follows the topics until Ctrl-C.
    """
    now_ms = SystemClock().time_ms()
    start, stop = _places(first, last, now_ms, exit_at_end=exit_at_end, group=group)
    if group is not None and partitions:
        raise click.UsageError("--group and --partition exclude each other: the group assigns")
    try:
        wanted = RecordFilter(key, value, headers)
        writer = make_writer(session.output_format, format_text, key_delimiter, null.encode())
    except ValueError as problem:
        raise click.UsageError(str(problem)) from problem
    extra = {"allow.auto.create.topics": "false"}
    if committed:
        extra["isolation.level"] = "read_committed"
    limit = Limit(count)

    def show(records: list[ConsumerRecord]) -> None:
        writer.write(limit.take([each for each in records if wanted.accepts(each)]))

    try:
        if group is not None:
            _as_member(session, group, topics, start, exit_at_end, show, limit, extra)
        else:
            with session.consumer(extra) as consumer:
                places = _partitions(consumer, topics, partitions)
                spans = resolve_spans(consumer, places, start or BEGINNING, stop)
                read_spans(consumer, spans, show, limit)
    finally:
        writer.end()
    return 0


def _places(
    first: str | None, last: str | None, now_ms: int, *, exit_at_end: bool, group: str | None
) -> tuple[Place | None, Place | None]:
    try:
        start = parse_place(first, now_ms) if first is not None else None
        stop = parse_place(last, now_ms) if last is not None else None
    except ValueError as problem:
        raise click.UsageError(str(problem)) from problem
    if exit_at_end and stop is not None:
        raise click.UsageError("--exit-at-end and --to exclude each other")
    if group is not None and stop is not None:
        raise click.UsageError("--group and --to exclude each other: a group commits what it reads")
    if group is not None and start is not None and start.kind not in ("beginning", "end"):
        raise click.UsageError(
            "with --group, --from is beginning or end, for partitions without a committed offset; "
            "`tidelog group reset` moves the group"
        )
    if group is None and "stored" in (start and start.kind, stop and stop.kind):
        raise click.UsageError("stored offsets need --group")
    return start, Place("end") if exit_at_end else stop


def _partitions(
    consumer: Consumer, topics: tuple[str, ...], wanted: tuple[int, ...]
) -> list[TopicPartition]:
    names: list[str] = []
    for topic in topics:
        if not topic.startswith("^"):
            names.append(topic)
            continue
        pattern = _compiled(topic)
        found = [name for name in consumer.list_topics() if pattern.search(name)]
        if not found:
            raise CommandFailed(f"no topic matches {topic}. `tidelog topic list` shows the topics.")
        names += sorted(found)
    places = []
    for name in dict.fromkeys(names):
        there = sorted(consumer.partitions_for(name))
        for index in wanted or there:
            if index not in there:
                raise CommandFailed(f"topic {name} has no partition {index}")
            places.append(TopicPartition(name, index))
    return places


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise CommandFailed(f"{text!r} is no regular expression: {error}") from None


def _whole_name_pattern(topic: str) -> str:
    """A subscription's pattern has to match whole names; ours may match any part of one."""
    if not topic.startswith("^"):
        return re.escape(topic)
    _compiled(topic)
    return f".*(?:{topic}).*"


def read_spans(
    consumer: Consumer,
    spans: Mapping[TopicPartition, Span],
    show: Callable[[list[ConsumerRecord]], None],
    limit: Limit,
) -> None:
    """Until every span with an end is read, or the limit is reached."""
    open_spans = {
        each: span for each, span in spans.items() if span.stop is None or span.start < span.stop
    }
    consumer.assign(list(open_spans))
    for partition, span in open_spans.items():
        consumer.seek(partition, span.start)
    while open_spans and not limit.is_reached:
        records = consumer.poll(POLL_S, max_records=RECORDS_A_POLL)
        if records:
            show([each for each in records if _is_within(each, spans)])
        else:
            require_reader()
        for partition, span in list(open_spans.items()):
            if span.stop is not None and consumer.position(partition) >= span.stop:
                consumer.pause([partition])
                del open_spans[partition]


def _is_within(record: ConsumerRecord, spans: Mapping[TopicPartition, Span]) -> bool:
    stop = spans[TopicPartition(record.topic, record.partition)].stop
    return stop is None or record.offset < stop


def _as_member(
    session: Session,
    group: str,
    topics: tuple[str, ...],
    start: Place | None,
    exit_at_end: bool,
    show: Callable[[list[ConsumerRecord]], None],
    limit: Limit,
    extra: Mapping[str, str],
) -> None:
    """Commits what is shown, not what is fetched: at the end and after every poll.

    With `exit_at_end` it ends where its own partitions end, or when the others own them all.
    """
    begin = "earliest" if start is None or start.kind == "beginning" else "latest"
    settings = {
        "group.id": group,
        "auto.offset.reset": begin,
        "enable.auto.commit": "false",
        **extra,
    }
    with session.consumer(settings) as consumer:
        if any(topic.startswith("^") for topic in topics):
            consumer.subscribe(pattern="|".join(map(_whole_name_pattern, topics)))
        else:
            consumer.subscribe(list(topics))
        while not limit.is_reached:
            # The last poll takes no more than is still wanted, so that the rest stays uncommitted.
            records = consumer.poll(POLL_S, max_records=limit.most(RECORDS_A_POLL))
            if records:
                show(records)
                consumer.commit()
            elif exit_at_end and (
                _has_read_all(consumer)
                if consumer.assignment()
                else _is_left_out(session, group, consumer)
            ):
                break
            else:
                require_reader()


def _has_read_all(consumer: Consumer) -> bool:
    owned = list(consumer.assignment())
    ends = consumer.end_offsets(owned)
    return all(consumer.position(each) >= ends[each] for each in owned)


def _is_left_out(session: Session, group: str, consumer: Consumer) -> bool:
    """Whether the other members own every partition and none is on its way to this one.

    A member that joins owns nothing at first, until the others have given partitions up. Meanwhile
    the group is not stable, or nobody owns these partitions.
    """
    with session.admin() as admin:
        result = admin.describe_groups([group])[group]
    if result.error is not None and result.error.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return False
    found = result.get()
    member_ids = {member.member_id for member in found.members}
    if found.state != "Stable" or consumer.group_metadata().member_id not in member_ids:
        return False
    owned = {partition for member in found.members for partition in member.assignment}
    topics = consumer.subscription()
    wanted = {
        TopicPartition(topic, each) for topic in topics for each in consumer.partitions_for(topic)
    }
    if not wanted <= owned:
        return False
    say(f"nothing left to read: other members of group {group} own all partitions", style="dim")
    return True
