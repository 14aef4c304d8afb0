"""EndTxn v0-v5: commit or abort a transaction.

Behaviour
- Answered when the decision is in the log; see `coordinator.txn.coordinator` for what follows.
- A repeated request is answered like the first one. Before anything began: INVALID_TXN_STATE.
- v5 (transaction.version 2, KIP-890) takes an epoch with each end and answers the producer's id and
  epoch from now on (a new id where the epochs are used up). It may abort what never began.
- While markers are being written v5 is CONCURRENT_TRANSACTIONS whatever id and epoch it names; the
  client has its next ones by then.
Checks, in order: WRITE on the transactional id (53), which is not empty (42), coordinator (14, 16),
id known (49), from v5 on no markers being written (51), its producer id (49), epoch (90), before v5
no markers being written (51), state (48).
Versions: v2 PRODUCER_FENCED (before: INVALID_PRODUCER_EPOCH), v3 flexible, v4 TRANSACTION_ABORTABLE
(never needed), v5 epochs.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from tidelog.broker.authorized_operations import TRANSACTIONAL_ID, WRITE
from tidelog.broker.context import RequestContext
from tidelog.broker.transactions import (
    fenced_in_version,
    spare_producer_id,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_WITH_EPOCHS: Final = 5

Answer = EndTxnResponse | Pending[EndTxnResponse]


def handle(
    context: RequestContext, request: EndTxnRequest
) -> Answer | Coroutine[Any, Any, EndTxnResponse]:
    if not context.may(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return _failed(context, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    bumps_epoch = context.api_version >= FIRST_VERSION_WITH_EPOCHS
    try:
        if bumps_epoch and context.broker.transactions.needs_producer_id(request.transactional_id):
            return _end_with_producer_id(context, request)
    except KafkaError as error:
        return _failed(context, error.code)
    return _end(context, request, None)


async def _end_with_producer_id(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    try:
        spare = await spare_producer_id(context, request.transactional_id)
    except KafkaError as error:
        return _failed(context, error.code)
    answer = _end(context, request, spare)
    return await answer if isinstance(answer, Pending) else answer


def _end(context: RequestContext, request: EndTxnRequest, spare: int | None) -> Answer:
    bumps_epoch = context.api_version >= FIRST_VERSION_WITH_EPOCHS
    try:
        identity, written = context.broker.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            committed=request.committed,
            bumps_epoch=bumps_epoch,
            spare_producer_id=spare,
        )
    except KafkaError as error:
        return _failed(context, error.code)

    def answer(code: ErrorCode) -> EndTxnResponse:
        if code is not ErrorCode.NONE:
            return _failed(context, code)
        if not bumps_epoch:
            return EndTxnResponse()
        return EndTxnResponse(
            producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
        )

    return answer(ErrorCode.NONE) if written is None else written.map(answer)


def _failed(context: RequestContext, code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=fenced_in_version(code, context.api_version, FIRST_VERSION_WITH_FENCED)
    )
