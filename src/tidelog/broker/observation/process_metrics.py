"""The process and its Python, under the names of Prometheus' own client libraries."""

from __future__ import annotations

import gc
import os
import platform
import sys
import time
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


def _add_python(page: Page) -> None:
    label = labels(
        {"implementation": platform.python_implementation(), "version": platform.python_version()}
    )
    page.family("python_info", GAUGE, "The Python that runs.").append(f"python_info{label} 1")
    label = labels({"version": __version__, "kernel": "c" if COMPILED else "python"})
    name = "tidelog_build_info"
    page.family(name, GAUGE, "The tidelog that runs.").append(f"{name}{label} 1")
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
    page.gauge("process_open_fds", "Open descriptors.", len(os.listdir("/proc/self/fd")))
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    page.gauge("process_max_fds", "Descriptors it may open.", soft)
