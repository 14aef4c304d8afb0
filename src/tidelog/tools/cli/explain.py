"""`tidelog explain partition|group|txn|record`: why things are as they are.

    partition   who leads and why, who is not in sync, what holds the last stable offset
    group       why it rebalances, why it lags
    txn         what a transactional id is at, why its transaction was aborted
    record      why a record can be seen, or cannot

What holds now is asked of the brokers. The past comes from their events: brokers are asked for them
where they have a metrics listener, `--events` names more listeners, and `--log` reads log files,
also of brokers that are dead.

Exit codes: 0 whatever the answer is, 1 if the cluster cannot be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.clock import SystemClock
from tidelog.tools.cli.completion import complete_groups, complete_topics
from tidelog.tools.cli.frame import Parsed, together
from tidelog.tools.cli.output import printable, show_data, styled
from tidelog.tools.cli.session import ClusterGroup, Session, milliseconds, pass_session
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.blocking.admin import Admin
    from tidelog.tools.explain.events import Event
    from tidelog.tools.explain.explanation import Explanation

MOMENTS_SHOWN: Final = 20
TIMEOUT_MS: Final = 20_000
REQUEST_TIMEOUT_MS: Final = 2_000

Explain = Callable[["Admin", "list[Event]", int], "Explanation"]


@click.group("explain", cls=ClusterGroup)
def command() -> None:
    """Say why a partition, a group, a transaction or a record is as it is."""


sources = together(
    click.option(
        "--events",
        multiple=True,
        metavar="URL",
        help="A broker's metrics listener, where it is not found by itself; may be given often.",
    ),
    click.option(
        "--log",
        "logs",
        multiple=True,
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="A broker's log, logfmt or JSON, also with .gz; may be given often.",
    ),
    click.option(
        "--all", "whole", is_flag=True, help=f"The whole timeline, not the last {MOMENTS_SHOWN}."
    ),
)


@command.command("partition")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("partition", type=click.IntRange(min=0))
@sources
@pass_session
def partition_command(session: Session, topic: str, partition: int, **given: Any) -> int:
    """Who leads and why, who is in sync, what readers wait for."""
    place = TopicPartition(topic, partition)

    def explain(admin: Admin, events: list[Event], now_ms: int) -> Explanation:
        from tidelog.tools.explain.cluster_facts import partition_facts
        from tidelog.tools.explain.partition import explain_partition

        return explain_partition(partition_facts(admin, place), events, now_ms)

    return _answer(session, {"partition": str(place), "topic": topic}, explain, **given)


@command.command("record")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@sources
@pass_session
def record_command(session: Session, topic: str, partition: int, offset: int, **given: Any) -> int:
    """Why a record can be seen, or cannot."""
    place = TopicPartition(topic, partition)

    def explain(admin: Admin, _: list[Event], now_ms: int) -> Explanation:
        from tidelog.tools.explain.cluster_facts import record_facts
        from tidelog.tools.explain.record import explain_record

        facts = record_facts(admin, place, offset)
        subjects = {"partition": str(place), "topic": place.topic}
        if facts.is_transactional:
            subjects["producer_id"] = str(facts.producer_id)
        events, unknown = _past(admin, subjects, **given)
        found = explain_record(facts, events, now_ms)
        found.unknown += unknown
        return found

    return _answer(session, None, explain, **given)


@command.command("group")
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--interval",
    type=Parsed("TIME", milliseconds),
    default="2s",
    show_default=True,
    metavar="TIME",
    help="Between the two looks that show whether a lagging member commits.",
)
@sources
@pass_session
def group_command(session: Session, group: str, interval: int, **given: Any) -> int:
    """Why a group rebalances, and why it lags."""

    def explain(admin: Admin, events: list[Event], now_ms: int) -> Explanation:
        from tidelog.tools.explain.cluster_facts import group_facts
        from tidelog.tools.explain.group import explain_group

        return explain_group(group_facts(admin, group, interval), events, now_ms)

    return _answer(session, {"group": group}, explain, **given)


@command.command("txn")
@click.argument("transactional_id")
@sources
@pass_session
def txn_command(session: Session, transactional_id: str, **given: Any) -> int:
    """What a transactional id is at, and why."""

    def explain(admin: Admin, events: list[Event], now_ms: int) -> Explanation:
        from tidelog.tools.explain.cluster_facts import transaction_facts
        from tidelog.tools.explain.transaction import explain_transaction

        return explain_transaction(transaction_facts(admin, transactional_id), events, now_ms)

    return _answer(session, {"transactional_id": transactional_id}, explain, **given)


def _answer(
    session: Session,
    subjects: Mapping[str, str] | None,
    explain: Explain,
    events: tuple[str, ...],
    logs: tuple[Path, ...],
    whole: bool,
) -> int:
    """`subjects` are what the events are to be about; None: `explain` gets them itself."""
    given: dict[str, Any] = {"events": events, "logs": logs, "whole": whole}
    if session.timeout_given_ms is None:
        session.timeout_given_ms = TIMEOUT_MS
    # A broker that is paused answers nothing, and another one can be asked in its place.
    request_ms = min(REQUEST_TIMEOUT_MS, session.timeout_given_ms)
    for key in ("request.timeout.ms", "socket.connection.setup.timeout.ms"):
        session.properties.setdefault(key, str(request_ms))
    with session.admin() as admin:
        past: list[Event] = []
        unknown: list[str] = []
        if subjects is not None:
            past, unknown = _past(admin, subjects, **given)
        found = explain(admin, past, SystemClock().time_ms())
    found.unknown += unknown
    if session.output_format in (None, "table"):
        for line in lines_of(found, whole=whole):
            print(line)
    else:
        show_data(session.output_format, found.as_data())
    return 0


def _past(
    admin: Admin,
    subjects: Mapping[str, str],
    events: tuple[str, ...],
    logs: tuple[Path, ...],
    whole: bool,
) -> tuple[list[Event], list[str]]:
    from tidelog.tools.explain.cluster_facts import event_urls
    from tidelog.tools.explain.event_sources import gather

    urls, unknown = event_urls(admin) if not events else (list(events), [])
    found = gather(urls, logs, subjects)
    return found.events, unknown + found.unknown


def lines_of(found: Explanation, *, whole: bool) -> list[str]:
    from tidelog.tools.explain.events import spelled

    lines = [styled(printable(found.subject), "head")]
    width = max((len(name) for name, _ in found.state), default=0)
    lines += [f"  {name.ljust(width)}  {printable(value)}" for name, value in found.state]
    for each in found.findings:
        style = "bad" if each.level == "problem" else "good"
        lines.append("")
        lines.append(f"{styled(each.level, style)}: {printable(each.what)} [{each.cause}]")
        lines.append(f"  why: {printable(each.why)}")
        if each.since_ms is not None:
            lines.append(f"  since: {spelled(each.since_ms)}")
        if each.next_step:
            lines.append(f"  next: {printable(each.next_step)}")
    moments = found.timeline if whole else found.timeline[-MOMENTS_SHOWN:]
    if moments:
        lines += ["", styled("timeline", "head")]
    if len(moments) < len(found.timeline):
        lines.append(f"  {len(found.timeline) - len(moments)} older ones: --all shows them")
    for moment in moments:
        teller = "" if moment.broker_id is None else f" [broker {moment.broker_id}]"
        lines.append(f"  {spelled(moment.at_ms)}  {printable(moment.text)}{teller}")
    if found.unknown:
        lines += ["", styled("not known", "head")]
        lines += [f"  {printable(each)}" for each in found.unknown]
    return lines
