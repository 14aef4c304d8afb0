"""Why a group rebalances, and why it lags.

Lag is told of two looks: between them a member that works commits something. `interval_ms` is the
time between the looks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.tools.explain.events import Event
from tidelog.tools.explain.explanation import (
    Explanation,
    Finding,
    Moment,
    duration,
    problem,
    remark,
)
from tidelog.types import TopicPartition

SHOWN_MAX: Final = 5
RECENT_MS: Final = 10 * 60_000
MANY: Final = 3  # rebalances in RECENT_MS that are worth a finding
# What begins a rebalance: a group of the consumer protocol has a new epoch.
BEGINS: Final = ("rebalance-began", "group-epoch-raised")
STORY: Final = (*BEGINS, "rebalance-ended", "member-left", "members-left")

# What the coordinator or a client says of a rebalance, and what it means.
SILENT: Final = "member-silent"
SLOW_POLL: Final = "member-polls-too-rarely"
LEFT: Final = "member-left"
JOINED: Final = "member-joined"
CHANGED: Final = "subscription-changed"
TOPICS: Final = "topics-changed"
REASONS: Final = (
    (SILENT, re.compile(r"session timed out|session timeout|expired heartbeat|no SyncGroup", re.I)),
    (SLOW_POLL, re.compile(r"poll timeout|max\.poll\.interval|it did not .* in time$", re.I)),
    (LEFT, re.compile(r" left: |^it left$|removed by an admin|unsubscribe|closed", re.I)),
    (JOINED, re.compile(r" (re)?joins$| restarted$|new member", re.I)),
    (TOPICS, re.compile(r"^topics changed: |^a pattern stands for other topics$")),
    (CHANGED, re.compile(r"metadata|subscription|protocol", re.I)),
)
MEANING: Final = {
    SILENT: "a member sent no heartbeat for its session.timeout.ms: it died, was paused, or was "
    "cut off",
    SLOW_POLL: "a member took longer than max.poll.interval.ms between two polls",
    LEFT: "a member left: its application was stopped or restarted",
    JOINED: "a member joined",
    CHANGED: "a member changed what it subscribes to",
    TOPICS: "topics that it reads were created or deleted, or got partitions",
}
CURE: Final = {
    SILENT: "look for a member that is killed or paused (memory, garbage collection, network); "
    "session.timeout.ms allows longer pauses",
    SLOW_POLL: "process fewer records a poll (max.poll.records), or raise max.poll.interval.ms",
    LEFT: "if applications restart, group.instance.id keeps their partitions meanwhile",
    JOINED: "if members come and go, look at what restarts them; group.instance.id makes a "
    "restart cheap",
    CHANGED: "deploy all members with the same subscription",
    TOPICS: "the brokers' events topic-created, topic-deleted and partitions-added tell who did it",
}


class Member(NamedTuple):
    member_id: str
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class Progress(NamedTuple):
    """Of the group in one partition. None for what is not known or not there."""

    committed: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    committed_before: int | None = None  # at the first look

    @property
    def lag(self) -> int | None:
        if self.log_end_offset is None:
            return None
        begin = self.committed if self.committed is not None else self.log_start_offset
        return None if begin is None else max(0, self.log_end_offset - begin)


@dataclass
class GroupFacts:
    group_id: str
    state: str | None  # None: there is no such group
    type: str = ""
    coordinator_id: int | None = None
    members: tuple[Member, ...] = ()
    progress: Mapping[TopicPartition, Progress] = field(default_factory=dict)
    interval_ms: int = 0  # between the two looks; 0: there was one
    unknown: list[str] = field(default_factory=list)


def explain_group(facts: GroupFacts, events: Sequence[Event], now_ms: int) -> Explanation:
    own = [each for each in events if each.text("group") == facts.group_id]
    found = Explanation(f"group {facts.group_id}", unknown=list(facts.unknown))
    found.state = state_of(facts)
    found.findings += rebalance_findings(facts, own, now_ms)
    found.findings += lag_findings(facts)
    if facts.state is not None and not found.findings:
        found.findings.append(
            remark("healthy", "nothing is wrong now", "it does not rebalance, and it has no lag")
        )
    found.timeline = [
        Moment(each.at_ms, each.broker_id, each.name, moment_text(each))
        for each in own
        if each.name in STORY
    ]
    return found


def state_of(facts: GroupFacts) -> list[tuple[str, str]]:
    if facts.state is None:
        return [("state", "there is no such group")]
    lags = [each.lag for each in facts.progress.values() if each.lag is not None]
    return [
        ("state", facts.state),
        ("protocol", facts.type),
        ("coordinator", f"broker {facts.coordinator_id}"),
        ("members", str(len(facts.members))),
        ("lag", f"{sum(lags)} in {len(lags)} partitions"),
    ]


# Rebalances


def kind_of(reason: str) -> str:
    """The first that matches: a silent member's reason says that it left, too."""
    for kind, pattern in REASONS:
        if pattern.search(reason):
            return kind
    return "other"


def rebalance_findings(facts: GroupFacts, own: Sequence[Event], now_ms: int) -> Iterator[Finding]:
    if facts.state is None:
        yield problem(
            "no-such-group",
            "there is no such group",
            "nobody has joined it or committed to it, or its offsets have expired "
            "(offsets.retention.minutes)",
            "tidelog group list shows the groups that there are",
        )
        return
    begun = [each for each in own if each.name in BEGINS]
    last = begun[-1] if begun else None
    if facts.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        kind = "other" if last is None else kind_of(last.text("reason"))
        why = "no event tells why" if last is None else reason_text(last)
        yield problem(
            kind if last is not None else "rebalancing",
            f"the group rebalances now ({facts.state})",
            why,
            CURE.get(kind, "ask again; it ends when all members have joined"),
            None if last is None else last.at_ms,
        )
    recent = [each for each in begun if now_ms - each.at_ms <= RECENT_MS]
    lost = [each for each in recent if kind_of(each.text("reason")) in (SILENT, SLOW_POLL)]
    if len(recent) < MANY and not lost:
        return
    counts = Counter(kind_of(each.text("reason")) for each in recent)
    # Silence comes first: members that join after it are often the same ones again.
    main = max(counts, key=lambda kind: (kind in (SILENT, SLOW_POLL), counts[kind]))
    example = next(each for each in reversed(recent) if kind_of(each.text("reason")) == main)
    told = ", ".join(f"{count} x {kind}" for kind, count in counts.most_common())
    times = "once" if len(recent) == 1 else f"{len(recent)} times"
    yield problem(
        main,
        f"the group rebalanced {times} in the last {duration(RECENT_MS)} ({told})",
        f"{MEANING.get(main, 'see the timeline')}; the last time: {reason_text(example)}",
        CURE.get(main, "the timeline has the reasons"),
        recent[0].at_ms,
    )


def reason_text(event: Event) -> str:
    reason = event.text("reason") or "no reason is given"
    if event.name == "members-left":
        return f"{event.text('members')}: {reason}"
    return reason


# Lag


def lag_findings(facts: GroupFacts) -> Iterator[Finding]:
    if facts.state is None:
        return
    lagging = {partition: each for partition, each in facts.progress.items() if (each.lag or 0) > 0}
    owners = {partition: member for member in facts.members for partition in member.assignment}
    for partition, each in sorted(facts.progress.items()):
        start = each.log_start_offset
        if each.committed is not None and start is not None and each.committed < start:
            yield problem(
                "committed-offset-deleted",
                f"the group has committed offset {each.committed} of {partition}, and the log "
                f"starts at {start}",
                f"{start - each.committed} records were deleted before it read them",
                f"tidelog explain record {partition.topic} {partition.partition} {each.committed}",
            )
    if not lagging:
        return
    unowned = {tp: each for tp, each in lagging.items() if tp not in owners}
    if not facts.members:
        yield problem(
            "no-members",
            f"the group has a lag of {_sum(lagging)} in {_some(lagging)}",
            "it has no members: nobody reads for it",
            "start a consumer of the group",
        )
        return
    if unowned and facts.state not in ("PreparingRebalance", "CompletingRebalance"):
        yield problem(
            "not-assigned",
            f"the group has a lag of {_sum(unowned)} in {_some(unowned)}",
            "no member has these partitions: no member subscribes to the topic (any more)",
            "subscribe a member to the topic, or delete the group's offsets there: "
            "tidelog group --help",
        )
    for member in facts.members:
        yield from member_findings(facts, member, lagging)


def member_findings(
    facts: GroupFacts, member: Member, lagging: Mapping[TopicPartition, Progress]
) -> Iterator[Finding]:
    own = {tp: lagging[tp] for tp in member.assignment if tp in lagging}
    if not own:
        return
    who = f"member {member.member_id} (client {member.client_id or '-'} at {member.host})"
    what = f"{who} has a lag of {_sum(own)} in {_some(own)}"
    if all(each.committed is None for each in own.values()):
        yield problem(
            "commits-nothing",
            what,
            "it has these partitions and has committed nothing in them: it does not commit, or is "
            "still at its first records",
            "set enable.auto.commit=true, or commit after processing",
        )
    elif facts.interval_ms and all(e.committed == e.committed_before for e in own.values()):
        yield problem(
            "commits-nothing",
            what,
            f"it has these partitions and committed nothing for {duration(facts.interval_ms)}, "
            "while it sends heartbeats: it is stuck on a record, paused, or does not commit",
            f"look at the log of client {member.client_id or '-'} at {member.host}",
        )
    elif facts.interval_ms:
        done = sum((each.committed or 0) - (each.committed_before or 0) for each in own.values())
        yield remark(
            "catching-up",
            what,
            f"it works: it committed {done} records in {duration(facts.interval_ms)}",
            "more members or partitions read faster",
        )
    else:
        yield remark("lags", what, "whether it moves takes a second look (--interval)")


def _sum(rows: Mapping[TopicPartition, Progress]) -> int:
    return sum(each.lag or 0 for each in rows.values())


def _some(rows: Mapping[TopicPartition, Progress]) -> str:
    names = sorted(rows)
    shown = ", ".join(map(str, names[:SHOWN_MAX]))
    return shown if len(names) <= SHOWN_MAX else f"{shown} and {len(names) - SHOWN_MAX} more"


# The timeline


def moment_text(event: Event) -> str:
    match event.name:
        case "rebalance-began":
            return f"a rebalance began after generation {event.text('generation')}: " + (
                reason_text(event)
            )
        case "group-epoch-raised":
            return f"epoch {event.text('epoch')} began, {_members(event)}: {reason_text(event)}"
        case "rebalance-ended":
            return f"generation {event.text('generation')} began, {_members(event)}"
        case "member-left":
            return f"member {event.text('member')} left: {reason_text(event)}"
        case _:
            return f"members left: {reason_text(event)}"


def _members(event: Event) -> str:
    count = event.number("members")
    return f"{count} {'member' if count == 1 else 'members'}"
