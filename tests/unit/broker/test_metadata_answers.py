"""Whatever changes, the next Metadata answer shows it, though answers are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.dispatch import Dispatch
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tidelog.broker import metadata_answers
from tidelog.broker.handlers import metadata
from tidelog.broker.metadata_cache import MetadataCache, Node, apply_update
from tidelog.config.sasl import SaslListener
from tidelog.controller.topics import PartitionImage, TopicImage
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataTopicState,
)
from tidelog.sasl.plain import PlainServer
from tidelog.sasl.server_authenticator import SaslServerAuthenticator
from tidelog.types import Uuid

VERSION = 12
HERE = Node(0, "127.0.0.1", 9092, None)
OTHER = Node(7, "other", 9093, "r")


class Client:
    """Asks the dispatcher, and counts how often an answer had to be made."""

    def __init__(self, stage: HandlerStage, monkeypatch: pytest.MonkeyPatch, **steps: Any) -> None:
        self.stage = stage
        self.dispatch = Dispatch(stage, **steps)
        self.made = 0
        rows = metadata._response

        def counted(*arguments: Any) -> MetadataResponse:
            self.made += 1
            return rows(*arguments)

        monkeypatch.setattr(metadata, "_response", counted)

    def ask(self, *names: str, version: int = VERSION, **fields: Any) -> MetadataResponse:
        topics = [MetadataRequestTopic(name=name) for name in names]
        return self.ask_with(MetadataRequest(topics=topics, **fields), version)

    def ask_with(self, request: MetadataRequest, version: int = VERSION) -> MetadataResponse:
        sent = self.dispatch.message(ApiKey.METADATA, version, request.encode(version))
        assert sent.answer is not None
        head = 5 if version >= 9 else 4
        return MetadataResponse.decode(memoryview(sent.answer), head, version)

    @property
    def kept(self) -> int:
        return len(self.dispatch.dispatcher._metadata_answers)


@in_loop
async def test_the_same_question_is_answered_from_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a", partitions=2)
        client = Client(stage, monkeypatch)
        first, second = client.ask("a"), client.ask("a")
        assert client.made == 1
        assert second == first
        assert [row.leader_id for row in second.topics[0].partitions] == [0, 0]


@in_loop
async def test_another_question_is_another_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a")
        await stage.topic("b")
        stage.broker.metadata.advertise("INTERNAL", [Node(0, "inside", 1, None)])
        client = Client(stage, monkeypatch)
        for _ in range(2):
            assert [row.name for row in client.ask("a").topics] == ["a"]
            assert [row.name for row in client.ask("b").topics] == ["b"]
            assert (
                client.ask("a", version=0).topics[0].topic_id != client.ask("a").topics[0].topic_id
            )
            told = client.ask("a", include_topic_authorized_operations=True).topics[0]
            assert told.topic_authorized_operations > 0
            client.dispatch.connection.session.listener_name = "INTERNAL"
            assert [broker.host for broker in client.ask("a").brokers] == ["inside"]
            client.dispatch.connection.session.listener_name = "PLAINTEXT"
        assert client.made == client.kept == 5


def _image(stage: HandlerStage, **changed: Any) -> TopicImage:
    before = stage.broker.topics.topics["a"]
    partition = before.partitions[0]._replace(**changed)
    return TopicImage("a", before.topic_id, [partition], before.configs)


def _puts(**changed: Any) -> Callable[[HandlerStage], None]:
    return lambda stage: stage.broker.topics._put(_image(stage, **changed))


def _told(told: Callable[[MetadataCache], object]) -> Callable[[HandlerStage], None]:
    def change(stage: HandlerStage) -> None:
        told(stage.broker.metadata)

    return change


def _partition(answer: MetadataResponse) -> Any:
    return answer.topics[0].partitions[0]


def _replace_id(stage: HandlerStage) -> None:
    before = stage.broker.topics.topics["a"]
    stage.broker.topics._drop(before)
    stage.broker.topics._put(TopicImage("a", Uuid(b"i" * 16), before.partitions, {}))


def _grow(stage: HandlerStage) -> None:
    before = stage.broker.topics.topics["a"]
    more = PartitionImage(1, 0, 3, [0], [0], 0)
    stage.broker.topics._put(TopicImage("a", before.topic_id, [*before.partitions, more], {}))


def _go_offline(stage: HandlerStage) -> None:
    stage.broker.replicas.take_offline(stage.partition("a").log.topic_partition, "a test")


INPUTS: dict[str, tuple[Callable[[HandlerStage], None], Callable[[MetadataResponse], object], Any]]
INPUTS = {
    "leader": (_puts(leader=7), lambda answer: _partition(answer).leader_id, 7),
    "leader epoch": (_puts(leader_epoch=9), lambda answer: _partition(answer).leader_epoch, 9),
    "no leader": (_puts(leader=-1), lambda answer: _partition(answer).error_code, 5),
    "replicas": (_puts(replicas=[0, 7]), lambda answer: _partition(answer).replica_nodes, [0, 7]),
    "isr": (_puts(isr=[0, 7]), lambda answer: _partition(answer).isr_nodes, [0, 7]),
    "offline replicas": (
        _puts(offline_replicas=(7,)),
        lambda answer: _partition(answer).offline_replicas,
        [7],
    ),
    "topic id": (_replace_id, lambda answer: answer.topics[0].topic_id, Uuid(b"i" * 16)),
    "partitions": (_grow, lambda answer: len(answer.topics[0].partitions), 2),
    "log offline": (_go_offline, lambda answer: _partition(answer).offline_replicas, [0]),
    "controller": (
        _told(lambda cache: setattr(cache, "controller_id", 7)),
        lambda answer: answer.controller_id,
        7,
    ),
    "advertised": (
        _told(lambda cache: cache.advertise("PLAINTEXT", [HERE._replace(port=1)])),
        lambda answer: answer.brokers[0].port,
        1,
    ),
    "broker joins": (
        _told(
            lambda cache: cache.replace_nodes({"PLAINTEXT": [HERE, OTHER, Node(8, "", 1, None)]})
        ),
        lambda answer: [broker.node_id for broker in answer.brokers],
        [0, 7, 8],
    ),
    "broker leaves": (
        _told(lambda cache: cache.replace_nodes({"PLAINTEXT": [HERE]})),
        lambda answer: [broker.node_id for broker in answer.brokers],
        [0],
    ),
    "leader leaves": (
        _told(lambda cache: cache.replace_nodes({"PLAINTEXT": [OTHER]})),
        lambda answer: _partition(answer).error_code,
        5,
    ),
    "leader without the listener": (
        _told(lambda cache: cache.replace_nodes({"X": [HERE], "PLAINTEXT": [OTHER]})),
        lambda answer: _partition(answer).error_code,
        ErrorCode.LISTENER_NOT_FOUND,
    ),
    "broker hidden": (
        _told(lambda cache: setattr(cache, "hidden_id", 0)),
        lambda answer: [broker.node_id for broker in answer.brokers],
        [7],
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_a_change_is_in_the_next_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    change, seen, expected = INPUTS[name]

    @in_loop
    async def ask() -> None:
        async with handler_stage(tmp_path, broker_id="0") as stage:
            await stage.topic("a")
            stage.broker.metadata.replace_nodes({"PLAINTEXT": [HERE, OTHER]})
            client = Client(stage, monkeypatch)
            assert seen(client.ask("a")) != expected
            assert seen(client.ask("a")) != expected
            assert client.made == 1
            change(stage)
            assert seen(client.ask("a")) == expected

    ask()


@in_loop
async def test_what_is_not_counted_is_seen_to_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path, broker_id="0") as stage:
        await stage.topic("a")
        client = Client(stage, monkeypatch)
        offline: set[tuple[str, int]] = set()
        stage.broker.metadata.offline = offline
        for _ in range(2):
            assert _partition(client.ask("a")).leader_id == 0
            offline.add(("a", 0))
            assert _partition(client.ask("a")).leader_id == -1
            assert client.kept == 0
            offline.clear()
            stage.broker.metadata.hidden_id = 0
            assert client.ask("a").brokers == []
            assert client.kept == 0
            stage.broker.metadata.hidden_id = None


@in_loop
async def test_a_topic_that_comes_and_goes_is_told_of_while_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path) as stage:
        client = Client(stage, monkeypatch)
        everything = MetadataRequest(topics=None)
        ids = set()
        for _ in range(3):
            assert client.ask_with(everything).topics == []
            missing = client.ask("a", allow_auto_topic_creation=False).topics[0]
            assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await stage.topic("a")
            for _ in range(2):
                told = client.ask("a", allow_auto_topic_creation=False).topics[0]
                assert told.error_code == 0
                ids.add(told.topic_id)
                by_id = MetadataRequestTopic(name=None, topic_id=told.topic_id)
                assert client.ask_with(MetadataRequest(topics=[by_id])).topics[0].name == "a"
                assert [row.name for row in client.ask_with(everything).topics] == ["a"]
            await stage.broker.topics.delete("a")
            gone = client.ask_with(MetadataRequest(topics=[by_id])).topics[0]
            assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert len(ids) == 3


@in_loop
async def test_an_update_of_the_controller_is_in_the_next_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path, broker_id="0") as stage:
        await stage.topic("a")
        stage.broker.metadata.replace_nodes({"PLAINTEXT": [HERE, OTHER]})
        client = Client(stage, monkeypatch)
        client.ask("a")
        topics: Any = stage.broker.topics
        topics.put, topics.drop = topics._put, lambda name: topics._drop(topics.topics[name])
        row = UpdateMetadataPartitionState(
            partition_index=0, leader=7, leader_epoch=4, isr=[7], replicas=[0, 7]
        )
        update = UpdateMetadataTopicState(
            topic_name="a", topic_id=topics.topics["a"].topic_id, partition_states=[row]
        )
        apply_update(topics, update)
        assert _partition(client.ask("a")).leader_id == 7
        row.leader = -2
        apply_update(topics, update)
        answer = client.ask("a", allow_auto_topic_creation=False)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_only_plain_answers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a")
        client = Client(stage, monkeypatch)
        client.ask("a", "missing", allow_auto_topic_creation=False)
        client.ask("no good", allow_auto_topic_creation=False)
        client.ask_with(MetadataRequest(topics=[MetadataRequestTopic(name=None)]))
        stage.broker.metadata.replace_nodes({"PLAINTEXT": [OTHER]})
        client.ask("a")
        assert client.kept == 0


@in_loop
async def test_a_topic_is_created_each_time_that_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path) as stage:
        client = Client(stage, monkeypatch)
        body = MetadataRequest(topics=[MetadataRequestTopic(name="new")]).encode(VERSION)
        for _ in range(2):
            waiting = client.dispatch.message(ApiKey.METADATA, VERSION, body)
            assert waiting.answer is None
            await waiting.answered.wait()
            assert client.kept == 0
            assert client.ask("new").topics[0].error_code == 0
            assert client.kept == 1
            await stage.broker.topics.delete("new")


@in_loop
async def test_few_and_small_answers_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a")
        await stage.topic("wide", partitions=400)
        client = Client(stage, monkeypatch)
        client.ask("wide")
        assert client.kept == 0
        client.ask(*["a"] * metadata_answers.REQUEST_BYTES_MAX)
        assert client.kept == 0
        for count in range(3 * metadata_answers.KEPT_MAX):
            client.ask(*["a"] * count, version=5)
            assert client.kept <= metadata_answers.KEPT_MAX


@in_loop
async def test_nothing_is_kept_where_the_principal_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acls = {
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "super_users": "User:ANONYMOUS",
    }
    async with handler_stage(tmp_path, **acls) as stage:
        await stage.topic("a")
        client = Client(stage, monkeypatch)
        client.ask("a")
        client.ask("a")
        assert (client.made, client.kept) == (2, 0)


@in_loop
async def test_a_stranger_is_not_told_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a")
        client = Client(stage, monkeypatch)
        assert len(client.ask("a").topics) == 1
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="a")]).encode(12)
        dispatch = Dispatch(stage)
        listener = SaslListener(("PLAIN",))
        dispatch.connection.session.authenticator = SaslServerAuthenticator(
            listener, lambda _: PlainServer({}), stage.clock
        )
        stranger = dispatch.message(ApiKey.METADATA, 12, asked)
        stage.clock.advance(ms=100)
        assert (stranger.answer, stranger.closed) == (b"", "refused")
