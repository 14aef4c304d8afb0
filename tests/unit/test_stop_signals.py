"""Which signals end a process that has been asked to stop already."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tidelog.stop_signals import end_at_the_next, interrupt_once, stop_signals

ALL = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ALL}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_process_that_outlives_its_terminal_does_not_hear_it_close() -> None:
    assert stop_signals() == ALL
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert stop_signals() == (signal.SIGTERM, signal.SIGINT)


def test_a_second_signal_ends_a_stopping_process_but_a_second_hangup_does_not() -> None:
    end_at_the_next()
    assert [signal.getsignal(number) for number in ALL] == [
        signal.SIG_DFL,
        signal.SIG_DFL,
        signal.SIG_IGN,
    ]


def test_a_first_signal_interrupts_and_stays_known_if_the_interrupt_is_lost() -> None:
    request = interrupt_once()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert request.has_come
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
