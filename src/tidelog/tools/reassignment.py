"""Moves of replicas: the file that describes them, plans, throttles, and how far they are.

The file is Kafka's, version 1:

    {"version": 1, "partitions": [
        {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]}

A throttle is a rate of the brokers that take part, and for each topic the lists of replicas it
holds for: those that are read from (leaders) and those that are filled (followers).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.brokers import TopicPartitionReplica
    from tidelog.client.admin.partitions import PartitionReassignment
    from tidelog.client.blocking.admin import Admin

ANY_LOG_DIR: Final = "any"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LOG_DIRS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

Assignment = dict[TopicPartition, list[int]]


class BadReassignment(ValueError):
    """A file or a wish that cannot be carried out; the message says why."""


class WantedMoves(NamedTuple):
    """Replicas by partition, and directories of single replicas."""

    replicas: Assignment
    log_dirs: dict[TopicPartitionReplica, str]


# The file


def format_moves(replicas: Mapping[TopicPartition, Sequence[int]]) -> str:
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": list(replicas[each]),
            "log_dirs": [ANY_LOG_DIR] * len(replicas[each]),
        }
        for each in sorted(replicas)
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def parse_moves(text: str) -> WantedMoves:
    """Raises BadReassignment, with Kafka's words where it has them."""
    from tidelog.client.admin.brokers import TopicPartitionReplica

    rows = _rows(_object(text), "partitions")
    wanted = WantedMoves({}, {})
    for row in rows:
        partition, replicas, log_dirs = _row(row)
        if partition in wanted.replicas:
            raise BadReassignment(
                f"Partition reassignment contains duplicate topic partitions: {partition}"
            )
        doubled = [broker for broker, count in Counter(replicas).items() if count > 1]
        if doubled:
            raise BadReassignment(
                "Partition replica lists may not contain duplicate entries: "
                f"{partition} contains multiple entries for {','.join(map(str, doubled))}"
            )
        wanted.replicas[partition] = replicas
        for broker_id, path in zip(replicas, log_dirs, strict=True):
            if path != ANY_LOG_DIR:
                wanted.log_dirs[TopicPartitionReplica(*partition, broker_id)] = path
    if not wanted.replicas:
        raise BadReassignment("Partition reassignment list cannot be empty")
    return wanted


def _object(text: str) -> dict[str, object]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadReassignment(f"The file is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadReassignment('The file is no JSON object such as {"version": 1, "partitions": []}')
    if data.get("version", 1) != 1:
        raise BadReassignment(f"Not supported version field value {data['version']}")
    return data


def _rows(data: Mapping[str, object], name: str) -> list[object]:
    rows = data.get(name, [])
    if not isinstance(rows, list):
        raise BadReassignment(f"{name} is no list")
    return rows


def _row(row: object) -> tuple[TopicPartition, list[int], list[str]]:
    found = row if isinstance(row, dict) else {}
    topic, index, replicas = (found.get(name) for name in ("topic", "partition", "replicas"))
    if not (isinstance(topic, str) and isinstance(index, int) and _is_list_of(replicas, int)):
        raise BadReassignment(
            f"A partition has a topic, a partition and replicas, not {json.dumps(row)[:200]}"
        )
    assert isinstance(replicas, list)
    if not replicas:
        raise BadReassignment("Partition replica list cannot be empty")
    partition = TopicPartition(topic, index)
    log_dirs = found.get("log_dirs", [ANY_LOG_DIR] * len(replicas))
    if not _is_list_of(log_dirs, str) or len(log_dirs) != len(replicas):
        raise BadReassignment(
            f"Size of replicas list {replicas} is different from size of log dirs list "
            f"{log_dirs} for partition {partition}"
        )
    return partition, replicas, log_dirs


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, kind) and not isinstance(each, bool) for each in value
    )


def parse_topics(text: str) -> list[str]:
    """Of `{"topics": [{"topic": "foo"}], "version": 1}`."""
    names = []
    for row in _rows(_object(text), "topics"):
        name = row.get("topic") if isinstance(row, dict) else None
        if not isinstance(name, str):
            raise BadReassignment(f"A topic has a name, not {json.dumps(row)[:200]}")
        names.append(name)
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise BadReassignment(
            f"List of topics to reassign contains duplicate entries: {', '.join(doubled)}"
        )
    return names


# Plans


def plan_moves(
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Mapping[int, str | None],
    factor: int | None = None,
) -> Assignment:
    """Replicas on these brokers (with their racks), evenly, moving as few as can be.

    Replicas that are on one of the brokers stay where they can. A partition's replicas are on
    different racks while there are racks without one. First replicas, which are the preferred
    leaders, are spread evenly too.
    """
    if not brokers:
        raise BadReassignment("no broker is left to move to")
    planned: Assignment = {}
    load = Counter(dict.fromkeys(brokers, 0))
    for partition in sorted(current):
        wanted = factor if factor is not None else len(current[partition])
        if wanted > len(brokers):
            raise BadReassignment(
                f"{partition} is to have {wanted} replicas, but there are {len(brokers)} brokers"
            )
        planned[partition] = _kept(current[partition], brokers, wanted)
        load.update(planned[partition])
    for partition in sorted(current):
        wanted = factor if factor is not None else len(current[partition])
        replicas = planned[partition]
        while len(replicas) < wanted:
            replicas.append(_best(replicas, brokers, load))
            load[replicas[-1]] += 1
    _even_out(planned, brokers, load)
    _even_out_leaders(planned, brokers)
    return planned


def _kept(replicas: Sequence[int], brokers: Mapping[int, str | None], wanted: int) -> list[int]:
    """Those that may stay: on one of the brokers, and on a rack of their own while there are
    enough racks.
    """
    rack_count = len(set(brokers.values()))
    kept: list[int] = []
    for each in replicas:
        racks = {brokers[other] for other in kept}
        has_free_rack = len(racks) < rack_count
        if each in brokers and not (has_free_rack and _is_taken(brokers[each], racks)):
            kept.append(each)
    return kept[:wanted]


def _best(replicas: Sequence[int], brokers: Mapping[int, str | None], load: Counter[int]) -> int:
    """The broker with the least to do, on a rack without a replica if there is one."""
    racks = {brokers[each] for each in replicas if each in brokers}
    free = [each for each in brokers if each not in replicas]
    return min(free, key=lambda each: (_is_taken(brokers[each], racks), load[each], each))


def _is_taken(rack: str | None, racks: set[str | None]) -> bool:
    return rack is not None and rack in racks


def _even_out(planned: Assignment, brokers: Mapping[int, str | None], load: Counter[int]) -> None:
    """Moves one replica at a time from the fullest broker to the emptiest."""
    for _ in range(sum(map(len, planned.values()))):
        fullest, emptiest = max(brokers, key=lambda b: load[b]), min(brokers, key=lambda b: load[b])
        if load[fullest] - load[emptiest] <= 1:
            return
        for partition in sorted(planned):
            replicas = planned[partition]
            others = {brokers[each] for each in replicas if each != fullest}
            if (
                fullest in replicas
                and emptiest not in replicas
                and not _is_taken(brokers[emptiest], others)
            ):
                replicas[replicas.index(fullest)] = emptiest
                load[fullest] -= 1
                load[emptiest] += 1
                break
        else:
            return


def _even_out_leaders(planned: Assignment, brokers: Iterable[int]) -> None:
    leads = Counter(dict.fromkeys(brokers, 0))
    leads.update(replicas[0] for replicas in planned.values())
    for _ in planned:
        for partition in sorted(planned):
            replicas = planned[partition]
            least = min(replicas, key=lambda each: leads[each])
            if leads[replicas[0]] - leads[least] > 1:
                leads[replicas[0]] -= 1
                leads[least] += 1
                replicas.remove(least)
                replicas.insert(0, least)
                break
        else:
            return


# Throttles


class Throttles(NamedTuple):
    """Lists of `partition:broker` by topic, and the brokers that take part."""

    leaders: dict[str, str]
    followers: dict[str, str]
    brokers: list[int]


def throttles_for(
    under_way: Mapping[TopicPartition, PartitionReassignment],
    wanted: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> Throttles:
    """As Kafka's tool works them out, those of moves that are under way included."""
    moves: dict[TopicPartition, tuple[set[int], set[int]]] = {
        each: (set(move.replicas) - set(move.adding_replicas), set(move.adding_replicas))
        for each, move in under_way.items()
    }
    for each, replicas in wanted.items():
        sources = moves[each][0] if each in moves else set(current[each])
        moves[each] = (sources, set(replicas) - sources)
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    brokers: set[int] = set()
    for (topic, index), (sources, targets) in moves.items():
        leaders.setdefault(topic, set()).update(f"{index}:{each}" for each in sources)
        followers.setdefault(topic, set()).update(f"{index}:{each}" for each in targets)
        brokers |= sources | targets
    return Throttles(
        {topic: ",".join(sorted(each)) for topic, each in leaders.items()},
        {topic: ",".join(sorted(each)) for topic, each in followers.items()},
        sorted(brokers),
    )


def set_throttles(admin: Admin, throttles: Throttles, rate_bytes: int) -> None:
    topics = {
        topic: {
            LEADER_REPLICAS: throttles.leaders[topic],
            FOLLOWER_REPLICAS: throttles.followers[topic],
        }
        for topic in throttles.leaders
    }
    rate = str(rate_bytes)
    brokers = {each: {LEADER_RATE: rate, FOLLOWER_RATE: rate} for each in throttles.brokers}
    _alter(admin, topics, brokers)


def set_log_dirs_throttle(admin: Admin, brokers: Iterable[int], rate_bytes: int) -> None:
    _alter(admin, {}, {each: {LOG_DIRS_RATE: str(rate_bytes)} for each in brokers})


def clear_throttles(admin: Admin, topics: Iterable[str], brokers: Iterable[int]) -> None:
    _alter(
        admin,
        {topic: {LEADER_REPLICAS: None, FOLLOWER_REPLICAS: None} for topic in topics},
        {each: {LEADER_RATE: None, FOLLOWER_RATE: None, LOG_DIRS_RATE: None} for each in brokers},
    )


def _alter(
    admin: Admin,
    topics: Mapping[str, Mapping[str, str | None]],
    brokers: Mapping[int, Mapping[str, str | None]],
) -> None:
    from tidelog.client.admin.configs import (
        AlterConfig,
        AlterOp,
        ConfigResource,
        ConfigResourceType,
    )

    named = [
        *((ConfigResource(ConfigResourceType.TOPIC, name), row) for name, row in topics.items()),
        *((ConfigResource(ConfigResourceType.BROKER, str(b)), row) for b, row in brokers.items()),
    ]
    changes = {
        resource: [
            AlterConfig(key, value, AlterOp.DELETE if value is None else AlterOp.SET)
            for key, value in row.items()
        ]
        for resource, row in named
    }
    for result in admin.incremental_alter_configs(changes).values():
        result.get()


# Where things are


def current_replicas(admin: Admin, topics: Iterable[str]) -> Assignment:
    """Raises UnknownTopic."""
    found: Assignment = {}
    for result in admin.describe_topics(list(dict.fromkeys(topics))).values():
        topic = result.get()
        for row in topic.partitions:
            found[TopicPartition(topic.name, row.partition)] = list(row.replicas)
    return found


def replicas_of(admin: Admin, partitions: Iterable[TopicPartition]) -> Assignment:
    wanted = list(partitions)
    there = current_replicas(admin, [each.topic for each in wanted])
    missing = [each for each in wanted if each not in there]
    if missing:
        raise BadReassignment(f"Unable to find partition: {', '.join(map(str, missing))}")
    return {each: there[each] for each in wanted}


def require_brokers(admin: Admin, assignment: Assignment) -> None:
    known = {node.id for node in admin.describe_cluster().nodes}
    for replicas in assignment.values():
        for broker_id in replicas:
            if broker_id not in known:
                raise BadReassignment(f"Unknown broker id {broker_id}")


class PartitionState(NamedTuple):
    """How far one move is. `is_done` says that no move is under way, wanted or not."""

    is_done: bool
    current: list[int]
    target: list[int]


def states_of(
    admin: Admin, wanted: Assignment
) -> tuple[dict[TopicPartition, PartitionState], bool]:
    """By partition; and whether any move is under way in the cluster."""
    from tidelog.errors import ErrorCode

    under_way = admin.list_partition_reassignments()
    topics = admin.describe_topics({each.topic for each in wanted})
    states = {}
    for partition, target in sorted(wanted.items()):
        if partition in under_way:
            replicas = list(under_way[partition].replicas)
            states[partition] = PartitionState(False, replicas, target)
            continue
        result = topics[partition.topic]
        if result.error is not None and (
            result.error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ):
            raise result.error
        rows = {} if result.error else {row.partition: row for row in result.get().partitions}
        row = rows.get(partition.partition)
        states[partition] = PartitionState(True, list(row.replicas) if row else [], target)
    return states, bool(under_way)


class DirState(NamedTuple):
    """Where a replica is, and where it is on its way to."""

    current: str | None
    future: str | None


def dir_states(
    admin: Admin, replicas: Iterable[TopicPartitionReplica]
) -> dict[TopicPartitionReplica, DirState]:
    wanted = list(replicas)
    brokers = {each.broker_id for each in wanted}
    described = {
        broker_id: result.get() for broker_id, result in admin.describe_log_dirs(brokers).items()
    }
    states = {}
    for replica in wanted:
        place = TopicPartition(replica.topic, replica.partition)
        current = future = None
        for path, directory in described[replica.broker_id].items():
            found = directory.replicas.get(place)
            if found is not None and found.is_future:
                future = path
            elif found is not None:
                current = path
        states[replica] = DirState(current, future)
    return states
