"""`bench.table`: what a row of figures says."""

from __future__ import annotations

import pytest

from bench.arena import Sample
from bench.table import Figure


def figure(ours_s: float | None, theirs_s: float | None) -> Figure:
    values = {
        "tidelog": Sample(2.0, broker_seconds=ours_s),
        "kafka": Sample(1.0, broker_seconds=theirs_s),
    }
    return Figure("produce", "MB/s", values, higher_is_better=True)


def test_cpu_is_our_processor_time_over_theirs() -> None:
    assert figure(1.0, 4.0).cpu_ratio == 0.25


@pytest.mark.parametrize(("ours_s", "theirs_s"), [(0.0, 4.0), (0.09, 4.0), (1.0, 0.05), (1.0, 0.0)])
def test_too_little_processor_time_gives_no_ratio(ours_s: float, theirs_s: float) -> None:
    assert figure(ours_s, theirs_s).cpu_ratio is None
    assert figure(ours_s, theirs_s).cells()[7] == "-"


def test_a_peer_whose_processor_time_was_not_taken_gives_no_ratio() -> None:
    assert figure(None, 4.0).cpu_ratio is None
    assert figure(1.0, None).cpu_ratio is None


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [(15.0, 5.0, "ok"), (50.0, 60.0, "ok"), (50.0, 5.0, "MISS"), (50.0, None, "MISS")],
)
def test_a_row_with_a_limit_and_a_ratio_has_to_meet_one_of_them(
    ours: float, theirs: float | None, verdict: str
) -> None:
    values = {"tidelog": Sample(ours)} | ({} if theirs is None else {"kafka": Sample(theirs)})
    row = Figure("wait", "ms", values, higher_is_better=False, target=1.0, own_limit=20.0)
    assert (row.verdict, row.aim) == (verdict, "<= 20 ms or <= 1x")


def test_notes_name_the_column_that_they_are_about() -> None:
    values = {"kafka": Sample(1.0, note="alone"), "tidelog": Sample(2.0, client_busy=0.9)}
    row = Figure("produce", "MB/s", values, higher_is_better=True)
    assert row.notes("one broker") == "tidelog: client 90% busy; one broker: alone"
