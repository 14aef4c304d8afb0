"""Who leads a partition, since which epoch, and who is in sync: what a state node holds.

`leader_epoch` grows by one with each decision of the controller; `partition_epoch` is the version
of the state node and grows with every write, the leader's own changes of the in-sync set among
them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.controller import znodes
from tidelog.types import NO_LEADER

logger = logging.getLogger(__name__)

RECOVERED: Final = 0
RECOVERING: Final = 1  # elected uncleanly, and not yet done with what this means for the log

# What brokers are told of partitions whose topic is being deleted.
LEADER_DURING_DELETE: Final = -2
EPOCH_DURING_DELETE: Final = -2


class LeaderAndIsr(NamedTuple):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovery: int = RECOVERED
    elr: tuple[int, ...] = ()  # outside the in-sync set, and yet holding all that is committed
    last_known_elr: tuple[int, ...] = ()  # led last, and may have lost records since
    partition_epoch: int = 0
    controller_epoch: int = 0

    @classmethod
    def decode(cls, data: bytes, version: int) -> LeaderAndIsr:
        """A state that makes no sense has nobody in sync: only an unclean election helps."""
        try:
            state = znodes.decode_state(data)
        except (ValueError, KeyError, TypeError) as error:
            logger.error("a partition's state makes no sense: %r", data, exc_info=error)
            return cls(NO_LEADER, 0, (), partition_epoch=version)
        return cls(
            state.leader,
            state.leader_epoch,
            tuple(state.isr),
            state.leader_recovery_state,
            tuple(state.elr),
            tuple(state.last_known_elr),
            version,
            state.controller_epoch,
        )

    def encode(self) -> bytes:
        return znodes.encode_state(
            self.leader,
            self.leader_epoch,
            self.controller_epoch,
            self.isr,
            leader_recovery_state=self.recovery,
            elr=self.elr,
            last_known_elr=self.last_known_elr,
        )

    def next_epoch(
        self, leader: int | None = None, isr: Sequence[int] | None = None
    ) -> LeaderAndIsr:
        return self._replace(
            leader=self.leader if leader is None else leader,
            isr=self.isr if isr is None else tuple(isr),
            leader_epoch=self.leader_epoch + 1,
        )
