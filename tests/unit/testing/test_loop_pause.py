from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, cast

from tidelog.testing.control import LoopPause

WITHIN_S = 60.0


class HeldLoop:
    """It runs what it is given when the test says so."""

    def __init__(self) -> None:
        self.given: queue.Queue[Callable[[], object]] = queue.Queue()

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.given.put(lambda: callback(*arguments))


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_pause_has_begun_when_the_loop_is_held() -> None:
    loop = HeldLoop()
    pause = LoopPause(cast(Any, loop))
    beginning = started(pause.begin)
    work = loop.given.get(timeout=WITHIN_S)
    assert beginning.is_alive(), "the loop may still do other things"
    loops_turn = started(work)
    beginning.join(WITHIN_S)
    assert not beginning.is_alive()
    assert loops_turn.is_alive()
    pause.begin()
    assert loop.given.empty(), "it is held already"
    pause.end()
    loops_turn.join(WITHIN_S)
    assert not loops_turn.is_alive()


def test_a_loop_may_be_held_again() -> None:
    loop = HeldLoop()
    pause = LoopPause(cast(Any, loop))
    for _ in range(2):
        beginning = started(pause.begin)
        loops_turn = started(loop.given.get(timeout=WITHIN_S))
        beginning.join(WITHIN_S)
        pause.end()
        loops_turn.join(WITHIN_S)
        assert not beginning.is_alive()
        assert not loops_turn.is_alive()
