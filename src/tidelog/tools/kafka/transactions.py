"""kafka-transactions: list, describe, describe-producers, abort and find-hanging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from tidelog.clock import SystemClock
from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.frame import (
    KafkaTool,
    ToolFailed,
    ToolGroup,
    bootstrap_server,
    broker_words,
    config_file,
    require_server,
    table,
)
from tidelog.types import TopicPartition

MINUTE_MS: Final = 60_000
NONE: Final = "None"


@click.group("kafka-transactions", cls=ToolGroup)
@bootstrap_server
@config_file("--command-config")
def command() -> None:
    """List, describe and abort transactions, find those that hang."""


def _failed(message: str, error: Exception) -> ToolFailed:
    return ToolFailed(f"{message}: {broker_words(error)}")


def _print(columns: Sequence[Any], rows: Sequence[Sequence[object]]) -> None:
    print(table([column.header for column in columns], rows))


@command.command("list", cls=KafkaTool)
@click.option("--duration-filter", type=int, default=-1, metavar="MS")
@pass_session
def list_command(session: Session, duration_filter: int) -> int:
    """List transactions."""
    from tidelog.client.errors import ClientError
    from tidelog.tools.cli.transactions import LISTED

    require_server(session)
    try:
        with session.plain_admin() as admin:
            rows = admin.list_transactions(duration_ms=duration_filter)
    except ClientError as error:
        raise _failed("Failed to list transactions", error) from error
    _print(LISTED, rows)
    return 0


@command.command("describe", cls=KafkaTool)
@click.option("--transactional-id", required=True, metavar="ID")
@pass_session
def describe(session: Session, transactional_id: str) -> int:
    """Describe the state of a transactional id."""
    from tidelog.client.errors import ClientError
    from tidelog.tools.cli.transactions import DESCRIBED, described_row

    require_server(session)
    try:
        with session.plain_admin() as admin:
            found = admin.describe_transactions([transactional_id])[transactional_id].get()
    except ClientError as error:
        message = f"Failed to describe transaction state of transactional-id `{transactional_id}`"
        raise _failed(message, error) from error
    row = described_row(found)
    row["partitions"] = ",".join(map(str, sorted(found.partitions)))
    _print(DESCRIBED, [[NONE if each is None else each for each in row.values()]])
    return 0


@command.command("describe-producers", cls=KafkaTool)
@click.option("--topic", required=True, metavar="TOPIC")
@click.option("--partition", type=int, required=True, metavar="N")
@click.option("--broker-id", type=int, metavar="ID")
@pass_session
def describe_producers(session: Session, topic: str, partition: int, broker_id: int | None) -> int:
    """Describe the producers of a partition."""
    from tidelog.client.admin.transactions import NO_TXN_OFFSET
    from tidelog.client.errors import ClientError
    from tidelog.tools.cli.transactions import PRODUCERS, producers_of

    require_server(session)
    place = TopicPartition(topic, partition)
    try:
        with session.plain_admin() as admin:
            found = producers_of(admin, place, broker_id)
    except ClientError as error:
        where = "leader" if broker_id is None else str(broker_id)
        message = f"Failed to describe producers for partition {place} on broker {where}"
        raise _failed(message, error) from error
    rows = [
        (*each[:5], NONE if each.txn_start_offset == NO_TXN_OFFSET else each.txn_start_offset)
        for each in found
    ]
    _print(PRODUCERS, rows)
    return 0


@command.command("find-hanging", cls=KafkaTool)
@click.option("--broker-id", type=int, metavar="ID")
@click.option("--max-transaction-timeout", type=int, default=15, metavar="MINUTES")
@click.option("--topic", metavar="TOPIC")
@click.option("--partition", type=int, metavar="N")
@pass_session
def find_hanging_command(
    session: Session,
    broker_id: int | None,
    max_transaction_timeout: int,
    topic: str | None,
    partition: int | None,
) -> int:
    """Find transactions that hang."""
    from tidelog.client.errors import ClientError
    from tidelog.tools.cli.transactions import HANGING
    from tidelog.tools.hanging_transactions import find_hanging, partitions_of

    require_server(session)
    if topic is None and broker_id is None:
        raise ToolFailed(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope "
            "of the search"
        )
    if partition is not None and topic is None:
        raise ToolFailed("The --partition argument requires --topic to be provided")
    now_ms = SystemClock().time_ms()
    try:
        with session.plain_admin() as admin:
            found = find_hanging(
                admin,
                partitions_of(admin, topic, partition, broker_id),
                broker_id=broker_id,
                older_than_ms=max_transaction_timeout * MINUTE_MS,
                now_ms=now_ms,
            )
    except ClientError as error:
        raise _failed("Failed to find hanging transactions", error) from error
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
    _print(HANGING, rows)
    return 0


@command.command("abort", cls=KafkaTool)
@click.option("--topic", required=True, metavar="TOPIC")
@click.option("--partition", type=int, required=True, metavar="N")
@click.option("--start-offset", type=int, metavar="N")
@click.option("--producer-id", type=int, metavar="N")
@click.option("--producer-epoch", type=int, metavar="N")
@click.option("--coordinator-epoch", type=int, metavar="N")
@pass_session
def abort(
    session: Session,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> int:
    """Abort a hanging transaction."""
    from tidelog.client.errors import ClientError
    from tidelog.tools.cli.transactions import open_transaction

    require_server(session)
    place = TopicPartition(topic, partition)
    if start_offset is None and producer_id is None:
        raise ToolFailed(
            "The transaction to abort must be identified either with --start-offset (for brokers "
            "on 3.0 or above) or with --producer-id, --producer-epoch, and --coordinator-epoch "
            "(for older brokers)"
        )
    try:
        with session.plain_admin() as admin:
            if start_offset is not None:
                named = open_transaction(admin, place, start_offset)
            else:
                named = _named(producer_id, producer_epoch, coordinator_epoch)
            admin.abort_transaction(
                place, producer_id=named[0], producer_epoch=named[1], coordinator_epoch=named[2]
            )
    except ClientError as error:
        raise _failed(f"Failed to abort transaction in {place}", error) from error
    return 0


def _named(
    producer_id: int | None, producer_epoch: int | None, coordinator_epoch: int | None
) -> tuple[int, int, int]:
    assert producer_id is not None
    if producer_epoch is None:
        raise ToolFailed("Missing required argument --producer-epoch")
    if coordinator_epoch is None:
        raise ToolFailed("Missing required argument --coordinator-epoch")
    return producer_id, producer_epoch, coordinator_epoch
