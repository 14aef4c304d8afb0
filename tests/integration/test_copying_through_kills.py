"""Consume, transform, produce while broker and client are killed; the full size is
`python -m tests.support.copy_harness`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.broker_process import EXTERNAL_BOOTSTRAP
from tests.support.copy_harness import TARGET, CopyHarness, planned
from tests.support.copy_process import transformed

pytestmark = pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="kills its brokers")


def test_records_are_copied_exactly_once_while_broker_and_client_are_killed(
    tmp_path: Path,
) -> None:
    harness = CopyHarness(tmp_path, seed=3, records=12_000, per_transaction=150, kills=4)
    try:
        harness.run()
    finally:
        harness.close()
    assert harness.kills == {"broker": 4, "client": 4}


def test_the_plan_kills_both_as_often_as_it_is_told() -> None:
    plan = planned(random.Random(1), 1000, 20)
    assert sum(kill.broker_after_s is not None for kill in plan) == 20
    assert sum(kill.client_after_s is not None for kill in plan) == 20
    assert [kill.at for kill in plan] == sorted(kill.at for kill in plan)


class TestTheHarnessItself:
    """A harness that cannot fail proves nothing."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[CopyHarness]:
        harness = CopyHarness(tmp_path, seed=1, records=400, per_transaction=100, kills=0)
        harness.run()
        yield harness
        harness.close()

    def write(self, harness: CopyHarness, *values: bytes, transaction: bool = False) -> None:
        config = {"bootstrap.servers": harness.bootstrap}
        producer = Producer(config | ({"transactional.id": "other"} if transaction else {}))
        if transaction:
            producer.init_transactions(60)
            producer.begin_transaction()
        for value in values:
            producer.produce(TARGET, value, partition=0)
        assert producer.flush(60) == 0

    def test_it_notices_a_record_that_comes_twice(self, harness: CopyHarness) -> None:
        harness.check()
        self.write(harness, transformed(next(harness.values(0))))
        with pytest.raises(AssertionError, match="twice"):
            harness.check()

    def test_it_notices_a_lost_record(self, harness: CopyHarness) -> None:
        harness.records += 4
        with pytest.raises(AssertionError, match="lost"):
            harness.check()

    def test_it_notices_an_open_transaction(
        self, harness: CopyHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tests.support.copy_harness.READ_WITHIN_S", 2.0)
        self.write(harness, b"open", transaction=True)
        with pytest.raises(AssertionError, match="a transaction is open"):
            harness.check()
