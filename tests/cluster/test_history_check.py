"""The judge of the fault harness: it finds each planted bug in a history, none in a good one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.cluster_history import History, Outcome, Poll, Seen, Send, Transaction
from tests.support.history_check import check, circles
from tests.support.raw_batch import batch
from tests.support.replica_comparison import differences

A, B, C, D = b"a", b"b", b"c", b"d"


def sent(*values: bytes, producer: int = 1, transaction: int | None = None) -> list[Send]:
    return [Send(producer, 0, value, transaction) for value in values]


def polled(*records: tuple[int, bytes], consumer: str = "reader", at: float = 9.0) -> Poll:
    return Poll(consumer, at, [Seen(0, offset, value) for offset, value in records])


def kinds(history: History) -> list[str]:
    return sorted({anomaly.kind for anomaly in check(history)})


def plain(acks: dict[bytes, int | None], *polls: Poll, failed: tuple[bytes, ...] = ()) -> History:
    return History(sends=sent(A, B, C), acks=acks, polls=list(polls), failed=set(failed))


def in_transactions(
    polls: list[Poll], outcomes: tuple[Outcome, Outcome], *, commit_begun_at: float = 1.0
) -> History:
    """A and B of transaction 0, C of transaction 1."""
    return History(
        sends=[*sent(A, B, transaction=0), *sent(C, transaction=1, producer=2)],
        acks={A: 0, B: 1, C: 3},
        transactions={
            number: Transaction(
                outcome, commit_begun_at if outcome is not Outcome.ABORTED else None
            )
            for number, outcome in enumerate(outcomes)
        },
        polls=polls,
    )


ALL: dict[bytes, int | None] = {A: 0, B: 1, C: 2}
COMMITTED, ABORTED, OPEN = Outcome.COMMITTED, Outcome.ABORTED, Outcome.OPEN


class TestPlainRecords:
    def test_a_log_that_keeps_its_word_is_left_alone(self) -> None:
        assert check(plain(ALL, polled((0, A), (1, B)), polled((2, C)))) == []

    def test_gaps_in_offsets_are_no_anomaly(self) -> None:
        acks: dict[bytes, int | None] = {A: 0, B: 5, C: 9}
        assert check(plain(acks, polled((0, A), (5, B), (9, C)))) == []

    def test_what_was_not_acked_may_be_there_or_not(self) -> None:
        assert check(plain({A: 0}, polled((0, A), (1, B)))) == []

    def test_acked_record_that_others_went_past_is_lost(self) -> None:
        assert kinds(plain(ALL, polled((0, A), (2, C)))) == ["lost write"]

    def test_deleted_record_need_not_be_there(self) -> None:
        history = plain(ALL, polled((0, A), (2, C)))
        history.deleted[0] = 2
        assert check(history) == []

    def test_deletion_excuses_nothing_above_it(self) -> None:
        history = plain(ALL, polled((0, A), (2, C)))
        history.deleted[0] = 1
        assert kinds(history) == ["lost write"]

    def test_consumer_may_step_over_what_is_deleted_only(self) -> None:
        history = plain(ALL, polled((0, A), (1, B), (2, C)), polled((0, A), (2, C), consumer="o"))
        assert kinds(history) == ["poll skip"]
        history.deleted[0] = 2
        assert check(history) == []

    def test_record_acked_without_an_offset_must_be_there_too(self) -> None:
        acks: dict[bytes, int | None] = {A: 0, B: None, C: 2}
        assert check(plain(acks, polled((0, A), (1, B), (2, C)))) == []
        assert kinds(plain(acks, polled((0, A), (2, C)))) == ["lost write"]

    def test_acked_record_after_everything_that_was_read_is_unseen(self) -> None:
        assert kinds(plain(ALL, polled((0, A), (1, B)))) == ["unseen"]

    def test_record_that_is_there_twice_is_a_duplicate(self) -> None:
        assert kinds(plain(ALL, polled((0, A), (1, B), (2, C), (3, A)))) == ["duplicate"]

    def test_record_elsewhere_than_it_was_acked_is_a_duplicate(self) -> None:
        assert "duplicate" in kinds(plain(ALL, polled((0, A), (1, B), (4, C))))

    def test_two_values_at_one_offset_are_inconsistent(self) -> None:
        polls = polled((0, A), (1, B), (2, C)), polled((0, A), (1, C), consumer="other")
        assert "inconsistent offsets" in kinds(plain(ALL, *polls))

    def test_two_acks_for_one_offset_are_inconsistent(self) -> None:
        history = plain({A: 0, B: 1, C: 1}, polled((0, A), (1, B)))
        assert "inconsistent offsets" in kinds(history)

    def test_later_record_before_an_earlier_one_is_reordered(self) -> None:
        acks: dict[bytes, int | None] = {A: 0, B: 2, C: 1}
        assert kinds(plain(acks, polled((0, A), (1, C), (2, B)))) == ["nonmonotonic send"]

    def test_producers_may_overtake_each_other(self) -> None:
        history = plain({A: 0, B: 2, C: 1}, polled((0, A), (1, C), (2, B)))
        history.sends = [*sent(A, B), *sent(C, producer=2)]
        assert check(history) == []

    def test_record_that_nobody_sent_is_invented(self) -> None:
        assert kinds(plain(ALL, polled((0, A), (1, B), (2, C), (3, D)))) == ["invented"]

    def test_record_that_had_failed_is_an_aborted_read(self) -> None:
        history = plain({A: 0, B: 1}, polled((0, A), (1, B), (2, C)), failed=(C,))
        assert kinds(history) == ["aborted read"]

    @pytest.mark.parametrize("polls", [1, 2], ids=["in one poll", "between two"])
    def test_consumer_that_jumps_is_a_skip(self, polls: int) -> None:
        jump = [polled((0, A), (2, C), consumer="jumper")]
        if polls == 2:
            jump = [polled((0, A), consumer="jumper"), polled((2, C), consumer="jumper")]
        history = plain(ALL, *jump, polled((0, A), (1, B), (2, C)))
        assert kinds(history) == ["poll skip"]

    @pytest.mark.parametrize("polls", [1, 2], ids=["in one poll", "between two"])
    def test_consumer_that_goes_back_is_nonmonotonic(self, polls: int) -> None:
        back = [polled((0, A), (1, B), (1, B), (2, C))]
        if polls == 2:
            back = [polled((0, A), (1, B)), polled((1, B), (2, C))]
        assert kinds(plain(ALL, *back)) == ["nonmonotonic poll"]

    def test_consumers_are_each_on_their_own(self) -> None:
        polls = polled((0, A), (1, B), (2, C)), polled((0, A), (1, B), consumer="other")
        assert check(plain(ALL, *polls)) == []


class TestTransactions:
    def test_committed_records_are_seen_and_aborted_ones_are_not(self) -> None:
        assert check(in_transactions([polled((0, A), (1, B))], (COMMITTED, ABORTED))) == []

    def test_transaction_that_nobody_knows_the_end_of_may_be_seen_or_not(self) -> None:
        assert check(in_transactions([polled((3, C))], (OPEN, COMMITTED))) == []
        seen = polled((0, A), (1, B), (3, C))
        assert check(in_transactions([seen], (OPEN, COMMITTED))) == []

    def test_record_of_an_aborted_transaction_is_an_aborted_read(self) -> None:
        history = in_transactions([polled((0, A), (1, B), (3, C))], (COMMITTED, ABORTED))
        assert kinds(history) == ["aborted read"]

    def test_committed_record_that_is_missing_is_lost(self) -> None:
        history = in_transactions([polled((0, A), (3, C))], (COMMITTED, COMMITTED))
        assert kinds(history) == ["lost write"]

    def test_transaction_that_is_seen_in_part_is_torn(self) -> None:
        history = in_transactions([polled((0, A), (3, C))], (OPEN, COMMITTED))
        assert kinds(history) == ["lost write"]

    def test_record_seen_before_the_commit_is_precommitted(self) -> None:
        early = polled((0, A), (1, B), at=0.5)
        history = in_transactions([early], (COMMITTED, ABORTED), commit_begun_at=1.0)
        assert kinds(history) == ["precommitted read"]

    def test_transactions_that_read_from_each_other_are_circular(self) -> None:
        history = in_transactions([polled((0, A), (1, B), (3, C))], (COMMITTED, COMMITTED))
        history.transactions[0].reads = [C]
        assert check(history) == []
        history.transactions[1].reads = [A]
        assert kinds(history) == ["circular reads"]

    def test_circles_of_any_length_are_found(self) -> None:
        chain = {number: [number + 1] for number in range(2_000)}
        assert list(circles(chain)) == []
        assert list(circles({**chain, 2_000: [0]})) == [list(range(2_001))]

    def test_shared_readers_are_no_circle(self) -> None:
        assert list(circles({1: [2, 3], 2: [4], 3: [4], 4: []})) == []


def test_any_single_change_to_a_good_history_is_found() -> None:
    """Records of three producers; some of them lost, doubled, swapped or overwritten in turn."""
    dice = random.Random(5)
    sends = [Send(number % 3, 0, b"%d" % number) for number in range(200)]
    good = [Seen(0, 2 * number, send.value) for number, send in enumerate(sends)]
    acks: dict[bytes, int | None] = {seen.value: seen.offset for seen in good}

    def found(records: list[Seen]) -> bool:
        return bool(check(History(sends=sends, acks=acks, polls=[Poll("reader", 1.0, records)])))

    assert not found(good)
    for _ in range(40):
        at, other = dice.sample(range(200), 2)
        lost = good[:at] + good[at + 1 :]
        doubled = [*good[: at + 1], good[at]._replace(offset=good[at].offset + 1), *good[at + 1 :]]
        overwritten = [*good[:at], good[at]._replace(value=good[other].value), *good[at + 1 :]]
        swapped = list(good)
        swapped[at], swapped[other] = swapped[other], swapped[at]
        assert all(map(found, (lost, doubled, overwritten, swapped)))


class TestReplicas:
    def replicas(self, tmp_path: Path, *logs: list[bytes]) -> dict[int, Path]:
        directories = {}
        for number, segments in enumerate(logs, start=1):
            folder = tmp_path / str(number) / "t-0"
            folder.mkdir(parents=True)
            for base, data in enumerate(segments):
                (folder / f"{base:020}.log").write_bytes(data)
            directories[number] = tmp_path / str(number)
        return directories

    def test_equal_bytes_are_equal_wherever_segments_end(self, tmp_path: Path) -> None:
        one, other = batch(A, base_offset=0), batch(B, base_offset=1)
        assert differences(self.replicas(tmp_path, [one, other], [one + other])) == []

    def test_batches_below_a_deletion_may_be_gone_from_some(self, tmp_path: Path) -> None:
        deleted = batch(A, base_offset=0)
        kept = batch(B, C, base_offset=1) + batch(D, base_offset=3)
        replicas = self.replicas(tmp_path, [deleted + kept], [kept])
        assert differences(replicas, {"t-0": 2}) == []
        assert differences(replicas, {"t-0": 1}) == []
        assert len(differences(replicas)) == 1

    def test_the_batch_that_a_deletion_ends_in_must_be_there(self, tmp_path: Path) -> None:
        around, kept = batch(A, B, base_offset=0), batch(C, base_offset=2)
        replicas = self.replicas(tmp_path, [around + kept], [kept])
        assert len(differences(replicas, {"t-0": 1})) == 1

    def test_missing_tail_is_found(self, tmp_path: Path) -> None:
        one, other = batch(A, base_offset=0), batch(B, base_offset=1)
        (found,) = differences(self.replicas(tmp_path, [one + other], [one + other], [one]))
        assert "broker 3" in found
        assert "after offset 0" in found

    def test_other_bytes_are_found(self, tmp_path: Path) -> None:
        one, other = batch(A, base_offset=0), batch(B, base_offset=0)
        (found,) = differences(self.replicas(tmp_path, [one], [other]))
        assert "t-0" in found

    def test_missing_partition_is_found(self, tmp_path: Path) -> None:
        one = batch(A)
        directories = self.replicas(tmp_path, [one], [one])
        extra = directories[2] / "u-0"
        extra.mkdir()
        (extra / "00000000000000000000.log").write_bytes(batch(B))
        (found,) = differences(directories)
        assert "u-0" in found
