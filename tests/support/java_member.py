"""Kafka's own consumer as a member of a group: compiles tests/interop/java/GroupMember.java against
the jars of the newest Kafka, once, and tells how to start it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from bench.maven import NEWEST_KAFKA_VERSION, jars_or_reason

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CACHE: Final = REPOSITORY / ".bench"
SOURCE: Final = REPOSITORY / "tests" / "interop" / "java" / "GroupMember.java"
COMPILE_TIMEOUT_S: Final = 120
# Many of them start at once: little memory, and no time for a second compiler.
JVM: Final = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
ASSIGNORS: Final = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
STRATEGY_KEY: Final = "partition.assignment.strategy"


@cache
def class_path_or_reason() -> list[Path] | str:
    """Where its classes and Kafka's are, or why they are not here."""
    if shutil.which("javac") is None:
        return "javac is not on the PATH"
    CACHE.mkdir(exist_ok=True)
    libs = jars_or_reason(CACHE, NEWEST_KAFKA_VERSION)
    if isinstance(libs, str):
        return libs
    classes = CACHE / "group-member"
    made = classes / "GroupMember.class"
    if not made.exists() or made.stat().st_mtime < SOURCE.stat().st_mtime:
        done = subprocess.run(
            ["javac", "-d", str(classes), "-cp", f"{libs}/*", str(SOURCE)],
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return [classes, *sorted(libs.glob("*.jar"))]


def java_member_command(topic: str, settings: Mapping[str, object]) -> list[str]:
    """`settings` are the consumer's; an assignor goes by its short name."""
    found = class_path_or_reason()
    assert not isinstance(found, str), found
    path = ":".join(map(str, found))
    pairs = [f"{key}={_java_value(key, value)}" for key, value in settings.items()]
    return ["java", *JVM, "-cp", path, "GroupMember", topic, *pairs]


def _java_value(key: str, value: object) -> str:
    if key == STRATEGY_KEY:
        return f"org.apache.kafka.clients.consumer.{ASSIGNORS[str(value)]}"
    return str(value).lower() if isinstance(value, bool) else str(value)
