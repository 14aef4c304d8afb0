"""Answers to which thousands of rows may belong, made without holding the loop.

A handler gives the steps that make its answer. If they fit into one slice of a turn of the loop,
the answer is there at once, as any other. If not, the loop serves others between slices, and a
thread encodes the answer: that takes as long as making it. The answer may be one that has to wait,
for a write to be committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
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
    pending: Pending[EncodedAnswer] | None = None
    is_done = False

    def work() -> Iterator[object]:
        nonlocal is_done
        is_good = False
        try:
            yield from steps
            is_done = True
            if pending is not None:
                _complete_later(pending, answer(), context.api_version)
            is_good = True
        finally:
            if not is_good and pending is not None:
                pending.fail()

    context.broker.work.start(work())
    if is_done:
        return answer()
    pending = Pending()
    return pending


async def encode_apart(answer: Message, version: int) -> EncodedAnswer:
    """In a thread; nobody may change the answer any more."""
    loop = asyncio.get_running_loop()
    return EncodedAnswer(await loop.run_in_executor(None, answer.encode, version))


def _complete_later(
    pending: Pending[EncodedAnswer], answer: Message | Pending[Any], version: int
) -> None:
    if isinstance(answer, Pending):
        answer.then(partial(_complete_apart, pending, version), pending.fail)
    else:
        _complete_apart(pending, version, answer)


def _complete_apart(pending: Pending[EncodedAnswer], version: int, answer: Message) -> None:
    def finished(encoding: asyncio.Task[EncodedAnswer]) -> None:
        try:
            pending.complete(encoding.result())
        except BaseException:
            pending.fail()
            raise

    asyncio.get_running_loop().create_task(encode_apart(answer, version)).add_done_callback(
        finished
    )
