"""kafka-consumer-groups: --list, --describe, --delete, --reset-offsets and --delete-offsets.

As Kafka's, it exits with 0 and says on standard output what went wrong; only wrong usage exits with
1. Plans of --reset-offsets have a line for each partition, which Kafka 3.9 puts on one line.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.tools.cli.completion import complete_groups, complete_topics
from tidelog.tools.cli.frame import is_given
from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.frame import (
    KafkaTool,
    ToolFailed,
    bootstrap_server,
    broker_words,
    config_file,
    java_words,
    require_server,
    wrong_usage,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.groups import GroupDescription
    from tidelog.client.blocking.admin import Admin

ACTIONS: Final = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
SCENARIOS: Final = (
    "to_offset",
    "to_datetime",
    "by_duration",
    "to_earliest",
    "to_latest",
    "to_current",
    "shift_by",
    "from_file",
)
STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
TYPES: Final = ("Consumer", "Classic", "Share")
MISSING: Final = "-"
NO_EXECUTE: Final = (
    "WARN: No action will be performed as the --execute option is missing.In a future major "
    "release, the default behavior of this command will be to prompt the user before executing the "
    "reset rather than doing a dry run. You should add the --dry-run option explicitly if you are "
    "scripting this command and want to keep the current default behavior without prompting."
)

Plan = dict[TopicPartition, int]


@click.command("kafka-consumer-groups", cls=KafkaTool)
@bootstrap_server
@config_file("--command-config")
@click.option("--list", "list", is_flag=True, help="List all consumer groups.")
@click.option("--describe", is_flag=True, help="Show offsets, members or states of groups.")
@click.option("--delete", is_flag=True, help="Delete groups without members.")
@click.option("--reset-offsets", is_flag=True, help="Set where a group goes on.")
@click.option("--delete-offsets", is_flag=True, help="Delete offsets of a group.")
@click.option("--group", "groups", multiple=True, metavar="ID", shell_complete=complete_groups)
@click.option("--all-groups", is_flag=True)
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME[:0,1]", shell_complete=complete_topics
)
@click.option("--all-topics", is_flag=True)
@click.option("--members", is_flag=True, help="For --describe.")
@click.option("--offsets", is_flag=True, help="For --describe; the default.")
@click.option("--state", is_flag=False, flag_value="", metavar="[STATES]")
@click.option("--type", "type", is_flag=False, flag_value="", metavar="[TYPES]")
@click.option("--verbose", is_flag=True, help="Members with their partitions.")
@click.option("--timeout", type=int, default=5_000, metavar="MS", show_default=True)
@click.option("--dry-run", is_flag=True, help="Show the plan only (the default).")
@click.option("--execute", is_flag=True, help="Do it.")
@click.option("--export", is_flag=True, help="Print the plan as CSV.")
@click.option("--to-offset", type=int, metavar="N")
@click.option("--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss")
@click.option("--by-duration", metavar="PnDTnHnMnS")
@click.option("--to-earliest", is_flag=True)
@click.option("--to-latest", is_flag=True)
@click.option("--to-current", is_flag=True)
@click.option("--shift-by", type=int, metavar="N")
@click.option("--from-file", type=click.Path(path_type=Path), metavar="FILE", help="CSV.")
@pass_session
def command(session: Session, **flags: Any) -> int:
    """List, describe, delete and reset consumer groups."""
    from tidelog.client.errors import ClientError

    given = [action for action in ACTIONS if flags[action]]
    require_server(session)
    if len(given) != 1:
        raise wrong_usage(
            "Command must include exactly one action: --list, --describe, --delete, "
            "--reset-offsets, --delete-offsets"
        )
    (action,) = given
    require_sensible(action, flags)
    session.timeout_given_ms = flags["timeout"]
    try:
        with session.plain_admin() as admin:
            _DO[action](admin, flags)
    except ClientError as error:
        _print_error(f"Executing consumer group command failed due to {broker_words(error)}")
    return 0


def require_sensible(action: str, flags: Mapping[str, Any]) -> None:
    names = "[all-groups], [group]"
    if action in ("describe", "delete", "reset_offsets") and not (
        flags["groups"] or flags["all_groups"]
    ):
        raise wrong_usage(
            f"Option [{action.replace('_', '-')}] takes one of these options: {names}"
        )
    if action == "describe":
        views = [flags["members"], flags["offsets"], flags["state"] is not None]
        if sum(map(bool, views)) > 1:
            raise wrong_usage(
                "Option [describe] takes at most one of these options: [members], [offsets], "
                "[state]"
            )
        if flags["state"]:
            raise wrong_usage("Option [describe] does not take a value for [state]")
    if action == "delete" and flags["topics"]:
        raise wrong_usage(
            "The consumer does not support topic-specific offset deletion from a consumer group."
        )
    if action == "delete_offsets" and not (flags["groups"] and flags["topics"]):
        raise wrong_usage("Option [delete-offsets] takes the following options: [group], [topic]")
    if action == "reset_offsets":
        _require_sensible_reset(flags)


def _require_sensible_reset(flags: Mapping[str, Any]) -> None:
    if flags["dry_run"] and flags["execute"]:
        raise wrong_usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not flags["dry_run"] and not flags["execute"]:
        print(NO_EXECUTE, file=sys.stderr)
    chosen = [name for name in SCENARIOS if is_given(flags[name])]
    if len(chosen) > 1:
        first, second = (name.replace("_", "-") for name in chosen[:2])
        raise wrong_usage(f'Option "[{first}]" can\'t be used with option "[{second}]"')
    if not chosen:
        names = ", ".join(f"[{name.replace('_', '-')}]" for name in SCENARIOS)
        raise wrong_usage(
            f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]"
        )
    if not (flags["topics"] or flags["all_topics"] or flags["from_file"]):
        raise wrong_usage("One of the reset scopes should be defined: --all-topics, --topic.")


def _print_error(message: str) -> None:
    print(f"\nError: {message}")


# list


def _list(admin: Admin, flags: Mapping[str, Any]) -> None:
    if flags["state"] is None and flags["type"] is None:
        for listing in admin.list_groups():
            print(listing.group_id)
        return
    states = _checked(flags["state"], STATES, "state", "states")
    types = _checked(flags["type"], TYPES, "types", "types")
    rows = admin.list_groups(states=states, types=types)
    width = max([15, *(len(row.group_id) for row in rows)]) + 10
    cells = [["GROUP"]] + [[row.group_id] for row in rows]
    if flags["type"] is not None:
        for cell, value in zip(cells, ["TYPE", *(row.type for row in rows)], strict=True):
            cell.append(f"{value if value == 'TYPE' else value.capitalize():<20}")
    if flags["state"] is not None:
        for cell, value in zip(cells, ["STATE", *(row.state for row in rows)], strict=True):
            cell.append(f"{value:<20}")
    for cell in cells:
        print(" ".join([f"{cell[0]:<{width}}", *cell[1:]]))


def _checked(text: str | None, known: Sequence[str], word: str, words: str) -> list[str]:
    found = []
    for part in (text or "").split(","):
        name = part.strip()
        if not name:
            continue
        match = next((each for each in known if each.lower() == name.lower()), None)
        if match is None:
            raise wrong_usage(
                f"Invalid {word} list '{text}'. Valid {words} are: {', '.join(known)}"
            )
        found.append(match)
    return found


# describe


def _describe(admin: Admin, flags: Mapping[str, Any]) -> None:
    for group in _described(admin, flags):
        if flags["members"]:
            _print_members(group, verbose=flags["verbose"])
        elif flags["state"] is not None:
            _print_state(group)
        else:
            _print_offsets(admin, group)


def _names(admin: Admin, flags: Mapping[str, Any]) -> list[str]:
    if flags["all_groups"]:
        return [listing.group_id for listing in admin.list_groups()]
    return list(flags["groups"])


def _described(admin: Admin, flags: Mapping[str, Any]) -> list[GroupDescription]:
    """By name; one that does not exist is reported."""
    from tidelog.errors import ErrorCode

    found = []
    for name, result in sorted(admin.describe_groups(_names(admin, flags)).items()):
        error = result.error
        is_gone = error is not None and error.code is ErrorCode.GROUP_ID_NOT_FOUND
        if is_gone or result.get().state == "Dead":
            _print_error(f"Consumer group '{name}' does not exist.")
        else:
            found.append(result.get())
    return found


def _is_worth_printing(group: GroupDescription, rows: int) -> bool:
    if group.state == "Empty":
        print(f"\nConsumer group '{group.group_id}' has no active members.", file=sys.stderr)
    elif group.state != "Stable":
        print(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", file=sys.stderr)
    return rows > 0


def _print_offsets(admin: Admin, group: GroupDescription) -> None:
    from tidelog.protocol.listed_timestamps import LATEST

    committed = {
        each: row.offset
        for each, row in admin.list_group_offsets(group.group_id).items()
        if row is not None
    }
    owned = [
        (partition, member)
        for member in sorted(group.members, key=lambda member: -len(member.assignment))
        for partition in sorted(member.assignment, key=lambda each: each.partition)
    ]
    taken = {partition for partition, _ in owned}
    rest = sorted((each for each in committed if each not in taken), key=lambda e: e.partition)
    places = [*(partition for partition, _ in owned), *rest]
    ends = admin.list_offsets(dict.fromkeys(places, LATEST))
    members = dict(owned)
    rows = []
    for place in places:
        offset = committed.get(place)
        end = ends[place].get().offset if ends[place].error is None else None
        lag = None if offset is None or end is None else end - offset
        member = members.get(place)
        who = (member.member_id, member.host, member.client_id) if member else (MISSING,) * 3
        numbers = (MISSING if number is None else number for number in (offset, end, lag))
        rows.append((group.group_id, place.topic, place.partition, *numbers, *who))
    if not _is_worth_printing(group, len(rows)):
        return
    headers = (
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    )
    widths = [_width(rows, 0, 15), _width(rows, 1, 15), 10, 15, 15, 15]
    widths += [_width(rows, 6, 15), _width(rows, 7, 15), 0]
    # Kafka begins each line with its end: the output ends without one, which we add.
    for row in (headers, *rows):
        print(f"\n{_line(row, widths)}", end="")
    print()


def _width(rows: Sequence[Sequence[object]], index: int, least: int) -> int:
    return max([least, *(len(str(row[index])) for row in rows)])


def _line(cells: Sequence[object], widths: Sequence[int]) -> str:
    return " ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, widths, strict=True))


def _print_members(group: GroupDescription, *, verbose: bool) -> None:
    rows: list[tuple[object, ...]] = []
    has_instances = any(member.group_instance_id for member in group.members)
    for member in group.members:
        instance = (member.group_instance_id or "",) if has_instances else ()
        rows.append(
            (
                group.group_id,
                member.member_id,
                *instance,
                member.host,
                member.client_id,
                len(member.assignment),
            )
        )
    _is_worth_printing(group, len(rows))  # without members there are the headers
    middle = ("GROUP-INSTANCE-ID",) if has_instances else ()
    headers = ("GROUP", "CONSUMER-ID", *middle, "HOST", "CLIENT-ID", "#PARTITIONS")
    least = [15, 15, *([17] if has_instances else []), 15, 15]
    widths = [*(_width(rows, index, width) for index, width in enumerate(least)), 15]
    print(f"\n{_line(headers, widths)} {'ASSIGNMENT' if verbose else ''}")
    for row, member in zip(rows, group.members, strict=True):
        assigned = assignment_text(member.assignment) if verbose else ""
        print(f"{_line(row, widths)} {assigned}")


def assignment_text(partitions: Sequence[TopicPartition]) -> str:
    by_topic: dict[str, list[str]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(str(index))
    groups = sorted(f"({','.join(sorted(each))})" for each in by_topic.values())
    return ", ".join(groups) or MISSING


def _print_state(group: GroupDescription) -> None:
    if not _is_worth_printing(group, 1):
        return
    node = group.coordinator
    coordinator = f"{node.host}:{node.port}  ({node.id})"
    widths = [max(25, len(coordinator)), 25, 20, 15, 0]
    headers = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    row = (group.group_id, coordinator, group.assignor, group.state, len(group.members))
    print(f"\n{_line(headers, widths)}\n{_line(row, widths)}")


# Changes


def _delete(admin: Admin, flags: Mapping[str, Any]) -> None:
    done, failed = [], {}
    for name, result in admin.delete_groups(_names(admin, flags)).items():
        if result.error is None:
            done.append(name)
        else:
            failed[name] = result.error
    if not failed:
        names = ", ".join(done)
        print(f"Deletion of requested consumer groups ('{names}') was successful.")
        return
    _print_error("Deletion of some consumer groups failed:")
    for name, error in failed.items():
        reason = f"java.util.concurrent.ExecutionException: {java_words(error)}"
        print(f"* Group '{name}' could not be deleted due to: {reason}")
    if done:
        print(f"\nThese consumer groups were deleted successfully: '{', '.join(done)}'")


def _partitions(admin: Admin, topics: Sequence[str]) -> list[TopicPartition]:
    """Of `NAME:0,1` without a look, of `NAME` all that there are."""
    found, whole = [], []
    for topic in topics:
        name, colon, indexes = topic.partition(":")
        if not colon:
            whole.append(name)
            continue
        for index in indexes.split(","):
            if not (index.isascii() and index.isdigit()):
                raise wrong_usage(f"Invalid partition '{index}' specified in topic arg '{topic}''")
            found.append(TopicPartition(name, int(index)))
    for result in admin.describe_topics(whole).values():
        description = result.get()
        found += [TopicPartition(description.name, row.partition) for row in description.partitions]
    return found


def _reset(admin: Admin, flags: Mapping[str, Any]) -> None:
    from tidelog.errors import ErrorCode

    plans: dict[str, Plan] = {}
    for name, result in admin.describe_groups(_names(admin, flags)).items():
        error = result.error
        is_new = error is not None and error.code is ErrorCode.GROUP_ID_NOT_FOUND
        state = "Dead" if is_new else result.get().state
        if state not in ("Empty", "Dead"):
            _print_error(
                f"Assignments can only be reset if the group '{name}' is inactive, but the current "
                f"state is {state}."
            )
            plans[name] = {}
            continue
        plans[name] = _plan(admin, name, flags)
        if flags["execute"] and plans[name]:
            for outcome in admin.alter_group_offsets(name, plans[name]).values():
                outcome.get()
    if flags["export"]:
        print(plan_as_csv(plans, with_group=len(flags["groups"]) != 1))
        return
    line = "{:<30} {:<30} {:<10} {:<15}"
    print("\n" + line.format("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"))
    for name, plan in plans.items():
        for partition, offset in sorted(plan.items()):
            print(line.format(name, partition.topic, partition.partition, offset))


def _plan(admin: Admin, group_id: str, flags: Mapping[str, Any]) -> Plan:
    from tidelog.tools.cli.group import reset_target
    from tidelog.tools.offset_reset import BadPlan, Target, plan

    committed = {
        each: row.offset
        for each, row in admin.list_group_offsets(group_id).items()
        if row is not None
    }
    if flags["from_file"] is not None:
        wanted = plan_from_csv(flags["from_file"].read_text(), group_id)
        found: Plan = {}
        for partition, offset in wanted.items():
            found |= plan(admin, Target("offset", offset), [partition], committed)
        return found
    places = sorted(committed) if flags["all_topics"] else _partitions(admin, flags["topics"])
    chosen = next(name for name in SCENARIOS if is_given(flags[name]))
    try:
        target = reset_target(f"--{chosen.replace('_', '-')}", flags[chosen])
        return plan(admin, target, places, committed)
    except BadPlan as problem:
        raise wrong_usage(str(problem)) from problem


def plan_as_csv(plans: Mapping[str, Plan], *, with_group: bool) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for name, plan in plans.items():
        for partition, offset in sorted(plan.items()):
            row = (partition.topic, partition.partition, offset)
            writer.writerow((name, *row) if with_group else row)
    return out.getvalue()


def plan_from_csv(text: str, group_id: str) -> Plan:
    """`topic,partition,offset`, or with the group before it."""
    found: Plan = {}
    for row in csv.reader(io.StringIO(text)):
        if not row:
            continue
        if len(row) == 4:
            group, *row = row
            if group != group_id:
                continue
        try:
            topic, index, offset = row
            found[TopicPartition(topic, int(index))] = int(offset)
        except ValueError:
            raise ToolFailed(f"{','.join(row)} is no line such as topic,partition,offset") from None
    return found


def _delete_offsets(admin: Admin, flags: Mapping[str, Any]) -> None:
    from tidelog.errors import ErrorCode

    group_id = flags["groups"][0]
    partitions = _partitions(admin, flags["topics"])
    results = admin.delete_group_offsets(group_id, partitions)
    codes = [result.error.code for result in results.values() if result.error is not None]
    code = codes[0] if codes else ErrorCode.NONE
    if not codes:
        topics = ", ".join(flags["topics"])
        print(f"Request succeed for deleting offsets with topic {topics} group {group_id}")
    else:
        _print_error(
            _REFUSALS.get(code, "Encounter some unknown error: {1}").format(group_id, code.name)
        )
    line = "{:<30} {:<15} {:<15}"
    print("\n" + line.format("TOPIC", "PARTITION", "STATUS"))
    for partition, result in sorted(results.items()):
        status = "Successful"
        if result.error is not None:
            status = f"Error: :{broker_words(result.error)}"
        print(line.format(partition.topic, partition.partition, status))


def _refusals() -> dict[Any, str]:
    from tidelog.errors import ErrorCode

    details = "Encounter some partition level error, see the follow-up details:"
    return {
        ErrorCode.INVALID_GROUP_ID: "'{0}' is not valid.",
        ErrorCode.GROUP_ID_NOT_FOUND: "'{0}' does not exist.",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "Access to '{0}' is not authorized.",
        ErrorCode.NON_EMPTY_GROUP: "Deleting offsets of a consumer group '{0}' is forbidden if the "
        "group is not empty.",
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: details,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: details,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: details,
    }


_REFUSALS: Final = _refusals()
_DO: Final = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset_offsets": _reset,
    "delete_offsets": _delete_offsets,
}
