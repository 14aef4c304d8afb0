"""The directories that Apache Kafka wrote for the adoption story (tests/fixtures/adoption)."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

HOME = Path(__file__).resolve().parents[1] / "fixtures" / "adoption"
KRAFT = ("kraft-3.9", "kraft-4.3")
ZOOKEEPER = "zookeeper-3.9"
METADATA_FOLDER = "__cluster_metadata-0"


class Recorded(NamedTuple):
    """What Kafka said of the directory."""

    topic_ids: dict[str, str]
    partition_counts: dict[str, int]
    configs: dict[str, dict[str, list[Any]]]  # by topic and key: value, and where it comes from
    now_ms: int
    records: dict[str, list[list[Any]]]  # by folder: offset, timestamp, key, value
    later_ms: int
    kept: dict[str, list[list[Any]]]  # at that later time

    def overrides(self, topic: str) -> dict[str, str]:
        rows = self.configs[topic].items()
        return {key: value for key, (value, source) in rows if source == "DYNAMIC_TOPIC_CONFIG"}


def recorded(name: str) -> Recorded:
    return Recorded(**json.loads((HOME / f"{name}.json").read_text()))


def unpack(name: str, target: Path) -> Path:
    """A fresh copy of the directory."""
    with tarfile.open(HOME / f"{name}.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return target / "data"
