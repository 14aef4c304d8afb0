"""What a scrape tells, and how long it takes."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.batches import simple_batch
from tests.support.handlers import handler_stage
from tests.support.metadata import in_loop
from tests.support.scrapes import collector_of, samples
from tidelog.broker.observation.collector import SERIES_OF_PARTITION, api_name
from tidelog.broker.observation.exposition import Page, escaped, labels
from tidelog.slices import SLICE_S


@in_loop
async def test_traffic_is_told_by_topic_and_as_a_whole(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("orders", 2)
        await stage.topic("other")
        records = simple_batch(2)
        size = len(records)
        stage.partition("orders", 0).append(memoryview(bytearray(records)), 9)
        stage.partition("orders", 1).append(memoryview(bytearray(records)), 9)
        stage.partition("other").append(memoryview(bytearray(records)), 9)
        found = samples(await collector_of(stage).collect())
        prefix = "kafka_server_brokertopicmetrics_"
        assert found[prefix + 'messagesin_total{topic="orders"}'] == 4
        assert found[prefix + 'bytesin_total{topic="orders"}'] == 2 * size
        assert found[prefix + "messagesin_total"] == 6
        assert found['kafka_topic_partitions{topic="orders"}'] == 2
        assert found['kafka_topic_partition_current_offset{topic="orders",partition="1"}'] == 2
        assert found['kafka_log_log_size{topic="orders",partition="0"}'] == size
        assert found["kafka_controller_kafkacontroller_globalpartitioncount"] == 3
        assert found["kafka_brokers"] == 1


@in_loop
async def test_totals_never_fall_when_a_topic_goes(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("orders")
        stage.partition("orders").append(memoryview(bytearray(simple_batch(1))), 9)
        collector = collector_of(stage)
        name = "kafka_server_brokertopicmetrics_messagesin_total"
        assert samples(await collector.collect())[name] == 1
        stage.broker.replicas.drop(stage.partition("orders").topic_partition)
        assert samples(await collector.collect())[name] == 1


@in_loop
async def test_what_exceeds_the_series_is_left_out_and_counted(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, tidelog_metrics_series_max=str(8 + 3 * 14)) as stage:
        await stage.topic("orders", 5)
        found = samples(await collector_of(stage).collect())
        told = [name for name in found if name.startswith("kafka_log_log_size")]
        assert SERIES_OF_PARTITION == 14
        assert len(told) == 3
        assert found['tidelog_metrics_left_out{kind="partition"}'] == 2
        assert found['tidelog_metrics_left_out{kind="topic"}'] == 0


@in_loop
async def test_thousands_of_partitions_are_told_in_short_steps(tmp_path: Path) -> None:
    """A step may not hold the loop: here each has to be a small part of the 20 ms that are allowed,
    in processor time, so that a busy machine does not count.
    """
    async with handler_stage(tmp_path) as stage:
        await stage.topic("orders", 5)
        real = list(stage.broker.replicas)
        stage.broker.replicas._partitions = {  # five partitions stand in for thousands
            ("orders", n): real[n % len(real)] for n in range(5_000)
        }
        collector = collector_of(stage)
        page = Page()
        steps = collector.steps(page)
        longest = whole = 0.0
        while True:
            began = time.thread_time()
            is_over = next(steps, steps) is steps
            taken = time.thread_time() - began
            longest, whole = max(longest, taken), whole + taken
            if is_over:
                break
        assert longest < 20 * SLICE_S / 4
        assert whole < 1.0
        assert sum(piece.count("\n") for piece in page.pieces()) > 5_000 * SERIES_OF_PARTITION


def test_labels_hold_whatever_clients_call_themselves() -> None:
    assert labels({"a": 'say "hi"\\\n'}) == '{a="say \\"hi\\"\\\\\\n"}'
    assert escaped("\ud800") == "?"
    assert escaped("groß") == "groß"


def test_requests_have_kafkas_names() -> None:
    assert [api_name(key) for key in (0, 2, 18)] == ["Produce", "ListOffsets", "ApiVersions"]
