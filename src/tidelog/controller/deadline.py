"""How long an admin request waits for its change: `timeout_ms`, after which it is told so.

The change goes on; only the answer comes early. A timeout of 0 or less starts the change and
answers at once, as KIP-4 has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidelog.errors import ErrorCode, KafkaError

T = TypeVar("T")


async def within(timeout_ms: int, change: Coroutine[Any, Any, T]) -> T:
    task = asyncio.get_running_loop().create_task(change)
    await asyncio.wait([task], timeout=max(timeout_ms, 0) / 1000)
    if task.done():
        return task.result()
    task.add_done_callback(_mark_seen)
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def _mark_seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
