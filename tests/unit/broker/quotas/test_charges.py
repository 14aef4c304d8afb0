"""Requests against quotas, through the dispatcher: what is counted, answered and muted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import simple_batch
from tests.support.clock import FakeClock
from tests.support.dispatch import Dispatch, RecordedRequest
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tidelog.broker.api_table import Api
from tidelog.broker.quotas.quota_entity import QuotaEntity
from tidelog.errors import ErrorCode
from tidelog.network.session import Principal
from tidelog.protocol.api_keys import VERSIONS, ApiKey
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.types import ZERO_UUID

WINDOW = {"quota_window_num": "11", "quota_window_size_seconds": "1"}


class Stage:
    def __init__(self, stage: HandlerStage) -> None:
        self.broker = stage.broker
        self.clock = stage.clock
        self.stage = stage
        self.dispatch = Dispatch(stage)

    def quota(self, entity: QuotaEntity | None = None, **quotas: float) -> None:
        texts = {key: str(value) for key, value in quotas.items()}
        limits = self.broker.dynamic_config.quota_limits
        limits.take_over(entity or QuotaEntity(client_id="test"), texts)

    async def ask(self, key: ApiKey, version: int, request: Any) -> RecordedRequest:
        recorded = self.dispatch.message(key, version, request.encode(version))
        await asyncio.wait_for(recorded.answered.wait(), 30)
        return recorded

    async def produce(self, records: bytearray, acks: int = 1, version: int = 9) -> RecordedRequest:
        row = PartitionProduceData(index=0, records=memoryview(bytearray(records)))
        topics = [TopicProduceData(name="t", partition_data=[row])]
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
        return await self.ask(ApiKey.PRODUCE, version, request)

    async def fetch(self, **fields: Any) -> FetchResponse:
        row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[row])], **fields
        )
        recorded = await self.ask(ApiKey.FETCH, 11, request)
        return answer_of(FetchResponse, recorded, ApiKey.FETCH, 11)

    def own_api(self, key: ApiKey) -> Api:
        """A row of the table that this stage alone has, and may change."""
        apis = self.dispatch.dispatcher._apis
        row = apis[key]
        module = row.handler_module.rpartition(".")[2]
        apis[key] = own = Api(key, row.min_version, row.max_version, module)
        own.load()
        return own

    @property
    def muted_ms(self) -> list[int]:
        return [round(seconds * 1000) for seconds in self.dispatch.connection.muted_s]


def answer_of(kind: Any, recorded: RecordedRequest, key: ApiKey, version: int) -> Any:
    assert recorded.answer is not None
    flexible = VERSIONS[key].first_flexible
    start = 5 if flexible is not None and version >= flexible else 4
    return kind.decode(memoryview(recorded.answer), start, version)


@asynccontextmanager
async def quota_stage(directory: Path, **overrides: str) -> AsyncIterator[Stage]:
    async with handler_stage(directory, FakeClock(), **overrides) as stage:
        await stage.topic("t")
        yield Stage(stage)


# Produce


@in_loop
async def test_a_producer_over_its_rate_is_answered_and_then_muted(tmp_path: Path) -> None:
    async with quota_stage(tmp_path) as stage:
        stage.quota(producer_byte_rate=100)
        batch = simple_batch(20)
        first = await stage.produce(batch)
        size = len(first.frame)
        assert size > 200
        assert answer_of(ProduceResponse, first, ApiKey.PRODUCE, 9).throttle_time_ms == 0
        expected: list[int] = []
        for sent in range(2, 10):
            recorded = await stage.produce(batch)
            answer = answer_of(ProduceResponse, recorded, ApiKey.PRODUCE, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            over_ms = round((sent * size / 100 - 10) * 1000)
            assert answer.throttle_time_ms == pytest.approx(max(over_ms, 0), abs=1)
            if over_ms > 0:
                expected.append(answer.throttle_time_ms)
        assert expected
        assert stage.muted_ms == expected
        assert stage.stage.partition("t").log.log_end_offset == 9 * 20


@in_loop
async def test_who_wants_no_answer_is_muted_all_the_same(tmp_path: Path) -> None:
    async with quota_stage(tmp_path) as stage:
        stage.quota(producer_byte_rate=1)
        recorded = await stage.produce(simple_batch(20), acks=0)
        assert recorded.answer == b""
        assert stage.muted_ms[0] > 1000


@in_loop
async def test_an_old_answer_without_room_for_the_time_is_still_one(tmp_path: Path) -> None:
    async with quota_stage(tmp_path) as stage:
        stage.quota(producer_byte_rate=1)
        recorded = await stage.produce(simple_batch(20), version=3)
        assert answer_of(ProduceResponse, recorded, ApiKey.PRODUCE, 3).throttle_time_ms > 1000
        request = MetadataRequest(topics=[])
        stage.quota(request_percentage=0.001)
        slow(stage, ApiKey.METADATA, lambda: stage.clock.advance(ms=100))
        await stage.ask(ApiKey.METADATA, 1, request)
        assert len(stage.muted_ms) == 2


@in_loop
async def test_clients_with_quotas_of_their_own_do_not_spend_those_of_others(
    tmp_path: Path,
) -> None:
    async with quota_stage(tmp_path) as stage:
        stage.quota(QuotaEntity(user=None), producer_byte_rate=10)
        session = stage.dispatch.connection.session
        session.principal = Principal("User", "alice")
        await stage.produce(simple_batch(20))
        assert len(stage.muted_ms) == 1
        session.principal = Principal("User", "bob")
        stage.quota(QuotaEntity(user="bob"), producer_byte_rate=10_000_000)
        await stage.produce(simple_batch(20))
        assert len(stage.muted_ms) == 1


@in_loop
async def test_without_quotas_there_is_no_charge(tmp_path: Path) -> None:
    async with quota_stage(tmp_path) as stage:
        seen: list[object] = []
        slow(stage, ApiKey.METADATA, lambda: None, seen)
        await stage.ask(ApiKey.METADATA, 1, MetadataRequest(topics=[]))
        stage.quota(producer_byte_rate=1)
        await stage.ask(ApiKey.METADATA, 1, MetadataRequest(topics=[]))
        assert seen[0] is None
        assert seen[1] is not None
        assert stage.muted_ms == []


# Fetch


@in_loop
async def test_a_consumer_over_its_rate_gets_nothing_and_the_same_again_later(
    tmp_path: Path,
) -> None:
    async with quota_stage(tmp_path, **WINDOW) as stage:
        await stage.produce(simple_batch(400))
        stage.quota(consumer_byte_rate=1000)
        first = await stage.fetch(session_epoch=-1)
        size = len(first.responses[0].partitions[0].records)
        assert 5_000 < size < 10_000
        assert first.throttle_time_ms == 0
        second = await stage.fetch(session_epoch=-1)
        assert (second.responses, second.session_id) == ([], 0)
        envelopes = 200
        assert 2 * size - 10_000 <= second.throttle_time_ms <= 2 * size - 10_000 + envelopes
        assert stage.muted_ms == [second.throttle_time_ms]
        impatient = await stage.fetch(session_epoch=-1)
        assert impatient.throttle_time_ms <= second.throttle_time_ms + envelopes
        stage.clock.advance(ms=11_000)
        third = await stage.fetch(session_epoch=-1)
        assert len(third.responses[0].partitions[0].records) == size
        assert third.throttle_time_ms == 0


@in_loop
async def test_a_throttled_session_goes_on_and_tells_its_news_later(tmp_path: Path) -> None:
    async with quota_stage(tmp_path, **WINDOW) as stage:
        opened = await stage.fetch(session_epoch=0)
        await stage.produce(simple_batch(400))
        stage.quota(consumer_byte_rate=1000)
        session = {"session_id": opened.session_id}
        sent = await stage.fetch(session_epoch=1, **session)
        assert sent.responses[0].partitions[0].records
        throttled = await stage.fetch(session_epoch=2, **session)
        assert (throttled.session_id, throttled.responses) == (opened.session_id, [])
        assert throttled.throttle_time_ms > 0
        stage.clock.advance(ms=20_000)
        again = await stage.fetch(session_epoch=3, **session)
        assert (again.error_code, again.session_id) == (0, opened.session_id)
        assert again.responses[0].partitions[0].records


@in_loop
async def test_an_answer_is_bounded_by_what_the_quota_allows_at_once(tmp_path: Path) -> None:
    async with quota_stage(tmp_path, **WINDOW) as stage:
        for _ in range(20):
            await stage.produce(simple_batch(20))
        stage.quota(consumer_byte_rate=100)
        answer = await stage.fetch(session_epoch=-1)
        assert 0 < len(answer.responses[0].partitions[0].records) <= 1000
        assert answer.throttle_time_ms == 0


@in_loop
async def test_a_batch_larger_than_the_window_is_sent_and_waited_for(tmp_path: Path) -> None:
    async with quota_stage(tmp_path, **WINDOW) as stage:
        await stage.produce(simple_batch(400))
        stage.quota(consumer_byte_rate=100)
        answer = await stage.fetch(session_epoch=-1)
        size = len(answer.responses[0].partitions[0].records)
        assert size > 1000
        assert answer.throttle_time_ms == pytest.approx(size * 10 - 10_000, abs=1)
        again = await stage.fetch(session_epoch=-1)
        assert again.responses == []
        stage.clock.advance(ms=again.throttle_time_ms)
        assert (await stage.fetch(session_epoch=-1)).responses


@in_loop
async def test_many_empty_answers_count_too(tmp_path: Path) -> None:
    async with quota_stage(tmp_path, **WINDOW) as stage:
        stage.quota(consumer_byte_rate=10)
        throttles = [(await stage.fetch(session_epoch=-1)).throttle_time_ms for _ in range(3)]
        assert throttles[0] == 0
        assert throttles[-1] > 0


# Request time


def slow(
    stage: Stage, key: ApiKey, work: Callable[[], object], seen: list[object] | None = None
) -> None:
    """The handler of the API takes its time."""
    api = stage.own_api(key)
    handle = api.handle

    def handle_slowly(context: Any, request: Any) -> Any:
        work()
        if seen is not None:
            seen.append(context.charge)
        return handle(context, request)

    api.handle = handle_slowly


@in_loop
async def test_time_of_the_loop_is_a_percentage_of_it(tmp_path: Path) -> None:
    async with quota_stage(tmp_path, **WINDOW) as stage:
        stage.quota(request_percentage=10)
        slow(stage, ApiKey.METADATA, lambda: stage.clock.advance(ms=200))
        throttles = []
        for _ in range(8):
            recorded = await stage.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None))
            answer = answer_of(MetadataResponse, recorded, ApiKey.METADATA, 9)
            throttles.append(answer.throttle_time_ms)
        # A tenth of ten seconds is free, and no wait is longer than a sample.
        assert throttles[:4] == [0, 0, 0, 0]
        assert throttles[-1] == 1000
        assert stage.muted_ms == [each for each in throttles if each]


@in_loop
async def test_a_fetch_of_a_client_without_time_gets_nothing(tmp_path: Path) -> None:
    async with quota_stage(tmp_path) as stage:
        await stage.produce(simple_batch(20))
        stage.quota(request_percentage=1)
        slow(stage, ApiKey.FETCH, lambda: stage.clock.advance(ms=200))
        answer = await stage.fetch(session_epoch=-1)
        assert (answer.responses, answer.throttle_time_ms) == ([], 1000)


@in_loop
async def test_each_step_of_a_request_that_takes_turns_counts(tmp_path: Path) -> None:
    async with quota_stage(tmp_path) as stage:
        stage.quota(request_percentage=1)

        async def handle(context: Any, request: Any) -> Any:
            stage.clock.advance(ms=60)
            await asyncio.sleep(0)
            stage.clock.advance(ms=60)
            return MetadataResponse()

        stage.own_api(ApiKey.METADATA).handle = handle
        recorded = stage.dispatch.message(
            ApiKey.METADATA, 9, MetadataRequest(topics=None).encode(9)
        )
        await asyncio.sleep(0)
        stage.clock.advance(ms=5)  # of others
        await asyncio.wait_for(recorded.answered.wait(), 30)
        answer = answer_of(MetadataResponse, recorded, ApiKey.METADATA, 9)
        assert 0 < answer.throttle_time_ms <= 1000


# Mutations


def creation(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


BUCKET = {"controller_quota_window_num": "10", "controller_quota_window_size_seconds": "1"}


@in_loop
async def test_a_client_that_has_used_up_its_mutations_is_refused(tmp_path: Path) -> None:
    async with quota_stage(tmp_path, **BUCKET) as stage:
        stage.quota(controller_mutation_rate=1)
        made = await stage.ask(ApiKey.CREATE_TOPICS, 7, creation("a", 12))
        answer = answer_of(CreateTopicsResponse, made, ApiKey.CREATE_TOPICS, 7)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)

        refused = await stage.ask(ApiKey.CREATE_TOPICS, 7, creation("b", 1))
        answer = answer_of(CreateTopicsResponse, refused, ApiKey.CREATE_TOPICS, 7)
        assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert answer.throttle_time_ms == pytest.approx(2000, abs=5)
        assert "b" not in stage.broker.topics.topics

        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="a", count=13, assignments=None)], timeout_ms=10_000
        )
        grown = await stage.ask(ApiKey.CREATE_PARTITIONS, 3, more)
        answer = answer_of(CreatePartitionsResponse, grown, ApiKey.CREATE_PARTITIONS, 3)
        assert answer.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED

        gone = DeleteTopicsRequest(
            topics=[DeleteTopicState(name="a", topic_id=ZERO_UUID)], timeout_ms=10_000
        )
        deleted = await stage.ask(ApiKey.DELETE_TOPICS, 6, gone)
        answer = answer_of(DeleteTopicsResponse, deleted, ApiKey.DELETE_TOPICS, 6)
        assert answer.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert len(stage.muted_ms) == 3

        stage.clock.advance(ms=2100)
        deleted = await stage.ask(ApiKey.DELETE_TOPICS, 6, gone)
        answer = answer_of(DeleteTopicsResponse, deleted, ApiKey.DELETE_TOPICS, 6)
        assert (answer.responses[0].error_code, answer.throttle_time_ms) == (0, 0)


@in_loop
async def test_old_versions_make_the_change_and_wait_then(tmp_path: Path) -> None:
    async with quota_stage(tmp_path, **BUCKET) as stage:
        stage.quota(controller_mutation_rate=1)
        made = await stage.ask(ApiKey.CREATE_TOPICS, 5, creation("a", 12))
        answer = answer_of(CreateTopicsResponse, made, ApiKey.CREATE_TOPICS, 5)
        assert answer.topics[0].error_code == 0
        assert answer.throttle_time_ms == pytest.approx(2000, abs=5)
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="a", count=13, assignments=None)], timeout_ms=10_000
        )
        grown = await stage.ask(ApiKey.CREATE_PARTITIONS, 2, more)
        answer = answer_of(CreatePartitionsResponse, grown, ApiKey.CREATE_PARTITIONS, 2)
        assert answer.results[0].error_code == 0
        deleted = await stage.ask(
            ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=["a"], timeout_ms=10_000)
        )
        answer = answer_of(DeleteTopicsResponse, deleted, ApiKey.DELETE_TOPICS, 4)
        assert answer.responses[0].error_code == 0
        assert answer.throttle_time_ms == pytest.approx(16_000, abs=10)
        assert len(stage.muted_ms) == 3


@in_loop
async def test_a_trial_spends_nothing(tmp_path: Path) -> None:
    async with quota_stage(tmp_path, **BUCKET) as stage:
        stage.quota(controller_mutation_rate=1)
        for _ in range(3):
            trial = creation("a", 12)
            trial.validate_only = True
            made = await stage.ask(ApiKey.CREATE_TOPICS, 7, trial)
            answer = answer_of(CreateTopicsResponse, made, ApiKey.CREATE_TOPICS, 7)
            assert answer.topics[0].error_code == 0
