"""What the handlers of the transaction APIs share: error codes by version, producer ids to bring
along, and answers that wait for a write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tidelog.errors import ErrorCode
from tidelog.pending import Pending

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext

T = TypeVar("T")


def fenced_in_version(code: ErrorCode, version: int, first_with_fenced: int) -> ErrorCode:
    """Old clients do not know PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


async def spare_producer_id(context: RequestContext, transactional_id: str) -> int | None:
    """A new producer id if this transactional id may need one. KafkaErrors pass."""
    if not context.broker.transactions.needs_producer_id(transactional_id):
        return None
    return await context.broker.producer_ids.next()


def when_written(
    written: Pending[ErrorCode] | None, answer: Callable[[ErrorCode], T]
) -> T | Pending[T]:
    """`answer` of the outcome: now, if there is nothing to wait for."""
    if written is None:
        return answer(ErrorCode.NONE)
    pending: Pending[T] = Pending()
    written.then(lambda code: pending.complete(answer(code)), pending.fail)
    return pending


async def settled(answer: Pending[T] | T) -> T:
    """For handlers that are coroutines."""
    if not isinstance(answer, Pending):
        return answer
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    answer.then(done.set_result, done.cancel)
    return await done
