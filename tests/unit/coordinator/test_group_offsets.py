from __future__ import annotations

from tidelog.coordinator.group.offsets import CommittedOffset, GroupOffsets

PRODUCER = 1000


def at(offset: int, log_offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", 0, -1, log_offset)


def test_offset_of_a_transaction_is_seen_when_it_commits() -> None:
    offsets = GroupOffsets()
    offsets.put("t", 0, at(5, 1))
    offsets.stage(PRODUCER, "t", 0, at(9, 2))
    assert offsets.get("t", 0) == at(5, 1)
    assert offsets.is_unstable("t", 0)
    offsets.end_transaction(PRODUCER, committed=True)
    assert offsets.get("t", 0) == at(9, 2)
    assert not offsets.is_unstable("t", 0)


def test_offset_of_an_aborted_transaction_is_gone() -> None:
    offsets = GroupOffsets()
    offsets.stage(PRODUCER, "t", 0, at(9, 2))
    assert not offsets.is_empty
    offsets.end_transaction(PRODUCER, committed=False)
    assert offsets.get("t", 0) is None
    assert offsets.is_empty


def test_commit_written_after_that_of_the_transaction_counts() -> None:
    offsets = GroupOffsets()
    offsets.stage(PRODUCER, "t", 0, at(9, 2))
    offsets.put("t", 0, at(20, 3))
    offsets.end_transaction(PRODUCER, committed=True)
    assert offsets.get("t", 0) == at(20, 3)


def test_removing_an_offset_removes_what_waits_for_a_transaction() -> None:
    offsets = GroupOffsets()
    offsets.put("t", 0, at(5, 1))
    offsets.stage(PRODUCER, "t", 0, at(9, 2))
    offsets.remove("t", 0)
    assert offsets.is_empty
    offsets.end_transaction(PRODUCER, committed=True)
    assert len(offsets) == 0
