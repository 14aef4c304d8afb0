from __future__ import annotations

import ast
import asyncio
import importlib
import types
import typing
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.support.batches import simple_batch
from tests.support.dispatch import Dispatch, RecordedRequest
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tidelog.broker.api_table import API_TABLE, Api, served
from tidelog.broker.bulky_answers import EncodedAnswer
from tidelog.broker.context import Answer, CloseConnection, RequestContext
from tidelog.broker.dispatcher import (
    DECODED_AT_ONCE_BYTES,
)
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.api_keys import VERSIONS, ApiKey
from tidelog.protocol.message import Message
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.registry import request_class, response_class


@in_loop
async def test_api_versions_lists_exactly_the_table(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        body = ApiVersionsRequest(client_software_name="x", client_software_version="1").encode(3)
        request = Dispatch(stage).message(ApiKey.API_VERSIONS, 3, body)
        assert request.answer is not None
        assert request.answer[:4] == b"\0\0\0\x4d"
        listed = ApiVersionsResponse.decode(memoryview(request.answer), 4, 3).api_keys
        assert [(row.api_key, row.min_version, row.max_version) for row in listed] == [
            (api.key, api.min_version, api.max_version)
            for api in served(in_cluster=False)
            if not api.is_telemetry
        ]


@in_loop
async def test_telemetry_is_listed_where_somebody_can_see_it(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, tidelog_metrics_listener="http://127.0.0.1:0") as stage:
        request = Dispatch(stage).message(ApiKey.API_VERSIONS, 0, b"")
        assert request.answer is not None
        listed = ApiVersionsResponse.decode(memoryview(request.answer), 4, 0).api_keys
        assert [row.api_key for row in listed] == [api.key for api in served(in_cluster=False)]


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
        assert len(answer.api_keys) == len(served(in_cluster=False)) - 2  # telemetry


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> bytes:
        raise ZeroDivisionError

    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", flush_messages="1")
        row = PartitionProduceData(index=0, records=memoryview(simple_batch(1)))
        topic = TopicProduceData(name="t", partition_data=[row])
        body = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]).encode(9)
        monkeypatch.setattr(ProduceResponse, "encode", fail)
        request = Dispatch(stage).message(ApiKey.PRODUCE, 9, body)
        await asyncio.wait_for(request.answered.wait(), 10)
        assert request.closed == "the request failed"
        assert causes(caplog) == ["PRODUCE v9 failed: ZeroDivisionError()"]


class TestFailures:
    """Each closes the connection, and its cause is logged once."""

    BODY = MetadataRequest(topics=[]).encode(5)

    @staticmethod
    def answering(answer: Any) -> Api:
        api = Api(ApiKey.METADATA, 0, 13, "metadata")
        api.load()
        api.handle = lambda context, request: answer
        return api

    async def ask(self, stage: HandlerStage, answer: Any) -> RecordedRequest:
        dispatch = Dispatch(stage)
        dispatch.dispatcher._apis[ApiKey.METADATA] = self.answering(answer)
        request = dispatch.message(ApiKey.METADATA, 5, self.BODY)
        await asyncio.wait_for(request.answered.wait(), 10)
        return request

    @in_loop
    async def test_of_a_pending_answer(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with handler_stage(tmp_path) as stage:
            answer: Pending[MetadataResponse] = Pending()
            asyncio.get_running_loop().call_soon(answer.fail, ZeroDivisionError("a bug"))
            request = await self.ask(stage, answer)
            assert request.closed == "the request failed"
            assert causes(caplog) == ["METADATA v5 failed: ZeroDivisionError('a bug')"]

    @in_loop
    async def test_of_an_answer_that_had_failed_before(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with handler_stage(tmp_path) as stage:
            answer: Pending[MetadataResponse] = Pending()
            answer.fail(ZeroDivisionError("a bug"))
            request = await self.ask(stage, answer)
            assert request.closed == "the request failed"
            assert causes(caplog) == ["METADATA v5 failed: ZeroDivisionError('a bug')"]

    @in_loop
    async def test_of_a_coroutine(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        async def answer() -> MetadataResponse:
            raise ZeroDivisionError("a bug")

        async with handler_stage(tmp_path) as stage:
            request = await self.ask(stage, answer())
            assert request.closed == "the request failed"
            assert causes(caplog) == ["METADATA v5 failed: ZeroDivisionError('a bug')"]

    @in_loop
    async def test_of_a_large_request_that_does_not_parse(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with handler_stage(tmp_path) as stage:
            body = b"\x7f\xff\xff\xff" + bytes(DECODED_AT_ONCE_BYTES)
            request = Dispatch(stage).message(ApiKey.METADATA, 5, body)
            assert request.closed is None
            await asyncio.wait_for(request.answered.wait(), 10)
            assert request.closed is not None
            assert request.closed.startswith("METADATA v5 does not parse: ")
            assert causes(caplog) == []


def causes(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.exc_info for record in caplog.records if record.levelname == "ERROR")
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


SMALL = MetadataRequest(topics=[]).encode(5)
LARGE = MetadataRequest(
    topics=[MetadataRequestTopic(name=f"topic-{number:0100}") for number in range(1000)]
).encode(5)


def passes(*_: object) -> Answer:
    return None


def refuses(*_: object) -> Answer:
    return CloseConnection("who are you?")


@in_loop
async def test_a_topic_that_metadata_makes_is_in_the_answer(tmp_path: Path) -> None:
    """The handler answers by a coroutine, which is of another type where it is compiled."""
    async with handler_stage(tmp_path) as stage:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        request = Dispatch(stage).message(ApiKey.METADATA, 8, asked.encode(8))
        await asyncio.wait_for(request.answered.wait(), 60)
        assert request.answer is not None
        answer = MetadataResponse.decode(memoryview(request.answer), 4, 8)
        assert [topic.name for topic in answer.topics] == ["new"]


class TestEveryHandler:
    """Its annotations say what the dispatcher relies on: they are imported by name."""

    @pytest.mark.parametrize("api", API_TABLE, ids=lambda api: api.key.name.lower())
    def test_it_takes_its_request_and_gives_its_response(self, api: Api) -> None:
        module = importlib.import_module(api.handler_module)
        scope = vars(module) | {"RequestContext": RequestContext, "Pending": Pending}
        hints = annotations_of_handle(module, scope)
        answer = hints.pop("return")
        context, request = hints.values()
        assert context is RequestContext
        assert issubclass(request_class(api.key), request)
        kinds = {EncodedAnswer, CloseConnection, type(None), response_class(api.key)}
        if request is Message:  # several keys share it
            kinds.add(Message)
        assert set(answer_kinds(answer)) <= kinds


def annotations_of_handle(module: types.ModuleType, scope: dict[str, Any]) -> dict[str, Any]:
    """As the source has them: a compiled function keeps none."""
    root = Path(tidelog.__file__).parents[1]
    tree = ast.parse((root / f"{module.__name__.replace('.', '/')}.py").read_text())
    handle = next(
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "handle"
    )
    texts = {each.arg: each.annotation for each in handle.args.args} | {"return": handle.returns}
    return {name: eval(ast.unparse(text), scope) for name, text in texts.items() if text}


def answer_kinds(answer: Any) -> Iterator[type]:
    origin, arguments = typing.get_origin(answer), typing.get_args(answer)
    if origin is Pending:
        yield from answer_kinds(arguments[0])
    elif origin is Coroutine:
        yield from answer_kinds(arguments[2])
    elif origin in (typing.Union, types.UnionType):
        for each in arguments:
            yield from answer_kinds(each)
    else:
        yield answer
