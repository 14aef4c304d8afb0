"""`tidelog transactions list|describe|describe-producers|find-hanging|abort`: verbs, options and
columns of Kafka's own tool.

    list                 every transactional id, its coordinator and state
    describe             one id: since when, for how long, in which partitions
    describe-producers   who writes to a partition, and from where its open transaction begins
    find-hanging         open transactions that no coordinator will end
    abort                ends one in a partition, past its coordinator

Unlike Kafka's, `find-hanging` without --topic and --broker-id looks everywhere.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.clock import SystemClock
from tidelog.tools.cli.cluster_command import (
    add_bootstrap_server,
    add_bootstrap_server_of_verb,
    fail,
    table,
    with_cluster,
)

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.transactions import ActiveProducer
    from tidelog.types import TopicPartition

MINUTE_MS: Final = 60_000
NONE: Final = "None"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap_server(parser)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="list transactions")
    listing.add_argument(
        "--duration-filter", type=int, metavar="MS", help="only those that run for longer"
    )
    listing.add_argument(
        "--transactional-id-pattern",
        metavar="REGEX",
        help="only ids that match (brokers of Kafka 4.1 and later)",
    )
    describe = verbs.add_parser("describe", help="the state of a transactional id")
    describe.add_argument("--transactional-id", required=True, metavar="ID")
    producers = verbs.add_parser("describe-producers", help="who writes to a partition")
    _add_partition(producers, required=True)
    producers.add_argument("--broker-id", type=int, metavar="ID", help="instead of the leader")
    hanging = verbs.add_parser("find-hanging", help="transactions that nobody will end")
    _add_partition(hanging, required=False)
    hanging.add_argument("--broker-id", type=int, metavar="ID", help="look at this broker only")
    hanging.add_argument(
        "--max-transaction-timeout",
        type=int,
        default=15,
        metavar="MINUTES",
        help="silent for longer than this (default 15)",
    )
    abort = verbs.add_parser("abort", help="end a hanging transaction in a partition")
    _add_partition(abort, required=True)
    abort.add_argument("--start-offset", type=int, help="where the transaction begins")
    abort.add_argument("--producer-id", type=int, help="or these three, for brokers before 3.0")
    abort.add_argument("--producer-epoch", type=int)
    abort.add_argument("--coordinator-epoch", type=int)
    for verb in (listing, describe, producers, hanging, abort):
        add_bootstrap_server_of_verb(verb)


def _add_partition(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--topic", required=required)
    parser.add_argument("--partition", type=int, required=required)


def run(arguments: argparse.Namespace) -> int:
    verbs = {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "find-hanging": _find_hanging,
        "abort": _abort,
    }
    verb = verbs[arguments.verb]
    return with_cluster(arguments, lambda cluster: verb(cluster, arguments))


def _list(cluster: Cluster, arguments: argparse.Namespace) -> int:
    from tidelog.client.transactions import NO_DURATION, list_transactions

    duration_ms = arguments.duration_filter
    rows = list_transactions(
        cluster,
        duration_ms=NO_DURATION if duration_ms is None else duration_ms,
        pattern=arguments.transactional_id_pattern,
    )
    print(table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows))
    return 0


def _describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    from tidelog.client.transactions import NO_TIMESTAMP, describe_transaction

    found = describe_transaction(cluster, arguments.transactional_id)
    began, lasted = NONE, NONE
    if found.start_time_ms != NO_TIMESTAMP:
        began = str(found.start_time_ms)
        lasted = str(SystemClock().time_ms() - found.start_time_ms)
    headers = (
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    )
    row = (
        found.coordinator_id,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        began,
        lasted,
        ",".join(map(str, sorted(found.partitions))),
    )
    print(table(headers, [row]))
    return 0


def _describe_producers(cluster: Cluster, arguments: argparse.Namespace) -> int:
    headers = (
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    )
    rows = [
        (*producer[:5], _start_offset(producer))
        for producer in _producers_of(cluster, _partition(arguments), arguments.broker_id)
    ]
    print(table(headers, rows))
    return 0


def _find_hanging(cluster: Cluster, arguments: argparse.Namespace) -> int:
    from tidelog.tools.hanging_transactions import find_hanging, partitions_of

    if arguments.partition is not None and arguments.topic is None:
        return fail("--partition needs --topic")
    broker_id = arguments.broker_id
    places = partitions_of(cluster, arguments.topic, arguments.partition, broker_id)
    now_ms = SystemClock().time_ms()
    found = find_hanging(
        cluster,
        places,
        broker_id=broker_id,
        older_than_ms=arguments.max_transaction_timeout * MINUTE_MS,
        now_ms=now_ms,
    )
    headers = (
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
        "StartOffset",
        "LastTimestamp",
        "Duration(min)",
    )
    rows = [
        (
            *each.partition,
            *each.producer[:3],
            each.producer.txn_start_offset,
            each.producer.last_timestamp,
            (now_ms - each.producer.last_timestamp) // MINUTE_MS,
        )
        for each in found
    ]
    print(table(headers, rows))
    return 0


def _abort(cluster: Cluster, arguments: argparse.Namespace) -> int:
    from tidelog.client.transactions import abort_transaction

    partition = _partition(arguments)
    if arguments.start_offset is not None:
        open_here = {
            producer.txn_start_offset: producer for producer in _producers_of(cluster, partition)
        }
        producer = open_here.get(arguments.start_offset)
        if producer is None:
            return fail(
                f"partition {partition} has no open transaction that begins at offset "
                f"{arguments.start_offset}"
            )
        named = producer[:3]
    else:
        named = (
            arguments.producer_id,
            arguments.producer_epoch,
            arguments.coordinator_epoch,
        )
        if None in named:
            return fail(
                "name the transaction by --start-offset (brokers from 3.0), or by --producer-id, "
                "--producer-epoch and --coordinator-epoch"
            )
    producer_id, producer_epoch, coordinator_epoch = named
    abort_transaction(
        cluster,
        partition,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
    )
    return 0


def _producers_of(
    cluster: Cluster, partition: TopicPartition, broker_id: int | None = None
) -> list[ActiveProducer]:
    from tidelog.client.transactions import describe_producers

    return describe_producers(cluster, [partition], broker_id)[partition]


def _start_offset(producer: ActiveProducer) -> str:
    from tidelog.client.transactions import NO_OFFSET

    return NONE if producer.txn_start_offset == NO_OFFSET else str(producer.txn_start_offset)


def _partition(arguments: argparse.Namespace) -> TopicPartition:
    from tidelog.types import TopicPartition

    return TopicPartition(arguments.topic, arguments.partition)
