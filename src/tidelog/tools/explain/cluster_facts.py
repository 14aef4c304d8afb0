"""What the brokers say now, over the Kafka protocol; it works against Apache Kafka too.

A call that fails takes away what it would have told, and becomes a sentence in `unknown`. Only what
nothing can be said without raises: metadata of the topic, the description of the group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.client.admin.configs import ConfigResource, ConfigResourceType
from tidelog.client.admin.transactions import NO_TIMESTAMP, NO_TXN_OFFSET
from tidelog.client.errors import BrokerRefused, ClientError
from tidelog.errors import ErrorCode
from tidelog.protocol.listed_timestamps import EARLIEST, LATEST
from tidelog.tools.explain.event_sources import SETTING, listener_url
from tidelog.tools.explain.fetched_batch import PartitionReading
from tidelog.tools.explain.group import GroupFacts, Member, Progress
from tidelog.tools.explain.partition import OpenTransaction, PartitionFacts
from tidelog.tools.explain.record import RecordFacts
from tidelog.tools.explain.transaction import TransactionFacts
from tidelog.types import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.transactions import ActiveProducer
    from tidelog.client.blocking.admin import Admin

T = TypeVar("T")

TOPIC_KEYS: Final = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
)
SETTINGS_TIMEOUT_S: Final = 2.0
THREADS: Final = 8
HOLDERS_MAX: Final = 100  # open transactions that are described


def asked(unknown: list[str], what: str, ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except ClientError as problem:
        unknown.append(f"{what}: {str(problem).rstrip('.')}")
        return None


def event_urls(admin: Admin) -> tuple[list[str], list[str]]:
    """Where the brokers that run tell their events, and why some do not."""
    unknown: list[str] = []
    urls = []
    nodes = admin.describe_cluster().nodes
    silent = []

    def setting_of(node_id: int) -> str | ClientError:
        resource = ConfigResource(ConfigResourceType.BROKER, str(node_id))
        wanted = {resource: [SETTING]}
        try:
            found = admin.describe_configs(wanted, timeout=SETTINGS_TIMEOUT_S)[resource].get()
        except ClientError as problem:
            return problem
        return (found[SETTING].value or "") if SETTING in found else ""

    with ThreadPoolExecutor(THREADS) as threads:  # one that hangs holds up no other
        settings = list(threads.map(setting_of, [node.id for node in nodes]))
    for node, setting in zip(nodes, settings, strict=True):
        if isinstance(setting, ClientError):
            unknown.append(f"the past of broker {node.id}: {setting}")
            continue
        url = listener_url(setting, node.host)
        if url is not None:
            urls.append(url)
        else:
            silent.append(node.id)
    if silent:
        unknown.append(
            f"the past of brokers {', '.join(map(str, sorted(silent)))}: they serve no events at a "
            f"known port ({SETTING}; Apache Kafka has none). --events and --log name other sources"
        )
    return urls, unknown


# Partitions


def partition_facts(admin: Admin, partition: TopicPartition) -> PartitionFacts:
    """Raises ClientError if there is no such partition."""
    topic = admin.describe_topics([partition.topic])[partition.topic].get()
    rows = {row.partition: row for row in topic.partitions}
    if partition.partition not in rows:
        raise ClientError(f"topic {partition.topic} has {len(rows)} partitions, from 0 on")
    row = rows[partition.partition]
    live = frozenset(node.id for node in admin.describe_cluster().nodes)
    facts = PartitionFacts(
        partition,
        row.replicas,
        row.leader_id,
        row.leader_epoch,
        row.isr,
        live - frozenset(row.offline_replicas),
        row.eligible_leader_replicas or (),
    )
    resource = ConfigResource(ConfigResourceType.TOPIC, partition.topic)
    entries = asked(
        facts.unknown,
        "settings of the topic",
        lambda: admin.describe_configs({resource: TOPIC_KEYS})[resource].get(),
    )
    if entries is not None:
        facts.configs = {e.name: e.value for e in entries.values() if e.value is not None}
        needed = facts.configs.get("min.insync.replicas", "")
        facts.min_insync_replicas = int(needed) if needed.isdecimal() else None
        facts.unclean_election = facts.configs.get("unclean.leader.election.enable") == "true"
    if row.leader_id != NO_LEADER and row.leader_id in live:
        add_offsets(admin, facts)
    return facts


def add_offsets(admin: Admin, facts: PartitionFacts) -> None:
    place, unknown = facts.partition, facts.unknown

    def offset(which: int, level: str) -> int:
        return admin.list_offsets({place: which}, isolation_level=level)[place].get().offset

    facts.log_start_offset = asked(
        unknown, "log start offset", lambda: offset(EARLIEST, "read_uncommitted")
    )
    facts.last_stable_offset = asked(
        unknown, "last stable offset", lambda: offset(LATEST, "read_committed")
    )
    facts.high_watermark = asked(
        unknown, "high watermark", lambda: offset(LATEST, "read_uncommitted")
    )
    reading = PartitionReading(admin.config, admin.admin.cluster)
    facts.log_end_offset = asked(
        unknown,
        "log end offset",
        lambda: admin.thread.run(lambda: reading.log_end_offset(place, facts.leader_epoch)),
    )
    stable, high = facts.last_stable_offset, facts.high_watermark
    if stable is not None and high is not None and stable < high:
        producers = asked(
            unknown,
            "producers",
            lambda: admin.describe_producers([place])[place].get(),
        )
        facts.open_transactions = tuple(holders_of(admin, place, producers or (), unknown))


def holders_of(
    admin: Admin,
    partition: TopicPartition,
    producers: Iterable[ActiveProducer],
    unknown: list[str],
) -> Iterable[OpenTransaction]:
    """Producers with a transaction open in the partition, with what their coordinators say."""
    opened = [each for each in producers if each.txn_start_offset != NO_TXN_OFFSET]
    opened = sorted(opened, key=lambda each: each.txn_start_offset)[:HOLDERS_MAX]
    ids = [each.producer_id for each in opened]
    listings = asked(unknown, "transactions", lambda: admin.list_transactions(producer_ids=ids))
    names = {each.producer_id: each.transactional_id for each in listings or ()}
    described = asked(
        unknown,
        "descriptions of transactions",
        lambda: admin.describe_transactions(names.values()) if names else {},
    )
    for each in opened:
        name = names.get(each.producer_id)
        holder = OpenTransaction(
            each.producer_id,
            each.producer_epoch,
            each.txn_start_offset,
            each.last_timestamp,
            name,
        )
        result = (described or {}).get(name) if name is not None else None
        if result is not None and result.error is None:
            found = result.get()
            is_open = found.start_time_ms != NO_TIMESTAMP and partition in found.partitions
            holder = holder._replace(
                state=found.state,
                started_ms=found.start_time_ms if is_open else None,
                timeout_ms=found.timeout_ms if is_open else None,
            )
        yield holder


def record_facts(admin: Admin, partition: TopicPartition, offset: int) -> RecordFacts:
    facts = RecordFacts(partition_facts(admin, partition), offset)
    start, high = facts.partition.log_start_offset, facts.partition.high_watermark
    if start is None or high is None or not start <= offset < high:
        return facts
    reading = PartitionReading(admin.config, admin.admin.cluster)
    found = asked(
        facts.partition.unknown,
        "the record",
        lambda: admin.thread.run(lambda: reading.batch_at(partition, offset)),
    )
    if found is not None:
        for name, value in found._asdict().items():
            setattr(facts, name, value)
    return facts


# Transactions


def transaction_facts(admin: Admin, transactional_id: str) -> TransactionFacts:
    result = admin.describe_transactions([transactional_id])[transactional_id]
    if isinstance(result.error, BrokerRefused) and (
        result.error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    ):
        return TransactionFacts(transactional_id, is_known=False)
    found = result.get()
    facts = TransactionFacts(
        transactional_id,
        True,
        found.coordinator_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        None if found.start_time_ms == NO_TIMESTAMP else found.start_time_ms,
        tuple(sorted(found.partitions)),
    )
    if found.partitions:
        results = asked(
            facts.unknown, "producers", lambda: admin.describe_producers(found.partitions)
        )
        leaderless = []
        for partition, answer in (results or {}).items():
            if answer.error is not None:
                leaderless.append(partition)
                continue
            for each in answer.get():
                if each.producer_id == found.producer_id and (
                    each.txn_start_offset != NO_TXN_OFFSET
                ):
                    facts.start_offsets[partition] = each.txn_start_offset
        facts.leaderless = tuple(sorted(leaderless))
    return facts


# Groups


def group_facts(
    admin: Admin,
    group_id: str,
    interval_ms: int,
    sleep: Callable[[float], object] = time.sleep,
) -> GroupFacts:
    """Looks twice, `interval_ms` apart, if the group lags."""
    result = admin.describe_groups([group_id])[group_id]
    if isinstance(result.error, BrokerRefused) and (
        result.error.code is ErrorCode.GROUP_ID_NOT_FOUND
    ):
        return GroupFacts(group_id, None)
    found = result.get()
    if found.state == "Dead":
        return GroupFacts(group_id, None)
    members = tuple(
        Member(each.member_id, each.client_id, each.host, each.assignment) for each in found.members
    )
    facts = GroupFacts(group_id, found.state, found.type, found.coordinator.id, members)
    facts.progress = progress_of(admin, facts)
    if interval_ms and members and any((each.lag or 0) > 0 for each in facts.progress.values()):
        before = facts.progress
        sleep(interval_ms / 1_000)
        facts.interval_ms = interval_ms
        facts.progress = {
            partition: each._replace(
                committed_before=before[partition].committed if partition in before else None
            )
            for partition, each in progress_of(admin, facts).items()
        }
    return facts


def progress_of(admin: Admin, facts: GroupFacts) -> dict[TopicPartition, Progress]:
    offsets = asked(
        facts.unknown, "committed offsets", lambda: admin.list_group_offsets(facts.group_id)
    )
    committed = offsets or {}
    assigned = {tp for member in facts.members for tp in member.assignment}
    wanted = sorted({*committed, *assigned})
    found: dict[TopicPartition, Progress] = {}
    bounds: dict[int, dict[TopicPartition, int]] = {EARLIEST: {}, LATEST: {}}
    for which, known in bounds.items():
        asking = partial(admin.list_offsets, dict.fromkeys(wanted, which))
        results = asked(facts.unknown, "offsets", asking) or {}
        for partition, result in results.items():
            if result.error is None:
                known[partition] = result.get().offset
            elif which == LATEST:
                facts.unknown.append(f"the end of {partition}: {result.error}")
    for partition in wanted:
        row = committed.get(partition)
        found[partition] = Progress(
            None if row is None else row.offset,
            bounds[EARLIEST].get(partition),
            bounds[LATEST].get(partition),
        )
    return found
