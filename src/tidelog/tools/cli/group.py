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

    from tidelog.client.admin.groups import GroupDescription
    from tidelog.client.blocking.admin import Admin
    from tidelog.tools.offset_reset import Target


EMPTY: Final = "Empty"
DEAD: Final = "Dead"


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
    with session.admin() as admin:
        rows = [
            {"group": each.group_id, "type": each.type.capitalize(), "state": each.state}
            for each in admin.list_groups(states=_words(state), types=_words(kind))
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
    with session.admin() as admin:
        return watched(
            watch,
            interval,
            lambda: _describe(admin, session, (*names, *named), view, verbose=verbose),
        )


def _describe(
    admin: Admin, session: Session, names: tuple[str, ...], view: str, *, verbose: bool
) -> int:
    wanted = names or [listing.group_id for listing in admin.list_groups()]
    present, problems = described_groups(admin, wanted)
    for group in present:
        if group.state == EMPTY and session.output_format in (None, "table"):
            say(f"Group {group.group_id} has no active members.")
    if view == "members":
        shown = MEMBER_COLUMNS if verbose else MEMBER_COLUMNS[:-1]
        show_rows(session.output_format, _member_rows(present), shown)
    elif view == "state":
        show_rows(session.output_format, _state_rows(present), STATE_COLUMNS)
    else:
        rows = [row for group in present for row in offset_rows(admin, group)]
        show_rows(session.output_format, rows, OFFSET_COLUMNS)
    return failures(problems)


def described_groups(
    admin: Admin, names: Sequence[str]
) -> tuple[list[GroupDescription], list[str]]:
    """Those that are there, and what is wrong with the others."""
    from tidelog.errors import ErrorCode

    found, problems = [], []
    for name, result in admin.describe_groups(names).items():
        if result.error is None and result.get().state != DEAD:
            found.append(result.get())
        elif result.error is None or result.error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            problems.append(f"group {name} does not exist")
        else:
            problems.append(str(result.error))
    return found, problems


def state_of(admin: Admin, name: str) -> str:
    """DEAD where there is no such group."""
    found, problems = described_groups(admin, [name])
    if not found and problems != [f"group {name} does not exist"]:
        raise CommandFailed(problems[0])
    return found[0].state if found else DEAD


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
            "group_instance_id": member.group_instance_id or None,
            "host": member.host,
            "client_id": member.client_id,
            "partition_count": len(member.assignment),
            "assignment": [str(each) for each in sorted(member.assignment)],
        }
        for group in groups
        for member in group.members
    ]


def _address(group: GroupDescription) -> str:
    node = group.coordinator
    return f"{node.host}:{node.port} ({node.id})"


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
            "coordinator": _address(group),
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


def committed_offsets(admin: Admin, group_id: str) -> dict[TopicPartition, int]:
    from tidelog.tools import group_lag

    return admin.thread.run(lambda: group_lag.committed_offsets(admin.admin, group_id))


def offset_rows(admin: Admin, group: GroupDescription) -> list[dict[str, object]]:
    """By partition: what is committed, where the log ends, who owns it."""
    from tidelog.tools.group_lag import partition_lags

    return [
        {
            "group": group.group_id,
            "topic": row.partition.topic,
            "partition": row.partition.partition,
            "current_offset": row.committed,
            "log_end_offset": row.log_end_offset,
            "lag": row.lag,
            "consumer_id": row.owner.member_id if row.owner else None,
            "host": row.owner.host if row.owner else None,
            "client_id": row.owner.client_id if row.owner else None,
        }
        for row in admin.thread.run(lambda: partition_lags(admin.admin, group))
    ]


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
    from tidelog.tools.offset_reset import BadPlan

    try:
        target = reset_target(chosen, targets[chosen[2:].replace("-", "_")])
        with session.admin() as admin:
            return _reset(admin, session, group_id, topics, target, execute=execute)
    except BadPlan as problem:
        raise CommandFailed(str(problem)) from problem


def _reset(
    admin: Admin,
    session: Session,
    group_id: str,
    topics: tuple[str, ...],
    target: Target,
    *,
    execute: bool,
) -> int:
    from tidelog.tools.offset_reset import plan

    state = state_of(admin, group_id)
    if state not in (EMPTY, DEAD):
        raise CommandFailed(
            f"offsets can only be reset if group {group_id} is inactive, but its state is {state}"
        )
    committed = committed_offsets(admin, group_id)
    places = chosen_partitions(admin, topics) if topics else sorted(committed)
    planned = plan(admin, target, places, committed)
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
        for result in admin.alter_group_offsets(group_id, planned).values():
            result.get()
    elif not execute:
        say("Nothing is changed without --execute.")
    return 0


def reset_target(flag: str, value: Any) -> Target:
    from tidelog.tools.offset_reset import target_of

    return target_of(flag.removeprefix("--"), str(value), SystemClock().time_ms())


def chosen_partitions(admin: Admin, choices: Sequence[str]) -> list[TopicPartition]:
    """By `NAME:0,1,2`, or all of `NAME`. Raises UnknownTopic."""
    names = [choice.partition(":")[0] for choice in choices]
    topics = admin.describe_topics(names)
    found: list[TopicPartition] = []
    for choice in choices:
        name, colon, indexes = choice.partition(":")
        there = {row.partition for row in topics[name].get().partitions}
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
    wanted = (*names, *named)
    problems: list[str] = []
    with session.admin() as admin:
        if dry_run:
            found, problems = described_groups(admin, wanted)
            for group in found:
                if group.state == EMPTY:
                    say(f"group {group.group_id} would be deleted")
                else:
                    problems.append(f"group {group.group_id} is {group.state}, not Empty")
            return failures(problems)
        for name, result in admin.delete_groups(wanted).items():
            if result.error is not None:
                problems.append(str(result.error))
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
    with session.admin() as admin:
        places = chosen_partitions(admin, topics)
        if dry_run:
            committed = committed_offsets(admin, group_id)
            rows = [_outcome(place, "Would be deleted") for place in places if place in committed]
        else:
            rows = [
                _outcome(
                    place,
                    "Successful" if result.error is None else f"Error: {result.error.code.name}",
                )
                for place, result in sorted(admin.delete_group_offsets(group_id, places).items())
            ]
    show_rows(session.output_format, rows, columns("topic", "partition>", "status"))
    return int(any(str(row["status"]).startswith("Error") for row in rows))


def _outcome(place: TopicPartition, status: str) -> dict[str, object]:
    return {"topic": place.topic, "partition": place.partition, "status": status}
