"""Tidelog's client while the broker is killed and connections are cut; the full size is
`python -m tests.support.client_harness`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker_process import EXTERNAL_BOOTSTRAP
from tests.support.client_harness import ClientHarness, Found, SentRecords, check_records
from tidelog.client.producer.delivery import RecordMetadata

pytestmark = pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="kills its brokers")


@pytest.mark.parametrize("transactions", [False, True], ids=["groups", "transactions"])
def test_order_and_exactly_once_are_kept_through_kills_and_cuts(
    tmp_path: Path, transactions: bool
) -> None:
    harness = ClientHarness(tmp_path, seed=16, kills=3, cuts=10, transactions=transactions)
    try:
        harness.run()
    finally:
        harness.close()
    assert harness.events["kill"] == 3
    assert harness.events.total() - harness.events["replaced"] == 13


class TestTheJudge:
    """A judge that finds nothing proves nothing."""

    A, B, C = b"keyed/0", b"keyed/1", b"keyed/2"

    @pytest.fixture
    def sent(self) -> SentRecords:
        """Three records, acknowledged at partition 0, offsets 0 to 2."""
        sent = SentRecords("keyed", sent=[self.A, self.B, self.C])
        for offset, value in enumerate(sent.sent):
            sent.acked[value] = RecordMetadata("records", 0, offset, 0)
        return sent

    def judge(self, sent: SentRecords, *values: bytes) -> None:
        check_records([sent], {0: [Found(*row) for row in enumerate(values)]})

    def test_what_is_as_it_should_be_passes(self, sent: SentRecords) -> None:
        self.judge(sent, self.A, self.B, self.C)

    def test_a_record_that_is_there_twice_is_noticed(self, sent: SentRecords) -> None:
        with pytest.raises(AssertionError, match="twice"):
            self.judge(sent, self.A, self.B, self.C, self.A)

    def test_a_lost_record_is_noticed(self, sent: SentRecords) -> None:
        with pytest.raises(AssertionError, match="lost"):
            self.judge(sent, self.A, self.B)

    def test_an_invented_record_is_noticed(self, sent: SentRecords) -> None:
        with pytest.raises(AssertionError, match="nobody has sent"):
            self.judge(sent, self.A, self.B, self.C, b"else")

    def test_another_order_is_noticed(self, sent: SentRecords) -> None:
        with pytest.raises(AssertionError, match="out of order"):
            self.judge(sent, self.A, self.C, self.B)

    def test_another_offset_than_the_acknowledged_one_is_noticed(self, sent: SentRecords) -> None:
        sent.acked[self.C] = RecordMetadata("records", 0, 7, 0)
        with pytest.raises(AssertionError, match="lies at"):
            self.judge(sent, self.A, self.B, self.C)

    def test_a_record_without_outcome_is_noticed(self, sent: SentRecords) -> None:
        del sent.acked[self.C]
        with pytest.raises(AssertionError, match="no outcome"):
            self.judge(sent, self.A, self.B, self.C)
