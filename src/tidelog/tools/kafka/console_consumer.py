"""kafka-console-consumer: prints records, as Kafka's DefaultMessageFormatter does.

`--property` speaks to the formatter: print.timestamp, print.key, print.offset, print.partition,
print.headers, print.value, key.separator, line.separator, headers.separator, null.literal and the
three deserializers. Deserializers and formatters are Java classes; those of Kafka itself for text
and numbers are here under their names, and others are refused. The last line, on standard error,
says how many records were processed.
"""

from __future__ import annotations

import random
import struct
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.output import require_reader
from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.frame import (
    KafkaTool,
    ToolFailed,
    bootstrap_server,
    config_file,
    is_true,
    key_values,
    properties_of,
    require_server,
    wrong_usage,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.blocking.consumer import Consumer
    from tidelog.record.kernel import ConsumerRecord

FORMATTERS: Final = (
    "org.apache.kafka.tools.consumer.DefaultMessageFormatter",
    "kafka.tools.DefaultMessageFormatter",
)
SERIALIZATION: Final = "org.apache.kafka.common.serialization."
POLL_S: Final = 0.5
# As TimestampType in Java prints them, by the numbers of the wire.
TIMESTAMP_TYPES: Final = {0: b"CreateTime", 1: b"LogAppendTime"}

Deserializer = Callable[[bytes], bytes]


def _number(layout: str) -> Deserializer:
    size = struct.calcsize(layout)

    def shown(value: bytes) -> bytes:
        if len(value) != size:
            raise ToolFailed(f"Size of data received by the deserializer is not {size}")
        found = struct.unpack(layout, value)[0]
        return repr(found).encode() if isinstance(found, float) else b"%d" % found

    return shown


def _as_it_is(value: bytes) -> bytes:
    return value


DESERIALIZERS: Final[Mapping[str, Deserializer]] = {
    "StringDeserializer": _as_it_is,
    "ByteArrayDeserializer": _as_it_is,
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
}


class DefaultMessageFormatter:
    """Kafka's, configured by its properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._print_timestamp = is_true(properties, "print.timestamp")
        self._print_key = is_true(properties, "print.key")
        self._print_offset = is_true(properties, "print.offset")
        self._print_partition = is_true(properties, "print.partition")
        self._print_headers = is_true(properties, "print.headers")
        self._print_value = "print.value" not in properties or is_true(properties, "print.value")
        self._separator = properties.get("key.separator", "\t").encode()
        self._line_separator = properties.get("line.separator", "\n").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._key = self._deserializer(properties, "key.deserializer")
        self._value = self._deserializer(properties, "value.deserializer")
        self._header = self._deserializer(properties, "headers.deserializer")

    @staticmethod
    def _deserializer(properties: Mapping[str, str], key: str) -> Deserializer:
        name = properties.get(key, f"{SERIALIZATION}ByteArrayDeserializer")
        found = DESERIALIZERS.get(name.removeprefix(SERIALIZATION))
        if found is None:
            raise ToolFailed(
                f"{key}={name} is a Java class; of Kafka's own there are {', '.join(DESERIALIZERS)}"
            )
        return found

    def format(self, record: ConsumerRecord) -> bytes:
        columns: list[bytes] = []
        if self._print_timestamp:
            kind = TIMESTAMP_TYPES.get(record.timestamp_type)
            columns.append(b"%s:%d" % (kind, record.timestamp) if kind else b"NO_TIMESTAMP")
        if self._print_partition:
            columns.append(b"Partition:%d" % record.partition)
        if self._print_offset:
            columns.append(b"Offset:%d" % record.offset)
        if self._print_headers:
            columns.append(self._headers(record))
        if self._print_key:
            columns.append(self._shown(self._key, record.key))
        if self._print_value:
            columns.append(self._shown(self._value, record.value))
        return self._separator.join(columns) + self._line_separator if columns else b""

    def _headers(self, record: ConsumerRecord) -> bytes:
        pairs = [
            name.encode() + b":" + self._shown(self._header, value)
            for name, value in record.headers
        ]
        return self._headers_separator.join(pairs) if pairs else b"NO_HEADERS"

    def _shown(self, deserializer: Deserializer, value: bytes | None) -> bytes:
        return self._null if value is None else deserializer(value)


@click.command("kafka-console-consumer", cls=KafkaTool)
@bootstrap_server
@click.option("--topic", metavar="TOPIC", shell_complete=complete_topics, help="What to read.")
@click.option("--include", metavar="REGEX", help="Topics to read, instead of --topic.")
@click.option("--whitelist", metavar="REGEX", help="DEPRECATED: use --include.")
@click.option("--partition", type=int, metavar="N", help="Only this one, from --offset on.")
@click.option("--offset", metavar="OFFSET", help="earliest, latest (the default) or a number.")
@click.option("--from-beginning", is_flag=True, help="If the group has no offset, from the start.")
@click.option("--max-messages", type=int, metavar="N", help="End after N records.")
@click.option("--timeout-ms", type=int, metavar="MS", help="End if none comes for so long.")
@click.option("--group", metavar="ID", help="The consumer group.")
@click.option(
    "--isolation-level",
    default="read_uncommitted",
    metavar="LEVEL",
    help="read_committed leaves out records of open and aborted transactions.",
)
@click.option("--formatter", metavar="CLASS", help="Only Kafka's DefaultMessageFormatter.")
@click.option(
    "--property", "properties", multiple=True, metavar="KEY=VALUE", help="Of the formatter."
)
@click.option("--formatter-config", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--consumer-property", multiple=True, metavar="KEY=VALUE", help="Of the consumer.")
@config_file("--consumer.config")
@click.option("--key-deserializer", metavar="CLASS")
@click.option("--value-deserializer", metavar="CLASS")
@click.option("--skip-message-on-error", is_flag=True, help="Skip records that cannot be shown.")
@click.option("--enable-systest-events", is_flag=True, hidden=True)
@pass_session
def command(
    session: Session,
    topic: str | None,
    include: str | None,
    whitelist: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    group: str | None,
    isolation_level: str,
    formatter: str | None,
    properties: tuple[str, ...],
    formatter_config: Path | None,
    consumer_property: tuple[str, ...],
    key_deserializer: str | None,
    value_deserializer: str | None,
    skip_message_on_error: bool,
    enable_systest_events: bool,
) -> int:
    """Print the records of topics."""
    pattern = include or whitelist
    require_sensible(topic, pattern, partition, offset, from_beginning=from_beginning)
    require_server(session)
    if formatter is not None and formatter not in FORMATTERS:
        raise ToolFailed(f"{formatter} is a Java class; only {FORMATTERS[0]} is here")
    shown = {**properties_of(formatter_config), **key_values(properties)}
    if key_deserializer is not None:
        shown["key.deserializer"] = key_deserializer
    if value_deserializer is not None:
        shown["value.deserializer"] = value_deserializer
    form = DefaultMessageFormatter(shown)
    settings = consumer_settings(
        session, key_values(consumer_property), group, partition, from_beginning=from_beginning
    )
    settings["isolation.level"] = isolation_level
    session.properties.update(settings)
    with session.consumer() as consumer:
        if topic is not None and partition is not None:
            seek(consumer, TopicPartition(topic, partition), offset, from_beginning)
        elif topic is not None:
            consumer.subscribe([topic])
        else:
            consumer.subscribe(pattern=pattern)
        printer = Printer(form, max_messages, skip_errors=skip_message_on_error)
        try:
            printer.run(consumer, timeout_ms)
        finally:
            sys.stdout.buffer.flush()
            print(f"Processed a total of {printer.count} messages", file=sys.stderr)
    return 0


def require_sensible(
    topic: str | None,
    pattern: str | None,
    partition: int | None,
    offset: str | None,
    *,
    from_beginning: bool,
) -> None:
    if (topic is None) == (pattern is None):
        raise wrong_usage("Exactly one of --include/--topic is required. ")
    if partition is not None:
        if topic is None:
            raise wrong_usage("The topic is required when partition is specified.")
        if from_beginning and offset is not None:
            raise wrong_usage("Options from-beginning and offset cannot be specified together.")
    elif offset is not None:
        raise wrong_usage("The partition is required when offset is specified.")
    if offset is not None and offset not in ("earliest", "latest"):
        problem = (
            f"The provided offset value '{offset}' is incorrect. Valid values are 'earliest', "
            "'latest', or a non-negative long."
        )
        if not (offset.isascii() and offset.isdigit()):
            raise wrong_usage(problem)


def consumer_settings(
    session: Session,
    given: Mapping[str, str],
    group: str | None,
    partition: int | None,
    *,
    from_beginning: bool,
) -> dict[str, str]:
    said = {**properties_of(session.config_file), **given}
    groups = {name for name in (group, said.get("group.id"), given.get("group.id")) if name}
    if len(groups) > 1:
        names = ", ".join(f"'{name}'" for name in sorted(groups))
        raise wrong_usage(
            "The group ids provided in different places (directly using '--group', via "
            "'--consumer-property', or via '--consumer.config') do not match. Detected group ids: "
            f"{names}"
        )
    if groups and partition is not None:
        raise wrong_usage("Options group and partition cannot be specified together.")
    found = dict(given)
    reset = said.get("auto.offset.reset")
    if reset is None:
        found["auto.offset.reset"] = "earliest" if from_beginning else "latest"
    elif from_beginning and reset != "earliest":
        raise ToolFailed(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', "
            "please remove one option"
        )
    found.setdefault("client.id", said.get("client.id", "console-consumer"))
    if groups:
        found["group.id"] = groups.pop()
    elif partition is None:
        found["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        if "enable.auto.commit" not in said:
            found["enable.auto.commit"] = "false"
    return found


def seek(
    consumer: Consumer, partition: TopicPartition, offset: str | None, from_beginning: bool
) -> None:
    consumer.assign([partition])
    if from_beginning or offset == "earliest":
        consumer.seek_to_beginning([partition])
    elif offset is None or offset == "latest":
        consumer.seek_to_end([partition])
    else:
        consumer.seek(partition, int(offset))


class Printer:
    """Takes records off a consumer and prints them, until there are enough or none comes."""

    def __init__(
        self, form: DefaultMessageFormatter, count_max: int | None, *, skip_errors: bool
    ) -> None:
        self._form = form
        self._count_max = None if count_max is None or count_max < 0 else count_max
        self._skip_errors = skip_errors
        self.count = 0

    def run(self, consumer: Consumer, timeout_ms: int | None) -> None:
        timeout_s = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1_000
        last_s = time.monotonic()
        while self._count_max is None or self.count < self._count_max:
            left = None if self._count_max is None else self._count_max - self.count
            wait_s = POLL_S if timeout_s is None else min(POLL_S, timeout_s)
            records = consumer.poll(wait_s, max_records=left)
            if records:
                self._print(records)
                last_s = time.monotonic()
                continue
            require_reader()
            if timeout_s is None or time.monotonic() - last_s <= timeout_s:
                continue
            print(
                "Error processing message, terminating consumer process: no record for "
                f"{timeout_ms} ms",
                file=sys.stderr,
            )
            return

    def _print(self, records: list[ConsumerRecord]) -> None:
        lines = []
        try:
            for record in records:
                self.count += 1
                try:
                    lines.append(self._form.format(record))
                except ToolFailed as problem:
                    if not self._skip_errors:
                        raise
                    print(
                        f"Error processing message, skipping this message: {problem}",
                        file=sys.stderr,
                    )
        finally:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()
