"""The thread below blocking clients."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator

import pytest

from tidelog.client.blocking.loop_thread import Handed, LoopThread
from tidelog.client.errors import IllegalState, RequestTimedOut


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.stop()


async def where() -> int:
    return threading.get_ident()


def test_a_coroutine_runs_in_the_thread_and_gives_its_result(thread: LoopThread) -> None:
    assert thread.run(where) not in (0, threading.get_ident())


def test_what_a_coroutine_raises_is_raised_here(thread: LoopThread) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        thread.run(fail)


def test_a_coroutine_that_cannot_be_made_is_raised_here(thread: LoopThread) -> None:
    def make() -> Coroutine[object, object, None]:
        raise TypeError("wrong arguments")

    with pytest.raises(TypeError, match="wrong arguments"):
        thread.run(make, timeout_s=60)


def test_a_timeout_of_the_coroutine_itself_passes(thread: LoopThread) -> None:
    async def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        thread.run(fail, timeout_s=30)


def test_a_coroutine_that_takes_too_long_is_cancelled_and_cleans_up(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def linger() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    wait = Handed.wait

    def wait_for_a_begun_one(handed: Handed[None], timeout_s: float) -> bool:
        assert begun.wait(60)
        return wait(handed, timeout_s)

    monkeypatch.setattr(Handed, "wait", wait_for_a_begun_one)
    with pytest.raises(RequestTimedOut, match=r"within 0\.01 s"):
        thread.run(linger, timeout_s=0.01)
    assert ended.is_set()


def test_an_interrupted_caller_cancels_the_coroutine(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def linger() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def interrupted(handed: Handed[None], timeout_s: float | None) -> bool:
        if timeout_s is not None:
            return wait(handed, timeout_s)
        assert begun.wait(60)
        raise KeyboardInterrupt

    wait = Handed.wait
    monkeypatch.setattr(Handed, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thread.run(linger)
    assert ended.is_set()


def test_an_interrupt_before_the_coroutine_begins_leaves_none_behind(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would warn that it was never awaited."""
    made: list[str] = []

    async def work() -> None:
        made.append("never")

    class Interrupting:
        def call_soon_threadsafe(self, call: Callable[[], object]) -> None:
            monkeypatch.setattr(thread, "loop", loop)
            raise KeyboardInterrupt

    loop = thread.loop
    monkeypatch.setattr(thread, "loop", Interrupting())
    with pytest.raises(KeyboardInterrupt):
        thread.run(work)
    assert made == []


def test_a_blocking_call_inside_the_loop_is_refused(thread: LoopThread) -> None:
    async def nested() -> None:
        thread.run(where)

    with pytest.raises(IllegalState, match="would wait forever"):
        thread.run(nested)


def test_there_is_one_shared_thread() -> None:
    assert LoopThread.shared() is LoopThread.shared()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_makes_a_thread_of_its_own() -> None:
    parent = LoopThread.shared()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b"failed"
        try:
            own = LoopThread.shared()
            if own is not parent and own.run(where):
                answer = b"own"
            try:
                parent.run(where, timeout_s=5)
            except IllegalState:
                answer += b", parent's refused"
        finally:
            os.write(writer, answer)
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert pipe.read() == b"own, parent's refused"
    os.waitpid(child, 0)
