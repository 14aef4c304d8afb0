"""Rounds of kill -9 at random moments; TIDELOG_KILL_ROUNDS=200 runs as many."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import EXTERNAL_BOOTSTRAP
from tests.support.kill_harness import TOPIC, KillHarness
from tests.support.raw_client import RawClient
from tests.support.segment_check import FilesDisagree, check_partition, segment_paths

ROUNDS = int(os.environ.get("TIDELOG_KILL_ROUNDS", "12"))
SEED = int(os.environ.get("TIDELOG_KILL_SEED", "20"))

pytestmark = [
    pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="kills its brokers"),
    pytest.mark.timeout(1200),
]


@pytest.mark.parametrize("flush_each", [False, True], ids=["flush now and then", "flush each"])
def test_acked_records_survive_kill_minus_nine(tmp_path: Path, flush_each: bool) -> None:
    harness = KillHarness(tmp_path, seed=SEED, flush_each=flush_each)
    try:
        harness.run((ROUNDS + 1) // 2)
    finally:
        harness.close()
    assert harness.acked_total > 20 * ROUNDS


class TestTheHarnessItself:
    """A harness that cannot fail proves nothing."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[KillHarness]:
        harness = KillHarness(tmp_path, seed=1, flush_each=False)
        harness._produce_until_killed()
        while not harness.histories[0].acked:
            harness.broker.start()
            harness._produce_until_killed()
        yield harness
        harness.close()

    def check(self, harness: KillHarness) -> None:
        harness.broker.start()
        try:
            with RawClient(harness.broker.bootstrap) as client:
                harness._check_records(client, 0, None)
        finally:
            harness.broker.kill()

    def test_it_accepts_what_is_right(self, harness: KillHarness) -> None:
        self.check(harness)

    def test_it_notices_a_lost_record(self, harness: KillHarness) -> None:
        # All of them: the last one may hold no acked record.
        for path in segment_paths(harness._partition_directory(0)):
            path.write_bytes(b"")
        with pytest.raises(AssertionError, match="acked records missing"):
            self.check(harness)

    def test_it_notices_an_invented_record(self, harness: KillHarness) -> None:
        history = harness.histories[0]
        history.sent.remove(history.acked[0])
        with pytest.raises(AssertionError, match="invented"):
            self.check(harness)

    def test_it_notices_a_wrong_index(self, harness: KillHarness) -> None:
        harness.broker.start()
        assert harness.broker.stop() == 0
        directory = harness.broker.data_directory / f"{TOPIC}-0"
        index = segment_paths(directory)[-1].with_suffix(".index")
        index.write_bytes(b"\0\0\0\1\0\0\0\7" + index.read_bytes())
        with pytest.raises(FilesDisagree):
            check_partition(directory)
