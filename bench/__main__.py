"""`python -m bench`: runs the measures and prints the table of ratios.

Exit code 0 also when targets are missed: the table says so, the benchmark itself worked. A measure
that cannot be taken is reported in the words of whoever failed, the others go on, exit code 1.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.arena import Arena, Size
from bench.maven import KAFKA_VERSION, jars_or_reason
from bench.page_cache import touch_page_cache
from bench.peers import ApacheKafka, BrokerFailed, Peer, Tidelog
from bench.table import Report
from bench.tools import ToolFailed
from bench.wire import BadAnswer

CACHE = Path(__file__).resolve().parent.parent / ".bench"
TOUCHED_BYTES = 6 << 30
MEASURES = (
    "produce",
    "fetch",
    "latency",
    "tls",
    "security",
    "metrics",
    "kcat",
    "confluent",
    "client_produce",
    "java",
    "groups",
    "clients",
    "stalls",
    "start",
    "fixtures",
    "memory",
    "recovery",
    "compaction",
    "cluster",
    "fleet",
    "coordination",
    "scaling",
    "kernel",
    "client_consume",
    "spark",
    "pipeline",
    "console",
)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, two rounds")
    parser.add_argument("--only", default=",".join(MEASURES), help="measures, comma-separated")
    parser.add_argument("--peers", default="kafka,tidelog", help="kafka, tidelog or both")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    chosen = parser.parse_args(given)
    unknown = set(chosen.only.split(",")) - set(MEASURES)
    if unknown:
        parser.error(f"no measure {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    return chosen


def peers(names: Sequence[str]) -> list[Peer]:
    found: list[Peer] = []
    if "kafka" in names:
        libs = jars_or_reason(CACHE)
        if isinstance(libs, Path):
            found.append(ApacheKafka(libs, CACHE))
        else:
            print(f"No Apache Kafka here, tidelog alone and no ratios: {libs}\n")
    if "tidelog" in names:
        found.append(Tidelog(Path(sys.executable).with_name("tidelog")))
    return found


def headline(present: Sequence[Peer], size: Size) -> str:
    kafka = f"Apache Kafka {KAFKA_VERSION} (1 GB heap; KRaft, or ZooKeeper in `cluster`)"
    names = [kafka if isinstance(peer, ApacheKafka) else peer.name for peer in present]
    return (
        f"{' and '.join(names)}: {os.cpu_count()} processors, "
        f"Python {platform.python_version()}, {'quick' if size.quick else 'full'} run\n"
    )


def main(given: Sequence[str]) -> int:
    chosen = arguments(given)
    CACHE.mkdir(exist_ok=True)
    size = Size(quick=chosen.quick)
    present = peers(chosen.peers.split(","))
    print(headline(present, size), flush=True)
    data = Path(tempfile.mkdtemp(prefix="data-", dir=CACHE))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that brokers end with us
    started = time.monotonic()
    reports: list[Report] = []
    failed: list[str] = []
    try:
        arena = Arena(present, size, data)
        for name in (name for name in MEASURES if name in chosen.only.split(",")):
            try:
                reports.append(take(name, arena, data))
            except (BadAnswer, BrokerFailed, ToolFailed, OSError) as failure:
                failed.append(name)
                said = [f"{type(failure).__name__}: {failure}", *getattr(failure, "__notes__", ())]
                print(f"## {name} FAILED:", *said, "", sep="\n", flush=True)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    print(summary(reports, failed, time.monotonic() - started))
    if chosen.json:
        chosen.json.write_text(json.dumps([report.plain() for report in reports], indent=1) + "\n")
    return 1 if failed else 0


def take(name: str, arena: Arena, data: Path) -> Report:
    touch_page_cache(data, TOUCHED_BYTES)
    report: Report = importlib.import_module(f"bench.measures.{name}").run(arena)
    print(report.text(), flush=True)
    return report


def summary(reports: Sequence[Report], failed: Sequence[str], seconds: float) -> str:
    verdicts = [verdict for report in reports for verdict in report.verdicts()]
    missed = [line for report in reports for line in report.misses()]
    lines = [f"{len(verdicts) - len(missed)} of {len(verdicts)} targets met", *missed]
    lines += [f"{name}: could not be measured" for name in failed]
    return "\n".join([*lines, f"({seconds:,.0f} s in all)"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
