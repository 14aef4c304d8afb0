"""kafka-console-producer: each line of standard input is a record.

`--property` speaks to Kafka's LineMessageReader: parse.key, key.separator, parse.headers,
headers.delimiter, headers.separator, headers.key.separator, null.marker, ignore.error. Another
reader than that one is a Java class and is refused. On a terminal there is a prompt, `>`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.frame import Function
from tidelog.tools.cli.record_input import Headers, InputRecord, split_records
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

if TYPE_CHECKING:
    from tidelog.client.blocking.producer import Producer

LINE_READERS: Final = (
    "org.apache.kafka.tools.LineMessageReader",
    "kafka.tools.ConsoleProducer$LineMessageReader",
)
# Flags that set a key of the producer, and Kafka's defaults for them.
FLAG_KEYS: Final = {
    "timeout": ("linger.ms", "1000"),
    "request_required_acks": ("acks", "-1"),
    "request_timeout_ms": ("request.timeout.ms", "1500"),
    "message_send_max_retries": ("retries", "3"),
    "retry_backoff_ms": ("retry.backoff.ms", "100"),
    "socket_buffer_size": ("send.buffer.bytes", "102400"),
    "max_memory_bytes": ("buffer.memory", "33554432"),
    "batch_size": ("batch.size", "16384"),
    "max_partition_memory_bytes": ("batch.size", "16384"),
    "metadata_expiry_ms": ("metadata.max.age.ms", "300000"),
    "max_block_ms": ("max.block.ms", "60000"),
}


class LineReader:
    """Kafka's LineMessageReader, configured by its properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._parse_key = is_true(properties, "parse.key")
        self._parse_headers = is_true(properties, "parse.headers")
        self._ignore_error = is_true(properties, "ignore.error")
        self._key_separator = properties.get("key.separator", "\t")
        self._headers_delimiter = properties.get("headers.delimiter", "\t")
        self._headers_separator = properties.get("headers.separator", ",")
        self._headers_key_separator = properties.get("headers.key.separator", ":")
        self._null_marker = properties.get("null.marker")
        self._require_different_marks()
        self._line_number = 0

    def _require_different_marks(self) -> None:
        named = {
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._headers_key_separator,
        }
        names = list(named)
        for first, second in ((0, 1), (0, 2), (1, 2)):
            if named[names[first]] == named[names[second]]:
                raise ToolFailed(f"{names[first]} and {names[second]} may not be equal")
        for name, value in (("key.separator", self._key_separator), *named.items()):
            if value == self._null_marker:
                raise ToolFailed(f"null.marker and {name} may not be equal")

    def read(self, line: str) -> InputRecord:
        self._line_number += 1
        headers, rest = self._cut(
            line, line, self._parse_headers, self._headers_delimiter, "headers delimiter"
        )
        key, value = self._cut(rest, line, self._parse_key, self._key_separator, "key separator")
        return InputRecord(
            self._bytes(value),
            None if key is None else self._bytes(key),
            self._headers(headers),
        )

    def _cut(
        self, text: str, line: str, wanted: bool, separator: str, name: str
    ) -> tuple[str | None, str]:
        if not wanted:
            return None, text
        before, found, after = text.partition(separator)
        if found:
            return before, after
        if self._ignore_error:
            return None, text
        raise ToolFailed(f"No {name} found on line number {self._line_number}: '{line}'")

    def _headers(self, text: str | None) -> Headers:
        if text is None or text == self._null_marker:
            return ()
        return tuple(self._header(pair) for pair in re.split(self._headers_separator, text))

    def _header(self, pair: str) -> tuple[str, bytes | None]:
        key, found, value = pair.partition(self._headers_key_separator)
        if not found:
            if self._ignore_error:
                return pair, None
            raise ToolFailed(
                f"No header key separator found in pair '{pair}' on line number {self._line_number}"
            )
        if key == self._null_marker:
            raise ToolFailed(
                f"Header keys should not be equal to the null marker '{self._null_marker}' as "
                "they can't be null"
            )
        return key, self._bytes(value)

    def _bytes(self, text: str) -> bytes | None:
        return None if text == self._null_marker else text.encode("utf-8", "surrogateescape")


def number(flag: str, default: str) -> Callable[[Function], Function]:
    return click.option(flag, type=int, metavar="N", help=f"Default: {default}.")


@click.command("kafka-console-producer", cls=KafkaTool)
@bootstrap_server
@click.option("--broker-list", metavar="HOST:PORT", help="DEPRECATED: use --bootstrap-server.")
@click.option("--topic", metavar="TOPIC", shell_complete=complete_topics, help="REQUIRED.")
@click.option("--sync", is_flag=True, help="Send one record at a time.")
@click.option(
    "--compression-codec", is_flag=False, flag_value="gzip", metavar="[CODEC]", help="Or gzip."
)
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="Of the reader.")
@click.option("--reader-config", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--line-reader", metavar="CLASS", help="Only Kafka's LineMessageReader.")
@click.option("--producer-property", multiple=True, metavar="KEY=VALUE", help="Of the producer.")
@config_file("--producer.config")
@number("--timeout", "1000")
@click.option("--request-required-acks", metavar="ACKS", help="Default: -1.")
@number("--request-timeout-ms", "1500")
@number("--message-send-max-retries", "3")
@number("--retry-backoff-ms", "100")
@number("--socket-buffer-size", "102400")
@number("--max-memory-bytes", "33554432")
@number("--batch-size", "16384")
@number("--max-partition-memory-bytes", "16384")
@number("--metadata-expiry-ms", "300000")
@number("--max-block-ms", "60000")
@pass_session
def command(
    session: Session,
    broker_list: str | None,
    topic: str | None,
    sync: bool,
    compression_codec: str | None,
    properties: tuple[str, ...],
    reader_config: Path | None,
    line_reader: str | None,
    producer_property: tuple[str, ...],
    **flags: Any,
) -> int:
    """Write the lines of standard input to a topic."""
    if topic is None:
        raise wrong_usage('Missing required argument "[topic]"')
    require_server(session, broker_list)
    if line_reader is not None and line_reader not in LINE_READERS:
        raise ToolFailed(f"{line_reader} is a Java class; only {LINE_READERS[0]} is here")
    reader = LineReader({**properties_of(reader_config), **key_values(properties)})
    settings = producer_settings(session, key_values(producer_property), flags)
    settings["compression.type"] = compression_codec or "none"
    session.properties.update(settings)
    with session.producer() as producer:
        return send_lines(producer, topic, reader, sync=sync)


def producer_settings(
    session: Session, given: Mapping[str, str], flags: Mapping[str, Any]
) -> dict[str, str]:
    """A flag wins over a property, and a property over the default of a flag."""
    said = {**properties_of(session.config_file), **given}
    found = {"client.id": "console-producer", **given}
    for flag, (key, default) in FLAG_KEYS.items():
        value = flags[flag]
        if value is not None:
            found[key] = str(value)
        elif key not in said and key not in found:
            found[key] = default
    return found


def send_lines(producer: Producer, topic: str, reader: LineReader, *, sync: bool) -> int:
    """As Kafka's, a record that cannot be written is a line on standard error; the rest goes on."""
    from tidelog.client.errors import ClientError

    def told(metadata: object, error: ClientError | None) -> None:
        if error is not None:
            print(
                f"Error when sending message to topic {topic} with error: {error}", file=sys.stderr
            )

    for line in _lines():
        record = reader.read(line)
        delivery = producer.send(
            topic, record.value, record.key, headers=record.headers, on_delivery=told
        )
        if sync:
            delivery.result()
    producer.flush()
    return 0


def _lines() -> Iterator[str]:
    if sys.stdin.isatty():
        yield from _prompted()
        return
    for piece in split_records(sys.stdin.buffer, b"\n"):
        yield piece.removesuffix(b"\r").decode("utf-8", "surrogateescape")


def _prompted() -> Iterator[str]:
    while True:
        sys.stdout.write(">")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        yield line.rstrip("\r\n")
