"""What a check has to say: where, what is wrong, and what recovery makes of it.

Damage is what a sound directory does not have; it makes the exit code 1. A remark is worth knowing
and no damage: a broker that was killed, for one, leaves work for the next start.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """By what a repair has to do."""

    REMARK = "remark"
    LOG = "log"  # the log is read anew from its first batch, and cut where it is damaged
    EPOCHS = "epochs"  # the epoch file is written anew from the batches
    BATCH_EPOCH = "batch epoch"  # the batch is stamped with the epoch that the file has for it
    CHECKPOINT = "checkpoint"  # the row is written anew
    LEFTOVER = "leftover"  # the file or folder goes
    BY_HAND = "by hand"  # nobody but the owner can know


class Finding(NamedTuple):
    kind: Kind
    path: str
    problem: str
    recovery: str
    position: int | None = None
    offset: int | None = None
    epoch: int | None = None  # the right one, where a batch has a wrong one

    @property
    def is_damage(self) -> bool:
        return self.kind != Kind.REMARK

    def as_json(self) -> dict[str, object]:
        fields = {name: value for name, value in self._asdict().items() if value is not None}
        return {**fields, "kind": self.kind.value}


Report = Callable[[Finding], None]
