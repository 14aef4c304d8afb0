"""What the handlers of the transaction APIs share: error codes by version, and producer ids to
bring along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext


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
