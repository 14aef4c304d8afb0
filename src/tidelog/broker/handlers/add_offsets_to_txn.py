"""AddOffsetsToTxn v0-v4: a transaction will commit offsets of a group.

Behaviour
- Adds the partition of __consumer_offsets that looks after the group to the transaction, so that
  it gets a marker. The topic is made if it is not there yet.
Checks, in order: WRITE on the transactional id (53), READ on the group (30), id not empty (42),
coordinator (14, 16), no end under way (51), id known and its producer id (49), epoch (90).
Versions: v2 PRODUCER_FENCED (before: INVALID_PRODUCER_EPOCH), v3 flexible, v4 TRANSACTION_ABORTABLE
(never needed).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from tidelog.broker.authorized_operations import GROUP, READ, TRANSACTIONAL_ID, WRITE
from tidelog.broker.context import RequestContext
from tidelog.broker.transactions import fenced_in_version
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tidelog.types import CONSUMER_OFFSETS

FIRST_VERSION_WITH_FENCED: Final = 2

Answer = AddOffsetsToTxnResponse | Pending[AddOffsetsToTxnResponse]


def handle(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> Answer | Coroutine[Any, Any, AddOffsetsToTxnResponse]:
    if not context.may(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(READ, GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if context.broker.metadata.topic(CONSUMER_OFFSETS) is None:
        return _create_then_add(context, request)
    return _add(context, request)


async def _create_then_add(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    try:
        await context.broker.topics.auto_create(CONSUMER_OFFSETS)
    except KafkaError:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = _add(context, request)
    return await answer if isinstance(answer, Pending) else answer


def _add(context: RequestContext, request: AddOffsetsToTxnRequest) -> Answer:
    def answer(code: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(
            error_code=fenced_in_version(code, context.api_version, FIRST_VERSION_WITH_FENCED)
        )

    broker = context.broker
    try:
        written = broker.transactions.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [broker.groups.offsets_partition(request.group_id)],
        )
    except KafkaError as error:
        return answer(error.code)
    return answer(ErrorCode.NONE) if written is None else written.map(answer)
