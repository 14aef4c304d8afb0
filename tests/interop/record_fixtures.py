"""Makes tests/fixtures/kafka-3.9: a data directory of Apache Kafka 3.9 and what its tools say.

    python -m tests.interop.record_fixtures

    data/       the log directory of a broker that was stopped cleanly, without its metadata log
    expected/   <name>.txt: the arguments of DumpLogSegments (first line) and what it printed
    old/        segments of magic 0 and 1, which Kafka 3.9 reads and does not write any more
    damaged/    a log with a bit turned and its tail torn off; indexes that lead astray

Run by hand, and only when the fixtures are to change; `make test` needs neither Java nor this.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.peers import ApacheKafka
from tests.interop.apache_kafka import (
    apache_kafka_or_reason,
    dump_log_segments,
    running,
    wait_for_cleaning,
)
from tests.interop.old_segments import write_old_segments
from tests.support.handover_story import fill

HOME = Path(__file__).resolve().parents[1] / "fixtures" / "kafka-3.9"
LOG_FLAGS = {
    "shallow": [],
    "deep": ["--deep-iteration"],
    "data": ["--print-data-log"],
    "plain": ["--print-data-log", "--skip-record-metadata"],
    "bytes": ["--max-bytes", "700"],
}
DECODERS = {
    "__consumer_offsets-0": "--offsets-decoder",
    "__transaction_state-0": "--transaction-log-decoder",
}


def main() -> int:
    kafka = apache_kafka_or_reason()
    if isinstance(kafka, str):
        sys.stderr.write(f"{kafka}\n")
        return 1
    shutil.rmtree(HOME, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        with running(kafka, data) as broker:
            fill(f"127.0.0.1:{broker.port}")
            wait_for_cleaning(data)
            time.sleep(2)  # replaced segments are gone half a second later
        shutil.rmtree(data / "__cluster_metadata-0")
        for name in (".lock", "bootstrap.checkpoint"):
            (data / name).unlink(missing_ok=True)
        shutil.copytree(data, HOME / "data")
    write_old_segments(HOME / "old")
    write_damaged_segments(HOME / "damaged")
    record_expectations(kafka)
    record_damaged(kafka)
    return 0


def write_damaged_segments(home: Path) -> None:
    for damaged in ("log", "index", "timeindex"):
        folder = home / f"{damaged}-0"
        folder.mkdir(parents=True)
        for suffix in (".log", ".index", ".timeindex"):
            shutil.copy(HOME / "data" / "codecs-0" / f"{0:020d}{suffix}", folder)
    turn_bits(home / "log-0" / f"{0:020d}.log", {300: 0x10}, torn_bytes=20)
    turn_bits(home / "index-0" / f"{0:020d}.index", {3: 0x01, 11: 0x02}, zeros=80)
    turn_bits(home / "timeindex-0" / f"{0:020d}.timeindex", {7: 0x40, 23: 0x01}, zeros=120)


def turn_bits(path: Path, masks: dict[int, int], *, torn_bytes: int = 0, zeros: int = 0) -> None:
    content = bytearray(path.read_bytes())
    for position, mask in masks.items():
        content[position] ^= mask
    path.write_bytes(content[: len(content) - torn_bytes] + bytes(zeros))


def record_damaged(kafka: ApacheKafka) -> None:
    log, index, times = (
        f"damaged/{kind}-0/{0:020d}.{kind}" for kind in ("log", "index", "timeindex")
    )
    record(kafka, "damaged.log", ["--files", f"{log},{log}.deleted"])
    record(kafka, "damaged.index", ["--files", index])
    record(kafka, "damaged.verify", ["--files", f"{index},{times}", "--verify-index-only"])
    record(kafka, "damaged.timeindex", ["--files", times])


def record_expectations(kafka: ApacheKafka) -> None:
    expected = HOME / "expected"
    expected.mkdir()
    folders = [*sorted((HOME / "data").glob("*-*/")), *sorted((HOME / "old").glob("*-*/"))]
    for folder in folders:
        if not folder.is_dir():
            continue
        place = folder.relative_to(HOME)
        logs = [str(place / path.name) for path in sorted(folder.glob("*.log"))]
        others = [
            str(place / path.name)
            for path in sorted(folder.iterdir())
            if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot")
        ]
        for name, flags in LOG_FLAGS.items():
            record(kafka, f"{folder.name}.{name}", ["--files", ",".join(logs), *flags])
        for name, flags in (
            ("indexes", []),
            ("sanity", ["--index-sanity-check"]),
            ("verify", ["--verify-index-only"]),
        ):
            if others:
                record(kafka, f"{folder.name}.{name}", ["--files", ",".join(others), *flags])
        if folder.name in DECODERS:
            decoder = DECODERS[folder.name]
            record(kafka, f"{folder.name}.decoded", ["--files", ",".join(logs), decoder])


def record(kafka: ApacheKafka, name: str, arguments: list[str]) -> None:
    output = dump_log_segments(kafka, arguments, HOME)
    lines = [" ".join(arguments), *output.stdout]
    lines += [f"stderr: {line.replace(f'{HOME}/', '')}" for line in output.stderr]
    (HOME / "expected" / f"{name}.txt").write_bytes(("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
