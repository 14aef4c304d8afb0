from __future__ import annotations

import pytest

from tidelog.coordinator.txn.ending import End, decide_end
from tidelog.coordinator.txn.states import ALLOWED_FROM, TransactionState
from tidelog.coordinator.txn.transaction import BUMPS_EPOCH, EPOCH_MAX, Transaction
from tidelog.errors import ErrorCode, KafkaError

S = TransactionState
REFUSED, LATER = ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS


def transaction(state: S, *, epoch: int = 3, version: int = 0, producer_id: int = 9) -> Transaction:
    return Transaction("x", producer_id, epoch, 60_000, state, client_transaction_version=version)


def decided(present: Transaction, epoch: int, producer_id: int = 9, **how: bool) -> object:
    try:
        return decide_end(present, producer_id, epoch, **how)
    except KafkaError as error:
        return error.code


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (S.EMPTY, REFUSED, REFUSED),
        (S.ONGOING, End.PREPARE, End.PREPARE),
        (S.PREPARE_COMMIT, LATER, LATER),
        (S.PREPARE_ABORT, LATER, LATER),
        (S.COMPLETE_COMMIT, End.DONE, REFUSED),
        (S.COMPLETE_ABORT, REFUSED, End.DONE),
    ],
)
def test_client_that_keeps_its_epoch(state: S, commit: object, abort: object) -> None:
    present = transaction(state)
    assert decided(present, 3, committed=True, bumps_epoch=False) == commit
    assert decided(present, 3, committed=False, bumps_epoch=False) == abort
    for epoch in (2, 4):
        for committed in (True, False):
            code = decided(present, epoch, committed=committed, bumps_epoch=False)
            assert code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (S.EMPTY, REFUSED, End.PREPARE),
        (S.ONGOING, End.PREPARE, End.PREPARE),
        (S.COMPLETE_COMMIT, REFUSED, End.PREPARE),
        (S.COMPLETE_ABORT, REFUSED, End.PREPARE),
    ],
)
def test_next_end_of_a_client_whose_epoch_grows(state: S, commit: object, abort: object) -> None:
    present = transaction(state, version=BUMPS_EPOCH)
    assert decided(present, 3, committed=True, bumps_epoch=True) == commit
    assert decided(present, 3, committed=False, bumps_epoch=True) == abort


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (S.COMPLETE_COMMIT, End.DONE, REFUSED),
        (S.COMPLETE_ABORT, REFUSED, End.DONE),
    ],
)
def test_repeated_end_of_a_client_whose_epoch_grows(
    state: S, commit: object, abort: object
) -> None:
    present = transaction(state, version=BUMPS_EPOCH)
    assert decided(present, 2, committed=True, bumps_epoch=True) == commit
    assert decided(present, 2, committed=False, bumps_epoch=True) == abort
    assert decided(present, 1, committed=True, bumps_epoch=True) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize("committed", [True, False])
def test_client_whose_epoch_grows_waits_for_the_markers_whatever_it_names(
    state: S, committed: bool
) -> None:
    """Its EndTxn is answered before: it may have the next epoch, or the next producer id."""
    present = transaction(state, version=BUMPS_EPOCH)._replace(next_producer_id=10)
    for producer_id, epoch in ((9, 2), (9, 3), (10, 0)):
        code = decided(present, epoch, producer_id, committed=committed, bumps_epoch=True)
        assert code is LATER


@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING])
def test_late_repetition_does_not_end_the_next_transaction(state: S) -> None:
    """Kafka keeps the version of the client in the record of an open transaction."""
    present = transaction(state, version=BUMPS_EPOCH)
    for committed in (True, False):
        code = decided(present, 2, committed=committed, bumps_epoch=True)
        assert code is ErrorCode.PRODUCER_FENCED


def test_epoch_of_a_client_that_keeps_it_is_the_present_one_after_a_timeout() -> None:
    aborted = transaction(S.ONGOING, epoch=2).timed_out(1).completed(1)
    assert decided(aborted, 2, committed=False, bumps_epoch=False) is ErrorCode.PRODUCER_FENCED
    assert decided(aborted, 2, committed=False, bumps_epoch=True) is End.DONE
    assert decided(aborted, 2, committed=True, bumps_epoch=True) is REFUSED


def test_repeated_end_that_used_up_the_epochs_is_known_by_the_old_producer_id() -> None:
    present = transaction(S.COMPLETE_COMMIT, epoch=0, version=BUMPS_EPOCH, producer_id=10)
    present = present._replace(previous_producer_id=9)
    assert decided(present, EPOCH_MAX - 1, committed=True, bumps_epoch=True) is End.DONE
    code = decided(present, 5, committed=True, bumps_epoch=True)
    assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_other_producer_id_is_refused() -> None:
    code = decided(transaction(S.ONGOING), 3, 8, committed=True, bumps_epoch=False)
    assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_decision_never_turns_into_the_other_one() -> None:
    assert ALLOWED_FROM[S.COMPLETE_ABORT] == {S.PREPARE_ABORT}
    assert ALLOWED_FROM[S.COMPLETE_COMMIT] == {S.PREPARE_COMMIT}
    assert S.PREPARE_COMMIT not in ALLOWED_FROM[S.PREPARE_ABORT]
    with pytest.raises(AssertionError):
        transaction(S.PREPARE_COMMIT).prepared(committed=False, now_ms=1)
