"""Answers to which thousands of rows may belong, made without holding the loop.

A handler gives the steps that make its answer. If they fit into one slice of a turn of the loop,
the answer is there at once, as any other. If not, the loop serves others between slices, and a
thread encodes the answer: that takes as long as making it. The answer may be one that has to wait,
for a write to be committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tidelog.broker.context import RequestContext
from tidelog.pending import Pending
from tidelog.protocol.message import Message

MaybeLater = TypeVar("MaybeLater", bound=Message | Pending[Any])


class EncodedAnswer:
    __slots__ = ("_data",)

    def __init__(self, data: bytearray) -> None:
        self._data = data

    def encode(self, version: int) -> bytearray:
        return self._data


def answer_in_slices(
    context: RequestContext, steps: Iterator[object], answer: Callable[[], MaybeLater]
) -> MaybeLater | Pending[EncodedAnswer]:
    """The answer when all steps are done. A step that fails closes the connection."""
    made: Pending[None] | None = None
    is_done = False

    def work() -> Iterator[object]:
        nonlocal is_done
        try:
            yield from steps
        except BaseException as cause:
            if made is not None:
                made.fail(cause)
                return
            raise
        is_done = True
        if made is not None:
            made.complete(None)

    context.broker.work.start(work())
    if is_done:
        return answer()
    made = Pending()
    whole: Pending[Message] = made.and_then(lambda _: answer())
    return whole.and_then(lambda message: encode_apart(context, message))


def encode_apart(context: RequestContext, answer: Message) -> Pending[EncodedAnswer]:
    """In a thread; nobody may change the answer any more."""
    if context.charge is not None:
        context.charge.settle(answer)
    loop = asyncio.get_running_loop()
    encoding = loop.run_in_executor(None, answer.encode, context.api_version)
    return Pending.of_future(encoding).map(EncodedAnswer)
