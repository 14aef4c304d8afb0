"""The two settings of a topic that elections turn on, out of the layers Kafka keeps them in.

A topic's own override comes first, then the dynamic value of a broker, that of all brokers, and the
static one. A value that does not parse (another Kafka would have refused it) is passed over.

Whether an election may be unclean is up to the controller, so it is its broker that counts.
min.insync.replicas is what the leader goes by: where the topic says nothing, its broker's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

UNCLEAN_ELECTION = "unclean.leader.election.enable"
MIN_INSYNC_REPLICAS = "min.insync.replicas"

Texts = Mapping[str, str]


class TopicSettings(NamedTuple):
    unclean_leader_election: bool = False
    min_insync_replicas: int | None = None  # None: as the leader's broker has it

    def overridden(self, *layers: Texts) -> TopicSettings:
        """By layers of configuration, the first that says something counting."""
        unclean = _first(layers, UNCLEAN_ELECTION)
        minimum = min_insync_replicas_in(*layers)
        return TopicSettings(
            {"true": True, "false": False}.get(unclean.lower(), self.unclean_leader_election),
            self.min_insync_replicas if minimum is None else minimum,
        )


def min_insync_replicas_in(*layers: Texts) -> int | None:
    text = _first(layers, MIN_INSYNC_REPLICAS)
    return int(text) if text.isdecimal() else None


def _first(layers: Sequence[Texts], key: str) -> str:
    return next((layer[key].strip() for layer in layers if key in layer), "")
