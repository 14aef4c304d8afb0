"""`tidelog reassign plan|execute|verify|cancel`: moves replicas between brokers.

    tidelog reassign plan orders --brokers 1,2,3 > moves.json
    tidelog reassign execute moves.json --throttle 50000000
    tidelog reassign verify moves.json --watch
    tidelog reassign cancel moves.json

The file is that of kafka-reassign-partitions. `plan` moves as few replicas as it can. `verify`
removes the throttle when everything has arrived.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.frame import CommandFailed
from tidelog.tools.cli.output import Column, columns, failures, say, show_data, show_rows
from tidelog.tools.cli.session import ClusterGroup, Session, pass_session
from tidelog.tools.cli.topic import expanded
from tidelog.tools.cli.watch import watch_options, watched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.client.admin.partitions import PartitionReassignment
    from tidelog.client.blocking.admin import Admin
    from tidelog.tools.reassignment import Assignment, WantedMoves
    from tidelog.types import TopicPartition

file_argument = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")


@click.group("reassign", cls=ClusterGroup)
def command() -> None:
    """Move replicas between brokers."""


def _read(path: Path) -> WantedMoves:
    from tidelog.tools.reassignment import BadReassignment, parse_moves

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return parse_moves(text)
    except (BadReassignment, UnicodeDecodeError) as problem:
        raise CommandFailed(f"{path}: {problem}") from problem


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise click.UsageError(f"{text!r} is no list of brokers such as 1,2,3")
    return [int(part) for part in parts]


@command.command("plan")
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics
)
@click.option("--brokers", metavar="1,2,3", help="Where to; all there are by default.")
@click.option("--without", metavar="4", help="All brokers but these.")
@click.option("--replicas", type=click.IntRange(min=1), metavar="N", help="So many afterwards.")
@click.option("--no-racks", is_flag=True, help="Do not look at racks.")
@pass_session
def plan(
    session: Session,
    topics: tuple[str, ...],
    brokers: str | None,
    without: str | None,
    replicas: int | None,
    no_racks: bool,
) -> int:
    """Print a file for `execute` that spreads TOPICs evenly over brokers."""
    from tidelog.tools.reassignment import (
        BadReassignment,
        current_replicas,
        format_moves,
        plan_moves,
    )

    with session.admin() as admin:
        nodes = {
            node.id: None if no_racks else node.rack for node in admin.describe_cluster().nodes
        }
        chosen = _numbers(brokers) if brokers is not None else sorted(nodes)
        left_out = set(_numbers(without)) if without is not None else set()
        for broker_id in {*chosen, *left_out} - nodes.keys():
            raise CommandFailed(
                f"there is no broker {broker_id}. `tidelog cluster brokers` shows them."
            )
        current = current_replicas(admin, expanded(admin, topics))
    allowed = {each: nodes[each] for each in chosen if each not in left_out}
    try:
        planned = plan_moves(current, allowed, replicas)
    except BadReassignment as problem:
        raise CommandFailed(str(problem)) from problem
    moves = {each: new for each, new in planned.items() if new != current[each]}
    if session.output_format is not None:
        show_data(session.output_format, json.loads(format_moves(moves)))
    else:
        print(format_moves(moves))
    replicas_moved = sum(len(set(new) - set(current[each])) for each, new in moves.items())
    say(f"{len(moves)} of {len(current)} partitions change, {replicas_moved} replicas are copied")
    return 0


@command.command("execute")
@file_argument
@click.option(
    "--throttle", type=click.IntRange(min=1), metavar="BYTES", help="At most so many a second."
)
@click.option("--additional", is_flag=True, help="Even if other moves are under way.")
@dry_run_option
@pass_session
def execute(
    session: Session, file: Path, throttle: int | None, additional: bool, dry_run: bool
) -> int:
    """Begin the moves that FILE describes."""
    from tidelog.tools import reassignment

    wanted = _read(file)
    try:
        with session.admin() as admin:
            under_way = admin.list_partition_reassignments()
            if under_way and not additional:
                raise CommandFailed(
                    f"{len(under_way)} moves are under way. --additional begins these as well; "
                    "`tidelog reassign verify` shows how far the others are."
                )
            reassignment.require_brokers(admin, wanted.replicas)
            current = reassignment.replicas_of(admin, wanted.replicas)
            rows = [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "from": current[each],
                    "to": replicas,
                }
                for each, replicas in sorted(wanted.replicas.items())
            ]
            if dry_run:
                show_rows(session.output_format, rows, columns("topic", "partition>", "from", "to"))
                return 0
            return _begin(admin, session, wanted, rows, under_way, current, throttle)
    except reassignment.BadReassignment as problem:
        raise CommandFailed(str(problem)) from problem


def _begin(
    admin: Admin,
    session: Session,
    wanted: WantedMoves,
    rows: list[dict[str, object]],
    under_way: Mapping[TopicPartition, PartitionReassignment],
    current: Assignment,
    throttle: int | None,
) -> int:
    from tidelog.tools import reassignment

    if throttle is not None:
        throttles = reassignment.throttles_for(under_way, wanted.replicas, current)
        reassignment.set_throttles(admin, throttles, throttle)
        say(f"brokers copy at most {throttle:,} bytes/s until `tidelog reassign verify` is done")
    results = admin.alter_partition_reassignments(wanted.replicas)
    problems = [str(result.error) for result in results.values() if result.error is not None]
    if wanted.log_dirs:
        moved = admin.alter_replica_log_dirs(wanted.log_dirs)
        problems += [str(result.error) for result in moved.values() if result.error is not None]
    if not problems:
        show_rows(session.output_format, rows, columns("topic", "partition>", "from", "to"))
    return failures(problems)


def _style(value: object) -> str:
    return {"done": "good", "moving": "warn"}.get(str(value), "bad")


@command.command("verify")
@file_argument
@click.option("--keep-throttle", is_flag=True, help="Leave the throttle at the end.")
@watch_options
@pass_session
def verify(session: Session, file: Path, keep_throttle: bool, watch: bool, interval: float) -> int:
    """Show how far the moves of FILE are; exit code 0 when all are done."""
    from tidelog.tools import reassignment

    wanted = _read(file)

    def show() -> int:
        states, some_under_way = reassignment.states_of(admin, wanted.replicas)
        rows = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "state": _word(state),
                "current": state.current,
                "target": state.target,
            }
            for each, state in states.items()
        ]
        show_rows(
            session.output_format,
            rows,
            [
                *columns("topic", "partition>"),
                Column("STATE", "state", style=_style),
                *columns("current", "target"),
            ],
        )
        if not some_under_way and not keep_throttle:
            brokers = {node.id for node in admin.describe_cluster().nodes}
            reassignment.clear_throttles(admin, {each.topic for each in wanted.replicas}, brokers)
        return int(any(row["state"] != "done" for row in rows))

    with session.admin() as admin:
        return watched(watch, interval, show)


def _word(state: object) -> str:
    from tidelog.tools.reassignment import PartitionState

    assert isinstance(state, PartitionState)
    if not state.is_done:
        return "moving"
    return "done" if state.current == state.target else "not moving"


@command.command("cancel")
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option("--all", "all_moves", is_flag=True, help="All that are under way.")
@dry_run_option
@pass_session
def cancel(session: Session, file: Path | None, all_moves: bool, dry_run: bool) -> int:
    """Stop the moves of FILE, or all; replicas go back to where they were."""
    if (file is None) != all_moves:
        raise click.UsageError("name a FILE, or give --all")
    with session.admin() as admin:
        under_way = admin.list_partition_reassignments()
        wanted = set(under_way) if file is None else set(_read(file).replicas) & set(under_way)
        rows = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "outcome": "would be cancelled" if dry_run else "cancelled",
            }
            for each in sorted(wanted)
        ]
        problems = []
        if not dry_run and wanted:
            results = admin.alter_partition_reassignments(dict.fromkeys(sorted(wanted)))
            problems = [str(result.error) for result in results.values() if result.error]
    show_rows(
        session.output_format,
        [] if problems else rows,
        columns("topic", "partition>", "outcome"),
        empty="No such move is under way.",
    )
    return failures(problems)
