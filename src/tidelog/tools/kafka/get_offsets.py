"""kafka-get-offsets: `topic:partition:offset` of partitions, at their ends or at a time."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.frame import (
    IncludeList,
    KafkaTool,
    ToolFailed,
    bootstrap_server,
    config_file,
    require_server,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.blocking.admin import Admin

RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
TIMES: Final = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
}
NO_OFFSET: Final = -1
INT32_MAX: Final = (1 << 31) - 1

Filter = Callable[[TopicPartition], bool]


@click.command("kafka-get-offsets", cls=KafkaTool)
@bootstrap_server
@click.option("--broker-list", metavar="HOST:PORT", help="DEPRECATED: use --bootstrap-server.")
@config_file("--command-config")
@click.option("--topic", metavar="TOPIC", shell_complete=complete_topics, help="Or a regex.")
@click.option("--partitions", metavar="0,1,...", help="All by default.")
@click.option("--topic-partitions", metavar="t1:1,t2:0-3,t3,t4:5-,t5:-3", help="Patterns.")
@click.option(
    "--time",
    "time_text",
    default="latest",
    metavar="TIME",
    help="A timestamp, -1 or latest, -2 or earliest, -3 or max-timestamp.",
)
@click.option("--exclude-internal-topics", is_flag=True)
@pass_session
def command(
    session: Session,
    broker_list: str | None,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    time_text: str,
    exclude_internal_topics: bool,
) -> int:
    """Print offsets of partitions."""
    require_server(session, broker_list)
    try:
        timestamp = parse_time(time_text)
        if topic_partitions is not None:
            if topic is not None or partitions is not None:
                raise ToolFailed("--topic-partitions cannot be used with --topic or --partitions")
            accepts = by_patterns(topic_partitions)
        else:
            accepts = by_topic(topic or ".*", partitions)
        with session.admin() as admin:
            return _print(admin, accepts, timestamp, exclude_internal=exclude_internal_topics)
    except ToolFailed as error:
        raise ToolFailed(f"Error occurred: {error}") from error


def parse_time(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    try:
        return int(text)
    except ValueError:
        raise ToolFailed(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or "
            "max-timestamp / -4 or earliest-local / -5 or latest-tiered, or a specified long "
            "format timestamp"
        ) from None


def by_topic(topic: str, partitions: str | None) -> Filter:
    names = IncludeList(topic)
    try:
        wanted = {int(part) for part in partitions.split(",")} if partitions else None
    except ValueError:
        raise ToolFailed(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            f"{partitions}"
        ) from None
    return lambda place: (
        names.allows(place.topic, exclude_internal=False)
        and (wanted is None or place.partition in wanted)
    )


def by_patterns(text: str) -> Filter:
    rules = [_rule(part) for part in text.split(",")]
    return lambda place: any(rule(place) for rule in rules)


def _rule(text: str) -> Filter:
    match = RULE.fullmatch(text)
    if match is None:
        raise ToolFailed(f"Invalid rule specification: {text}")
    name, alone, low, high = match.groups()
    names = IncludeList(name or ".*")
    if alone:
        wanted = range(int(alone), int(alone) + 1)
    else:
        wanted = range(int(low or 0), int(high or INT32_MAX))
    return lambda place: (
        names.allows(place.topic, exclude_internal=False) and place.partition in wanted
    )


def _print(admin: Admin, accepts: Filter, timestamp: int, *, exclude_internal: bool) -> int:
    names = [each.name for each in admin.list_topics(include_internal=not exclude_internal)]
    places = [
        place
        for result in admin.describe_topics(names).values()
        for partition in result.get().partitions
        if accepts(place := TopicPartition(result.get().name, partition.partition))
    ]
    if not places:
        raise ToolFailed("Could not match any topic-partitions with the specified filters")
    found = admin.list_offsets(dict.fromkeys(places, timestamp))
    for place in sorted(places, key=str):
        result = found[place]
        if result.error is not None:
            print(
                f"Skip getting offsets for topic-partition {place} due to error: {result.error}",
                file=sys.stderr,
            )
        elif result.get().offset != NO_OFFSET:
            print(f"{place.topic}:{place.partition}:{result.get().offset}")
    return 0
