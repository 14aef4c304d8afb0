"""InitProducerId v0-v5: a producer id and epoch.

Behaviour
- Without a transactional id every call gets a new id with epoch 0, whatever id the client had;
  COORDINATOR_LOAD_IN_PROGRESS while no block of ids is to be had.
- With one: the id that belongs to it, with the next epoch, which fences producers of older ones. A
  transaction they left open is aborted first, which takes an epoch too; while its markers are being
  written the answer is CONCURRENT_TRANSACTIONS. Used-up epochs bring a new id.
- A producer that names its id and epoch (v3+, KIP-360) goes on after an error, unless a newer one
  has been here.
Checks, in order: WRITE on the transactional id (53); without one IDEMPOTENT_WRITE on the cluster,
or WRITE on some topic (31); id and epoch both or neither, transactional id not empty (42), timeout
within 1 and transaction.max.timeout.ms (50), coordinator (14, 16), no end under way (51), the named
id and epoch (90).
Versions: v2 flexible, v3 the client's present id and epoch, v4 PRODUCER_FENCED (before:
INVALID_PRODUCER_EPOCH), v5 TRANSACTION_ABORTABLE (never needed). v6, two-phase commit (KIP-939), is
not offered by Kafka 4.3 either.
Unlike Kafka: where the abort of the open transaction is done at once, so is this request; Kafka
makes the client ask again.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.authorized_operations import (
    IDEMPOTENT_WRITE,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from tidelog.broker.context import RequestContext
from tidelog.broker.transactions import fenced_in_version, spare_producer_id
from tidelog.coordinator.txn.beginning import ProducerIdentity
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

FIRST_VERSION_WITH_FENCED: Final = 4


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    denied = _denied(context, request.transactional_id)
    if denied is not None:
        return _failed(denied)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _failed(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            producer_id = await context.broker.producer_ids.next()
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        return await _transactional(context, request, request.transactional_id)
    except KafkaError as error:
        return _failed(
            fenced_in_version(error.code, context.api_version, FIRST_VERSION_WITH_FENCED)
        )


def _denied(context: RequestContext, transactional_id: str | None) -> ErrorCode | None:
    if transactional_id is not None:
        if context.may(WRITE, TRANSACTIONAL_ID, transactional_id):
            return None
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if context.may_on_cluster_quietly(IDEMPOTENT_WRITE) or context.may_on_any(WRITE, TOPIC):
        return None
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def _transactional(
    context: RequestContext, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    transactions = context.broker.transactions
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    transactions.require_timeout(request.transaction_timeout_ms)
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdentity(request.producer_id, request.producer_epoch)
    spare = await spare_producer_id(context, transactional_id)
    identity, written = transactions.init_producer_id(
        transactional_id, request.transaction_timeout_ms, expected, spare
    )
    code = ErrorCode.NONE if written is None else await written
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
    return InitProducerIdResponse(
        producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
