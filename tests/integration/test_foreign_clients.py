"""Tidelog's client and unmodified ones of other people write and read everything, and read what the
others wrote."""

from __future__ import annotations

import random

import pytest

from tests.support.foreign_clients import (
    CODECS,
    ForeignClient,
    Kcat,
    Message,
    Refused,
    all_clients,
)
from tests.support.raw_batch import now_ms
from tests.support.raw_client import RawClient, create_topic

MESSAGE_TOO_LARGE = 10
CREATED_MS = 1_700_000_000_000
BIG_BYTES = 900_000
CLIENTS = all_clients()

every_client = pytest.mark.parametrize("writer", CLIENTS, ids=lambda client: client.name)


@pytest.fixture
def clients() -> list[ForeignClient]:
    return CLIENTS


def sample_messages(writer: ForeignClient) -> list[Message]:
    """Keys, nulls, headers, timestamps and a 900 KB value, as far as the writer can express
    them."""
    messages = [
        Message(b"no key"),
        Message(b"value", b"key"),
        Message(None, b"tombstone"),
        Message("ключ 値 🔑".encode(), "clé".encode()),
        Message(b"many headers", b"k", (("h1", b"one"), ("h2", b""), ("h1", b"again"))),
        Message(b"repeated " * 2000, b"compressible"),
        Message(random.Random(7).randbytes(BIG_BYTES), b"big"),
    ]
    if not isinstance(writer, Kcat):
        messages.append(Message(b"", b""))
    if writer.writes_null_headers:
        messages.append(Message(b"null header", b"k", (("nothing", None),)))
    return [
        Message(
            message.value,
            message.key,
            message.headers if writer.carries_headers else (),
            CREATED_MS + 1000 * i if writer.sets_timestamps else None,
        )
        for i, message in enumerate(messages)
    ]


@every_client
def test_what_a_client_writes_with_every_codec_every_client_reads_back_equal(
    bootstrap: str,
    client: RawClient,
    topic_name: str,
    writer: ForeignClient,
    clients: list[ForeignClient],
) -> None:
    create_topic(client, topic_name, partitions=len(CODECS))
    written = sample_messages(writer)
    for partition, codec in enumerate(CODECS):
        if codec in writer.codecs:
            writer.produce(bootstrap, topic_name, partition, codec, written)
    for reader in clients:
        counts = {
            partition: len(written)
            for partition, codec in enumerate(CODECS)
            if codec in writer.codecs and codec in reader.codecs
        }
        timestamp = writer.sets_timestamps and reader.carries_timestamps
        expected = [
            m.as_carried(headers=reader.carries_headers, timestamp=timestamp) for m in written
        ]
        for partition, read in reader.consume(bootstrap, topic_name, counts).items():
            where = f"{reader.name} reads {CODECS[partition]}"
            assert [m.offset for m in read] == list(range(len(written))), where
            carried = [m.as_carried(headers=True, timestamp=timestamp) for m in read]
            assert carried == expected, where
            if timestamp:
                assert not any(m.append_time for m in read), where


def test_append_time_topics_show_the_brokers_time_to_every_client(
    bootstrap: str, client: RawClient, topic_name: str, clients: list[ForeignClient]
) -> None:
    create_topic(client, topic_name, configs={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    for writer in clients:
        old = CREATED_MS if writer.sets_timestamps else None
        message = Message(writer.name.encode(), b"k", (), old)
        writer.produce(bootstrap, topic_name, 0, writer.codecs[1], [message])
    after = now_ms()
    for reader in clients:
        read = reader.consume(bootstrap, topic_name, {0: len(clients)})[0]
        assert [m.value for m in read] == [c.name.encode() for c in clients], reader.name
        if not reader.carries_timestamps:
            continue
        stamps = [m.timestamp_ms or 0 for m in read]
        assert stamps == sorted(stamps)
        assert before - 1000 <= stamps[0] <= stamps[-1] <= after + 1000, reader.name
        assert all(m.append_time in (True, None) for m in read), reader.name


@every_client
def test_a_message_too_large_is_refused_and_the_next_one_is_taken(
    bootstrap: str, client: RawClient, topic_name: str, writer: ForeignClient
) -> None:
    create_topic(client, topic_name, configs={"max.message.bytes": "10000"})
    with pytest.raises(Refused) as refused:
        writer.produce(bootstrap, topic_name, 0, "none", [Message(b"x" * 20_000)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    writer.produce(bootstrap, topic_name, 0, "none", [Message(b"x" * 5000)])
    assert len(writer.consume(bootstrap, topic_name, {0: 1})[0]) == 1


@every_client
def test_many_small_messages_keep_their_order(
    bootstrap: str, client: RawClient, topic_name: str, writer: ForeignClient
) -> None:
    create_topic(client, topic_name)
    count = 30 if isinstance(writer, Kcat) else 2000
    written = [Message(b"%d" % i) for i in range(count)]
    writer.produce(bootstrap, topic_name, 0, "lz4", written)
    read = writer.consume(bootstrap, topic_name, {0: count})[0]
    assert [m.value for m in read] == [m.value for m in written]
