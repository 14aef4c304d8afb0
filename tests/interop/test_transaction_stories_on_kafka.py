"""Transactions of tidelog's client on Apache Kafka 3.9 and 4.3: the stories it tells tidelog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from tests.integration.test_transactions import (
    Opener,
    test_hanging_transaction_is_aborted_at_its_timeout,
    test_offsets_are_committed_with_the_transaction_or_not_at_all,
    test_one_producer_goes_on_through_kills_of_the_broker,
    test_second_instance_fences_the_first,
    test_transactions_are_described_to_tools,
    with_tidelog,
    with_tidelog_async,
)
from tests.integration.test_transactions import (
    test_committed_transactions_are_read_and_aborted_ones_are_not as committed_story,
)
from tests.interop.apache_kafka import ApacheKafkaBroker
from tests.support.transactional_clients import OWN_CLIENTS

# Told here by pytest, which finds them under these names.
STORIES = (
    test_hanging_transaction_is_aborted_at_its_timeout,
    test_offsets_are_committed_with_the_transaction_or_not_at_all,
    test_one_producer_goes_on_through_kills_of_the_broker,
    test_second_instance_fences_the_first,
    test_transactions_are_described_to_tools,
)
VERSIONS = [KAFKA_VERSION, NEWEST_KAFKA_VERSION]

StartKafka = Callable[..., ApacheKafkaBroker]


@pytest.fixture(scope="module", params=VERSIONS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafkaBroker]:
    started = ApacheKafkaBroker(request.param, tmp_path_factory.mktemp("kafka"))
    yield started
    started.kill()


@pytest.fixture(params=VERSIONS)
def start_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartKafka]:
    """Starts one broker of the test's own."""
    started: list[ApacheKafkaBroker] = []

    def start(overrides: Mapping[str, str] | None = None) -> ApacheKafkaBroker:
        started.append(ApacheKafkaBroker(request.param, tmp_path, overrides))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture(params=OWN_CLIENTS, ids=lambda library: library.__name__)
def producer_of(request: pytest.FixtureRequest) -> Iterator[Opener]:
    opener = Opener(request.param)
    yield opener
    opener.close()


@pytest.mark.parametrize("write", [with_tidelog, with_tidelog_async])
def test_committed_transactions_are_read_and_aborted_ones_are_not(
    broker: Any, topic_name: str, write: Callable[[str, str], None]
) -> None:
    committed_story(broker, topic_name, write)
