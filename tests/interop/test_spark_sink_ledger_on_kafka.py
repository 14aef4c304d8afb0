"""The exactly-once Spark sink against Apache Kafka 3.9 and 4.3, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from tests.integration.test_spark_sink_ledger import (
    protocol,
    query,
    test_a_batch_that_another_driver_decided_is_finished_and_not_written_again,
    test_a_decided_transaction_that_was_aborted_stops_the_query_with_what_is_missing,
    test_a_marker_is_found_behind_many_of_other_queries,
    test_a_progress_topic_that_could_forget_is_refused_with_what_it_must_be,
    test_a_transaction_that_has_ended_keeps_the_batch_from_being_decided,
    test_an_abort_ends_the_tasks_transactions_unless_they_are_decided,
    test_an_older_driver_cannot_decide,
    test_attempts_that_lost_are_never_visible_and_do_not_hold_up_readers,
    test_queries_do_not_see_each_others_markers,
    test_rows_and_marker_are_one_transaction_and_a_repeated_batch_is_skipped,
    test_transactions_of_tasks_become_visible_with_the_batch_and_ids_are_used_again,
)
from tests.interop.apache_kafka import kafka_or_skip, running

# Told here by pytest, which finds them under these names.
STORIES = (
    protocol,
    query,
    test_a_batch_that_another_driver_decided_is_finished_and_not_written_again,
    test_a_decided_transaction_that_was_aborted_stops_the_query_with_what_is_missing,
    test_a_marker_is_found_behind_many_of_other_queries,
    test_a_progress_topic_that_could_forget_is_refused_with_what_it_must_be,
    test_a_transaction_that_has_ended_keeps_the_batch_from_being_decided,
    test_an_abort_ends_the_tasks_transactions_unless_they_are_decided,
    test_an_older_driver_cannot_decide,
    test_attempts_that_lost_are_never_visible_and_do_not_hold_up_readers,
    test_queries_do_not_see_each_others_markers,
    test_rows_and_marker_are_one_transaction_and_a_repeated_batch_is_skipped,
    test_transactions_of_tasks_become_visible_with_the_batch_and_ids_are_used_again,
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
