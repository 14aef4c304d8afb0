"""`tidelog group list|describe|reset|delete|delete-offsets`: what Kafka's own tool does, with its
columns.

    list             every group, with --state and --type
    describe         offsets and lag (--offsets, the default), --members or --state
    reset            where a group without members goes on; shows the plan unless --execute
    delete           groups without members
    delete-offsets   what a group has committed for some topics

`groups` and `reset-offsets` are other names for `group` and `reset`. A group is named by --group or
without it: `tidelog group describe readers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.clock import SystemClock
from tidelog.tools.cli.cluster_command import with_cluster
from tidelog.tools.cli.completion import complete_groups, complete_topics
from tidelog.tools.cli.frame import CommandFailed, one_of, together
from tidelog.tools.cli.output import (
    Column,
    columns,
    failures,
    printable,
    say,
    show_data,
    show_rows,
)
from tidelog.tools.cli.session import ClusterGroup, Session, pass_session
from tidelog.tools.cli.watch import watch_options, watched
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.cluster import Cluster
    from tidelog.client.groups import GroupDescription
    from tidelog.tools.offset_reset import Target


@click.group("group", cls=ClusterGroup, aliases={"reset-offsets": "reset"})
def command() -> None:
    """List, describe, reset and delete consumer groups."""


several_groups = together(
    click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=complete_groups),
    click.option(
        "--group",
        "named",
        multiple=True,
        metavar="ID",
        shell_complete=complete_groups,
        help="The same as GROUP.",
    ),
)
one_group = together(
    click.argument("name", required=False, metavar="[GROUP]", shell_complete=complete_groups),
    click.option(
        "--group", "named", metavar="ID", shell_complete=complete_groups, help="The same as GROUP."
    ),
)
topics_option = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:0,1]",
    shell_complete=complete_topics,
    help="A topic, or some of its partitions; may be given often.",
)


def _the_group(name: str | None, named: str | None) -> str:
    one_of({"GROUP": name, "--group": named})
    found = name or named
    assert found is not None
    return found


@command.command("list")
@click.option(
    "--state", is_flag=False, flag_value="", metavar="[A,B]", help="Show states, or only these."
)
@click.option(
    "--type", "kind", is_flag=False, flag_value="", metavar="[A,B]", help="The same for types."
)
@pass_session
def list_command(session: Session, state: str | None, kind: str | None) -> int:
    """List groups."""

    def show(cluster: Cluster) -> int:
        from tidelog.client.groups import list_groups

        rows = [
            {"group": each.group_id, "type": each.type.capitalize(), "state": each.state}
            for each in list_groups(cluster, states=_words(state), types=_words(kind))
        ]
        if session.output_format not in (None, "table"):
            show_data(session.output_format, rows)
        elif state is None and kind is None:
            for row in rows:
                print(printable(row["group"]))
        else:
            fields = ["group", *(["type"] if kind is not None else [])]
            show_rows(None, rows, columns(*fields, *(["state"] if state is not None else [])))
        return 0

    return with_cluster(session, show)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


# describe


@command.command("describe")
@several_groups
@click.option("--all-groups", is_flag=True, help="Every group there is.")
@click.option("--offsets", is_flag=True, help="Offsets and lag (the default).")
@click.option("--members", is_flag=True, help="Who the members are.")
@click.option("--state", is_flag=True, help="State, coordinator and assignor.")
@click.option("--verbose", is_flag=True, help="Members with their partitions.")
@watch_options
@pass_session
def describe(
    session: Session,
    names: tuple[str, ...],
    named: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    watch: bool,
    interval: float,
) -> int:
    """Show offsets and lag, members or states of groups."""
    one_of({"GROUP": names, "--group": named, "--all-groups": all_groups})
    one_of({"--offsets": offsets, "--members": members, "--state": state}, required=False)
    view = "members" if members else "state" if state else "offsets"

    def show(cluster: Cluster) -> int:
        return _describe(cluster, session, (*names, *named), view, verbose=verbose)

    return with_cluster(session, lambda cluster: watched(watch, interval, lambda: show(cluster)))


def _describe(
    cluster: Cluster, session: Session, names: tuple[str, ...], view: str, *, verbose: bool
) -> int:
    from tidelog.client.groups import DEAD, EMPTY, describe_group, list_groups

    wanted = names or [listing.group_id for listing in list_groups(cluster)]
    described = [describe_group(cluster, name) for name in wanted]
    gone = [group.group_id for group in described if group.state == DEAD]
    for group in described:
        if group.state == EMPTY and session.output_format in (None, "table"):
            say(f"Group {group.group_id} has no active members.")
    present = [group for group in described if group.state != DEAD]
    if view == "members":
        shown = MEMBER_COLUMNS if verbose else MEMBER_COLUMNS[:-1]
        show_rows(session.output_format, _member_rows(present), shown)
    elif view == "state":
        show_rows(session.output_format, _state_rows(present), STATE_COLUMNS)
    else:
        rows = [row for group in present for row in _offset_rows(cluster, group)]
        show_rows(session.output_format, rows, OFFSET_COLUMNS)
    return failures(f"group {name} does not exist" for name in gone)


MEMBER_COLUMNS: Final = columns(
    "group",
    "consumer_id",
    "group_instance_id",
    "host",
    "client_id",
    "partition_count=#PARTITIONS>",
    "assignment",
)


def _member_rows(groups: list[GroupDescription]) -> list[dict[str, object]]:
    return [
        {
            "group": group.group_id,
            "consumer_id": member.member_id,
            "group_instance_id": member.instance_id or None,
            "host": member.host,
            "client_id": member.client_id,
            "partition_count": len(member.partitions),
            "assignment": [str(each) for each in sorted(member.partitions)],
        }
        for group in groups
        for member in group.members
    ]


def _style_of_state(value: object) -> str:
    return {"Stable": "good", "Dead": "bad", "Empty": "dim"}.get(str(value), "warn")


STATE_COLUMNS: Final = [
    *columns("group", "coordinator=COORDINATOR (ID)", "assignment_strategy"),
    Column("STATE", "state", style=_style_of_state),
    *columns("member_count=#MEMBERS>"),
]


def _state_rows(groups: list[GroupDescription]) -> list[dict[str, object]]:
    return [
        {
            "group": group.group_id,
            "coordinator": f"{group.coordinator.address} ({group.coordinator.node_id})",
            "assignment_strategy": group.assignor or None,
            "state": group.state,
            "member_count": len(group.members),
        }
        for group in groups
    ]


def _style_of_lag(value: object) -> str:
    return "" if value is None else "good" if value == 0 else "warn"


OFFSET_COLUMNS: Final = [
    *columns("group", "topic", "partition>", "current_offset>", "log_end_offset>"),
    Column("LAG", "lag", right=True, style=_style_of_lag),
    *columns("consumer_id", "host", "client_id"),
]


def _offset_rows(cluster: Cluster, group: GroupDescription) -> list[dict[str, object]]:
    from tidelog.client.groups import committed_offsets
    from tidelog.client.offsets import latest_offsets

    committed = committed_offsets(cluster, group.group_id)
    owners = {partition: member for member in group.members for partition in member.partitions}
    places = sorted(committed.keys() | owners.keys())
    topics = cluster.topics({partition.topic for partition in places}) if places else {}
    there = [each for each in places if each.partition in topics[each.topic].partitions]
    ends = latest_offsets(cluster, there)
    rows: list[dict[str, object]] = []
    for partition in places:
        offset, end = committed.get(partition), ends.get(partition)
        owner = owners.get(partition)
        rows.append(
            {
                "group": group.group_id,
                "topic": partition.topic,
                "partition": partition.partition,
                "current_offset": offset,
                "log_end_offset": end,
                "lag": None if offset is None or end is None else end - offset,
                "consumer_id": owner.member_id if owner else None,
                "host": owner.host if owner else None,
                "client_id": owner.client_id if owner else None,
            }
        )
    return rows


# Offsets


@command.command("reset")
@one_group
@topics_option
@click.option("--all-topics", is_flag=True, help="All that it has committed for.")
@click.option("--to-earliest", is_flag=True, help="The beginning of each partition.")
@click.option("--to-latest", is_flag=True, help="The end of each partition.")
@click.option("--to-current", is_flag=True, help="Where it is.")
@click.option("--to-offset", type=int, metavar="N", help="This offset.")
@click.option("--shift-by", type=int, metavar="N", help="N records on, or back if N is negative.")
@click.option(
    "--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss", help="The first record from then."
)
@click.option("--by-duration", metavar="PnDTnHnMnS", help="The first record of the last while.")
@click.option("--dry-run", is_flag=True, help="Show the plan only (the default).")
@click.option("--execute", is_flag=True, help="Do it.")
@pass_session
def reset(
    session: Session,
    name: str | None,
    named: str | None,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    **targets: Any,
) -> int:
    """Set where a group goes on reading. Shows the plan; --execute does it."""
    group_id = _the_group(name, named)
    one_of({"--topic": topics, "--all-topics": all_topics})
    one_of({"--dry-run": dry_run, "--execute": execute}, required=False)
    chosen = one_of({f"--{key.replace('_', '-')}": value for key, value in targets.items()})
    assert chosen is not None

    def do(cluster: Cluster) -> int:
        from tidelog.tools.offset_reset import BadPlan

        try:
            target = _target(chosen, targets[chosen[2:].replace("-", "_")])
            return _reset(cluster, session, group_id, topics, target, execute=execute)
        except BadPlan as problem:
            raise CommandFailed(str(problem)) from problem

    return with_cluster(session, do)


def _reset(
    cluster: Cluster,
    session: Session,
    group_id: str,
    topics: tuple[str, ...],
    target: Target,
    *,
    execute: bool,
) -> int:
    from tidelog.client.groups import (
        DEAD,
        EMPTY,
        commit_offsets,
        committed_offsets,
        describe_group,
    )
    from tidelog.tools.offset_reset import plan

    state = describe_group(cluster, group_id).state
    if state not in (EMPTY, DEAD):
        raise CommandFailed(
            f"offsets can only be reset if group {group_id} is inactive, but its state is {state}"
        )
    committed = committed_offsets(cluster, group_id)
    places = _chosen_partitions(cluster, topics) if topics else sorted(committed)
    planned = plan(cluster, target, places, committed)
    rows = [
        {
            "group": group_id,
            "topic": partition.topic,
            "partition": partition.partition,
            "new_offset": offset,
        }
        for partition, offset in sorted(planned.items())
    ]
    show_rows(session.output_format, rows, columns("group", "topic", "partition>", "new_offset>"))
    if execute and planned:
        commit_offsets(cluster, group_id, planned)
    elif not execute:
        say("Nothing is changed without --execute.")
    return 0


def _target(flag: str, value: Any) -> Target:
    from tidelog.tools.offset_reset import Target, datetime_ms, duration_ms

    if flag == "--to-offset":
        return Target("offset", value)
    if flag == "--shift-by":
        return Target("shift", value)
    if flag == "--to-datetime":
        return Target("timestamp", datetime_ms(value))
    if flag == "--by-duration":
        return Target("timestamp", SystemClock().time_ms() - duration_ms(value))
    return Target(flag.removeprefix("--to-"))


def _chosen_partitions(cluster: Cluster, choices: Sequence[str]) -> list[TopicPartition]:
    """By `NAME:0,1,2`, or all of `NAME`. Raises UnknownTopic."""
    found: list[TopicPartition] = []
    for choice in choices:
        name, colon, indexes = choice.partition(":")
        there = cluster.topic(name).partitions
        if not colon:
            found += [TopicPartition(name, index) for index in sorted(there)]
            continue
        for text in indexes.split(","):
            if not text.isascii() or not text.isdigit() or int(text) not in there:
                raise CommandFailed(f"topic {name} has no partition {text or '(none given)'}")
            found.append(TopicPartition(name, int(text)))
    return found


@command.command("delete")
@several_groups
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@pass_session
def delete(session: Session, names: tuple[str, ...], named: tuple[str, ...], dry_run: bool) -> int:
    """Delete groups that have no members."""
    one_of({"GROUP": names, "--group": named})

    def do(cluster: Cluster) -> int:
        return _delete(cluster, (*names, *named), dry_run=dry_run)

    return with_cluster(session, do)


def _delete(cluster: Cluster, names: tuple[str, ...], *, dry_run: bool) -> int:
    from tidelog.client import BrokerRefused
    from tidelog.client.groups import DEAD, EMPTY, delete_group, describe_group

    problems = []
    for name in names:
        if dry_run:
            state = describe_group(cluster, name).state
            if state == EMPTY:
                say(f"group {name} would be deleted")
            else:
                reason = "does not exist" if state == DEAD else f"is {state}, not Empty"
                problems.append(f"group {name} {reason}")
            continue
        try:
            delete_group(cluster, name)
        except BrokerRefused as refusal:
            problems.append(str(refusal))
        else:
            print(f"Deletion of group {name} was successful.")
    return failures(problems)


@command.command("delete-offsets")
@one_group
@topics_option
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@pass_session
def delete_offsets(
    session: Session, name: str | None, named: str | None, topics: tuple[str, ...], dry_run: bool
) -> int:
    """Forget what a group has committed for some topics."""
    group_id = _the_group(name, named)
    one_of({"--topic": topics})

    def do(cluster: Cluster) -> int:
        from tidelog.client.groups import committed_offsets, delete_offsets
        from tidelog.errors import ErrorCode

        places = _chosen_partitions(cluster, topics)
        if dry_run:
            committed = committed_offsets(cluster, group_id)
            rows = [_outcome(place, "Would be deleted") for place in places if place in committed]
        else:
            outcome = delete_offsets(cluster, group_id, places)
            rows = [
                _outcome(place, "Successful" if code is ErrorCode.NONE else f"Error: {code.name}")
                for place, code in sorted(outcome.items())
            ]
        show_rows(session.output_format, rows, columns("topic", "partition>", "status"))
        return int(any(str(row["status"]).startswith("Error") for row in rows))

    return with_cluster(session, do)


def _outcome(place: TopicPartition, status: str) -> dict[str, object]:
    return {"topic": place.topic, "partition": place.partition, "status": status}
