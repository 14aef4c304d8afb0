"""What a scrape tells of requests that wait, syncs, compaction and quotas."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.batches import simple_batch
from tests.support.clock import FakeClock
from tests.support.dispatch import Dispatch
from tests.support.handlers import handler_stage
from tests.support.metadata import in_loop
from tests.support.scrapes import collector_of, samples
from tidelog.broker.quotas.quota_entity import QuotaEntity
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic


@in_loop
async def test_requests_that_wait_are_counted_by_purgatory(tmp_path: Path) -> None:
    waiting = Counter[int](
        {ApiKey.FETCH: 3, ApiKey.JOIN_GROUP: 1, ApiKey.SYNC_GROUP: 2, ApiKey.METADATA: 9}
    )
    async with handler_stage(tmp_path) as stage:
        found = samples(await collector_of(stage, waiting).collect())
        name = "kafka_server_delayedoperationpurgatory_purgatorysize"
        assert found[name + '{delayedoperation="Fetch"}'] == 3
        assert found[name + '{delayedoperation="Rebalance"}'] == 3
        assert found[name + '{delayedoperation="Produce"}'] == 0


@in_loop
async def test_the_dispatcher_knows_what_waits_until_it_is_answered(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        dispatch = Dispatch(stage)
        place = FetchTopic(topic="t", partitions=[FetchPartition(partition=0)])
        request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1000, topics=[place])
        waits = dispatch.message(ApiKey.FETCH, 11, request.encode(11))
        assert dispatch.dispatcher.waiting_by_api() == {ApiKey.FETCH: 1}
        dispatch.dispatcher.wake_waiting()
        stage.clock.advance(ms=1)
        await waits.answered.wait()
        assert dispatch.dispatcher.waiting_by_api() == {}


@in_loop
async def test_a_client_that_hangs_up_waits_no_more(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        dispatch = Dispatch(stage)
        place = FetchTopic(topic="t", partitions=[FetchPartition(partition=0)])
        request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1000, topics=[place])
        dispatch.message(ApiKey.FETCH, 11, request.encode(11))
        dispatch.connection.vanish()
        assert dispatch.dispatcher.waiting_by_api() == {}


@in_loop
async def test_flushes_are_counted_if_there_was_something_to_flush(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("orders")
        collector = collector_of(stage)
        name = "kafka_log_logflushstats_logflushrateandtimems_"
        partition = stage.partition("orders")
        partition.log.flush()
        before = samples(await collector.collect())[name + "count"]
        partition.append(memoryview(bytearray(simple_batch(1))), 9)
        partition.log.flush()
        partition.log.flush()
        found = samples(await collector.collect())
        assert found[name + "count"] == before + 1
        assert found[name + "sum"] >= 0


@in_loop
async def test_what_clients_with_a_quota_use_is_told_and_bounded(tmp_path: Path) -> None:
    clock = FakeClock()
    async with handler_stage(tmp_path, clock, quota_window_num="11") as stage:
        limits = stage.broker.dynamic_config.quota_limits
        limits.take_over(QuotaEntity(client_id="shop"), {"producer_byte_rate": "100"})
        limits.take_over(QuotaEntity(client_id="mine"), {"producer_byte_rate": "100"})
        produce = stage.broker.quotas.produce
        produce.spend("", "shop", 2_000)
        produce.spend("", "mine", 100)
        produce.spend("", "without a quota", 5_000)
        found = samples(await collector_of(stage).collect())
        rates = {name for name in found if name.startswith("kafka_server_produce_byte_rate")}
        assert rates == {
            'kafka_server_produce_byte_rate{user="",client_id="shop"}',
            'kafka_server_produce_byte_rate{user="",client_id="mine"}',
        }
        assert found['kafka_server_produce_byte_rate{user="",client_id="shop"}'] == 200
        waits = "kafka_server_produce_throttle_time"
        assert found[waits + '{user="",client_id="shop"}'] == pytest.approx(10_000)
        assert found[waits + '{user="",client_id="mine"}'] == 0
        assert found['tidelog_metrics_left_out{kind="client"}'] == 0


@in_loop
async def test_the_cleaner_of_a_new_broker_has_not_looked_yet(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        found = samples(await collector_of(stage).collect())
        assert found["tidelog_log_cleaner_rounds_total"] == 0
        assert found["kafka_log_logcleanermanager_uncleanable_partitions_count"] == 0
        assert "kafka_log_logcleanermanager_time_since_last_run_ms" not in found
