"""Which brokers hold a partition's replicas, and which of them come and go.

While replicas are being changed, `replicas` lists the wanted ones first, in the wanted order, and
behind them those to be removed. Origin and target can both be told from it, so that one node in
the store says all that a new controller needs to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ReplicaAssignment(NamedTuple):
    replicas: tuple[int, ...]  # the first is the preferred leader
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        return _without(self.replicas, self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        return _without(self.replicas, self.removing)

    def reassigned_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """Supersedes a change that is under way: what it was adding is no origin."""
        origin = self.origin
        everyone = tuple(dict.fromkeys((*target, *origin)))
        return ReplicaAssignment(everyone, _without(everyone, origin), _without(everyone, target))

    def without(self, replica: int) -> ReplicaAssignment:
        gone = (replica,)
        return ReplicaAssignment(
            _without(self.replicas, gone),
            _without(self.adding, gone),
            _without(self.removing, gone),
        )


def _without(replicas: Sequence[int], gone: Sequence[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in gone)
