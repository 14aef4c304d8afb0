"""Reads a whole history for what a log must never do; pure.

    inconsistent offsets   one offset with two values
    duplicate              one value at two offsets
    lost write             acked (or of a transaction that others saw a part of), later ones were
                           seen, it never was
    unseen                 acked, and not there when everything was read to the end
    aborted read           of a transaction that was aborted, or surely not written, and yet seen
    precommitted read      seen before its transaction began to commit
    invented               seen and never sent
    poll skip              a consumer jumped over what is there
    nonmonotonic poll      a consumer went back
    nonmonotonic send      a later send of a producer landed before an earlier one
    circular reads         transactions that have read from each other in a circle (G1c)

The names are those of Jepsen's Kafka workload. Consumers are assigned, so that neither skips nor
steps back are allowed to them, within one poll or between two. All of them read committed records
only, where there are transactions. Gaps in offsets are legal: control records take them. Nobody
need see a record that was to be deleted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tests.support.cluster_history import History, Outcome, Seen, Send

Versions = Mapping[int, Mapping[int, bytes]]  # partition -> offset -> value, as it was seen


class Anomaly(NamedTuple):
    kind: str
    what: str


def check(history: History) -> list[Anomaly]:
    """In no particular order; none if the log has kept its word."""
    seen = seen_versions(history)
    return [
        *inconsistent_offsets(history),
        *duplicates(history),
        *missing_writes(history, seen),
        *wrongly_seen(history),
        *precommitted_reads(history),
        *poll_anomalies(history, seen),
        *nonmonotonic_sends(history),
        *circular_reads(history),
    ]


def seen_records(history: History) -> Iterator[Seen]:
    for poll in history.polls:
        yield from poll.records


def placed_records(history: History) -> Iterator[Seen]:
    """All that is known of what lies where."""
    for send in history.sends:
        offset = history.acks.get(send.value)
        if offset is not None:
            yield Seen(send.partition, offset, send.value)
    yield from seen_records(history)


def seen_versions(history: History) -> Versions:
    versions: dict[int, dict[int, bytes]] = defaultdict(dict)
    for partition, offset, value in seen_records(history):
        versions[partition].setdefault(offset, value)
    return versions


def inconsistent_offsets(history: History) -> Iterator[Anomaly]:
    found: dict[tuple[int, int], bytes] = {}
    for partition, offset, value in placed_records(history):
        first = found.setdefault((partition, offset), value)
        if first != value:
            yield Anomaly(
                "inconsistent offsets", f"{partition}@{offset} is {first!r} and {value!r}"
            )


def duplicates(history: History) -> Iterator[Anomaly]:
    found: dict[bytes, tuple[int, int]] = {}
    for partition, offset, value in placed_records(history):
        first = found.setdefault(value, (partition, offset))
        if first != (partition, offset):
            yield Anomaly("duplicate", f"{value!r} is at {first} and at {(partition, offset)}")


def missing_writes(history: History, seen: Versions) -> Iterator[Anomaly]:
    there = {value for versions in seen.values() for value in versions.values()}
    ends = {partition: max(versions) for partition, versions in seen.items()}
    for send in must_be_seen(history, there):
        if send.value in there:
            continue
        offset = history.acks.get(send.value)
        if may_be_deleted(history, send.partition, offset):
            continue
        is_lost = offset is None or offset < ends.get(send.partition, -1)
        yield Anomaly(
            "lost write" if is_lost else "unseen",
            f"{send.value!r} of {send.partition}@{offset}, read up to {ends.get(send.partition)}",
        )


def may_be_deleted(history: History, partition: int, offset: int | None) -> bool:
    below = history.deleted.get(partition, 0)
    return offset < below if offset is not None else below > 0


def must_be_seen(history: History, there: set[bytes]) -> Iterator[Send]:
    """Acked ones; of a transaction that is committed, or seen in part, all."""
    visible = {
        number
        for number, transaction in history.transactions.items()
        if transaction.outcome is Outcome.COMMITTED
    }
    visible.update(
        send.transaction
        for send in history.sends
        if send.transaction is not None and send.value in there
    )
    for send in history.sends:
        is_promised = (
            send.value in history.acks if send.transaction is None else send.transaction in visible
        )
        if is_promised and send.value not in history.failed:
            yield send


def wrongly_seen(history: History) -> Iterator[Anomaly]:
    sent = {send.value: send for send in history.sends}
    aborted = {
        number
        for number, transaction in history.transactions.items()
        if transaction.outcome is Outcome.ABORTED
    }
    for partition, offset, value in set(seen_records(history)):
        send = sent.get(value)
        where = f"{value!r} at {partition}@{offset}"
        if send is None or send.partition != partition:
            yield Anomaly("invented", where)
        elif value in history.failed:
            yield Anomaly("aborted read", f"{where} had failed")
        elif send.transaction in aborted:
            yield Anomaly("aborted read", f"{where} of transaction {send.transaction}")


def precommitted_reads(history: History) -> Iterator[Anomaly]:
    begun = {
        send.value: history.transactions[send.transaction].commit_begun_at
        for send in history.sends
        if send.transaction is not None
    }
    for poll in history.polls:
        for seen in poll.records:
            at = begun.get(seen.value)
            if at is not None and poll.at < at:
                yield Anomaly(
                    "precommitted read", f"{poll.consumer} saw {seen} {at - poll.at:.3f} s early"
                )


def poll_anomalies(history: History, seen: Versions) -> Iterator[Anomaly]:
    offsets = {partition: sorted(versions) for partition, versions in seen.items()}
    last: dict[tuple[str, int], int] = {}
    for poll in history.polls:
        for partition, offset, _ in poll.records:
            before = last.get((poll.consumer, partition))
            last[poll.consumer, partition] = offset
            if before is None:
                continue
            step = f"{poll.consumer} went from {partition}@{before} to {offset}"
            if offset <= before:
                yield Anomaly("nonmonotonic poll", step)
                continue
            known = offsets[partition]
            left = max(before + 1, min(history.deleted.get(partition, 0), offset))
            following = known[bisect_left(known, left)]
            if following < offset:
                yield Anomaly("poll skip", f"{step}, over {following}")


def nonmonotonic_sends(history: History) -> Iterator[Anomaly]:
    last: dict[tuple[int, int], tuple[int, bytes]] = {}
    for send in history.sends:
        offset = history.acks.get(send.value)
        if offset is None:
            continue
        key = (send.producer, send.partition)
        before, value = last.get(key, (-1, b""))
        if offset <= before:
            yield Anomaly(
                "nonmonotonic send",
                f"{send.value!r} is at {send.partition}@{offset}, {value!r} before it at {before}",
            )
        last[key] = (offset, send.value)


def circular_reads(history: History) -> Iterator[Anomaly]:
    writers = {send.value: send.transaction for send in history.sends}
    read_from: dict[int, set[int]] = {}
    for number, transaction in history.transactions.items():
        found = {writers.get(value) for value in transaction.reads} - {None, number}
        read_from[number] = {writer for writer in found if writer is not None}
    for circle in circles(read_from):
        yield Anomaly("circular reads", f"transactions {circle}")


def circles(edges: Mapping[int, Iterable[int]]) -> Iterator[list[int]]:
    """One circle for each edge that closes one, by a search in depth."""
    done: set[int] = set()
    for start in edges:
        # What the search has come through: nodes in order, with what is left to look at of each.
        path = {} if start in done else {start: iter(edges[start])}
        while path:
            node, following = next(reversed(path.items()))
            for other in following:
                if other in path:
                    nodes = list(path)
                    yield nodes[nodes.index(other) :]
                elif other not in done:
                    path[other] = iter(edges.get(other, ()))
                    break
            else:
                del path[node]
                done.add(node)
