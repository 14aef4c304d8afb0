"""InitProducerId v0-v5: a producer id for an idempotent producer.

Behaviour
- Without a transactional id every call gets a new id with epoch 0, whatever id the client had.
- An empty transactional id, and an id without an epoch or the other way round, are
  INVALID_REQUEST.
Versions: v2 flexible, v3 the client's present id and epoch (KIP-360), v4-v5 error codes.
Not done: transactional ids. They need the transaction coordinator; until it is there they are
answered with UNSUPPORTED_VERSION, which clients report instead of retrying.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        if request.transactional_id == "":
            return _failed(ErrorCode.INVALID_REQUEST)
        return _failed(ErrorCode.UNSUPPORTED_VERSION)
    producer_id = await context.broker.producer_ids.next()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
