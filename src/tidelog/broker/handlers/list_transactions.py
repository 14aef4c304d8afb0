"""ListTransactions v0-v1: the transactional ids that this broker looks after.

Behaviour
- Filters by state, producer id and duration (v1: running longer than so many ms). Empty filters
  let everything through; states that do not exist are named in the answer.
Checks, in order: loading (14).
Versions: v1 duration.
Not done: v2, a pattern for the ids. Python's `re` would let a client stop the broker, and the
linear matcher for subscriptions (`coordinator.group.consumer.patterns`) knows only the characters
of topic names; a transactional id may have any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import RequestContext
from tidelog.coordinator.txn.states import BY_NAME
from tidelog.coordinator.txn.transaction import Transaction
from tidelog.errors import KafkaError
from tidelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from tidelog.replication.pending import Pending

IDS_PER_STEP: Final = 200


def handle(
    context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | Pending[EncodedAnswer]:
    try:
        transactions = context.broker.transactions.list_transactions()
        keep = _Filter(request, context.broker.clock.time_ms())
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    response = ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in BY_NAME]
    )

    def list_all() -> Iterator[None]:
        for first in range(0, len(transactions), IDS_PER_STEP):
            response.transaction_states += [
                TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.text,
                )
                for each in transactions[first : first + IDS_PER_STEP]
                if keep.lets_through(each)
            ]
            yield

    return answer_in_slices(context, list_all(), lambda: response)


class _Filter:
    def __init__(self, request: ListTransactionsRequest, now_ms: int) -> None:
        self._states = frozenset(request.state_filters)
        self._producer_ids = frozenset(request.producer_id_filters)
        self._duration_ms = request.duration_filter
        self._now_ms = now_ms

    def lets_through(self, transaction: Transaction) -> bool:
        duration_ms = self._now_ms - transaction.start_timestamp_ms
        return (
            (not self._states or transaction.state.text in self._states)
            and (not self._producer_ids or transaction.producer_id in self._producer_ids)
            and (self._duration_ms < 0 or duration_ms > self._duration_ms)
        )
