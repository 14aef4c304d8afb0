"""`tidelog txn list|describe|describe-producers|find-hanging|abort`: verbs, options and columns of
Kafka's own tool. `transactions` is another name for `txn`.

    list                 every transactional id, its coordinator and state
    describe             one id: since when, for how long, in which partitions
    describe-producers   who writes to a partition, and from where its open transaction begins
    find-hanging         open transactions that no coordinator will end
    abort                ends one in a partition, past its coordinator

Unlike Kafka's, `find-hanging` without --topic and --broker-id looks everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tidelog.clock import SystemClock
from tidelog.tools.cli.cluster_command import with_cluster
from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.frame import CommandFailed, together
from tidelog.tools.cli.output import Column, say, show_rows
from tidelog.tools.cli.session import ClusterGroup, Session, pass_session
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.transactions import ActiveProducer

MINUTE_MS: Final = 60_000


@click.group("txn", cls=ClusterGroup)
def command() -> None:
    """List, describe and abort transactions, find those that hang."""


partition_options = together(
    click.option("--topic", required=True, metavar="NAME", shell_complete=complete_topics),
    click.option("--partition", type=int, required=True, metavar="N"),
)


def _heads(**headers: str) -> list[Column]:
    """Columns by their fields; Kafka's headers are in camel case here."""
    return [Column(header, field) for field, header in headers.items()]


LISTED: Final = _heads(
    transactional_id="TransactionalId",
    coordinator="Coordinator",
    producer_id="ProducerId",
    state="TransactionState",
)
DESCRIBED: Final = _heads(
    coordinator_id="CoordinatorId",
    transactional_id="TransactionalId",
    producer_id="ProducerId",
    producer_epoch="ProducerEpoch",
    state="TransactionState",
    timeout_ms="TransactionTimeoutMs",
    start_time_ms="CurrentTransactionStartTimeMs",
    duration_ms="TransactionDurationMs",
    partitions="TopicPartitions",
)
PRODUCERS: Final = _heads(
    producer_id="ProducerId",
    producer_epoch="ProducerEpoch",
    coordinator_epoch="LatestCoordinatorEpoch",
    last_sequence="LastSequence",
    last_timestamp="LastTimestamp",
    start_offset="CurrentTransactionStartOffset",
)
HANGING: Final = _heads(
    topic="Topic",
    partition="Partition",
    producer_id="ProducerId",
    producer_epoch="ProducerEpoch",
    coordinator_epoch="CoordinatorEpoch",
    start_offset="StartOffset",
    last_timestamp="LastTimestamp",
    duration_minutes="Duration(min)",
)


@command.command("list")
@click.option("--duration-filter", type=int, metavar="MS", help="Only those that run for longer.")
@click.option(
    "--transactional-id-pattern",
    metavar="REGEX",
    help="Only ids that match (brokers of Kafka 4.1 and later).",
)
@pass_session
def list_command(
    session: Session, duration_filter: int | None, transactional_id_pattern: str | None
) -> int:
    """List transactional ids."""

    def do(cluster: Cluster) -> int:
        from tidelog.client.transactions import NO_DURATION, list_transactions

        found = list_transactions(
            cluster,
            duration_ms=NO_DURATION if duration_filter is None else duration_filter,
            pattern=transactional_id_pattern,
        )
        fields = [column.field for column in LISTED]
        rows = [dict(zip(fields, each, strict=True)) for each in found]
        show_rows(session.output_format, rows, LISTED)
        return 0

    return with_cluster(session, do)


@command.command("describe")
@click.option("--transactional-id", required=True, metavar="ID")
@pass_session
def describe(session: Session, transactional_id: str) -> int:
    """Show the state of a transactional id."""

    def do(cluster: Cluster) -> int:
        from tidelog.client.transactions import NO_TIMESTAMP, describe_transaction

        found = describe_transaction(cluster, transactional_id)
        runs = found.start_time_ms != NO_TIMESTAMP
        row = {
            "coordinator_id": found.coordinator_id,
            "transactional_id": found.transactional_id,
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "state": found.state,
            "timeout_ms": found.timeout_ms,
            "start_time_ms": found.start_time_ms if runs else None,
            "duration_ms": SystemClock().time_ms() - found.start_time_ms if runs else None,
            "partitions": [str(each) for each in sorted(found.partitions)],
        }
        show_rows(session.output_format, [row], DESCRIBED)
        return 0

    return with_cluster(session, do)


@command.command("describe-producers")
@partition_options
@click.option("--broker-id", type=int, metavar="ID", help="Instead of the leader.")
@pass_session
def describe_producers(session: Session, topic: str, partition: int, broker_id: int | None) -> int:
    """Show who writes to a partition."""

    def do(cluster: Cluster) -> int:
        from tidelog.client.transactions import NO_OFFSET

        rows = []
        for producer in _producers_of(cluster, TopicPartition(topic, partition), broker_id):
            start = producer.txn_start_offset
            values = (*producer[:5], None if start == NO_OFFSET else start)
            fields = [column.field for column in PRODUCERS]
            rows.append(dict(zip(fields, values, strict=True)))
        show_rows(session.output_format, rows, PRODUCERS)
        return 0

    return with_cluster(session, do)


@command.command("find-hanging")
@click.option("--topic", metavar="NAME", shell_complete=complete_topics)
@click.option("--partition", type=int, metavar="N")
@click.option("--broker-id", type=int, metavar="ID", help="Look at this broker only.")
@click.option(
    "--max-transaction-timeout",
    type=int,
    default=15,
    metavar="MINUTES",
    show_default=True,
    help="Silent for longer than this.",
)
@pass_session
def find_hanging_command(
    session: Session,
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    max_transaction_timeout: int,
) -> int:
    """Find transactions that nobody will end."""
    if partition is not None and topic is None:
        raise CommandFailed("--partition needs --topic")

    def do(cluster: Cluster) -> int:
        from tidelog.tools.hanging_transactions import find_hanging, partitions_of

        now_ms = SystemClock().time_ms()
        found = find_hanging(
            cluster,
            partitions_of(cluster, topic, partition, broker_id),
            broker_id=broker_id,
            older_than_ms=max_transaction_timeout * MINUTE_MS,
            now_ms=now_ms,
        )
        rows = [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "producer_id": each.producer.producer_id,
                "producer_epoch": each.producer.producer_epoch,
                "coordinator_epoch": each.producer.coordinator_epoch,
                "start_offset": each.producer.txn_start_offset,
                "last_timestamp": each.producer.last_timestamp,
                "duration_minutes": (now_ms - each.producer.last_timestamp) // MINUTE_MS,
            }
            for each in found
        ]
        show_rows(session.output_format, rows, HANGING)
        return 0

    return with_cluster(session, do)


@command.command("abort")
@partition_options
@click.option("--start-offset", type=int, metavar="N", help="Where the transaction begins.")
@click.option(
    "--producer-id", type=int, metavar="N", help="Or these three, for brokers before 3.0."
)
@click.option("--producer-epoch", type=int, metavar="N")
@click.option("--coordinator-epoch", type=int, metavar="N")
@click.option("--dry-run", is_flag=True, help="Only say what would be aborted.")
@pass_session
def abort(
    session: Session,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    dry_run: bool,
) -> int:
    """End a hanging transaction in a partition."""
    place = TopicPartition(topic, partition)
    given = (producer_id, producer_epoch, coordinator_epoch)

    def do(cluster: Cluster) -> int:
        from tidelog.client.transactions import abort_transaction

        if start_offset is not None:
            named = _open_transaction(cluster, place, start_offset)
        else:
            named = _all_three(given)
        if dry_run:
            say(f"the transaction of producer {named[0]} in {place} would be aborted")
            return 0
        abort_transaction(
            cluster,
            place,
            producer_id=named[0],
            producer_epoch=named[1],
            coordinator_epoch=named[2],
        )
        return 0

    return with_cluster(session, do)


def _open_transaction(
    cluster: Cluster, place: TopicPartition, start_offset: int
) -> tuple[int, int, int]:
    for producer in _producers_of(cluster, place):
        if producer.txn_start_offset == start_offset:
            return producer[:3]
    raise CommandFailed(
        f"partition {place} has no open transaction that begins at offset {start_offset}"
    )


def _all_three(given: tuple[int | None, int | None, int | None]) -> tuple[int, int, int]:
    producer_id, producer_epoch, coordinator_epoch = given
    if producer_id is None or producer_epoch is None or coordinator_epoch is None:
        raise CommandFailed(
            "name the transaction by --start-offset (brokers from 3.0), or by --producer-id, "
            "--producer-epoch and --coordinator-epoch"
        )
    return producer_id, producer_epoch, coordinator_epoch


def _producers_of(
    cluster: Cluster, partition: TopicPartition, broker_id: int | None = None
) -> list[ActiveProducer]:
    from tidelog.client.transactions import describe_producers

    return describe_producers(cluster, [partition], broker_id)[partition]
