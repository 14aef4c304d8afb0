"""Tells what held the event loop: for how long, and where in the code.

A timer on the loop ticks four times in `warn_ms`. A tick that comes `warn_ms` late, or later, is a
stall: every client waited for as long. A thread beside the loop looks at the loop's stack while a
tick is overdue, so that the warning can name the code that was running.

Time in which the operating system let the loop's thread wait for a processor does not count, where
the system tells it (Linux); time blocked in a system call does. The warning also tells the thread's
CPU time and the time spent in garbage collection. A stall is measured to within one tick.

The broker and `tidelog zookeeper` start a monitor only if they are told to
(`tidelog.loop.stall.warn.ms`, TIDELOG_LOOP_STALL_WARN_MS), once they serve.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, NamedTuple

from tidelog.clock import Timer, TimerHandle

logger = logging.getLogger(__name__)

MESSAGE: Final = "the event loop was held"
TICKS_PER_STALL: Final = 4
SAMPLES_MAX: Final = 64  # of one stall

Stack = tuple[tuple[CodeType, int], ...]  # function and line, the outermost first


class Reading(NamedTuple):
    """What the loop's thread has spent so far, in seconds."""

    elapsed: float
    on_cpu: float
    runnable: float  # waiting for a processor


class ThreadTimes:
    """Readings of the thread that makes this object."""

    def __init__(self) -> None:
        self._runnable_file: int | None = None
        path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        if os.path.exists(path):
            self._runnable_file = os.open(path, os.O_RDONLY)

    def read(self) -> Reading:
        runnable = 0.0
        if self._runnable_file is not None:
            runnable = int(os.pread(self._runnable_file, 100, 0).split()[1]) / 1e9
        return Reading(time.monotonic(), time.thread_time(), runnable)

    def close(self) -> None:
        if self._runnable_file is not None:
            os.close(self._runnable_file)
            self._runnable_file = None


class LoopMonitor:
    """Made, started and stopped on the loop's thread."""

    def __init__(
        self,
        timer: Timer,
        warn_ms: int,
        *,
        read: Callable[[], Reading] | None = None,
    ) -> None:
        self._timer = timer
        self._warn_s = warn_ms / 1000
        self._tick_s = self._warn_s / TICKS_PER_STALL
        self._times = ThreadTimes()
        self._read = read or self._times.read
        self._loop_thread = threading.get_ident()
        self._handle: TimerHandle | None = None
        self._last = self._read()
        self._samples: list[Stack] = []  # filled by the watching thread, emptied by the next tick
        self._collecting_since: float | None = None
        self._collected_s = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-monitor", daemon=True)

    def start(self) -> None:
        gc.callbacks.append(self._garbage_collection)
        self._wait_for_tick(self._read())
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        if self._handle is not None:
            self._handle.cancel()
        gc.callbacks.remove(self._garbage_collection)
        self._times.close()

    def _wait_for_tick(self, reading: Reading) -> None:
        self._last = reading
        self._samples = []
        self._collected_s = 0.0
        self._handle = self._timer.call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        reading, last = self._read(), self._last
        held_s = reading.elapsed - last.elapsed - self._tick_s
        held_s -= reading.runnable - last.runnable
        if held_s >= self._warn_s:
            logger.warning(
                MESSAGE,
                extra={
                    "event": "loop-stalled",
                    "held_ms": round(held_s * 1000),
                    "cpu_ms": round((reading.on_cpu - last.on_cpu) * 1000),
                    "gc_ms": round(self._collected_s * 1000),
                    "where": described(common_part(self._samples)),
                },
            )
        self._wait_for_tick(self._read())

    def _garbage_collection(self, phase: str, info: object) -> None:
        if phase == "start":
            self._collecting_since = time.monotonic()
        elif self._collecting_since is not None:
            self._collected_s += time.monotonic() - self._collecting_since
            self._collecting_since = None

    def _watch(self) -> None:
        overdue_s = self._tick_s + self._warn_s / 2
        while not self._stopped.wait(self._tick_s):
            samples = self._samples
            if len(samples) < SAMPLES_MAX and time.monotonic() - self._last.elapsed > overdue_s:
                frame = sys._current_frames().get(self._loop_thread)
                samples.append(stack_of(frame))


def stack_of(frame: FrameType | None) -> Stack:
    stack = []
    while frame is not None:
        stack.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(stack))


def common_part(samples: list[Stack]) -> Stack:
    """The calls that most samples are in: the last of them is what held the loop.

    Not all of them: while the machine is busy, a sample may show the loop before or after it.
    """
    agreeing = samples
    depth = 0
    while True:
        calls = Counter(stack[depth][0] for stack in agreeing if len(stack) > depth)
        code, count = calls.most_common(1)[0] if calls else (None, 0)
        if 2 * count <= len(samples):
            return agreeing[0][:depth] if agreeing else ()
        agreeing = [stack for stack in agreeing if len(stack) > depth and stack[depth][0] is code]
        depth += 1


def described(stack: Stack) -> str:
    if not stack:
        return "not seen: Python code did not run meanwhile"
    return " > ".join(f"{Path(c.co_filename).name}:{line}:{c.co_qualname}" for c, line in stack)
