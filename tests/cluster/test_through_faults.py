"""A cluster through random faults; the full size is `python -m tests.support.fault_harness`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import SESSION_TIMEOUT_MS
from tests.support.fault_harness import DELETIONS, LARGE_BATCHES, FaultHarness
from tests.support.planted_bug import program_with

pytestmark = pytest.mark.integration


# Records are missing, or the next one is refused because they are.
EARLY_ACKS = "lost write|OUT_OF_ORDER_SEQUENCE_NUMBER"
# What follows the tail that is too much is appended to it, or cannot be.
NO_TRUNCATION = "replicas differ|replicas stay out of sync"


def run(directory: Path, faults: int, **options: object) -> FaultHarness:
    harness = FaultHarness(directory, **options)  # type: ignore[arg-type]
    try:
        harness.run(faults)
    finally:
        harness.close()
    return harness


def test_nothing_acked_is_lost_doubled_or_reordered_through_random_faults(tmp_path: Path) -> None:
    harness = run(tmp_path, 8, seed=4, records=30_000, minutes=0.8)
    assert harness.kinds.total() == 8
    assert harness.full_isr_after_s < 10


def test_transactions_are_whole_through_random_faults(tmp_path: Path) -> None:
    harness = run(tmp_path, 5, seed=5, records=10_000, minutes=0.5, transactions=True)
    assert harness.full_isr_after_s < 10


def test_faults_of_a_cluster_with_sasl_and_tls_on_every_listener(tmp_path: Path) -> None:
    harness = run(tmp_path, 5, seed=8, records=10_000, minutes=0.5, secured=True)
    assert harness.kinds.total() == 5
    assert harness.full_isr_after_s < 10


def test_followers_that_were_paused_miss_no_large_batch(tmp_path: Path) -> None:
    """Nothing but one burst of batches comes, so that nothing else reminds a leader of them."""
    run(tmp_path, 2, seed=6, records=80, minutes=0.1, workload=LARGE_BATCHES)


def test_replicas_are_built_anew_while_records_are_deleted(tmp_path: Path) -> None:
    harness = run(tmp_path, 1, seed=7, records=2_000, minutes=0.15, workload=DELETIONS)
    assert harness.deletions


def test_the_harness_finds_a_leader_that_forgets_a_batch_without_room(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="records are acked after"):
        run(
            tmp_path,
            1,
            seed=6,
            records=40,
            minutes=0.1,
            workload=LARGE_BATCHES,
            peace_within_s=15,
            program=program_with("forgotten_batches"),
        )


def test_the_harness_finds_a_replica_that_refuses_the_batch_its_log_begins_in(
    tmp_path: Path,
) -> None:
    with pytest.raises(AssertionError, match="replicas stay out of sync"):
        run(
            tmp_path,
            1,
            seed=6,
            records=2_000,
            minutes=0.15,
            workload=DELETIONS,
            peace_within_s=15,
            program=program_with("refused_beginnings"),
        )


@pytest.mark.parametrize(
    ("bug", "finding"),
    [
        pytest.param("early_acks", EARLY_ACKS, id="acks before followers have it"),
        pytest.param("no_truncation", NO_TRUNCATION, id="followers do not truncate"),
    ],
)
def test_the_harness_finds_a_planted_bug(tmp_path: Path, bug: str, finding: str) -> None:
    """A leader that is alone with its clients goes on, and another one is elected meanwhile: it
    lasts longer than a session.
    """
    with pytest.raises(AssertionError, match=finding):
        run(
            tmp_path,
            3,
            seed=1,
            records=3_000,
            minutes=0.5,
            only=("alone",),
            shortest_s=2 * SESSION_TIMEOUT_MS / 1000,
            peace_within_s=15,
            program=program_with(bug),
        )
