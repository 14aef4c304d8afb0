"""The process and its Python, under the names of Prometheus' own client libraries."""

from __future__ import annotations

import gc
import os
import platform
import sys
import threading
import time
from functools import cache
from typing import Final

from tidelog import __version__
from tidelog.broker.observation.exposition import COUNTER, GAUGE, Page, labels
from tidelog.record.kernel import COMPILED

STAT_START_TIME: Final = 19  # of the fields after the name, in clock ticks since the boot
STAT_VIRTUAL_BYTES: Final = 20
STAT_RESIDENT_PAGES: Final = 21


def add_process(page: Page) -> None:
    used = os.times()
    page.counter(
        "process_cpu_seconds_total", "Processor time of the process.", used.user + used.system
    )
    _add_python(page)
    if sys.platform == "linux":
        _add_linux(page)


class CollectionClock:
    """How long garbage collections of this process have taken since this object was made."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0
        gc.callbacks.append(self._collecting)

    def _collecting(self, phase: str, _: object) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._since = now
        elif self._since:
            self.seconds += now - self._since


@cache
def _collection_clock() -> CollectionClock:
    """One for the process, whose collections they are."""
    return CollectionClock()


def _add_python(page: Page) -> None:
    label = labels(
        {"implementation": platform.python_implementation(), "version": platform.python_version()}
    )
    page.family("python_info", GAUGE, "The Python that runs.").append(f"python_info{label} 1")
    label = labels({"version": __version__, "kernel": "c" if COMPILED else "python"})
    name = "tidelog_build_info"
    page.family(name, GAUGE, "The tidelog that runs.").append(f"{name}{label} 1")
    page.counter(
        "python_gc_seconds_total",
        "Time in garbage collections since the first scrape.",
        round(_collection_clock().seconds, 6),
    )
    page.gauge("python_threads", "Threads that Python knows.", threading.active_count())
    name = "python_gc_collections_total"
    lines = page.family(name, COUNTER, "Garbage collections, by generation.")
    for generation, stats in enumerate(gc.get_stats()):
        lines.append(f"{name}{labels({'generation': generation})} {stats['collections']}")


def _add_linux(page: Page) -> None:
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    resident = int(fields[STAT_RESIDENT_PAGES]) * page_bytes
    page.gauge("process_resident_memory_bytes", "Memory in use.", resident)
    virtual = int(fields[STAT_VIRTUAL_BYTES])
    page.gauge("process_virtual_memory_bytes", "Address space in use.", virtual)
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    age_s = since_boot_s - int(fields[STAT_START_TIME]) / os.sysconf("SC_CLK_TCK")
    page.gauge("process_start_time_seconds", "When it started.", round(time.time() - age_s, 2))
    prefix = "kafka_server_kafkaserver_linux_disk_"
    for name, count in _disk_bytes():
        page.counter(f"{prefix}{name}", "Of the process, as the system counts it.", count)
    page.gauge("process_open_fds", "Open descriptors.", len(os.listdir("/proc/self/fd")))
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    page.gauge("process_max_fds", "Descriptors it may open.", soft)


def _disk_bytes() -> list[tuple[str, int]]:
    """What the process made storage do. A container may be forbidden to look."""
    try:
        with open("/proc/self/io") as file:
            counts = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return []
    return [(name, int(counts[name])) for name in ("read_bytes", "write_bytes")]
