from __future__ import annotations

import pytest

from tidelog.coordinator.txn.beginning import (
    Begin,
    ProducerIdentity,
    begun,
    decide_begin,
    new_transaction,
)
from tidelog.coordinator.txn.states import TransactionState
from tidelog.coordinator.txn.transaction import EPOCH_MAX, Transaction
from tidelog.errors import ErrorCode, KafkaError

S = TransactionState
NOW = 1_000


def transaction(state: S = S.EMPTY, *, epoch: int = 3) -> Transaction:
    return Transaction("x", 9, epoch, 60_000, state)


def decided(present: Transaction, *expected: int) -> object:
    try:
        return decide_begin(present, ProducerIdentity(*expected) if expected else None)
    except KafkaError as error:
        return error.code


def test_new_id_gets_epoch_0() -> None:
    present = new_transaction("x", 9, 60_000)
    assert decided(present) is Begin.NEXT_EPOCH
    assert begun(present, None, 60_000, 9, NOW).producer_epoch == 0


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_newer_producer_gets_the_next_epoch(state: S) -> None:
    present = transaction(state)
    assert decided(present) is Begin.NEXT_EPOCH
    after = begun(present, None, 5_000, None, NOW)
    assert (after.producer_id, after.producer_epoch, after.timeout_ms) == (9, 4, 5_000)
    assert decided(after, 9, 3) is ErrorCode.PRODUCER_FENCED


def test_open_transaction_is_fenced_first() -> None:
    assert decided(transaction(S.ONGOING)) is Begin.FENCE
    assert decided(transaction(S.ONGOING), 9, 3) is Begin.FENCE


def test_producer_out_of_date_does_not_touch_the_transaction_of_a_newer_one() -> None:
    assert decided(transaction(S.ONGOING), 9, 2) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_an_end_under_way_is_waited_for(state: S) -> None:
    """Before the producer is looked at: it may have the id that takes over after the markers."""
    present = transaction(state)._replace(next_producer_id=10)
    assert decided(present) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert decided(present, 10, 0) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_producer_that_goes_on_may_repeat_its_request() -> None:
    present = transaction()
    expected = ProducerIdentity(9, 3)
    assert decided(present, *expected) is Begin.NEXT_EPOCH
    after = begun(present, expected, 60_000, None, NOW)
    assert decided(after, *expected) is Begin.DONE
    assert after.producer_epoch == 4


def test_producer_with_another_id_is_fenced() -> None:
    assert decided(transaction(), 8, 3) is ErrorCode.PRODUCER_FENCED


def test_used_up_epochs_bring_a_new_producer_id() -> None:
    present = transaction(epoch=EPOCH_MAX - 1)
    expected = ProducerIdentity(9, EPOCH_MAX - 1)
    after = begun(present, expected, 60_000, 77, NOW)
    assert (after.producer_id, after.producer_epoch) == (77, 0)
    assert decided(after, *expected) is Begin.DONE
    with pytest.raises(KafkaError) as refused:
        begun(present, expected, 60_000, None, NOW)
    assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
