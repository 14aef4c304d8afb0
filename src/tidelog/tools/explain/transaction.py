"""Why a transactional id is in the state it is in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

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
RECENT: Final = ("transaction-timed-out", "producer-fenced")


@dataclass
class TransactionFacts:
    transactional_id: str
    is_known: bool  # to its coordinator
    coordinator_id: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    state: str = ""
    timeout_ms: int = 0
    started_ms: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    leaderless: tuple[TopicPartition, ...] = ()  # of its partitions
    start_offsets: dict[TopicPartition, int] = field(default_factory=dict)  # where it is open
    unknown: list[str] = field(default_factory=list)


def explain_transaction(
    facts: TransactionFacts, events: Sequence[Event], now_ms: int
) -> Explanation:
    name = facts.transactional_id
    own = [each for each in events if each.text("transactional_id") == name]
    found = Explanation(f"transactional id {name}", unknown=list(facts.unknown))
    found.state = state_of(facts, now_ms)
    found.findings += findings_of(facts, own, now_ms)
    found.timeline = [
        Moment(each.at_ms, each.broker_id, each.name, text)
        for each in own
        if (text := moment_text(each))
    ]
    return found


def state_of(facts: TransactionFacts, now_ms: int) -> list[tuple[str, str]]:
    if not facts.is_known:
        return [("state", "not known")]
    rows = [
        ("state", facts.state),
        ("coordinator", f"broker {facts.coordinator_id}"),
        ("producer", f"id {facts.producer_id}, epoch {facts.producer_epoch}"),
        ("timeout", duration(facts.timeout_ms)),
    ]
    if facts.started_ms is not None:
        rows.append(("open for", duration(now_ms - facts.started_ms)))
    if facts.partitions:
        rows.append(("partitions", _some(facts.partitions)))
    return rows


def findings_of(facts: TransactionFacts, own: Sequence[Event], now_ms: int) -> Iterator[Finding]:
    name = facts.transactional_id
    if not facts.is_known:
        yield problem(
            "unknown-transactional-id",
            "its coordinator does not know this id",
            "no producer has used it, or none for transactional.id.expiration.ms",
            "tidelog txn list shows the ids that there are",
        )
        return
    if facts.state == "Ongoing":
        yield ongoing(facts, now_ms)
    elif facts.state in ("PrepareCommit", "PrepareAbort"):
        yield ending(facts)
    else:
        yield from at_rest(facts, own)
    fenced = [each for each in own if each.name == "producer-fenced"]
    if fenced:
        last = fenced[-1]
        yield remark(
            "producer-fenced",
            f"the producer with id {last.text('producer_id')} and epoch "
            f"{last.text('producer_epoch')} can write no more (PRODUCER_FENCED)",
            f"a newer producer began with the id {name}; the epoch is {facts.producer_epoch} now"
            + (f". That happened {len(fenced)} times" if len(fenced) > 1 else ""),
            "if both are meant to run, give each a transactional.id of its own; if one is a "
            "leftover, it may be stopped",
            last.at_ms,
        )


def ongoing(facts: TransactionFacts, now_ms: int) -> Finding:
    since = facts.started_ms
    what = f"a transaction is open in {_some(facts.partitions)}"
    if since is None:
        return remark("open-transaction", what, "its producer has neither committed nor aborted")
    left_ms = since + facts.timeout_ms - now_ms
    step = ""
    if facts.start_offsets:
        place, offset = min(facts.start_offsets.items())
        step = (
            f"; sooner: tidelog txn abort --topic {place.topic} --partition {place.partition} "
            f"--start-offset {offset}"
        )
    when = f"in {duration(left_ms)}" if left_ms > 0 else "at its next look"
    return remark(
        "open-transaction",
        what,
        f"producer {facts.producer_id} began it {duration(now_ms - since)} ago and has neither "
        "committed nor aborted; read_committed consumers wait behind it",
        f"the coordinator aborts it {when}{step}",
        since,
    )


def ending(facts: TransactionFacts) -> Finding:
    outcome = "commit" if facts.state == "PrepareCommit" else "abort"
    what = f"the {outcome} is decided, and markers are missing in {_some(facts.partitions)}"
    if facts.leaderless:
        return problem(
            "transaction-ending",
            what,
            f"{_some(facts.leaderless)} has no leader to take the marker",
            f"tidelog explain partition {facts.leaderless[0].topic} "
            f"{facts.leaderless[0].partition}",
            facts.started_ms,
        )
    return remark(
        "transaction-ending",
        what,
        "the coordinator writes them, and tries again where a leader does not answer",
        "ask again; if it stays so, look at the log of the coordinator, "
        f"broker {facts.coordinator_id}",
        facts.started_ms,
    )


def at_rest(facts: TransactionFacts, own: Sequence[Event]) -> Iterator[Finding]:
    told = [each for each in own if each.name in RECENT]
    last = told[-1] if told else None
    what = f"no transaction is open ({facts.state})"
    if facts.state == "CompleteCommit":
        yield remark("committed", what, "the last transaction was committed")
    elif facts.state == "CompleteAbort" and last is not None and caused_abort(last):
        yield aborted_finding(last, "the last transaction was aborted")
    elif facts.state == "CompleteAbort":
        yield remark(
            "aborted-by-producer",
            "the last transaction was aborted",
            "no event tells of a timeout or of a newer producer, so its producer did it",
        )
    elif last is not None and last.name == "transaction-timed-out":
        yield aborted_finding(last, "a transaction before was aborted")
        yield remark("at-rest", what, "its producer has begun none since")
    else:
        yield remark("at-rest", what, "its producer has begun none")


def caused_abort(event: Event) -> bool:
    return event.name == "transaction-timed-out" or event.is_true("aborted")


def aborted_finding(event: Event, what: str) -> Finding:
    if event.name == "transaction-timed-out":
        timeout_ms = event.number("timeout_ms")
        limit = "its timeout" if timeout_ms is None else duration(timeout_ms)
        return problem(
            "transaction-timed-out",
            what,
            f"the producer {event.text('producer_id')} did not end it within {limit}, and the "
            "coordinator did",
            "find out what held the producer up; transaction.timeout.ms gives it longer",
            event.at_ms,
        )
    return problem(
        "transaction-fenced",
        what,
        "a newer producer began with the same transactional id while it was open",
        "give each producer that runs at a time a transactional.id of its own",
        event.at_ms,
    )


def moment_text(event: Event) -> str:
    if event.name == "transaction-timed-out":
        return (
            f"the coordinator aborted the transaction of producer {event.text('producer_id')}: "
            f"longer open than {event.text('timeout_ms')} ms"
        )
    if event.name == "producer-fenced":
        text = (
            f"a newer producer fenced producer {event.text('producer_id')} of epoch "
            f"{event.text('producer_epoch')}"
        )
        return text + (", and its transaction was aborted" if event.is_true("aborted") else "")
    return ""


def _some(partitions: Sequence[TopicPartition]) -> str:
    shown = ", ".join(map(str, sorted(partitions)[:SHOWN_MAX]))
    more = len(partitions) - SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown or "no partition"
