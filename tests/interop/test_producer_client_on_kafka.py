"""tidelog's producer against Apache Kafka 3.9 and 4.3: the stories it tells tidelog's broker.

Kafka 4.3 has transaction.version 2, Kafka 3.9 has not, so both protocols meet their own broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from tests.integration.test_producer_client import (
    protocol,
    test_a_block_that_raises_aborts_its_transaction,
    test_a_blocking_call_in_a_callback_is_refused,
    test_a_blocking_producer_writes_in_order,
    test_a_callback_may_send_more,
    test_a_newer_producer_fences_the_older_one,
    test_a_record_above_the_limit_of_the_topic_fails_alone,
    test_a_send_outside_a_transaction_is_refused,
    test_a_table_is_written_by_the_column,
    test_a_transaction_that_is_handed_over_is_ended_by_another_client,
    test_a_transaction_that_is_handed_over_outlives_its_producer,
    test_an_asyncio_producer_writes_in_order,
    test_closing_a_producer_aborts_its_transaction,
    test_committed_records_are_seen_and_aborted_ones_are_not,
    test_every_codec_is_written_with_every_acks,
    test_everything_a_record_has_arrives,
    test_keys_go_where_other_clients_send_them,
    test_many_threads_share_a_producer,
    test_offsets_are_committed_with_the_transaction,
    test_offsets_of_a_member_that_is_not_in_the_group_abort_the_transaction,
    test_records_without_a_key_reach_every_partition,
    test_the_asyncio_producer_has_transactions_too,
)
from tests.interop.apache_kafka import kafka_or_skip, running

# Told here by pytest, which finds them under these names.
STORIES = (
    protocol,
    test_a_block_that_raises_aborts_its_transaction,
    test_a_blocking_call_in_a_callback_is_refused,
    test_a_blocking_producer_writes_in_order,
    test_a_callback_may_send_more,
    test_a_newer_producer_fences_the_older_one,
    test_a_record_above_the_limit_of_the_topic_fails_alone,
    test_a_send_outside_a_transaction_is_refused,
    test_a_table_is_written_by_the_column,
    test_a_transaction_that_is_handed_over_is_ended_by_another_client,
    test_a_transaction_that_is_handed_over_outlives_its_producer,
    test_an_asyncio_producer_writes_in_order,
    test_closing_a_producer_aborts_its_transaction,
    test_committed_records_are_seen_and_aborted_ones_are_not,
    test_every_codec_is_written_with_every_acks,
    test_everything_a_record_has_arrives,
    test_keys_go_where_other_clients_send_them,
    test_many_threads_share_a_producer,
    test_offsets_are_committed_with_the_transaction,
    test_offsets_of_a_member_that_is_not_in_the_group_abort_the_transaction,
    test_records_without_a_key_reach_every_partition,
    test_the_asyncio_producer_has_transactions_too,
)


@pytest.fixture(scope="module", params=[KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    data: Path = tmp_path_factory.mktemp("kafka") / "data"
    with running(kafka_or_skip(request.param), data) as broker:
        yield f"127.0.0.1:{broker.port}"


@pytest.fixture
def bootstrap(kafka: str) -> str:
    return kafka
