"""Faults that a test asks for: requests answered with an error, late, or by a closed connection.

    fail         the answer is an error; the request has no effect
    delay        the request is handled later
    disconnect   the connection closes; the request has no effect
    drop_after   the request is handled, and the connection closes instead of the answer

A rule names an API and, if it is for some requests only, a topic, a client id, and how often it
holds. The first rule that matches a request decides.

Requests of APIs that only read are handled, and their answers changed; a Fetch whose answer has no
row fails as a whole.
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
from tidelog.protocol.message import Message
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.protocol.registry import response_class
from tidelog.testing.error_answers import (
    READING,
    error_answer,
    fields,
    has_place_for_error,
    nodes,
    with_error,
)

Later = Answer | Pending[Answer] | Coroutine[Any, Any, Answer]

FAULT: Final = "a fault of the test"


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
        if fault.effect is Effect.FAIL and not has_place_for_error(fault.api):
            raise ValueError(
                f"an answer to {fault.api.name} has no place for an error: use disconnect"
            )
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
                inner(context, request), lambda answer: _spoilt(answer, api, version, code)
            )
        return _failed(api, context.api_version, request, fault.error)

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


def topics_of(context: RequestContext, request: Message) -> set[str]:
    """The names of the topics that the request is about."""
    found: set[str] = set()
    by_id = None
    for node in nodes(request):
        for name, value in fields(node):
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
    for node in nodes(request):
        for name, value in fields(node):
            if isinstance(value, memoryview):
                setattr(node, name, memoryview(bytes(value)))
    return request


def _failed(api: ApiKey, version: int, request: Message, code: ErrorCode) -> Answer:
    if isinstance(request, ProduceRequest) and request.acks == 0:
        return CloseConnection(FAULT)  # as Kafka tells a producer that waits for no answer
    answer = error_answer(api, request, code, FAULT)
    try:
        answer.encode(version)
    except EncodeError:
        return CloseConnection(f"{FAULT}, which an answer of version {version} has no place for")
    return answer


def _spoilt(answer: Answer, api: ApiKey, version: int, code: ErrorCode) -> Answer:
    if answer is None or isinstance(answer, CloseConnection):
        return answer
    if not isinstance(answer, Message):  # encoded already
        answer = response_class(api).decode(memoryview(answer.encode(version)), 0, version)
    return with_error(answer, code)


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
