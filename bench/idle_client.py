"""A client that does nothing but notice how long it waits while the broker serves somebody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bench import wire
from bench.arena import Sample
from bench.peers import BrokerProcess

LONGEST_WAIT_MS = 20.0  # that a broker may let anybody wait for somebody else
ASK_EVERY_S = 0.002
WARM_UP_ASKS = 500
QUIET_S = 2.0  # before the operation and after its answer


class IdleClient:
    """A connection of its own, asked in a thread; `worst_ms` is the longest wait so far."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._client = broker.connect()
        self._request = wire.api_versions_request()
        self._stop = threading.Event()
        self._failure: OSError | None = None
        self.worst_ms = 0.0
        for _ in range(WARM_UP_ASKS):
            self._client.ask(self._request)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> IdleClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(ASK_EVERY_S):
                started = time.perf_counter()
                self._client.ask(self._request)
                self.worst_ms = max(self.worst_ms, (time.perf_counter() - started) * 1e3)
        except OSError as failure:
            self._failure = failure


def longest_wait(broker: BrokerProcess, operation: Callable[[], object]) -> Sample:
    with IdleClient(broker) as idle:
        time.sleep(QUIET_S)
        idle.worst_ms = 0.0
        operation()
        time.sleep(QUIET_S)
    return Sample(idle.worst_ms)
