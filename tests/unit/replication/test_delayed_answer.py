from __future__ import annotations

from tests.support.clock import FakeClock
from tidelog.errors import ErrorCode
from tidelog.replication.delayed_answer import DelayedAnswer, Settle


def test_what_has_not_come_in_time_has_timed_out() -> None:
    clock = FakeClock()
    outcomes: list[ErrorCode] = []
    finished: list[str] = []
    asked: list[Settle] = []
    answer = DelayedAnswer(clock, lambda: finished.append("finished"))
    for _ in range(2):
        answer.wait_for(asked.append, outcomes.append)
    answer.park(100)
    asked[0](ErrorCode.NONE)
    assert (outcomes, finished) == ([ErrorCode.NONE], [])
    clock.advance(ms=100)
    assert (outcomes, finished) == ([ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT], ["finished"])
    asked[1](ErrorCode.NONE)
    assert len(outcomes) == 2, "it came too late"


def test_one_that_fails_when_the_time_is_over_stops_no_other() -> None:
    clock = FakeClock()
    outcomes: list[ErrorCode] = []
    finished: list[str] = []

    def fail(_: ErrorCode) -> None:
        raise ZeroDivisionError

    answer = DelayedAnswer(clock, lambda: finished.append("finished"))
    answer.wait_for(lambda _: None, fail)
    answer.wait_for(lambda _: None, outcomes.append)
    answer.park(100)
    clock.advance(ms=100)
    assert (outcomes, finished) == ([ErrorCode.REQUEST_TIMED_OUT], ["finished"])


def test_an_outcome_that_comes_before_the_next_question_confuses_no_other() -> None:
    clock = FakeClock()
    outcomes: list[str] = []
    finished: list[str] = []
    asked: list[Settle] = []
    answer = DelayedAnswer(clock, lambda: finished.append("finished"))
    answer.wait_for(asked.append, lambda code: outcomes.append(f"first {code.name}"))
    answer.wait_for(asked.append, lambda code: outcomes.append(f"second {code.name}"))
    asked[0](ErrorCode.NONE)
    answer.wait_for(asked.append, lambda code: outcomes.append(f"third {code.name}"))
    answer.park(100)
    asked[2](ErrorCode.NONE)
    assert (outcomes, finished) == (["first NONE", "third NONE"], [])
    asked[1](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert outcomes[2:] == ["second NOT_LEADER_OR_FOLLOWER"]
    assert finished == ["finished"]
