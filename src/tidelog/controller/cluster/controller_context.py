"""What the controller knows of the cluster: brokers, topics, partitions and what becomes of them.

A context is a picture of the store. Decisions are made on a `draft` of it and take effect, here
and at the brokers, only after the store has taken their writes; `take_over` then makes the draft
the picture. A controller that loses its place throws its context away: the next one makes its own
out of the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Final, NamedTuple, TypeVar

from tidelog.config.listeners import Endpoint
from tidelog.controller import znodes
from tidelog.controller.cluster.leader_and_isr import EPOCH_DURING_DELETE, LeaderAndIsr
from tidelog.controller.cluster.partition_state_machine import PartitionState
from tidelog.controller.cluster.replica_state_machine import ReplicaState
from tidelog.types import NO_LEADER_EPOCH, ZERO_UUID, TopicPartition, Uuid

UNCLEAN_ELECTION = "unclean.leader.election.enable"
MIN_INSYNC_REPLICAS = "min.insync.replicas"
Texts = Mapping[str, str]
K = TypeVar("K")
V = TypeVar("V")
# A broker that announces it moves the high watermark only while the in-sync set has at least
# min.insync.replicas members (KIP-966).
STRICT_MIN_ISR_FEATURE: Final = "eligible.leader.replicas.version"


class ReplicaAssignment(NamedTuple):
    """Which brokers hold a partition's replicas, and which of them come and go.

    While replicas are being changed, `replicas` lists the wanted ones first, in the wanted order,
    and behind them those to be removed. Origin and target can both be told from it, so that one
    node in the store says all that a new controller needs to go on.
    """

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


class TopicSettings(NamedTuple):
    """The two settings of a topic that elections turn on, out of the layers Kafka keeps them in.

    A topic's own override comes first, then the dynamic value of a broker, that of all brokers, and
    the static one. A value that does not parse (another Kafka would have refused it) is passed
    over.

    Whether an election may be unclean is up to the controller, so it is its broker that counts.
    min.insync.replicas is what the leader goes by: where the topic says nothing, its broker's.
    """

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


class DraftMapping(MutableMapping[K, V]):
    """A mapping with changes that are not made yet.

    Reads fall through to the base; writes and deletions stay here until `fold`.
    """

    __slots__ = ("_base", "_changed", "_deleted")

    def __init__(self, base: MutableMapping[K, V]) -> None:
        self._base = base
        self._changed: dict[K, V] = {}
        self._deleted: set[K] = set()

    def __getitem__(self, key: K) -> V:
        if key in self._changed:
            return self._changed[key]
        if key in self._deleted:
            raise KeyError(key)
        return self._base[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._changed[key] = value
        self._deleted.discard(key)

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._changed.pop(key, None)
        if key in self._base:
            self._deleted.add(key)

    def __contains__(self, key: object) -> bool:
        return key in self._changed or (key in self._base and key not in self._deleted)

    def __iter__(self) -> Iterator[K]:
        for key in self._base:
            if key not in self._deleted:
                yield key
        for key in self._changed:
            if key not in self._base:
                yield key

    def __len__(self) -> int:
        added = sum(key not in self._base for key in self._changed)
        return len(self._base) - len(self._deleted) + added

    def fold(self) -> None:
        """Makes the changes in the base."""
        for key in self._deleted:
            del self._base[key]
        self._base.update(self._changed)
        self._changed.clear()
        self._deleted.clear()


class BrokerRegistration(NamedTuple):
    """A broker as it registered: another epoch is another life of the broker."""

    epoch: int  # the zxid that made its node
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    keeps_strict_min_isr: bool = False
    clean_shutdown: bool = False  # whether its life before ended cleanly
    min_insync_replicas: int | None = None  # its static one, if it has announced it

    @classmethod
    def decode(cls, data: bytes, epoch: int) -> BrokerRegistration:
        broker = znodes.decode_broker(data)
        return cls(
            epoch,
            broker.endpoints,
            broker.rack,
            broker.features.get(STRICT_MIN_ISR_FEATURE, 0) >= 1,
            broker.clean_shutdown,
            broker.min_insync_replicas,
        )

    def endpoint(self, listener_name: str) -> Endpoint:
        named = (e for e in self.endpoints if e.listener_name == listener_name)
        return next(named, self.endpoints[0])


class TopicNode(NamedTuple):
    topic_id: Uuid
    version: int  # of the topic's node
    partitions: tuple[int, ...]


class Replica(NamedTuple):
    partition: TopicPartition
    broker_id: int


class ControllerContext:
    """Touched only by the event that the controller is at."""

    MAPPINGS: Final = (
        "brokers",
        "topics",
        "topic_names",
        "assignments",
        "leadership",
        "partition_states",
        "replica_states",
        "offline_dirs",
        "topic_settings",
    )
    SETS: Final = (
        "shutting_down",
        "reassigning",
        "topics_to_delete",
        "deletion_started",
        "deletion_ineligible",
    )

    def __init__(
        self, epoch: int, default_settings: TopicSettings, *, deletion_enabled: bool = True
    ) -> None:
        self.epoch = epoch
        self.default_settings = default_settings
        # min.insync.replicas in the dynamic configuration of brokers, and of all of them.
        self.dynamic_min_isr: Mapping[str, int] = {}
        self.deletion_enabled = deletion_enabled
        self.brokers: MutableMapping[int, BrokerRegistration] = {}
        self.topics: MutableMapping[str, TopicNode] = {}
        self.topic_names: MutableMapping[Uuid, str] = {}
        self.assignments: MutableMapping[TopicPartition, ReplicaAssignment] = {}
        self.leadership: MutableMapping[TopicPartition, LeaderAndIsr] = {}
        self.partition_states: MutableMapping[TopicPartition, PartitionState] = {}
        self.replica_states: MutableMapping[Replica, ReplicaState] = {}
        # Partitions whose replica on that broker lies in a log directory that has failed.
        self.offline_dirs: MutableMapping[int, frozenset[TopicPartition]] = {}
        self.topic_settings: MutableMapping[str, TopicSettings] = {}
        self.shutting_down: set[int] = set()  # of the brokers
        self.reassigning: set[TopicPartition] = set()
        self.topics_to_delete: set[str] = set()
        self.deletion_started: set[str] = set()  # of those to delete
        self.deletion_ineligible: set[str] = set()  # of those to delete: not before something else

    def draft(self) -> ControllerContext:
        made = ControllerContext(
            self.epoch, self.default_settings, deletion_enabled=self.deletion_enabled
        )
        made.dynamic_min_isr = self.dynamic_min_isr
        for name in self.MAPPINGS:
            setattr(made, name, DraftMapping(getattr(self, name)))
        for name in self.SETS:
            setattr(made, name, set(getattr(self, name)))
        return made

    def take_over(self, draft: ControllerContext) -> None:
        for name in self.MAPPINGS:
            getattr(draft, name).fold()
        for name in self.SETS:
            setattr(self, name, getattr(draft, name))

    # Brokers

    def is_live(self, broker_id: int) -> bool:
        return broker_id in self.brokers and broker_id not in self.shutting_down

    def live_brokers(self) -> list[int]:
        return [broker_id for broker_id in self.brokers if broker_id not in self.shutting_down]

    def is_online(
        self, broker_id: int, partition: TopicPartition, *, or_shutting_down: bool = False
    ) -> bool:
        """Whether the broker's replica of the partition can serve."""
        there = broker_id in self.brokers if or_shutting_down else self.is_live(broker_id)
        return there and partition not in self.offline_dirs.get(broker_id, ())

    def forget_offline_dir(self, broker_id: int, partition: TopicPartition) -> None:
        """The replica is gone: a later one on the same broker lies in another directory."""
        before = self.offline_dirs.get(broker_id, frozenset())
        if partition in before:
            self.offline_dirs[broker_id] = before - {partition}

    # Topics

    def put_topic(
        self,
        name: str,
        topic_id: Uuid,
        version: int,
        assignments: Mapping[int, ReplicaAssignment],
    ) -> None:
        self.topics[name] = TopicNode(topic_id, version, tuple(sorted(assignments)))
        self.topic_names[topic_id] = name
        for partition, assignment in assignments.items():
            topic_partition = TopicPartition(name, partition)
            self.assignments[topic_partition] = assignment
            if assignment.is_being_reassigned:
                self.reassigning.add(topic_partition)

    def remove_topic(self, name: str) -> None:
        for partition in self.partitions_of(name):
            for broker_id in self.replicas_of(partition):
                self.replica_states.pop(Replica(partition, broker_id), None)
                self.forget_offline_dir(broker_id, partition)
            self.assignments.pop(partition, None)
            self.leadership.pop(partition, None)
            self.partition_states.pop(partition, None)
            self.reassigning.discard(partition)
        node = self.topics.pop(name, None)
        if node is not None:
            self.topic_names.pop(node.topic_id, None)
        self.topic_settings.pop(name, None)
        for names in (self.topics_to_delete, self.deletion_started, self.deletion_ineligible):
            names.discard(name)

    def settings_of(self, topic: str) -> TopicSettings:
        return self.topic_settings.get(topic, self.default_settings)

    def stored_min_isr(self, topic: str, leader_id: int) -> int | None:
        """The min.insync.replicas that the store has for a topic under this leader."""
        of_topic = self.settings_of(topic).min_insync_replicas
        if of_topic is not None:
            return of_topic
        of_all = self.dynamic_min_isr.get(znodes.DEFAULT_ENTITY)
        return self.dynamic_min_isr.get(str(leader_id), of_all)

    def topic_id(self, topic: str) -> Uuid:
        node = self.topics.get(topic)
        return ZERO_UUID if node is None else node.topic_id

    def is_to_be_deleted(self, topic: str) -> bool:
        return topic in self.topics_to_delete

    # Partitions and replicas

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        node = self.topics.get(topic)
        return [] if node is None else [TopicPartition(topic, p) for p in node.partitions]

    def partitions_in(self, states: Collection[PartitionState]) -> list[TopicPartition]:
        return [tp for tp, state in self.partition_states.items() if state in states]

    def partition_state(self, partition: TopicPartition) -> PartitionState:
        return self.partition_states.get(partition, PartitionState.NON_EXISTENT)

    def replica_state(self, replica: Replica) -> ReplicaState:
        return self.replica_states.get(replica, ReplicaState.NON_EXISTENT)

    def replicas_of(self, partition: TopicPartition) -> tuple[int, ...]:
        assignment = self.assignments.get(partition)
        return () if assignment is None else assignment.replicas

    def replicas_on(self, broker_ids: Collection[int]) -> list[Replica]:
        return [
            Replica(partition, broker_id)
            for partition, assignment in self.assignments.items()
            for broker_id in assignment.replicas
            if broker_id in broker_ids
        ]

    def replicas_of_topic(self, topic: str) -> list[Replica]:
        return list(self.replicas_of_all(self.partitions_of(topic)))

    def replicas_of_all(self, partitions: Iterable[TopicPartition]) -> Iterator[Replica]:
        for partition in partitions:
            for broker_id in self.replicas_of(partition):
                yield Replica(partition, broker_id)

    def online_replicas(self, partition: TopicPartition) -> list[int]:
        return [b for b in self.replicas_of(partition) if self.is_online(b, partition)]

    def partitions_without_live_leader(self) -> list[TopicPartition]:
        return [
            partition
            for partition, state in self.leadership.items()
            if not self.is_online(state.leader, partition)
            and not self.is_to_be_deleted(partition.topic)
        ]

    def partitions_led_by(self, broker_id: int) -> list[TopicPartition]:
        """Those with more than one replica, for the others have nowhere to go."""
        return [
            partition
            for partition, state in self.leadership.items()
            if state.leader == broker_id
            and not self.is_to_be_deleted(partition.topic)
            and len(self.replicas_of(partition)) > 1
        ]

    def leader_epoch_to_stop(self, partition: TopicPartition) -> int:
        """What StopReplica says: a topic that is being deleted overrules every epoch."""
        if self.is_to_be_deleted(partition.topic):
            return EPOCH_DURING_DELETE
        state = self.leadership.get(partition)
        return NO_LEADER_EPOCH if state is None else state.leader_epoch
