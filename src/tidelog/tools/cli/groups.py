"""`tidelog groups list|describe|reset-offsets|delete|delete-offsets`: what Kafka's own tool does,
with its columns.

    list             every group, with --state and --type
    describe         offsets and lag (--offsets, the default), --members or --state
    reset-offsets    where a group without members goes on; shows the plan unless --execute
    delete           groups without members
    delete-offsets   what a group has committed for some topics
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from tidelog.clock import SystemClock
from tidelog.tools.cli.cluster_command import (
    add_bootstrap_server,
    add_bootstrap_server_of_verb,
    fail,
    table,
    with_cluster,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.cluster import Cluster
    from tidelog.client.groups import GroupDescription
    from tidelog.tools.offset_reset import Target

MISSING: Final = "-"


class BadChoice(ValueError):
    """`--topic` does not name partitions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap_server(parser)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="list groups")
    for flag in ("--state", "--type"):
        of_what = f"show the {flag[2:]}, or only these"
        listing.add_argument(flag, nargs="?", const="", metavar="A,B", help=of_what)
    describe = verbs.add_parser("describe", help="offsets and lag, members or state")
    which = describe.add_mutually_exclusive_group(required=True)
    which.add_argument("--group", action="append", metavar="ID")
    which.add_argument("--all-groups", action="store_true")
    what = describe.add_mutually_exclusive_group()
    for flag in ("--offsets", "--members", "--state"):
        what.add_argument(flag, action="store_true")
    describe.add_argument("--verbose", action="store_true", help="members with their partitions")
    reset = verbs.add_parser("reset-offsets", help="where a group goes on reading")
    reset.add_argument("--group", required=True, metavar="ID")
    _add_topics(reset, all_topics=True)
    _add_targets(reset)
    reset.add_argument("--dry-run", action="store_true", help="show the plan only (the default)")
    reset.add_argument("--execute", action="store_true", help="do it")
    delete = verbs.add_parser("delete", help="delete groups without members")
    delete.add_argument("--group", action="append", required=True, metavar="ID")
    offsets = verbs.add_parser("delete-offsets", help="forget what a group has committed")
    offsets.add_argument("--group", required=True, metavar="ID")
    _add_topics(offsets, all_topics=False)
    for verb in (listing, describe, reset, delete, offsets):
        add_bootstrap_server_of_verb(verb)


def _add_topics(parser: argparse.ArgumentParser, *, all_topics: bool) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", action="append", metavar="NAME[:0,1]")
    if all_topics:
        which.add_argument("--all-topics", action="store_true", help="all it has committed for")


def _add_targets(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    for flag in ("--to-earliest", "--to-latest", "--to-current"):
        where.add_argument(flag, action="store_true")
    where.add_argument("--to-offset", type=int, metavar="N")
    where.add_argument("--shift-by", type=int, metavar="N")
    where.add_argument("--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss")
    where.add_argument("--by-duration", metavar="PnDTnHnMnS")


def run(arguments: argparse.Namespace) -> int:
    from tidelog.tools.offset_reset import BadPlan

    verbs = {
        "list": _list,
        "describe": _describe,
        "reset-offsets": _reset_offsets,
        "delete": _delete,
        "delete-offsets": _delete_offsets,
    }
    verb = verbs[arguments.verb]
    try:
        return with_cluster(arguments, lambda cluster: verb(cluster, arguments))
    except (BadPlan, BadChoice) as error:
        return fail(str(error))


def _list(cluster: Cluster, arguments: argparse.Namespace) -> int:
    from tidelog.client.groups import list_groups

    found = list_groups(cluster, states=_words(arguments.state), types=_words(arguments.type))
    if arguments.state is None and arguments.type is None:
        for listing in found:
            print(listing.group_id)
        return 0
    columns = {"GROUP": [listing.group_id for listing in found]}
    if arguments.type is not None:
        columns["TYPE"] = [listing.type.capitalize() for listing in found]
    if arguments.state is not None:
        columns["STATE"] = [listing.state for listing in found]
    print(table(list(columns), list(zip(*columns.values(), strict=True))))
    return 0


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


# describe


def _describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    from tidelog.client.groups import DEAD, EMPTY, describe_group, list_groups

    names = arguments.group or [listing.group_id for listing in list_groups(cluster)]
    described = [describe_group(cluster, name) for name in names]
    code = 0
    for group in described:
        if group.state == DEAD:
            code = fail(f"group {group.group_id} does not exist")
        elif group.state == EMPTY:
            print(f"Group {group.group_id} has no active members.", file=sys.stderr)
    present = [group for group in described if group.state != DEAD]
    if arguments.members:
        print(_members(present, verbose=arguments.verbose))
    elif arguments.state:
        print(_states(present))
    else:
        print(_offsets(cluster, present))
    return code


def _members(groups: list[GroupDescription], *, verbose: bool) -> str:
    headers = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
    rows = [
        (
            group.group_id,
            member.member_id,
            member.instance_id or MISSING,
            member.host,
            member.client_id,
            len(member.partitions),
            *((",".join(map(str, sorted(member.partitions))) or MISSING,) if verbose else ()),
        )
        for group in groups
        for member in group.members
    ]
    return table((*headers, *(("ASSIGNMENT",) if verbose else ())), rows)


def _states(groups: list[GroupDescription]) -> str:
    headers = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    rows = [
        (
            group.group_id,
            f"{group.coordinator.address} ({group.coordinator.node_id})",
            group.assignor or MISSING,
            group.state,
            len(group.members),
        )
        for group in groups
    ]
    return table(headers, rows)


def _offsets(cluster: Cluster, groups: list[GroupDescription]) -> str:
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
    return table(headers, [row for group in groups for row in _offset_rows(cluster, group)])


def _offset_rows(cluster: Cluster, group: GroupDescription) -> list[tuple[object, ...]]:
    from tidelog.client.groups import committed_offsets
    from tidelog.client.offsets import latest_offsets

    committed = committed_offsets(cluster, group.group_id)
    owners = {partition: member for member in group.members for partition in member.partitions}
    places = sorted(committed.keys() | owners.keys())
    topics = cluster.topics({partition.topic for partition in places}) if places else {}
    there = [each for each in places if each.partition in topics[each.topic].partitions]
    ends = latest_offsets(cluster, there)
    rows: list[tuple[object, ...]] = []
    for partition in places:
        offset, end = committed.get(partition), ends.get(partition)
        lag = MISSING if offset is None or end is None else end - offset
        owner = owners.get(partition)
        who = (owner.member_id, owner.host, owner.client_id) if owner else (MISSING,) * 3
        shown = (MISSING if number is None else number for number in (offset, end))
        rows.append((group.group_id, *partition, *shown, lag, *who))
    return rows


# Offsets


def _reset_offsets(cluster: Cluster, arguments: argparse.Namespace) -> int:
    from tidelog.client.groups import (
        DEAD,
        EMPTY,
        commit_offsets,
        committed_offsets,
        describe_group,
    )
    from tidelog.tools.offset_reset import plan

    group_id = arguments.group
    state = describe_group(cluster, group_id).state
    if state not in (EMPTY, DEAD):
        return fail(
            f"offsets can only be reset if group {group_id} is inactive, but its state is {state}"
        )
    committed = committed_offsets(cluster, group_id)
    places: list[TopicPartition] = sorted(committed)
    if not arguments.all_topics:
        places = _chosen_partitions(cluster, arguments.topic)
    planned = plan(cluster, _target(arguments), places, committed)
    print(
        table(
            ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"),
            [(group_id, *partition, offset) for partition, offset in sorted(planned.items())],
        )
    )
    if arguments.execute and planned:
        commit_offsets(cluster, group_id, planned)
    elif not arguments.execute:
        print("Nothing is changed without --execute.", file=sys.stderr)
    return 0


def _target(arguments: argparse.Namespace) -> Target:
    from tidelog.tools.offset_reset import Target, datetime_ms, duration_ms

    if arguments.to_offset is not None:
        return Target("offset", arguments.to_offset)
    if arguments.shift_by is not None:
        return Target("shift", arguments.shift_by)
    if arguments.to_datetime is not None:
        return Target("timestamp", datetime_ms(arguments.to_datetime))
    if arguments.by_duration is not None:
        ago_ms = duration_ms(arguments.by_duration)
        return Target("timestamp", SystemClock().time_ms() - ago_ms)
    kinds = ("earliest", "latest", "current")
    return Target(next(kind for kind in kinds if getattr(arguments, f"to_{kind}")))


def _chosen_partitions(cluster: Cluster, choices: Sequence[str]) -> list[TopicPartition]:
    """By `--topic NAME:0,1,2`, or all of `--topic NAME`. Raises UnknownTopic."""
    found: list[TopicPartition] = []
    for choice in choices:
        name, colon, indexes = choice.partition(":")
        there = cluster.topic(name).partitions
        if not colon:
            found += [TopicPartition(name, index) for index in sorted(there)]
            continue
        for text in indexes.split(","):
            if not text.isascii() or not text.isdigit() or int(text) not in there:
                raise BadChoice(f"topic {name} has no partition {text or '(none given)'}")
            found.append(TopicPartition(name, int(text)))
    return found


def _delete(cluster: Cluster, arguments: argparse.Namespace) -> int:
    from tidelog.client import BrokerRefused
    from tidelog.client.groups import delete_group

    code = 0
    for group_id in arguments.group:
        try:
            delete_group(cluster, group_id)
        except BrokerRefused as refusal:
            code = fail(str(refusal))
        else:
            print(f"Deletion of group {group_id} was successful.")
    return code


def _delete_offsets(cluster: Cluster, arguments: argparse.Namespace) -> int:
    from tidelog.client.groups import delete_offsets
    from tidelog.errors import ErrorCode

    places = _chosen_partitions(cluster, arguments.topic)
    outcome = delete_offsets(cluster, arguments.group, places)
    rows = [
        (*partition, "Successful" if code is ErrorCode.NONE else f"Error: {code.name}")
        for partition, code in sorted(outcome.items())
    ]
    print(table(("TOPIC", "PARTITION", "STATUS"), rows))
    return int(any(code is not ErrorCode.NONE for code in outcome.values()))
