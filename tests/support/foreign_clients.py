"""Kafka clients behind one small interface: other people's (confluent-kafka, kafka-python, aiokafka
and kcat), and tidelog's own.

Each writes messages with a codec and reads partitions from their start (by assignment, without a
group). What a client cannot carry (headers before 0.11, timestamps before 0.10, zstd before 2.1)
its attributes say, so that a test knows what to expect of each pair of writer and reader.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

from tidelog.client.blocking.consumer import Consumer
from tidelog.client.blocking.producer import Producer
from tidelog.client.errors import BrokerRefused
from tidelog.types import TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 30.0
REQUEST_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    offset: int = -1
    append_time: bool | None = None  # None where the client cannot tell

    def as_carried(self, *, headers: bool, timestamp: bool) -> Message:
        """What is left of a message after clients that do not know headers or timestamps."""
        return replace(
            self,
            headers=self.headers if headers else (),
            timestamp_ms=self.timestamp_ms if timestamp else None,
            offset=-1,
            append_time=None,
        )


class Refused(Exception):
    """The broker answered a produce with this error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ForeignClient(Protocol):
    name: str
    carries_headers: bool
    carries_timestamps: bool
    sets_timestamps: bool
    writes_null_headers: bool

    @property
    def codecs(self) -> Sequence[str]: ...

    def produce(
        self, bootstrap: str, topic: str, partition: int, codec: str, messages: Sequence[Message]
    ) -> None: ...

    def consume(
        self, bootstrap: str, topic: str, counts: Mapping[int, int]
    ) -> dict[int, list[Message]]: ...


class TooFewMessages(AssertionError):
    """The expected number of messages did not arrive in time."""


def check_complete(
    name: str, found: Mapping[int, list[Message]], counts: Mapping[int, int]
) -> None:
    got = {partition: len(messages) for partition, messages in found.items()}
    if got != dict(counts):
        raise TooFewMessages(f"{name} read {got} of {dict(counts)}")


class ConfluentKafka:
    name = "confluent-kafka"
    codecs = CODECS
    carries_headers = carries_timestamps = sets_timestamps = writes_null_headers = True

    def produce(
        self, bootstrap: str, topic: str, partition: int, codec: str, messages: Sequence[Message]
    ) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "message.max.bytes": REQUEST_BYTES_MAX,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                "linger.ms": 20,
            }
        )
        errors: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error.code())

        for message in messages:
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                partition=partition,
                headers=list(message.headers) or None,
                timestamp=message.timestamp_ms or 0,
                on_delivery=delivered,
            )
        assert producer.flush(DEADLINE_S) == 0, "not delivered in time"
        if errors:
            raise Refused(errors[0])

    def consume(
        self, bootstrap: str, topic: str, counts: Mapping[int, int]
    ) -> dict[int, list[Message]]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "assigned-only",
                "enable.auto.commit": False,
                "check.crcs": True,
                "auto.offset.reset": "error",
            }
        )
        found: dict[int, list[Message]] = {partition: [] for partition in counts}
        deadline = time.monotonic() + DEADLINE_S
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in counts])
            while _incomplete(found, counts) and time.monotonic() < deadline:
                message: Any = consumer.poll(0.2)
                if message is None:
                    continue
                assert message.error() is None, message.error()
                kind, timestamp_ms = message.timestamp()
                found[message.partition()].append(
                    Message(
                        message.value(),
                        message.key(),
                        tuple(message.headers() or ()),
                        timestamp_ms,
                        message.offset(),
                        kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME,
                    )
                )
        finally:
            consumer.close()
        check_complete(self.name, found, counts)
        return found


class Tidelog:
    name = "tidelog"
    codecs = CODECS
    carries_headers = carries_timestamps = sets_timestamps = writes_null_headers = True

    def produce(
        self, bootstrap: str, topic: str, partition: int, codec: str, messages: Sequence[Message]
    ) -> None:
        with Producer(
            bootstrap_servers=bootstrap,
            compression_type=codec,
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=20,
        ) as producer:
            deliveries = [
                producer.send(
                    topic,
                    message.value,
                    message.key,
                    partition=partition,
                    timestamp=message.timestamp_ms,
                    headers=message.headers,
                )
                for message in messages
            ]
            try:
                for delivery in deliveries:
                    delivery.result(DEADLINE_S)
            except BrokerRefused as error:
                raise Refused(error.code) from error

    def consume(
        self, bootstrap: str, topic: str, counts: Mapping[int, int]
    ) -> dict[int, list[Message]]:
        found: dict[int, list[Message]] = {partition: [] for partition in counts}
        deadline = time.monotonic() + DEADLINE_S
        with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
            partitions = [TopicPartition(topic, partition) for partition in counts]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
            while _incomplete(found, counts) and time.monotonic() < deadline:
                for record in consumer.poll(0.2):
                    found[record.partition].append(_from_python_record(record))
        check_complete(self.name, found, counts)
        return found


class KafkaPython:
    """kafka-python as of today, or pretending that the broker is an old release."""

    def __init__(self, api_version: tuple[int, ...] | None = None) -> None:
        self.api_version = api_version
        version = ".".join(map(str, api_version)) if api_version else ""
        self.name = f"kafka-python-{version}" if version else "kafka-python"
        effective = api_version or (9, 9)
        self.codecs = CODECS if effective >= (2, 1) else CODECS[:-1]
        self.writes_null_headers = False
        self.carries_headers = effective >= (0, 11)
        self.carries_timestamps = self.sets_timestamps = effective >= (0, 10)

    def _options(self, bootstrap: str) -> dict[str, Any]:
        options: dict[str, Any] = {"bootstrap_servers": bootstrap}
        if self.api_version:
            options["api_version"] = self.api_version
        return options

    def produce(
        self, bootstrap: str, topic: str, partition: int, codec: str, messages: Sequence[Message]
    ) -> None:
        producer = kafka.KafkaProducer(
            compression_type=None if codec == "none" else codec,
            max_request_size=REQUEST_BYTES_MAX,
            acks=1,
            enable_idempotence=False,
            linger_ms=20,
            **self._options(bootstrap),
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    partition=partition,
                    headers=list(message.headers) or None,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            producer.flush(DEADLINE_S)
            for future in futures:
                future.get(DEADLINE_S)
        except kafka.errors.BrokerResponseError as error:
            raise Refused(error.errno) from error
        finally:
            producer.close(5)

    def consume(
        self, bootstrap: str, topic: str, counts: Mapping[int, int]
    ) -> dict[int, list[Message]]:
        consumer = kafka.KafkaConsumer(
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            **self._options(bootstrap),
        )
        found: dict[int, list[Message]] = {partition: [] for partition in counts}
        deadline = time.monotonic() + DEADLINE_S
        try:
            partitions = [kafka.TopicPartition(topic, p) for p in counts]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
            while _incomplete(found, counts) and time.monotonic() < deadline:
                for records in consumer.poll(timeout_ms=200).values():
                    for record in records:
                        found[record.partition].append(_from_python_record(record))
        finally:
            consumer.close(autocommit=False)
        check_complete(self.name, found, counts)
        return found


class Aiokafka:
    name = "aiokafka"
    codecs = CODECS
    carries_headers = carries_timestamps = sets_timestamps = writes_null_headers = True

    def produce(
        self, bootstrap: str, topic: str, partition: int, codec: str, messages: Sequence[Message]
    ) -> None:
        asyncio.run(self._produce(bootstrap, topic, partition, codec, messages))

    async def _produce(
        self, bootstrap: str, topic: str, partition: int, codec: str, messages: Sequence[Message]
    ) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=20,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    partition=partition,
                    headers=list(message.headers) or None,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.gather(*futures)
        except aiokafka.errors.BrokerResponseError as error:
            raise Refused(error.errno) from error
        finally:
            await producer.stop()

    def consume(
        self, bootstrap: str, topic: str, counts: Mapping[int, int]
    ) -> dict[int, list[Message]]:
        found = asyncio.run(self._consume(bootstrap, topic, counts))
        check_complete(self.name, found, counts)
        return found

    async def _consume(
        self, bootstrap: str, topic: str, counts: Mapping[int, int]
    ) -> dict[int, list[Message]]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
        )
        found: dict[int, list[Message]] = {partition: [] for partition in counts}
        deadline = time.monotonic() + DEADLINE_S
        await consumer.start()
        try:
            partitions = [aiokafka.TopicPartition(topic, p) for p in counts]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
            while _incomplete(found, counts) and time.monotonic() < deadline:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        found[record.partition].append(_from_python_record(record))
        finally:
            await consumer.stop()
        return found


class Kcat:
    """kcat cannot set timestamps nor tell an empty value from a null one, which it writes."""

    name = "kcat"
    codecs = CODECS
    carries_headers = carries_timestamps = True
    sets_timestamps = False
    writes_null_headers = True
    # One line of numbers and headers, then the key and the value as they are.
    OUTPUT_FORMAT = "%p %o %T %K %S %h\\n%k%s\\n"
    ERROR_CODES = (("Message size too large", 10),)

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("kcat") is not None

    def produce(
        self, bootstrap: str, topic: str, partition: int, codec: str, messages: Sequence[Message]
    ) -> None:
        for message in messages:
            self._produce_one(bootstrap, topic, partition, codec, message)

    def _produce_one(
        self, bootstrap: str, topic: str, partition: int, codec: str, message: Message
    ) -> None:
        command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(partition), "-z", codec]
        command += ["-X", f"message.max.bytes={REQUEST_BYTES_MAX}", "-X", "linger.ms=0"]
        for name, value in message.headers:
            command += ["-H", name if value is None else f"{name}={value.decode()}"]
        if message.value is None:
            assert message.key, "kcat takes a null value only from a line with a key"
            done = subprocess.run(
                [*command, "-Z", "-K", "|"],
                input=message.key + b"|\n",
                capture_output=True,
                timeout=DEADLINE_S,
                check=False,
            )
        else:
            done = self._produce_file(command, message.key, message.value)
        errors = done.stderr.decode(errors="replace")
        for text, code in self.ERROR_CODES:
            if text in errors:
                raise Refused(code)
        assert done.returncode == 0, errors

    def _produce_file(
        self, command: Sequence[str], key: bytes | None, value: bytes
    ) -> subprocess.CompletedProcess[bytes]:
        with_key = [*command, *(["-k", key.decode()] if key is not None else [])]
        with tempfile.NamedTemporaryFile() as file:
            file.write(value)
            file.flush()
            return subprocess.run(
                [*with_key, file.name], capture_output=True, timeout=DEADLINE_S, check=False
            )

    def consume(
        self, bootstrap: str, topic: str, counts: Mapping[int, int]
    ) -> dict[int, list[Message]]:
        found = {p: self._consume(bootstrap, topic, p, count) for p, count in counts.items()}
        check_complete(self.name, found, counts)
        return found

    def _consume(self, bootstrap: str, topic: str, partition: int, count: int) -> list[Message]:
        command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", str(partition), "-o", "0"]
        command += ["-c", str(count), "-q", "-X", "check.crcs=true", "-f", self.OUTPUT_FORMAT]
        done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return self._parse(done.stdout)

    def _parse(self, output: bytes) -> list[Message]:
        messages, position = [], 0
        while position < len(output):
            line_end = output.index(b"\n", position)
            fields = output[position:line_end].decode().split(" ", 5)
            _, offset, timestamp_ms, key_length, value_length = map(int, fields[:5])
            key_end = line_end + 1 + max(key_length, 0)
            value_end = key_end + max(value_length, 0)
            messages.append(
                Message(
                    None if value_length < 0 else output[key_end:value_end],
                    None if key_length < 0 else output[line_end + 1 : key_end],
                    tuple(self._header(part) for part in fields[5].split(",") if part),
                    timestamp_ms,
                    offset,
                )
            )
            position = value_end + 1
        return messages

    @staticmethod
    def _header(text: str) -> tuple[str, bytes | None]:
        name, _, value = text.partition("=")
        return name, None if value == "NULL" else value.encode()


def _incomplete(found: Mapping[int, list[Message]], counts: Mapping[int, int]) -> bool:
    return any(len(found[partition]) < count for partition, count in counts.items())


def _from_python_record(record: Any) -> Message:
    """kafka-python, aiokafka and tidelog name these alike; -1 stands for no timestamp."""
    no_timestamp = record.timestamp is None or record.timestamp < 0
    return Message(
        record.value,
        record.key,
        tuple(record.headers or ()),
        None if no_timestamp else record.timestamp,
        record.offset,
        None if no_timestamp or record.timestamp_type is None else record.timestamp_type == 1,
    )


OLD_RELEASES = ((0, 8, 2), (0, 9), (0, 10), (0, 11), (1, 0))


def all_clients() -> list[ForeignClient]:
    clients: list[ForeignClient] = [Tidelog(), ConfluentKafka(), KafkaPython()]
    clients += [KafkaPython(release) for release in OLD_RELEASES]
    clients.append(Aiokafka())
    if Kcat.is_installed():
        clients.append(Kcat())
    return clients
