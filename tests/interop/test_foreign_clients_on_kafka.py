"""tidelog's client beside others on Apache Kafka 3.9 and 4.3: what they tell tidelog's broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from tests.integration.test_foreign_clients import (
    test_a_message_too_large_is_refused_and_the_next_one_is_taken as too_large_story,
)
from tests.integration.test_foreign_clients import (
    test_append_time_topics_show_the_brokers_time_to_every_client,
)
from tests.integration.test_foreign_clients import (
    test_many_small_messages_keep_their_order as order_story,
)
from tests.integration.test_foreign_clients import (
    test_what_a_client_writes_with_every_codec_every_client_reads_back_equal as codec_story,
)
from tests.interop.apache_kafka import kafka_or_skip, running
from tests.support.foreign_clients import Aiokafka, ConfluentKafka, ForeignClient, Tidelog
from tests.support.raw_client import RawClient

# Kafka 4 has dropped the requests of clients from before 2.1.
CLIENTS: list[ForeignClient] = [Tidelog(), ConfluentKafka(), Aiokafka()]
STORIES = (test_append_time_topics_show_the_brokers_time_to_every_client,)
every_client = pytest.mark.parametrize("writer", CLIENTS, ids=lambda client: client.name)


@pytest.fixture(scope="module", params=[KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    data: Path = tmp_path_factory.mktemp("kafka") / "data"
    with running(kafka_or_skip(request.param), data) as broker:
        yield f"127.0.0.1:{broker.port}"


@pytest.fixture
def clients() -> list[ForeignClient]:
    return CLIENTS


@every_client
def test_what_a_client_writes_with_every_codec_every_client_reads_back_equal(
    bootstrap: str,
    client: RawClient,
    topic_name: str,
    writer: ForeignClient,
    clients: list[ForeignClient],
) -> None:
    codec_story(bootstrap, client, topic_name, writer, clients)


@every_client
def test_a_message_too_large_is_refused_and_the_next_one_is_taken(
    bootstrap: str, client: RawClient, topic_name: str, writer: ForeignClient
) -> None:
    too_large_story(bootstrap, client, topic_name, writer)


@every_client
def test_many_small_messages_keep_their_order(
    bootstrap: str, client: RawClient, topic_name: str, writer: ForeignClient
) -> None:
    order_story(bootstrap, client, topic_name, writer)
