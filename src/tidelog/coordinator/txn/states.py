"""The states of a transactional id, and which may follow which.

    EMPTY            a producer has its id and epoch, and no transaction
    ONGOING          a transaction with at least one partition; EndTxn, a newer producer or the
                     timeout ends it
    PREPARE_COMMIT   decided: it will be committed, whatever happens. Markers are being written;
    PREPARE_ABORT    other requests wait (CONCURRENT_TRANSACTIONS). A restart goes on from here
    COMPLETE_COMMIT  every marker is in its log; the next transaction may begin
    COMPLETE_ABORT   the same
    DEAD             forgotten; never in the log, where a tombstone says it

The numbers are those in the log, the names those that clients are told. Kafka has one more,
PrepareEpochFence, which is never written; here an abort with a newer epoch is one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def text(self) -> str:
        return _NAMES[self]


_NAMES: Final[Mapping[TransactionState, str]] = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
    TransactionState.DEAD: "Dead",
}

BY_NAME: Final[Mapping[str, TransactionState]] = {
    **{name: state for state, name in _NAMES.items()},
    "PrepareEpochFence": TransactionState.DEAD,  # a name that Kafka knows, and nobody is in
}

COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
# At rest: no transaction is under way or being decided.
SETTLED: Final = COMPLETE | {TransactionState.EMPTY}
PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

ALLOWED_FROM: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: SETTLED,
    TransactionState.ONGOING: SETTLED | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    # From rest: a client of transaction.version 2 that aborts does not know if anything began.
    TransactionState.PREPARE_ABORT: SETTLED | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: SETTLED,
}
