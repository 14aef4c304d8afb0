"""Makes tests/fixtures/adoption: directories of Apache Kafka 3.9 and 4.3 with the adoption story.

    python -m tests.interop.record_adoption [kraft-3.9 | kraft-4.3 | zookeeper-3.9]

    <name>.tar.gz   the log directory of a broker that was stopped cleanly
    <name>.json     the time of the story; what Kafka said of the topics; the records in them; and
                    the time a day later, with the records that Kafka kept then

The story is told a day late, by the timestamps of its records, so that its next day is today. Run
by hand, and only when the fixtures are to change.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from bench.peers import ApacheKafka, BrokerProcess, Peer
from tests.interop.adoptable_kafka import (
    KEEPER,
    OWN,
    OverData,
    OverZooKeeper,
    adoptable_kafka,
    served,
)
from tests.support.adoption_story import DAY_MS, describe, read, tell
from tests.support.zookeeper import start_fresh

HOME = Path(__file__).resolve().parents[1] / "fixtures" / "adoption"
SETTLE_S = 12


def main(names: list[str]) -> int:
    HOME.mkdir(parents=True, exist_ok=True)
    for name in names or ["kraft-3.9", "kraft-4.3", "zookeeper-3.9"]:
        version = NEWEST_KAFKA_VERSION if name.endswith("4.3") else KAFKA_VERSION
        kafka = adoptable_kafka(version)
        if isinstance(kafka, str):
            sys.stderr.write(f"{kafka}\n")
            return 1
        with tempfile.TemporaryDirectory() as scratch:
            if name.startswith("zookeeper"):
                record_zookeeper(kafka, Path(scratch), name)
            else:
                record(kafka, OverData(kafka), Path(scratch), name)
    return 0


def record_zookeeper(kafka: ApacheKafka, scratch: Path, name: str) -> None:
    server = start_fresh(scratch)
    try:
        peer = OverZooKeeper(kafka, server.address)
        record(peer, peer, scratch, name)
    finally:
        server.kill()


def record(writer: Peer, keeper: Peer, scratch: Path, name: str) -> None:
    data = scratch / "data"
    now_ms = int(time.time() * 1000) - DAY_MS
    with served(BrokerProcess(writer, data, OWN)) as bootstrap:
        tell(bootstrap, now_ms)
        described = describe(bootstrap)
        records = read(bootstrap, described.partition_counts)
        time.sleep(2)  # cleaning is under way
    (data / ".lock").unlink(missing_ok=True)
    with tarfile.open(HOME / f"{name}.tar.gz", "w:gz") as archive:
        archive.add(data, "data", filter=without_swapped)
    later = scratch / "later"
    shutil.copytree(data, later)
    with served(BrokerProcess(keeper, later, KEEPER)) as bootstrap:
        time.sleep(SETTLE_S)  # retention and cleaning
        kept = read(bootstrap, described.partition_counts)
    expected = {
        **described._asdict(),
        "now_ms": now_ms,
        "records": records,
        "later_ms": int(time.time() * 1000),
        "kept": kept,
    }
    text = json.dumps(expected, separators=(",", ":"), sort_keys=True)
    (HOME / f"{name}.json").write_text(text + "\n")


def without_swapped(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without what is about to be deleted."""
    return None if entry.name.endswith(".deleted") else entry


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
