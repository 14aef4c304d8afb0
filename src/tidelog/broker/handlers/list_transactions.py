"""ListTransactions v0-v2: the transactional ids that this broker looks after.

Behaviour
- Filters by state, producer id, duration (v1: running longer than so many ms) and a pattern that
  the whole id matches (v2, see `coordinator.re2`). Empty filters let everything through;
  states that do not exist are named in the answer.
- Ids that the client may not DESCRIBE are left out.
Checks, in order: loading (14), pattern (128).
Versions: v1 duration, v2 pattern (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from tidelog.broker.authorized_operations import DESCRIBE, TRANSACTIONAL_ID
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import RequestContext
from tidelog.coordinator.re2 import InvalidPattern, Pattern
from tidelog.coordinator.txn.states import BY_NAME
from tidelog.coordinator.txn.transaction import Transaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

IDS_PER_STEP: Final = 200
STATES_PER_STEP: Final = 2000  # of a pattern


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
            for each in transactions[first : first + IDS_PER_STEP]:
                if (
                    keep.lets_through(each)
                    and context.may_quietly(DESCRIBE, TRANSACTIONAL_ID, each.transactional_id)
                    and (yield from keep.lets_through_id(each))
                ):
                    response.transaction_states.append(
                        TransactionState(
                            transactional_id=each.transactional_id,
                            producer_id=each.producer_id,
                            transaction_state=each.state.text,
                        )
                    )
            yield

    return answer_in_slices(context, list_all(), lambda: response)


class _Filter:
    def __init__(self, request: ListTransactionsRequest, now_ms: int) -> None:
        self._states = frozenset(request.state_filters)
        self._producer_ids = frozenset(request.producer_id_filters)
        self._duration_ms = request.duration_filter
        self._now_ms = now_ms
        self._pattern = None
        self._states_seen = 0
        if request.transactional_id_pattern:
            try:
                self._pattern = Pattern(request.transactional_id_pattern)
            except InvalidPattern as error:
                raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error

    def lets_through_id(self, transaction: Transaction) -> Generator[None, None, bool]:
        """Yields where others should have their turn: a pattern may be hard to match."""
        if self._pattern is None:
            return True
        matching = self._pattern.matching(transaction.transactional_id)
        while True:
            try:
                self._states_seen += next(matching)
            except StopIteration as end:
                return bool(end.value)
            if self._states_seen >= STATES_PER_STEP:
                self._states_seen = 0
                yield

    def lets_through(self, transaction: Transaction) -> bool:
        duration_ms = self._now_ms - transaction.start_timestamp_ms
        return (
            (not self._states or transaction.state.text in self._states)
            and (not self._producer_ids or transaction.producer_id in self._producer_ids)
            and (self._duration_ms < 0 or duration_ms > self._duration_ms)
        )
