"""tidelog's consumer against Apache Kafka 3.9 and 4.3: the stories it tells tidelog's broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from tests.integration.test_consumer_client import (
    GROUP_CONFIG,
    test_a_blocking_consumer_reads_iterates_and_is_woken,
    test_a_blocking_listener_may_seek_commit_and_ask,
    test_a_consumer_that_does_not_poll_leaves_and_cannot_commit,
    test_a_cooperative_member_keeps_what_it_keeps,
    test_a_group_shares_partitions_and_goes_on_from_its_commits,
    test_a_partition_paused_with_records_in_the_buffer_goes_on_where_it_stopped,
    test_a_poll_gives_at_most_max_poll_records_and_moves_the_position,
    test_a_position_outside_the_log_is_reset_or_an_error,
    test_a_static_member_comes_back_to_its_partitions,
    test_a_topic_deleted_under_a_consumer_and_made_anew,
    test_an_iteration_counts_records_one_by_one,
    test_arrow_and_raw_batches_and_records_are_the_same,
    test_automatic_commits_and_the_one_of_closing,
    test_commits_carry_metadata_and_tell_their_outcome_in_order,
    test_new_partitions_are_found_and_read_from_their_beginning,
    test_offsets_of_times_beginnings_and_ends,
    test_only_committed_transactions_are_read_with_read_committed,
    test_records_of_every_codec_come_with_all_their_fields,
    test_seeking_pausing_and_resuming,
    test_where_to_begin_is_what_auto_offset_reset_says,
    test_who_takes_an_instance_id_fences_the_one_who_had_it,
)
from tests.integration.test_consumer_client import (
    test_a_pattern_finds_topics_that_come_later as pattern_story,
)
from tests.interop.apache_kafka import kafka_or_skip, running

# Told here by pytest, which finds them under these names.
STORIES = (
    test_a_blocking_consumer_reads_iterates_and_is_woken,
    test_a_blocking_listener_may_seek_commit_and_ask,
    test_a_consumer_that_does_not_poll_leaves_and_cannot_commit,
    test_a_cooperative_member_keeps_what_it_keeps,
    test_a_group_shares_partitions_and_goes_on_from_its_commits,
    test_a_partition_paused_with_records_in_the_buffer_goes_on_where_it_stopped,
    test_a_poll_gives_at_most_max_poll_records_and_moves_the_position,
    test_a_position_outside_the_log_is_reset_or_an_error,
    test_a_static_member_comes_back_to_its_partitions,
    test_a_topic_deleted_under_a_consumer_and_made_anew,
    test_an_iteration_counts_records_one_by_one,
    test_arrow_and_raw_batches_and_records_are_the_same,
    test_automatic_commits_and_the_one_of_closing,
    test_commits_carry_metadata_and_tell_their_outcome_in_order,
    test_new_partitions_are_found_and_read_from_their_beginning,
    test_offsets_of_times_beginnings_and_ends,
    test_only_committed_transactions_are_read_with_read_committed,
    test_records_of_every_codec_come_with_all_their_fields,
    test_seeking_pausing_and_resuming,
    test_where_to_begin_is_what_auto_offset_reset_says,
    test_who_takes_an_instance_id_fences_the_one_who_had_it,
)


class Served(NamedTuple):
    """What the stories need of a broker."""

    bootstrap: str


@pytest.fixture(scope="module", params=[KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def group_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    data: Path = tmp_path_factory.mktemp("kafka") / "data"
    overrides = {**GROUP_CONFIG, "group.coordinator.rebalance.protocols": "classic,consumer"}
    with running(kafka_or_skip(request.param), data, overrides) as broker:
        yield Served(f"127.0.0.1:{broker.port}")


@pytest.fixture
def bootstrap(group_broker: Served) -> str:
    return group_broker.bootstrap


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pattern_finds_topics_that_come_later(
    group_broker: Served, topic_name: str, protocol: str, request: pytest.FixtureRequest
) -> None:
    if protocol == "consumer" and request.node.callspec.params["group_broker"] == KAFKA_VERSION:
        pytest.skip("Kafka 3.9 evaluates no patterns")
    pattern_story(group_broker, topic_name, protocol)
