"""Faults that a test asks for: requests answered with an error, late, or by a closed connection.

    fail         the answer is an error; the request has no effect
    delay        the request is handled later
    disconnect   the connection closes; the request has no effect
    drop_after   the request is handled, and the connection closes instead of the answer

A rule names an API and, if it is for some requests only, a topic, a client id, and how often it
holds. The first rule that matches a request decides.

An error lies where the API has a place for it: with every row of the answer, or once for all. APIs
that only read are handled, and their answers changed, so that a Fetch without records has nothing
to change and fails as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tidelog.broker.api_table import Api
from tidelog.broker.context import Answer, CloseConnection, Handler, RequestContext
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import EncodeError
from tidelog.protocol.message import Message, Struct
from tidelog.protocol.registry import response_class

Later = Answer | Pending[Answer] | Coroutine[Any, Any, Answer]

FAULT: Final = "a fault of the test"
# Handled, and then changed: they have no effect, or one that does not matter.
READING: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.DESCRIBE_LOG_DIRS,
    }
)
ERROR_FIELDS: Final = ("error_code", "partition_error_code")


class Effect(StrEnum):
    FAIL = "fail"
    DELAY = "delay"
    DISCONNECT = "disconnect"
    DROP_AFTER = "drop_after"


@dataclass
class Fault:
    effect: Effect
    api: ApiKey
    error: ErrorCode = ErrorCode.NONE
    seconds: float = 0.0
    topic: str | None = None
    client_id: str | None = None
    times: int | None = 1  # None: until it is taken back

    def matches(self, context: RequestContext, request: Message) -> bool:
        if self.client_id is not None and context.client_id != self.client_id:
            return False
        return self.topic is None or self.topic in topics_of(context, request)


class FaultRules:
    """Those of one broker; touched on its loop."""

    def __init__(self) -> None:
        self._rules: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """ValueError if the API has no place for an error."""
        if fault.effect is Effect.FAIL:
            must_have_a_place(fault.api)
        self._rules.append(fault)

    def clear(self) -> None:
        self._rules.clear()

    def wrap(self, apis: Iterable[Api]) -> Iterator[Api]:
        return (FaultyApi(api, self) for api in apis)

    def handle(
        self, api: ApiKey, inner: Handler, context: RequestContext, request: Message
    ) -> Later:
        if not self._rules:
            return inner(context, request)
        fault = self._take(api, context, request)
        if fault is None:
            return inner(context, request)
        if fault.effect is Effect.DISCONNECT:
            return CloseConnection(FAULT)
        if fault.effect is Effect.DELAY:
            return _later(inner, context, _detached(request), fault.seconds)
        if fault.effect is Effect.DROP_AFTER:
            return _changed(inner(context, request), lambda _: CloseConnection(FAULT))
        if api in READING:
            code, version = fault.error, context.api_version
            return _changed(
                inner(context, request), lambda answer: _with_error(answer, api, version, code)
            )
        return _error_answer(api, context.api_version, request, fault.error)

    def _take(self, api: ApiKey, context: RequestContext, request: Message) -> Fault | None:
        for fault in self._rules:
            if fault.api is api and fault.matches(context, request):
                if fault.times is not None:
                    fault.times -= 1
                    if not fault.times:
                        self._rules.remove(fault)
                return fault
        return None


class FaultyApi(Api):
    """A row of the API table whose handler the rules stand before."""

    __slots__ = ("_rules",)

    def __init__(self, api: Api, rules: FaultRules) -> None:
        module = api.handler_module.rpartition(".")[2]
        super().__init__(
            api.key,
            api.min_version,
            api.max_version,
            module,
            in_cluster_only=api.in_cluster_only,
        )
        self._rules = rules

    def load(self) -> None:
        super().load()
        key, inner, rules = self.key, self.handle, self._rules

        def handle(context: RequestContext, request: Message, /) -> Later:
            return rules.handle(key, inner, context, request)

        self.handle = handle


async def _later(
    inner: Handler, context: RequestContext, request: Message, seconds: float
) -> Answer:
    await asyncio.sleep(seconds)
    answer = inner(context, request)
    if isinstance(answer, Pending | Coroutine):
        return await answer
    return answer


def _changed(answer: Later, change: Callable[[Answer], Answer]) -> Later:
    if isinstance(answer, Pending):
        return answer.map(change)
    if isinstance(answer, Coroutine):
        return _changed_later(answer, change)
    return change(answer)


async def _changed_later(
    answer: Coroutine[Any, Any, Answer], change: Callable[[Answer], Answer]
) -> Answer:
    return change(await answer)


# Messages as trees of named fields


def _fields(node: Struct) -> Iterator[tuple[str, Any]]:
    for name in node.field_names():
        yield name, getattr(node, name)


def _nodes(node: Struct) -> Iterator[Any]:
    """The node, and all structs below it."""
    yield node
    for _, value in _fields(node):
        rows = value if isinstance(value, list) else [value]
        for row in rows:
            if isinstance(row, Struct):
                yield from _nodes(row)


def topics_of(context: RequestContext, request: Message) -> set[str]:
    """The names of the topics that the request is about."""
    found: set[str] = set()
    by_id = None
    for node in _nodes(request):
        for name, value in _fields(node):
            if name in ("name", "topic", "topic_name") and isinstance(value, str):
                found.add(value)
            elif name == "topic_names" and isinstance(value, list):
                found.update(value)
            elif name == "topic_id" and any(value):
                if by_id is None:
                    images = context.broker.topics.topics
                    by_id = {image.topic_id: each for each, image in images.items()}
                found.add(by_id.get(value, ""))
    return found


def _detached(request: Message) -> Message:
    """Records lie in the buffer of the connection, which may be used again before they are read."""
    for node in _nodes(request):
        for name, value in _fields(node):
            if isinstance(value, memoryview):
                setattr(node, name, memoryview(bytes(value)))
    return request


# Errors


def must_have_a_place(api: ApiKey) -> None:
    if api not in READING and api not in ROWS and not _has_one_error(api):
        raise ValueError(f"an answer to {api.name} has no place for an error: use disconnect")


def _has_one_error(api: ApiKey) -> bool:
    return hasattr(response_class(api)(), "error_code")


def _with_error(answer: Answer, api: ApiKey, version: int, code: ErrorCode) -> Answer:
    if answer is None or isinstance(answer, CloseConnection):
        return answer
    if not isinstance(answer, Message):  # encoded already
        answer = response_class(api).decode(memoryview(answer.encode(version)), 0, version)
    rows = [node for node in _nodes(answer) if node is not answer]
    places = [(node, name) for node in rows for name in ERROR_FIELDS if hasattr(node, name)] or [
        (answer, "error_code")
    ]
    for node, name in places:
        setattr(node, name, int(code))
        if hasattr(node, "records"):
            node.records = None
    return answer


def _error_answer(api: ApiKey, version: int, request: Message, code: ErrorCode) -> Answer:
    if api in ROWS:
        return ROWS[api](request, int(code))
    answer = response_class(api)(error_code=int(code))  # type: ignore[call-arg]
    try:
        answer.encode(version)
    except EncodeError:
        return CloseConnection(f"{FAULT}, which an answer of version {version} has no place for")
    return answer


def _produce(request: Any, code: int) -> Answer:
    from tidelog.protocol.messages import produce

    if request.acks == 0:
        return CloseConnection(FAULT)  # as Kafka tells a producer that waits for no answer
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    produce.PartitionProduceResponse(
                        index=each.index, error_code=code, base_offset=-1
                    )
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _offset_commit(request: Any, code: int) -> Answer:
    from tidelog.protocol.messages import offset_commit as messages

    return messages.OffsetCommitResponse(
        topics=[
            messages.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    messages.OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _txn_offset_commit(request: Any, code: int) -> Answer:
    from tidelog.protocol.messages import txn_offset_commit as messages

    return messages.TxnOffsetCommitResponse(
        topics=[
            messages.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    messages.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _add_partitions_to_txn(request: Any, code: int) -> Answer:
    from tidelog.protocol.messages import add_partitions_to_txn as messages

    def rows(topics: Any) -> list[messages.AddPartitionsToTxnTopicResult]:
        return [
            messages.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    messages.AddPartitionsToTxnPartitionResult(
                        partition_index=each, partition_error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ]

    return messages.AddPartitionsToTxnResponse(
        results_by_transaction=[
            messages.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=rows(each.topics)
            )
            for each in request.transactions
        ],
        results_by_topic_v3_and_below=rows(request.v3_and_below_topics),
    )


def _create_topics(request: Any, code: int) -> Answer:
    from tidelog.protocol.messages import create_topics as messages

    return messages.CreateTopicsResponse(
        topics=[
            messages.CreatableTopicResult(name=topic.name, error_code=code, error_message=FAULT)
            for topic in request.topics
        ]
    )


def _delete_topics(request: Any, code: int) -> Answer:
    from tidelog.protocol.messages import delete_topics as messages

    named = [(topic.name, topic.topic_id) for topic in request.topics]
    rows = [
        messages.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code)
        for name, topic_id in named
    ]
    rows += [
        messages.DeletableTopicResult(name=name, error_code=code) for name in request.topic_names
    ]
    return messages.DeleteTopicsResponse(responses=rows)


def _create_partitions(request: Any, code: int) -> Answer:
    from tidelog.protocol.messages import create_partitions as messages

    return messages.CreatePartitionsResponse(
        results=[
            messages.CreatePartitionsTopicResult(
                name=topic.name, error_code=code, error_message=FAULT
            )
            for topic in request.topics
        ]
    )


def _delete_records(request: Any, code: int) -> Answer:
    from tidelog.protocol.messages import delete_records as messages

    return messages.DeleteRecordsResponse(
        topics=[
            messages.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    messages.DeleteRecordsPartitionResult(
                        partition_index=each.partition_index, low_watermark=-1, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


ROWS: Final[dict[ApiKey, Callable[[Any, int], Answer]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
}


def api_named(name: str) -> ApiKey:
    """By Kafka's name, in any case: Produce, OffsetCommit, offset_commit."""
    wanted = name.replace("_", "").lower()
    for key in ApiKey:
        if key.name.replace("_", "").lower() == wanted:
            return key
    from difflib import get_close_matches

    names = {key.name.replace("_", "").lower(): key.name.title().replace("_", "") for key in ApiKey}
    near = [names[each] for each in get_close_matches(wanted, names, 3)]
    hint = f": {', '.join(near)}?" if near else ""
    raise ValueError(f"Kafka has no API {name!r}{hint}")


def error_named(error: str | int | ErrorCode) -> ErrorCode:
    for code in ErrorCode:
        if error == code or (isinstance(error, str) and error.upper() == code.name):
            return code
    raise ValueError(f"Kafka has no error {error!r}")
