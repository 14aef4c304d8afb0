"""Why a partition is led, replicated and readable as it is.

The findings come from what the brokers say now. Events say since when, and why; without them the
findings still hold, and say less. Leader epochs make the backbone of the timeline: one moment each,
told by the controller (`leader-elected`), else by the leader (`partition-leading`), else by a
follower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.tools.explain.events import Event, of_present_topic, spelled
from tidelog.tools.explain.explanation import (
    Explanation,
    Finding,
    Moment,
    brokers,
    duration,
    listed,
    problem,
    remark,
)
from tidelog.types import NO_LEADER, TopicPartition

SOON_MS: Final = 60_000  # what happened within this time before an election may be its cause
SHOWN_MAX: Final = 3
ELECTED: Final = "leader-elected"
LEADING: Final = "partition-leading"
FOLLOWING: Final = "partition-following"
TOLD_EPOCHS: Final = (ELECTED, LEADING, FOLLOWING)  # the best witness first


class OpenTransaction(NamedTuple):
    """From `transactional_id` on what its coordinator says, if one knows the producer."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int
    transactional_id: str | None = None
    state: str | None = None
    started_ms: int | None = None
    timeout_ms: int | None = None


@dataclass
class PartitionFacts:
    partition: TopicPartition
    replicas: tuple[int, ...]
    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    live: frozenset[int]  # brokers that are there
    eligible: tuple[int, ...] = ()  # may lead though they are not in sync (KIP-966)
    min_insync_replicas: int | None = None
    unclean_election: bool | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_end_offset: int | None = None
    open_transactions: tuple[OpenTransaction, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    @property
    def preferred(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER


def explain_partition(facts: PartitionFacts, events: Sequence[Event], now_ms: int) -> Explanation:
    """`events` are in order (`in_order`)."""
    events = of_present_topic(events, facts.partition.topic)
    own = [each for each in events if each.text("partition") == str(facts.partition)]
    terms = terms_of(own, events)
    found = Explanation(str(facts.partition), state_of(facts), unknown=list(facts.unknown))
    found.findings += leader_findings(facts, terms, own, events)
    found.findings += replica_findings(facts, own, events, now_ms)
    found.findings += stable_findings(facts, now_ms)
    if not any(found.findings[1:]) and not found.has_problem:
        found.findings.append(
            remark(
                "healthy", "nothing is wrong now", "all replicas are in sync, nothing is held up"
            )
        )
    found.timeline = timeline_of(facts, terms, own, events)
    return found


def state_of(facts: PartitionFacts) -> list[tuple[str, str]]:
    leader = "none" if facts.leader_id == NO_LEADER else f"broker {facts.leader_id}"
    rows = [
        ("leader", f"{leader}, epoch {facts.leader_epoch}"),
        ("replicas", listed(facts.replicas)),
        ("in sync", listed(facts.isr)),
    ]
    for name, value in (
        ("min.insync.replicas", facts.min_insync_replicas),
        ("log start offset", facts.log_start_offset),
        ("last stable offset", facts.last_stable_offset),
        ("high watermark", facts.high_watermark),
        ("log end offset", facts.log_end_offset),
    ):
        if value is not None:
            rows.append((name, str(value)))
    return rows


# Who leads, and why


class Term(NamedTuple):
    """A leader epoch, as well as anybody tells of it."""

    epoch: int
    leader_id: int
    isr: tuple[int, ...]
    at_ms: int
    told_by: int | None
    event: str
    why: str


def terms_of(own: Sequence[Event], events: Sequence[Event]) -> list[Term]:
    witnesses: dict[int, Event] = {}
    for event in own:
        epoch = event.number("leader_epoch")
        if epoch is None or event.name not in TOLD_EPOCHS or event.number("leader") is None:
            continue
        best = witnesses.get(epoch)
        if best is None or TOLD_EPOCHS.index(event.name) < TOLD_EPOCHS.index(best.name):
            witnesses[epoch] = event
    terms: list[Term] = []
    for epoch, event in sorted(witnesses.items()):
        before = terms[-1] if terms else None
        leader = event.number("leader")
        assert leader is not None
        isr = event.numbers("isr")
        why = why_led(event, epoch, leader, isr, before, events)
        terms.append(Term(epoch, leader, isr, event.at_ms, event.broker_id, event.name, why))
    return terms


def why_led(
    event: Event,
    epoch: int,
    leader: int,
    isr: tuple[int, ...],
    before: Term | None,
    events: Sequence[Event],
) -> str:
    was = event.number("was")
    if was is None and before is not None and before.epoch == epoch - 1:
        was = before.leader_id
    reason = event.text("reason")
    if reason == "leader-gone":
        return f"broker {was} led before and is gone{_how_it_went(was, event.at_ms, events)}"
    if reason == "controlled-shutdown":
        return f"broker {was} led before and shuts down"
    if reason == "preferred":
        return f"it is the preferred leader (the first replica), and took over from broker {was}"
    if reason == "reassignment":
        return f"the replicas were reassigned, and broker {was} gave up the lead"
    if reason == "replica-back":
        return "nobody led, and it came back"
    if reason == "unclean":
        return (
            "no replica in sync was left, and an unclean election was allowed: records that only "
            "the lost replicas had are gone"
        )
    if was is None:
        return "it is the first leader" if epoch == 0 else "the events do not say why"
    if leader == NO_LEADER:
        return f"broker {was} led before, and no replica in sync is there"
    if was == leader:
        left = sorted(set(before.isr if before is not None else ()) - set(isr))
        if left:
            gone = _how_it_went(left[0], event.at_ms, events)
            return f"it stays leader; {brokers(left)} left the in-sync set{gone}"
        return "it stays leader, in a new epoch"
    how = _how_it_went(was, event.at_ms, events)
    if how:
        return f"broker {was} led before and is gone{how}"
    return f"it took over from broker {was}; no event says why"


def _how_it_went(broker_id: int | None, at_ms: int, events: Sequence[Event]) -> str:
    """What is known of the end of a broker shortly before."""
    for event in reversed(events):
        if not at_ms - SOON_MS <= event.at_ms <= at_ms + SOON_MS:
            continue
        if event.name in ("broker-stopping", "broker-stopped") and event.broker_id == broker_id:
            return f" (it was stopped at {spelled(event.at_ms)})"
    for event in reversed(events):
        if not at_ms - SOON_MS <= event.at_ms <= at_ms + SOON_MS:
            continue
        if event.name == "brokers-changed" and broker_id in event.numbers("gone"):
            return f" (the controller missed it at {spelled(event.at_ms)})"
    return ""


def leader_findings(
    facts: PartitionFacts, terms: Sequence[Term], own: Sequence[Event], events: Sequence[Event]
) -> Iterator[Finding]:
    partition = facts.partition
    if facts.leader_id == NO_LEADER or facts.leader_id not in facts.live:
        yield offline_finding(facts, own, events)
        return
    term = terms[-1] if terms and terms[-1].epoch == facts.leader_epoch else None
    what = f"broker {facts.leader_id} leads in epoch {facts.leader_epoch}"
    if term is not None:
        yield remark("leader", what, term.why, since_ms=term.at_ms)
    elif len(facts.replicas) == 1:
        yield remark("leader", what, "it has the only replica")
    else:
        yield remark("leader", what, "no event tells why")
    if facts.leader_id == facts.preferred:
        return
    preferred = facts.preferred
    what = f"broker {preferred} is the preferred leader and does not lead"
    elect = f"tidelog elect {partition.topic}:{partition.partition}"
    if preferred not in facts.live:
        yield problem(
            "preferred-leader-gone",
            what,
            f"broker {preferred} is not there",
            f"start broker {preferred}; once it is in sync: {elect}",
        )
    elif preferred not in facts.isr:
        yield problem(
            "preferred-leader-lags",
            what,
            f"broker {preferred} is there, but not in sync",
            f"wait until it is in sync, then: {elect}",
        )
    else:
        yield remark(
            "preferred-leader-waits",
            what,
            f"broker {preferred} is in sync again; leadership moves back by an election only",
            f"{elect}, or wait for auto.leader.rebalance.enable",
        )


def offline_finding(
    facts: PartitionFacts, own: Sequence[Event], events: Sequence[Event]
) -> Finding:
    partition = facts.partition
    what = "the partition has no leader: it takes no reads and no writes"
    missing = next((each for each in reversed(own) if each.name == "leader-missing"), None)
    since_ms = None if missing is None else missing.at_ms
    able = [each for each in (*facts.isr, *facts.eligible) if each in facts.live]
    if able:
        return problem(
            "leader-being-elected",
            what,
            f"{brokers(able)} may lead and {'are' if len(able) > 1 else 'is'} there: the "
            "controller has not elected yet, or there is no controller",
            "tidelog cluster health",
            since_ms,
        )
    last = facts.isr or facts.replicas
    others = [each for each in facts.replicas if each in facts.live]
    why = f"the replicas in sync were {listed(last)}, and none of them is there"
    if since_ms is not None:
        why += _how_it_went(last[0] if last else None, since_ms, events)
    step = f"start {brokers(last)}"
    if others:
        why += (
            f"; {brokers(others)} {'are' if len(others) > 1 else 'is'} there, but may lack records "
            "that were acknowledged, so unclean.leader.election.enable=false forbids it to lead"
        )
        step += (
            f". If they are lost for good, tidelog elect {partition.topic}:{partition.partition} "
            "--unclean loses those records"
        )
    return problem("offline", what, why, step, since_ms)


# Who is in sync


def replica_findings(
    facts: PartitionFacts, own: Sequence[Event], events: Sequence[Event], now_ms: int
) -> Iterator[Finding]:
    missing = [each for each in facts.replicas if each not in facts.isr]
    if facts.leader_id == NO_LEADER:
        return
    for broker_id in missing:
        yield missing_replica(facts, broker_id, own, events)
    needed = facts.min_insync_replicas
    if needed is None:
        return
    count = len(facts.isr)
    what = f"{count} of {len(facts.replicas)} replicas in sync, min.insync.replicas={needed}"
    topic = facts.partition.topic
    if count < needed:
        held = ""
        high, end = facts.high_watermark, facts.log_end_offset
        if high is not None and end is not None and end > high:
            held = f"; records from offset {high} to {end - 1} wait for them"
        lowest = f"tidelog topic alter {topic} -c min.insync.replicas={count}"
        yield problem(
            "under-min-isr",
            what,
            "producers with acks=all are refused (NOT_ENOUGH_REPLICAS), and those under way time "
            f"out{held}",
            f"bring back {brokers(missing)}, or accept less safety: {lowest}",
        )
    elif count == needed and missing:
        yield remark(
            "at-min-isr",
            what,
            "producers with acks=all are served, and one more loss stops them",
            f"bring back {brokers(missing)}",
        )


def missing_replica(
    facts: PartitionFacts, broker_id: int, own: Sequence[Event], events: Sequence[Event]
) -> Finding:
    what = f"broker {broker_id} is not in sync"
    shrink = next(
        (
            each
            for each in reversed(own)
            if each.name == "isr-shrinking" and broker_id in each.numbers("laggards")
        ),
        None,
    )
    if broker_id not in facts.live:
        gone = next(
            (
                each
                for each in reversed(events)
                if each.name == "brokers-changed" and broker_id in each.numbers("gone")
            ),
            None,
        )
        since_ms = gone.at_ms if gone is not None else None
        told = "the controller missed it" if gone is not None else "the cluster does not list it"
        return problem(
            "replica-gone",
            what,
            f"it is not there: {told}",
            f"start broker {broker_id}; tidelog cluster health --watch shows it catch up",
            since_ms,
        )
    if shrink is None:
        return problem(
            "replica-lags",
            what,
            "it is there and has not caught up; no event tells since when",
            f"look at the log and the load of broker {broker_id}",
        )
    return problem(
        "replica-silent" if _is_silent(shrink, broker_id) else "replica-lags",
        what,
        why_left(shrink, broker_id),
        f"look at the log, the load and the network of broker {broker_id}",
        shrink.at_ms,
    )


def _row(shrink: Event, broker_id: int) -> Mapping[str, object]:
    row = shrink.table("followers").get(str(broker_id))
    return row if isinstance(row, dict) else {}


def _is_silent(shrink: Event, broker_id: int) -> bool:
    limit, silent = shrink.number("lag_time_max_ms"), _row(shrink, broker_id).get("silent_ms")
    return isinstance(silent, int) and limit is not None and silent > limit // 2


def why_left(shrink: Event, broker_id: int) -> str:
    """What the leader saw when it left the follower out."""
    row = _row(shrink, broker_id)
    limit = shrink.number("lag_time_max_ms")
    limit_text = "replica.lag.time.max.ms" + ("" if limit is None else f"={limit}")
    silent, stands = row.get("silent_ms"), row.get("log_end_offset")
    end = shrink.number("log_end_offset")
    behind = ""
    if isinstance(stands, int) and end is not None:
        behind = f", {end - stands} records behind" if 0 <= stands <= end else ", position unknown"
    if isinstance(silent, int) and _is_silent(shrink, broker_id):
        return (
            f"it fetched nothing for {duration(silent)}{behind}, which is longer than {limit_text} "
            "allows: it is stopped, stuck, or cut off from the leader"
        )
    return f"it fetched, but did not catch up within {limit_text}{behind}: it is too slow"


# What readers of committed records wait for


def stable_findings(facts: PartitionFacts, now_ms: int) -> Iterator[Finding]:
    stable, high = facts.last_stable_offset, facts.high_watermark
    if stable is None or high is None or stable >= high:
        return
    what = (
        f"the last stable offset is {stable}, {high - stable} below the high watermark {high}: "
        "consumers with read_committed see nothing from there on"
    )
    holders = sorted(facts.open_transactions, key=lambda each: each.start_offset)
    if not holders:
        yield problem(
            "stable-offset-held",
            what,
            "the leader names no open transaction: it has just ended, or the broker does not tell "
            "(DescribeProducers, from Kafka 3.0)",
            f"tidelog txn find-hanging --topic {facts.partition.topic}",
        )
        return
    first = holders[0]
    why, step, cause = holder_story(facts.partition, first, now_ms)
    if len(holders) > 1:
        why += f"; {len(holders) - 1} more open behind it"
    yield problem(cause, what, why, step, first.started_ms or first.last_timestamp_ms)


def holder_story(
    partition: TopicPartition, holder: OpenTransaction, now_ms: int
) -> tuple[str, str, str]:
    """Why it holds, what to do, and the cause."""
    who = f"producer {holder.producer_id} (epoch {holder.producer_epoch})"
    abort = (
        f"tidelog txn abort --topic {partition.topic} --partition {partition.partition} "
        f"--start-offset {holder.start_offset}"
    )
    opened = f"has had a transaction open since offset {holder.start_offset}"
    wrote = f"and wrote last {duration(now_ms - holder.last_timestamp_ms)} ago"
    if holder.transactional_id is None:
        why = f"{who} {opened} {wrote}; no coordinator knows it, so nobody will end it"
        return why, abort, "hanging-transaction"
    who = f"{who} of transactional id {holder.transactional_id}"
    if holder.state in ("PrepareCommit", "PrepareAbort"):
        why = f"{who} {opened}; its end is decided ({holder.state}), and the marker is not here yet"
        step = f"tidelog explain txn {holder.transactional_id} says what it waits for"
        return why, step, "transaction-ending"
    if holder.started_ms is None or holder.timeout_ms is None:
        why = f"{who} {opened} {wrote}; its coordinator has no transaction open"
        return why, abort, "hanging-transaction"
    left_ms = holder.started_ms + holder.timeout_ms - now_ms
    why = f"{who} {opened}, {duration(now_ms - holder.started_ms)} ago, {wrote}"
    if left_ms > 0:
        step = f"the coordinator aborts it in {duration(left_ms)}; sooner: {abort}"
    else:
        step = (
            f"its timeout ({duration(holder.timeout_ms)}) is over, so it ends soon; else: {abort}"
        )
    return why, step, "open-transaction"


# The timeline


def timeline_of(
    facts: PartitionFacts, terms: Sequence[Term], own: Sequence[Event], events: Sequence[Event]
) -> list[Moment]:
    by_epoch = {term.epoch: term for term in terms}
    moments = []
    for event in events:
        epoch = event.number("leader_epoch")
        if event.name in TOLD_EPOCHS and event.text("partition") == str(facts.partition):
            term = by_epoch.pop(epoch, None) if epoch is not None else None
            if term is not None:
                leader = "nobody" if term.leader_id == NO_LEADER else f"broker {term.leader_id}"
                text = f"{leader} leads in epoch {term.epoch}, in sync {listed(term.isr)}"
                moments.append(Moment(term.at_ms, term.told_by, term.event, f"{text}: {term.why}"))
            continue
        text = moment_text(event, facts)
        if text:
            moments.append(Moment(event.at_ms, event.broker_id, event.name, text))
    return moments


def moment_text(event: Event, facts: PartitionFacts) -> str:
    """Empty for what is no part of this partition's story."""
    teller = "a broker" if event.broker_id is None else f"broker {event.broker_id}"
    ours = event.text("partition") == str(facts.partition)
    match event.name:
        case "brokers-changed":
            gone = [each for each in event.numbers("gone") if each in facts.replicas]
            come = [each for each in event.numbers("come") if each in facts.replicas]
            parts = [f"{brokers(gone)} gone"] if gone else []
            parts += [f"{brokers(come)} came"] if come else []
            return "the controller sees: " + ", ".join(parts) if parts else ""
        case "broker-started" | "broker-stopping" | "broker-stopped":
            if event.broker_id not in facts.replicas:
                return ""
            return f"{teller} {event.name.removeprefix('broker-')}"
        case "log-dir-offline":
            return f"{teller} lost a log directory" if event.broker_id in facts.replicas else ""
        case "isr-shrinking" if ours:
            laggards = event.numbers("laggards")
            reasons = "; ".join(why_left(event, each) for each in laggards[:SHOWN_MAX])
            return f"the leader leaves out {brokers(laggards)}: {reasons}"
        case "isr-expanding" if ours:
            return f"broker {event.text('follower')} has caught up"
        case "isr-changed" if ours:
            return f"in sync {listed(event.numbers('isr'))}"
        case "leader-missing" if ours:
            return (
                f"nobody can lead: in sync were {listed(event.numbers('isr'))}, and none is there"
            )
        case "log-truncated" if ours:
            return (
                f"{teller} cut its log from {event.text('log_end_offset')} back to "
                f"{event.text('offset')}: {event.text('why')}"
            )
        case "partition-offline" if ours:
            return f"{teller} cannot use its log: {event.text('reason')}"
        case "segments-deleted" if ours:
            return (
                f"{teller} deleted offsets {event.text('from_offset')} to "
                f"{_last(event)} ({event.text('reason')})"
            )
        case "records-deleted" if ours:
            return (
                f"{event.text('principal')} at {event.text('client')} deleted offsets "
                f"{event.text('from_offset')} to {_last(event)}"
            )
        case "log-cleaned" if ours:
            return f"{teller} compacted the log up to offset {_last(event)}"
        case "topic-created" | "partitions-added" | "topic-config-changed":
            if event.text("topic") == facts.partition.topic:
                return event.name.replace("-", " ")
    return ""


def _last(event: Event) -> str:
    """The event has the offset after the last."""
    end = event.number("to_offset")
    return "?" if end is None else str(end - 1)
