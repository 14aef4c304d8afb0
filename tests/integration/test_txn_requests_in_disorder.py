"""Late, repeated and reordered requests of transactions on separate connections; the full size is
`python -m tests.support.disorder_harness`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker_process import EXTERNAL_BOOTSTRAP
from tests.support.disorder_harness import DisorderHarness
from tests.support.raw_batch import ReadBatch, batch, read_batches
from tests.support.txn_model import TRANSACTIONAL, LogStory, Sent, check, read_log

CONTROL_KEYS = {"abort": b"\0\0\0\0", "commit": b"\0\0\0\1"}


@pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="needs a broker of its own")
@pytest.mark.parametrize("flush_each", [False, True], ids=["no flushes", "flush each"])
def test_no_transaction_is_torn_lost_or_resurrected_by_disorder(
    tmp_path: Path, flush_each: bool
) -> None:
    harness = DisorderHarness(tmp_path, seed=4, requests=2_000, flush_each=flush_each)
    try:
        harness.run()
    finally:
        harness.close()
    assert harness.counted >= 2_000
    assert harness.committed > 50


def records(*values: bytes, producer_id: int = 1) -> bytes:
    return batch(*values, attributes=TRANSACTIONAL, producer_id=producer_id)


def marker(kind: str, producer_id: int = 1) -> bytes:
    return batch(b"", key=CONTROL_KEYS[kind], attributes=0x30, producer_id=producer_id)


def in_log(*batches: bytes) -> list[ReadBatch]:
    found = []
    for each in batches:
        (read,) = read_batches(each)
        found.append(read)
    return found


class TestTheModel:
    """A model that accepts everything proves nothing."""

    def test_markers_decide_over_the_records_of_their_producer(self) -> None:
        story = read_log(
            in_log(
                records(b"a"),
                records(b"x", producer_id=2),
                marker("commit"),
                records(b"b"),
                marker("abort"),
                records(b"c"),
            )
        )
        assert story.committed == [b"a"]
        assert story.aborted == [b"b"]
        assert story.open == {1: [b"c"], 2: [b"x"]}

    def judge(self, transaction: Sent, *stories: LogStory, offset: int = -1) -> int:
        return check({"x": [transaction]}, stories, {"x": offset})

    def test_what_is_right_is_accepted(self) -> None:
        sent = Sent({0: [b"a"], 1: [b"b"]}, 7, commit_was_asked=True, commit_was_answered=True)
        assert self.judge(sent, LogStory([b"a"]), LogStory([b"b"]), offset=7) == 1

    def test_unanswered_commit_may_be_done_or_not(self) -> None:
        sent = Sent({0: [b"a"]}, commit_was_asked=True)
        assert self.judge(sent, LogStory([b"a"])) == 1
        assert self.judge(sent, LogStory(aborted=[b"a"])) == 0

    def test_half_a_transaction_is_torn(self) -> None:
        sent = Sent({0: [b"a"], 1: [b"b"]}, commit_was_asked=True)
        with pytest.raises(AssertionError, match="torn"):
            self.judge(sent, LogStory([b"a"]), LogStory(aborted=[b"b"]))

    def test_transaction_without_its_offset_is_torn(self) -> None:
        sent = Sent({0: [b"a"]}, 7, commit_was_asked=True, commit_was_answered=True)
        with pytest.raises(AssertionError, match="torn"):
            self.judge(sent, LogStory([b"a"]))

    def test_answered_commit_that_is_not_there_is_lost(self) -> None:
        sent = Sent({0: [b"a"]}, commit_was_asked=True, commit_was_answered=True)
        with pytest.raises(AssertionError, match="lost"):
            self.judge(sent, LogStory(aborted=[b"a"]))

    @pytest.mark.parametrize(
        "sent",
        [Sent({0: [b"a"]}), Sent({0: [b"a"]}, commit_was_asked=True, abort_was_answered=True)],
    )
    def test_commit_that_nobody_asked_for_is_resurrected(self, sent: Sent) -> None:
        with pytest.raises(AssertionError, match="resurrected"):
            self.judge(sent, LogStory([b"a"]))

    def test_record_that_is_there_twice_is_noticed(self) -> None:
        with pytest.raises(AssertionError, match="doubled"):
            self.judge(Sent({0: [b"a"]}, commit_was_asked=True), LogStory([b"a", b"a"]))

    def test_transaction_that_nobody_ends_is_noticed(self) -> None:
        with pytest.raises(AssertionError, match="nobody ends"):
            self.judge(Sent(), LogStory(open={1: [b"a"]}))
