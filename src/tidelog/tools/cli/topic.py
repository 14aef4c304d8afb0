"""`tidelog topic list|create|describe|alter|delete|add-partitions|trim|offsets`.

    tidelog topic create orders -p 6 -c retention.ms=86400000
    tidelog topic describe orders
    tidelog topic alter orders -c cleanup.policy=compact --unset retention.ms
    tidelog topic trim orders --before @-7d
    tidelog topic delete '^tmp-' --dry-run

A TOPIC that begins with ^ is a regular expression, except for `create`. A topic that fails does not
keep the others from being done: each failure is a line, and the exit code is 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.clock import SystemClock
from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.frame import CommandFailed, KeyValue, one_of
from tidelog.tools.cli.output import (
    Column,
    columns,
    counted,
    failures,
    say,
    show_data,
    show_rows,
    styled,
)
from tidelog.tools.cli.record_selection import Place, offset_of, parse_place
from tidelog.tools.cli.session import ClusterGroup, Session, pass_session
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.configs import ConfigEntry
    from tidelog.client.admin.topics import PartitionDescription, TopicDescription
    from tidelog.client.blocking.admin import Admin

NO_LEADER: Final = -1

topics_argument = click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
set_option = click.option(
    "-c",
    "--set",
    "settings",
    type=KeyValue(),
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the topic; may be given often.",
)


@click.group("topic", cls=ClusterGroup)
def command() -> None:
    """List, create, describe, alter, delete and trim topics."""


# What the verbs share


def expanded(admin: Admin, names: Sequence[str], *, if_exists: bool = False) -> list[str]:
    """Names, with regular expressions replaced by the topics that match."""
    found: list[str] = []
    for name in names:
        if not name.startswith("^"):
            found.append(name)
            continue
        try:
            pattern = re.compile(name)
        except re.error as error:
            raise CommandFailed(f"{name!r} is no regular expression: {error}") from None
        matching = [each.name for each in admin.list_topics() if pattern.search(each.name)]
        if not matching and not if_exists:
            raise CommandFailed(f"no topic matches {name}. `tidelog topic list` shows the topics.")
        found += matching
    return list(dict.fromkeys(found))


def described(admin: Admin, names: Sequence[str]) -> tuple[list[TopicDescription], list[str]]:
    """Those that are there, and what is wrong with the others."""
    found, problems = [], []
    for result in admin.describe_topics(names).values():
        if result.error is not None:
            problems.append(str(result.error))
        else:
            found.append(result.get())
    return found, problems


def partitions_of(topic: TopicDescription) -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.partition) for each in topic.partitions]


def is_under_replicated(partition: PartitionDescription) -> bool:
    return len(partition.isr) < len(partition.replicas)


def overridden(entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """What was set for the topic itself."""
    from tidelog.client.admin.configs import ConfigSource

    return {
        name: entry.value
        for name, entry in sorted(entries.items())
        if entry.source is ConfigSource.DYNAMIC_TOPIC
    }


def _bad_if_any(value: object) -> str:
    return "bad" if value else ""


# list


@command.command("list")
@click.argument("pattern", required=False, metavar="[REGEX]")
@click.option("--internal", is_flag=True, help="Internal topics too.")
@click.option("-q", "--names", is_flag=True, help="Names alone, one a line.")
@pass_session
def list_command(session: Session, pattern: str | None, internal: bool, names: bool) -> int:
    """List topics, or only those that match REGEX."""
    try:
        wanted = re.compile(pattern or "")
    except re.error as error:
        raise click.UsageError(f"{pattern!r} is no regular expression: {error}") from None
    with session.admin() as admin:
        listed = [
            each.name
            for each in admin.list_topics(include_internal=internal)
            if wanted.search(each.name)
        ]
        if names:
            for name in listed:
                print(name)
            return 0
        found, problems = described(admin, listed)
    rows = [_summary(topic) for topic in found]
    show_rows(
        session.output_format,
        rows,
        [
            *columns("topic", "partitions>", "replication_factor=REPLICAS>"),
            Column("UNDER-REPLICATED", "under_replicated", True, _bad_if_any),
        ],
        empty="There are no topics. `tidelog topic create NAME` makes one.",
    )
    return failures(problems)


def _summary(topic: TopicDescription) -> dict[str, object]:
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(each.replicas) for each in topic.partitions), default=0),
        "under_replicated": sum(is_under_replicated(each) for each in topic.partitions),
        "internal": topic.is_internal,
        "id": str(topic.topic_id),
    }


# create


@command.command("create")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), metavar="N", help="The broker's default."
)
@click.option(
    "-r", "--replicas", type=click.IntRange(1, 32_767), metavar="N", help="The broker's default."
)
@click.option(
    "--assignment",
    metavar="1:2,2:3,...",
    help="Replicas of each partition, instead of both counts.",
)
@set_option
@click.option("--if-not-exists", is_flag=True, help="A topic that is there is no failure.")
@dry_run_option
@pass_session
def create(
    session: Session,
    topics: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    assignment: str | None,
    settings: tuple[tuple[str, str], ...],
    if_not_exists: bool,
    dry_run: bool,
) -> int:
    """Create topics."""
    from tidelog.client.admin.topics import LEFT_TO_BROKER, NewTopic
    from tidelog.errors import ErrorCode

    if assignment is not None and (partitions is not None or replicas is not None):
        raise click.UsageError("--assignment stands instead of --partitions and --replicas")
    try:
        assigned = parse_assignment(assignment) if assignment is not None else {}
    except ValueError as problem:
        raise click.UsageError(str(problem)) from problem
    wanted = [
        NewTopic(
            name,
            LEFT_TO_BROKER if partitions is None else partitions,
            LEFT_TO_BROKER if replicas is None else replicas,
            assigned,
            dict(settings),
        )
        for name in topics
    ]
    problems, rows = [], []
    with session.admin() as admin:
        for name, result in admin.create_topics(wanted, validate_only=dry_run).items():
            error = result.error
            if error is None:
                made = result.get()
                rows.append(_created(name, made, dry_run=dry_run))
            elif not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                problems.append(str(error))
    _show_changes(session, rows)
    return failures(problems)


def _created(name: str, made: Any, *, dry_run: bool) -> dict[str, object]:
    return {
        "topic": name,
        "change": "would be created" if dry_run else "created",
        "partitions": made.num_partitions if made.num_partitions > 0 else None,
        "replication_factor": made.replication_factor if made.replication_factor > 0 else None,
    }


def _show_changes(session: Session, rows: Sequence[Mapping[str, object]]) -> None:
    """A sentence each; for programs, all fields."""
    if session.output_format not in (None, "table"):
        show_data(session.output_format, list(rows))
        return
    for row in rows:
        counts = ""
        if row.get("partitions") is not None:
            counts = f" with {_counts(row)}"
        print(f"topic {row['topic']} {row['change']}{counts}")


def _counts(row: Mapping[str, Any]) -> str:
    partitions = counted(row["partitions"], "partition")
    return f"{partitions}, {counted(row['replication_factor'], 'replica')}"


def parse_assignment(text: str) -> dict[int, list[int]]:
    """`1:2,2:3`: brokers of partition 0, then of partition 1. Raises ValueError."""
    found: dict[int, list[int]] = {}
    for index, brokers in enumerate(text.split(",")):
        numbers = [part.strip() for part in brokers.split(":")]
        if not all(part.isascii() and part.isdigit() for part in numbers):
            raise ValueError(f"{brokers!r} is no list of brokers such as 1:2:3")
        found[index] = [int(part) for part in numbers]
    return found


# describe


@command.command("describe")
@topics_argument
@click.option("--all-configs", is_flag=True, help="Settings with their default values too.")
@pass_session
def describe(session: Session, topics: tuple[str, ...], all_configs: bool) -> int:
    """Show partitions, replicas, offsets and settings of topics."""
    with session.admin() as admin:
        found, problems = described(admin, expanded(admin, topics))
        configs = _configs(admin, [topic.name for topic in found])
        ends = _ends(admin, [each for topic in found for each in partitions_of(topic)])
    pages = [_page(topic, configs.get(topic.name, {}), ends, all_configs) for topic in found]
    if session.output_format in (None, "table"):
        print("\n\n".join(_shown_page(page) for page in pages))
    else:
        show_data(session.output_format, pages)
    return failures(problems)


def _configs(admin: Admin, names: Sequence[str]) -> dict[str, dict[str, ConfigEntry]]:
    from tidelog.client.admin.configs import ConfigResource, ConfigResourceType

    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    return {
        key.name: result.get()
        for key, result in admin.describe_configs(resources).items()
        if result.error is None
    }


def _ends(
    admin: Admin, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int | None, int | None]]:
    """First and last offset, where a leader says them."""
    from tidelog.protocol.listed_timestamps import EARLIEST, LATEST

    found = []
    for which in (EARLIEST, LATEST):
        results = admin.list_offsets(dict.fromkeys(partitions, which))
        found.append(
            {
                each: result.get().offset if result.error is None else None
                for each, result in results.items()
            }
        )
    return {each: (found[0][each], found[1][each]) for each in partitions}


def _page(
    topic: TopicDescription,
    entries: Mapping[str, ConfigEntry],
    ends: Mapping[TopicPartition, tuple[int | None, int | None]],
    all_configs: bool,
) -> dict[str, object]:
    shown = (
        {name: entry.value for name, entry in sorted(entries.items())}
        if all_configs
        else overridden(entries)
    )
    return {
        **_summary(topic),
        "configs": shown,
        "partition_list": [
            {
                "partition": each.partition,
                "leader": None if each.leader_id == NO_LEADER else each.leader_id,
                "epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "offline": list(each.offline_replicas),
                "earliest": ends[TopicPartition(topic.name, each.partition)][0],
                "latest": ends[TopicPartition(topic.name, each.partition)][1],
            }
            for each in sorted(topic.partitions)
        ],
    }


def _shown_page(page: Mapping[str, Any]) -> str:
    from tidelog.tools.cli.output import table_lines

    head = styled(str(page["topic"]), "bold")
    internal = ", internal" if page["internal"] else ""
    lines = [f"{head}  {_counts(page)}{internal}, id {page['id']}"]
    lines += [f"  {name}={value}" for name, value in page["configs"].items()]

    def style_of_leader(value: object) -> str:
        return "bad" if value is None else ""

    shown = [
        *columns("partition>"),
        Column("LEADER", "leader", True, style_of_leader),
        *columns("epoch>", "replicas", "isr", "earliest>", "latest>"),
    ]
    if any(row["offline"] for row in page["partition_list"]):
        shown.append(Column("OFFLINE", "offline", style=_bad_if_any))
    lines += table_lines(page["partition_list"], shown)
    return "\n".join(lines)


# Changes


@command.command("alter")
@topics_argument
@set_option
@click.option("--unset", multiple=True, metavar="KEY", help="Back to the default; often.")
@dry_run_option
@pass_session
def alter(
    session: Session,
    topics: tuple[str, ...],
    settings: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    dry_run: bool,
) -> int:
    """Change settings of topics."""
    from tidelog.client.admin.configs import (
        AlterConfig,
        AlterOp,
        ConfigResource,
        ConfigResourceType,
    )

    if not settings and not unset:
        raise click.UsageError("one of --set, --unset is needed")
    changes = [AlterConfig(key, value) for key, value in settings]
    changes += [AlterConfig(key, None, AlterOp.DELETE) for key in unset]
    with session.admin() as admin:
        names = expanded(admin, topics)
        found, problems = described(admin, names)
        wanted = {ConfigResource(ConfigResourceType.TOPIC, topic.name): changes for topic in found}
        results = admin.incremental_alter_configs(wanted, validate_only=dry_run)
    change = "would be altered" if dry_run else "altered"
    rows = [
        {"topic": key.name, "change": change}
        for key, result in results.items()
        if result.error is None
    ]
    _show_changes(session, rows)
    problems += [str(result.error) for result in results.values() if result.error is not None]
    return failures(problems)


@command.command("delete")
@topics_argument
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no failure.")
@dry_run_option
@pass_session
def delete(session: Session, topics: tuple[str, ...], if_exists: bool, dry_run: bool) -> int:
    """Delete topics with all their records."""
    from tidelog.errors import ErrorCode

    problems: list[str] = []
    with session.admin() as admin:
        names = expanded(admin, topics, if_exists=if_exists)
        if dry_run:
            results: Mapping[Any, Any] = admin.describe_topics(names)
        else:
            results = admin.delete_topics(names)
    rows = []
    for name, result in results.items():
        error = result.error
        if error is None:
            rows.append({"topic": name, "change": "would be deleted" if dry_run else "deleted"})
        elif not (if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            problems.append(str(error))
    _show_changes(session, rows)
    return failures(problems)


@command.command("add-partitions")
@topics_argument
@click.option("--to", "total", type=click.IntRange(min=1), metavar="N", help="So many in all.")
@click.option("--add", "more", type=click.IntRange(min=1), metavar="N", help="So many more.")
@dry_run_option
@pass_session
def add_partitions(
    session: Session, topics: tuple[str, ...], total: int | None, more: int | None, dry_run: bool
) -> int:
    """Give topics more partitions.

    Records with keys that are written later may go to other partitions than before.
    """
    one_of({"--to": total, "--add": more})
    with session.admin() as admin:
        found, problems = described(admin, expanded(admin, topics))
        wanted = {
            topic.name: total if total is not None else len(topic.partitions) + (more or 0)
            for topic in found
        }
        results = admin.create_partitions(wanted, validate_only=dry_run)
    rows = []
    for name, result in results.items():
        if result.error is not None:
            problems.append(str(result.error))
        else:
            verb = "would have" if dry_run else "has"
            total_now = counted(wanted[name], "partition")
            rows.append({"topic": name, "change": f"{verb} {total_now}"})
    _show_changes(session, rows)
    return failures(problems)


def _place(text: str) -> Place:
    try:
        place = parse_place(text, SystemClock().time_ms())
    except ValueError as problem:
        raise click.UsageError(str(problem)) from problem
    if place.kind == "stored":
        raise click.UsageError("a topic has no stored offsets")
    return place


@command.command("trim")
@topics_argument
@click.option(
    "--before",
    required=True,
    metavar="PLACE",
    help="Delete what is before: an offset, end, -N (keep the last N), @TIME (@-7d, @2026-01-31).",
)
@click.option(
    "-p",
    "--partition",
    "only",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this partition; may be given often.",
)
@dry_run_option
@pass_session
def trim(
    session: Session, topics: tuple[str, ...], before: str, only: tuple[int, ...], dry_run: bool
) -> int:
    """Delete the oldest records of topics."""
    place = _place(before)
    with session.admin() as admin:
        found, problems = described(admin, expanded(admin, topics))
        partitions = [
            each
            for topic in found
            for each in partitions_of(topic)
            if not only or each.partition in only
        ]
        ends = _ends(admin, partitions)
        goals = _goals(admin, place, ends)
        rows = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "earliest": ends[each][0],
                "new_earliest": goal,
                "deleted_offsets": max(0, goal - (ends[each][0] or 0)),
            }
            for each, goal in sorted(goals.items())
        ]
        if not dry_run:
            results = admin.delete_records(goals)
            failed = {each: str(result.error) for each, result in results.items() if result.error}
            problems += failed.values()
            rows = [
                row
                for row in rows
                if TopicPartition(str(row["topic"]), int(str(row["partition"]))) not in failed
            ]
    show_rows(
        session.output_format,
        rows,
        columns("topic", "partition>", "earliest>", "new_earliest>", "deleted_offsets>"),
    )
    if dry_run:
        say("Nothing is deleted with --dry-run.")
    return failures(problems)


def _goals(
    admin: Admin, place: Place, ends: Mapping[TopicPartition, tuple[int | None, int | None]]
) -> dict[TopicPartition, int]:
    """An offset for each partition that has a leader."""
    from tidelog.client.admin.offsets import NO_OFFSET

    goals: dict[TopicPartition, int] = {}
    known = {
        each: (first, last)
        for each, (first, last) in ends.items()
        if first is not None and last is not None
    }
    times = {}
    if place.kind == "time":
        times = admin.list_offsets(dict.fromkeys(known, place.value))
    for each, (first, last) in known.items():
        if place.kind != "time":
            goals[each] = min(offset_of(place, first, last), last)
            continue
        found = times[each]
        if found.error is None:
            goals[each] = last if found.get().offset == NO_OFFSET else found.get().offset
    return goals


@command.command("offsets")
@topics_argument
@click.option("--at", metavar="PLACE", help="Also the offset at @TIME, -N, +N.")
@click.option("--committed", is_flag=True, help="The latest is the last stable offset.")
@pass_session
def offsets(session: Session, topics: tuple[str, ...], at: str | None, committed: bool) -> int:
    """Show the first and the last offset of partitions."""
    from tidelog.protocol.listed_timestamps import LATEST

    place = _place(at) if at is not None else None
    with session.admin() as admin:
        found, problems = described(admin, expanded(admin, topics))
        partitions = [each for topic in found for each in partitions_of(topic)]
        ends = _ends(admin, partitions)
        goals = _goals(admin, place, ends) if place is not None else {}
        if committed:
            stable = admin.list_offsets(
                dict.fromkeys(partitions, LATEST), isolation_level="read_committed"
            )
            ends = {
                each: (first, stable[each].get().offset if stable[each].error is None else last)
                for each, (first, last) in ends.items()
            }
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "earliest": first,
            **({"at": goals.get(each)} if place is not None else {}),
            "latest": last,
            "offsets": None if first is None or last is None else last - first,
        }
        for each, (first, last) in sorted(ends.items())
    ]
    middle = ["at>"] if place is not None else []
    show_rows(
        session.output_format,
        rows,
        columns("topic", "partition>", "earliest>", *middle, "latest>", "offsets>"),
    )
    return failures(problems)
