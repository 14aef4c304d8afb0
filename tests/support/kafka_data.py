"""The directory that Apache Kafka 3.9 wrote (tests/fixtures), and small things to do to a copy."""

from __future__ import annotations

from pathlib import Path

from tidelog.tools.verify.directory_check import DirectoryCheck
from tidelog.tools.verify.finding import Kind
from tidelog.tools.verify.target import Target

KAFKA_DATA = Path(__file__).resolve().parents[1] / "fixtures" / "kafka-3.9" / "data"


def problems(path: Path) -> list[tuple[Kind, str]]:
    """Kind and path below the directory of every damage."""
    findings = DirectoryCheck(Target(path), jobs=1).run().all_findings
    return [(f.kind, f.path.removeprefix(f"{path}/")) for f in findings if f.is_damage]


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
