"""Why a record can be read, or cannot.

An offset is looked at from the outside in: is it below the log start, above the high watermark,
above the last stable offset; is there a record at all; was its transaction aborted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.tools.explain.events import Event, of_present_topic, spelled
from tidelog.tools.explain.explanation import (
    Explanation,
    Finding,
    Moment,
    listed,
    problem,
    remark,
)
from tidelog.tools.explain.partition import (
    PartitionFacts,
    holder_story,
    leader_findings,
    moment_text,
    state_of,
)
from tidelog.tools.explain.transaction import aborted_finding, caused_abort
from tidelog.types import NO_LEADER

DELETIONS: Final = ("segments-deleted", "records-deleted")


class Marker(NamedTuple):
    offset: int
    timestamp_ms: int
    is_commit: bool


@dataclass
class RecordFacts:
    """`is_there` and what follows is known only of offsets that the leader lets be read."""

    partition: PartitionFacts
    offset: int
    is_there: bool | None = None
    next_offset: int | None = None  # where it is not there: the first after it that is
    is_control: bool = False
    is_transactional: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1
    is_aborted: bool | None = None
    marker: Marker | None = None  # that ended its transaction, or is itself at the offset


def explain_record(facts: RecordFacts, events: Sequence[Event], now_ms: int) -> Explanation:
    partition = facts.partition
    events = of_present_topic(events, partition.partition.topic)
    own = [each for each in events if each.text("partition") == str(partition.partition)]
    found = Explanation(
        f"offset {facts.offset} of {partition.partition}", unknown=list(partition.unknown)
    )
    found.state = [*state_of(partition), *record_state(facts)]
    found.findings += findings_of(facts, own, events, now_ms)
    for event in events:
        if event.name in (*DELETIONS, "log-cleaned", "log-truncated"):
            text = moment_text(event, partition)
        elif event.number("producer_id") == facts.producer_id and facts.is_transactional:
            text = event.name.replace("-", " ") + f" {event.text('transactional_id')}"
        else:
            continue
        if text:
            found.timeline.append(Moment(event.at_ms, event.broker_id, event.name, text))
    return found


def record_state(facts: RecordFacts) -> list[tuple[str, str]]:
    if not facts.is_there:
        return []
    rows = []
    if facts.timestamp_ms >= 0:
        rows.append(("record", f"timestamp {spelled(facts.timestamp_ms)}"))
    if facts.producer_id >= 0:
        kind = "transactional, " if facts.is_transactional else ""
        rows.append(("producer", f"{kind}id {facts.producer_id}, epoch {facts.producer_epoch}"))
    return rows


def findings_of(
    facts: RecordFacts, own: Sequence[Event], events: Sequence[Event], now_ms: int
) -> Iterator[Finding]:
    partition = facts.partition
    if partition.leader_id == NO_LEADER:
        yield from leader_findings(partition, (), own, events)
        return
    start, high = partition.log_start_offset, partition.high_watermark
    if start is not None and facts.offset < start:
        yield deleted(facts, own)
    elif high is not None and facts.offset >= high:
        yield beyond(facts)
    elif facts.is_there is False:
        yield from missing(facts, own)
    elif facts.is_control:
        yield marker_itself(facts)
    else:
        yield from visibility(facts, events, now_ms)


def deleted(facts: RecordFacts, own: Sequence[Event]) -> Finding:
    partition = facts.partition
    what = (
        f"the record is deleted: the log starts at offset {partition.log_start_offset}, and "
        "consumers get OFFSET_OUT_OF_RANGE"
    )
    covering = [
        each
        for each in own
        if each.name in DELETIONS and (each.number("to_offset") or 0) > facts.offset
    ]
    # DeleteRecords moves the log start, and the segments below follow: the first one did it.
    first = covering[0] if covering else None
    retention_ms = partition.configs.get("retention.ms", "?")
    retention_bytes = partition.configs.get("retention.bytes", "?")
    if first is None:
        return problem(
            "deleted",
            what,
            "no event tells who did it: retention (retention.ms="
            f"{retention_ms}, retention.bytes={retention_bytes}) or DeleteRecords",
            "give the leader's log with --log to learn more",
        )
    if first.name == "records-deleted":
        return problem(
            "deleted-by-request",
            what,
            f"{first.text('principal')} (client {first.text('client_id')} at "
            f"{first.text('client')}) deleted the records below {first.text('to_offset')}",
            "read copies elsewhere, if there are any; ACLs can forbid DELETE on the topic",
            first.at_ms,
        )
    reason = first.text("reason")
    topic = partition.partition.topic
    if reason == "retention.ms":
        why = f"its segment was older than retention.ms={retention_ms}"
        step = f"tidelog topic alter {topic} -c retention.ms=... keeps records longer"
    elif reason == "retention.bytes":
        why = f"the log was larger than retention.bytes={retention_bytes}"
        step = f"tidelog topic alter {topic} -c retention.bytes=... keeps more"
    else:
        why = f"its segment lay below the log start, which moved before ({reason})"
        step = "give older logs with --log to learn what moved it"
    return problem("deleted-by-retention", what, why, step, first.at_ms)


def beyond(facts: RecordFacts) -> Finding:
    partition = facts.partition
    high, end = partition.high_watermark, partition.log_end_offset
    if end is not None and facts.offset < end:
        isr, needed = partition.isr, partition.min_insync_replicas
        why = (
            f"it is written, but not on all replicas in sync ({listed(isr)}) yet; consumers see "
            "a record once all of them have it"
        )
        if needed is not None and len(isr) < needed:
            why = (
                f"it is written, and {len(isr)} replicas are in sync where min.insync.replicas="
                f"{needed}: the high watermark waits until enough are"
            )
        place = partition.partition
        return problem(
            "not-replicated",
            f"the record is not visible: the high watermark is {high}",
            why,
            f"tidelog explain partition {place.topic} {place.partition} says who is missing",
        )
    return problem(
        "not-written",
        f"there is no such record yet: the high watermark is {high}",
        "nothing has been written at this offset"
        if end is not None
        else "it is not written, or not replicated; the broker does not tell which",
        "a consumer that begins there waits for it, or resets to where auto.offset.reset says",
    )


def missing(facts: RecordFacts, own: Sequence[Event]) -> Iterator[Finding]:
    partition = facts.partition
    after = "" if facts.next_offset is None else f"; the next one is at {facts.next_offset}"
    what = f"there is no record at this offset any more{after}"
    policy = partition.configs.get("cleanup.policy", "")
    cleaned = [
        each
        for each in own
        if each.name == "log-cleaned" and (each.number("to_offset") or 0) > facts.offset
    ]
    if "compact" in policy or cleaned:
        yield problem(
            "compacted",
            what,
            "the log is compacted: a newer record with the same key took its place, or it was a "
            "tombstone past delete.retention.ms, or its transaction was aborted",
            "read the newest record of its key: tidelog consume "
            f"{partition.partition.topic} --partition {partition.partition.partition}",
            cleaned[0].at_ms if cleaned else None,
        )
        return
    yield problem(
        "gap",
        what,
        f"the log has a gap here, and cleanup.policy is {policy or 'not known'} now: it was "
        "compacted before, or a replica was repaired",
        "tidelog verify-log on the leader's data directory",
    )


def marker_itself(facts: RecordFacts) -> Finding:
    marker = facts.marker
    kind = "a control record" if marker is None else "the end of a transaction"
    outcome = "" if marker is None else (" (commit)" if marker.is_commit else " (abort)")
    return remark(
        "control-record",
        f"the offset holds {kind}{outcome} of producer {facts.producer_id}",
        "brokers write such records for themselves; consumers pass over them",
    )


def visibility(facts: RecordFacts, events: Sequence[Event], now_ms: int) -> Iterator[Finding]:
    partition = facts.partition
    stable = partition.last_stable_offset
    if facts.is_transactional and facts.is_aborted:
        yield aborted(facts, events)
        return
    if stable is not None and facts.offset >= stable:
        yield held(facts, now_ms)
        return
    outcome = ", and its transaction is committed" if facts.is_transactional else ""
    yield remark(
        "visible",
        "every consumer can see the record",
        f"it is below the high watermark {partition.high_watermark}{outcome}",
        "a consumer that misses it is past it, filters it, or reads another partition: "
        "tidelog explain group GROUP",
    )


def held(facts: RecordFacts, now_ms: int) -> Finding:
    partition = facts.partition
    what = (
        "consumers with read_committed do not see the record: the last stable offset is "
        f"{partition.last_stable_offset}"
    )
    holders = sorted(partition.open_transactions, key=lambda each: each.start_offset)
    if not holders:
        return problem(
            "stable-offset-held",
            what,
            "a transaction is open at or before it, and the broker does not say whose",
            f"tidelog txn find-hanging --topic {partition.partition.topic}",
        )
    first = holders[0]
    why, step, cause = holder_story(partition.partition, first, now_ms)
    own = facts.is_transactional and facts.producer_id == first.producer_id
    relation = "it belongs to that transaction" if own else "it lies behind that transaction"
    since_ms = first.started_ms or first.last_timestamp_ms
    return problem(cause, what, f"{why}; {relation}", step, since_ms)


def aborted(facts: RecordFacts, events: Sequence[Event]) -> Finding:
    what = "consumers with read_committed never see the record: its transaction was aborted"
    marker = facts.marker
    at_ms = None if marker is None else marker.timestamp_ms
    told = [
        each
        for each in events
        if each.number("producer_id") == facts.producer_id
        and each.name in ("transaction-timed-out", "producer-fenced")
        and caused_abort(each)
        and (at_ms is None or abs(each.at_ms - at_ms) < 60_000)
    ]
    if told:
        cause = aborted_finding(told[-1], what)
        return cause._replace(since_ms=at_ms or cause.since_ms)
    where = "" if marker is None else f"; the marker is at offset {marker.offset}"
    return problem(
        "transaction-aborted",
        what,
        f"producer {facts.producer_id} (epoch {facts.producer_epoch}) aborted it, or its "
        f"coordinator did{where}",
        "read_uncommitted shows it: tidelog consume "
        f"{facts.partition.partition.topic} --partition {facts.partition.partition.partition} "
        f"--from {facts.offset} -n 1",
        at_ms,
    )
