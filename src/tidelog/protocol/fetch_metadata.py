"""Ids and epochs of incremental fetch sessions (KIP-227), for both ends of a Fetch.

A full Fetch carries INITIAL_EPOCH, and the answer the id of the session that it opens, or
NO_SESSION. Later requests of the session carry 1, 2, ... and after EPOCH_MAX 1 again. FINAL_EPOCH
closes a session and wants no other.
"""

from __future__ import annotations

from typing import Final

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1
SESSION_ID_MAX: Final = 2**31 - 1
FIRST_FETCH_WITH_TOPIC_IDS: Final = 13


def next_epoch(epoch: int) -> int:
    return 1 if epoch == EPOCH_MAX else epoch + 1
