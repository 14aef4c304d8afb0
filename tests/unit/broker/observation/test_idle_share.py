"""The share of time in which threads use no processor."""

from __future__ import annotations

import threading

import pytest

from tidelog.broker.observation.idle_share import WINDOW_S, IdleShare, idle_share_of


def test_the_first_reading_has_nothing_to_compare_with() -> None:
    assert IdleShare(lambda: 7.0).read(100.0) is None


def test_the_share_is_of_the_time_since_the_reading_before() -> None:
    used = [5.0]
    share = IdleShare(lambda: used[0])
    share.read(100.0)
    used[0] += 2.5
    assert share.read(110.0) == pytest.approx(0.75)


def test_it_covers_one_to_two_windows_and_forgets_what_was_before() -> None:
    used = [0.0]
    share = IdleShare(lambda: used[0])
    share.read(0.0)
    used[0] = WINDOW_S  # busy all the time
    assert share.read(WINDOW_S) == 0.0
    assert share.read(2 * WINDOW_S) == pytest.approx(0.5)
    assert share.read(3 * WINDOW_S) == 1.0


def test_several_threads_count_on_average() -> None:
    used = [0.0]
    share = IdleShare(lambda: used[0], threads=4)
    share.read(0.0)
    used[0] = 10.0
    assert share.read(10.0) == pytest.approx(0.75)


def test_a_clock_that_is_not_exact_makes_no_share_beyond_the_bounds() -> None:
    used = [0.0]
    share = IdleShare(lambda: used[0])
    share.read(0.0)
    used[0] = 1.1
    assert share.read(1.0) == 0.0


def test_the_system_tells_of_a_thread_that_runs() -> None:
    share = idle_share_of([threading.get_ident()])
    if share is None:
        pytest.skip("the system does not tell the processor time of threads")
    share.read(0.0)
    found = share.read(1e9)
    assert found is not None
    assert found > 0.99
