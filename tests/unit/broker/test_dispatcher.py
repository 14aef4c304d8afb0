from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.batches import simple_batch
from tests.support.handlers import FakeConnection, HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tidelog.broker.api_table import API_TABLE, served
from tidelog.broker.dispatcher import RequestDispatcher
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import VERSIONS, ApiKey
from tidelog.protocol.header import encode_request_header
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


class ClosableConnection(FakeConnection):
    def __init__(self) -> None:
        super().__init__()
        self.callbacks: list[Callable[[Any], object]] = []
        self.half_closed = False

    def add_close_callback(self, callback: Callable[[Any], object]) -> None:
        self.callbacks.append(callback)

    def vanish(self) -> None:
        for callback in self.callbacks:
            callback(self)


class RecordedRequest:
    """Stands in for IncomingRequest: keeps what it was answered."""

    def __init__(self, frame: bytes | bytearray, connection: ClosableConnection) -> None:
        self.frame = memoryview(bytearray(frame))
        self.connection = connection
        self.answered = asyncio.Event()
        self.answer: bytes | None = None
        self.closed: str | None = None
        self.lets_others_pass = False

    def let_others_pass(self) -> None:
        self.lets_others_pass = True

    def respond(self, parts: Any) -> None:
        self.answer = b"".join(bytes(part) for part in parts)
        self.answered.set()

    def respond_nothing(self) -> None:
        self.answer = b""
        self.answered.set()

    def close(self, reason: str) -> None:
        self.closed = reason
        self.answered.set()


class Dispatch:
    def __init__(self, stage: HandlerStage) -> None:
        self.dispatcher = RequestDispatcher(stage.broker)
        self.connection = ClosableConnection()

    def __call__(self, frame: bytes | bytearray) -> RecordedRequest:
        request = RecordedRequest(frame, self.connection)
        self.dispatcher.handle(cast(Any, request))
        return request

    def message(self, key: int, version: int, body: bytes | bytearray) -> RecordedRequest:
        return self(encode_request_header(key, version, 77, "test") + body)


@in_loop
async def test_api_versions_lists_exactly_the_table(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        body = ApiVersionsRequest(client_software_name="x", client_software_version="1").encode(3)
        request = Dispatch(stage).message(ApiKey.API_VERSIONS, 3, body)
        assert request.answer is not None
        assert request.answer[:4] == b"\0\0\0\x4d"
        listed = ApiVersionsResponse.decode(memoryview(request.answer), 4, 3).api_keys
        assert [(row.api_key, row.min_version, row.max_version) for row in listed] == [
            (api.key, api.min_version, api.max_version) for api in served(in_cluster=False)
        ]


def test_a_lone_broker_does_not_serve_what_brokers_ask_each_other() -> None:
    only_in_clusters = set(served(in_cluster=True)) - set(served(in_cluster=False))
    assert {api.key for api in only_in_clusters} == {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
    }


def test_every_row_of_the_table_is_within_the_codec() -> None:
    for api in API_TABLE:
        known = VERSIONS[api.key]
        assert known.min_version <= api.min_version <= api.max_version <= known.max_version, api.key


@in_loop
async def test_unknown_version_of_api_versions_falls_back_to_v0(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        request = Dispatch(stage)(b"\0\x12\x7f\xff\0\0\0\x4d\xff\xff")
        assert request.answer is not None
        answer = ApiVersionsResponse.decode(memoryview(request.answer), 4, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert len(answer.api_keys) == len(served(in_cluster=False))


@in_loop
async def test_bad_client_software_name_is_an_invalid_request(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        body = ApiVersionsRequest(client_software_name="-", client_software_version="1").encode(3)
        request = Dispatch(stage).message(ApiKey.API_VERSIONS, 3, body)
        assert request.answer is not None
        answer = ApiVersionsResponse.decode(memoryview(request.answer), 4, 3)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


@in_loop
async def test_what_does_not_parse_closes_the_connection(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        dispatch = Dispatch(stage)
        for frame in (b"", b"\0\0", b"\x7f\x7f\0\0\0\0\0\1\xff\xff", b"\0\0\0\x63\0\0\0\1\xff\xff"):
            assert dispatch(frame).closed is not None, frame
        assert dispatch.message(ApiKey.METADATA, 12, b"\x05").closed is not None


@in_loop
async def test_api_that_is_not_served_closes_the_connection(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        assert Dispatch(stage).message(ApiKey.LEADER_AND_ISR, 0, bytes(40)).closed is not None


@in_loop
async def test_admin_request_is_answered_when_its_write_is_durable(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        topic = CreatableTopic(name="made", num_partitions=1, replication_factor=1)
        body = CreateTopicsRequest(topics=[topic], timeout_ms=5000).encode(5)
        request = Dispatch(stage).message(ApiKey.CREATE_TOPICS, 5, body)
        assert request.answer is None
        await asyncio.wait_for(request.answered.wait(), 10)
        assert request.answer is not None
        assert "made" in stage.broker.topics.topics


@in_loop
async def test_waiting_fetch_ends_with_its_connection(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        dispatch = Dispatch(stage)
        row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        body = FetchRequest(
            max_wait_ms=1000,
            min_bytes=1,
            topics=[FetchTopic(topic="t", partitions=[row])],
        ).encode(11)
        request = dispatch.message(ApiKey.FETCH, 11, body)
        assert request.answer is None
        dispatch.connection.vanish()
        stage.partition("t").append(memoryview(simple_batch(1)), 11)
        stage.clock.advance(ms=2000)
        assert request.answer is None
        assert not request.lets_others_pass


@in_loop
async def test_waiting_produces_are_appended_though_none_is_answered_yet(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", flush_messages="1")
        dispatch = Dispatch(stage)
        row = PartitionProduceData(index=0, records=memoryview(simple_batch(1)))
        topic = TopicProduceData(name="t", partition_data=[row])
        body = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]).encode(9)
        requests = [dispatch.message(ApiKey.PRODUCE, 9, body) for _ in range(3)]
        assert [request.lets_others_pass for request in requests] == [True] * 3
        assert stage.partition("t").log.log_end_offset == 3
        for request in requests:
            await asyncio.wait_for(request.answered.wait(), 10)


@in_loop
async def test_a_late_answer_that_cannot_be_sent_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise ZeroDivisionError

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", flush_messages="1")
        row = PartitionProduceData(index=0, records=memoryview(simple_batch(1)))
        topic = TopicProduceData(name="t", partition_data=[row])
        body = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]).encode(9)
        monkeypatch.setattr(ProduceResponse, "encode", fail)
        request = Dispatch(stage).message(ApiKey.PRODUCE, 9, body)
        await asyncio.wait_for(request.answered.wait(), 10)
        assert request.closed == "the request failed"
