"""What may be in the log after any number of transactions, and whether it is.

A producer writes down each of its transactions (`Sent`). From the raw log `read_log` takes what
each marker decided. Then, for every transaction:

- torn: its records are all committed, in all its partitions, with its offset, or none of them is;
- lost: a commit that was answered is committed, whoever got the answer;
- resurrected: one that nobody asked to commit, or whose abort was answered, is not committed;
- each record is there once, and a producer's records of a partition are in the order it sent them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.raw_batch import ReadBatch

TRANSACTIONAL, CONTROL = 0x10, 0x20
COMMIT = 1


@dataclass
class Sent:
    values: dict[int, list[bytes]] = field(default_factory=dict)  # partition -> acked records
    offset: int | None = None  # committed to the group with it
    commit_was_asked: bool = False
    commit_was_answered: bool = False
    abort_was_answered: bool = False


@dataclass
class LogStory:
    """One partition: records by what their transaction's marker said, in the log's order."""

    committed: list[bytes] = field(default_factory=list)
    aborted: list[bytes] = field(default_factory=list)
    open: dict[int, list[bytes]] = field(default_factory=dict)  # producer id -> records


def read_log(batches: Iterable[ReadBatch]) -> LogStory:
    story = LogStory()
    kept: list[tuple[int, bytes, list[bytes]]] = []  # (offset, value, where it went)
    waiting: dict[int, list[tuple[int, bytes]]] = {}
    for batch in batches:
        if batch.attributes & CONTROL:
            (record,) = batch.records()
            assert record.key is not None
            decided = story.committed if record.key[3] == COMMIT else story.aborted
            kept += [(at, value, decided) for at, value in waiting.pop(batch.producer_id, [])]
        else:
            assert batch.attributes & TRANSACTIONAL
            rows = waiting.setdefault(batch.producer_id, [])
            rows += [(record.offset, record.value or b"") for record in batch.records()]
    for _, value, decided in sorted(kept, key=lambda row: row[0]):
        decided.append(value)
    story.open = {producer: [value for _, value in rows] for producer, rows in waiting.items()}
    return story


def check(
    sent: Mapping[str, Sequence[Sent]],
    stories: Sequence[LogStory],
    offsets: Mapping[str, int],
) -> int:
    """`sent` and the committed `offsets` by transactional id; how many were committed."""
    visible = [set(story.committed) for story in stories]
    for partition, story in enumerate(stories):
        assert not story.open, f"partition {partition}: nobody ends {story.open}"
        everything = story.committed + story.aborted
        assert len(everything) == len(set(everything)), f"partition {partition}: records doubled"
    committed = 0
    for transactional_id, transactions in sent.items():
        offset = -1
        expected: list[list[bytes]] = [[] for _ in stories]
        for transaction in transactions:
            if _is_committed(transactional_id, transaction, visible):
                committed += 1
                offset = offset if transaction.offset is None else transaction.offset
                for partition, values in transaction.values.items():
                    expected[partition] += values
        for partition, story in enumerate(stories):
            own = {value for each in transactions for value in each.values.get(partition, ())}
            found = [value for value in story.committed if value in own]
            assert found == expected[partition], f"{transactional_id}: out of order"
        assert offsets[transactional_id] == offset, (
            f"torn: {transactional_id} has offset {offsets[transactional_id]} committed, "
            f"its last committed transaction had {offset}"
        )
    return committed


def _is_committed(transactional_id: str, transaction: Sent, visible: Sequence[set[bytes]]) -> bool:
    seen = [
        value in visible[partition]
        for partition, values in transaction.values.items()
        for value in values
    ]
    assert all(seen) or not any(seen), f"torn: {transactional_id} {transaction}"
    if transaction.commit_was_answered:
        assert all(seen), f"lost: {transactional_id} {transaction}"
        return True
    if transaction.abort_was_answered or not transaction.commit_was_asked:
        assert not any(seen), f"resurrected: {transactional_id} {transaction}"
        return False
    return any(seen)
