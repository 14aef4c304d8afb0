from __future__ import annotations

from tests.support.clock import FakeClock
from tidelog.zookeeper.session_tracker import Session, SessionTracker


def pass_time(clock: FakeClock, tracker: SessionTracker, seconds: float) -> list[int]:
    """In steps, as the server's timer takes them; which sessions were due."""
    due: list[int] = []
    for _ in range(round(seconds * 10)):
        clock.advance(ms=100)
        due += [session.id for session in tracker.due()]
    return due


def test_a_silent_session_is_due_after_its_timeout_and_once() -> None:
    clock = FakeClock()
    tracker = SessionTracker(clock)
    tracker.add(Session(1, 2_000, b""))
    tracker.add(Session(2, 5_000, b""))
    assert pass_time(clock, tracker, 1.9) == []
    assert pass_time(clock, tracker, 0.4) == [1]
    assert pass_time(clock, tracker, 3.2) == [2]
    assert pass_time(clock, tracker, 30) == []


def test_hearing_from_it_gives_it_its_whole_timeout_again() -> None:
    clock = FakeClock()
    tracker = SessionTracker(clock)
    session = Session(1, 2_000, b"")
    tracker.add(session)
    for _ in range(10):
        assert pass_time(clock, tracker, 1.5) == []
        tracker.touch(session)
    assert pass_time(clock, tracker, 2.3) == [1]


def test_time_in_which_the_server_stood_still_does_not_count() -> None:
    clock = FakeClock()
    tracker = SessionTracker(clock)
    tracker.add(Session(1, 6_000, b""))
    clock.advance(ms=3_600_000)
    assert tracker.due() == []
    assert pass_time(clock, tracker, 5.4) == [1]


def test_a_session_that_was_removed_is_not_due_and_cannot_be_touched_back() -> None:
    clock = FakeClock()
    tracker = SessionTracker(clock)
    session = Session(1, 2_000, b"")
    tracker.add(session)
    tracker.remove(session)
    tracker.touch(session)
    assert pass_time(clock, tracker, 10) == []
    assert not tracker.sessions


def test_the_end_of_its_last_write_is_told_once() -> None:
    session = Session(1, 2_000, b"")
    told: list[str] = []
    session.writes_under_way = 2
    session.after_writes = lambda: told.append("done")
    session.write_is_done()
    assert told == []
    session.write_is_done()
    assert told == ["done"]
