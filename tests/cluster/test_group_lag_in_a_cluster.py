"""The lag that three brokers tell equals the lag that is asked for, while a group moves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_metrics import get
from tests.support.broker_process import dies_with_us
from tests.support.eventually import eventually
from tests.support.moving_group import MovingGroup, group_in_a_new_topic, scraped_lags

pytestmark = pytest.mark.integration

PAUSES = 8
STOP_S = 120
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}


@pytest.fixture
def ready_line(tmp_path: Path) -> Iterator[str]:
    """Of three brokers."""
    program = str(Path(sys.executable).parent / "tidelog")
    command = [program, "dev", "-n", "3", "--port", "0", "--no-console"]
    command += ["--data", str(tmp_path / "dev")]
    for key, setting in QUICK.items():
        command += ["--override", f"{key}={setting}"]
    process = subprocess.Popen(
        dies_with_us(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PATH": "/nonexistent", "JAVA_HOME": ""},
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        process.terminate()
        process.wait(STOP_S)
        process.stdout.close()


def until_told(urls: list[str], lags: dict[tuple[str, int], int]) -> None:
    eventually(lambda: scraped_lags(map(get, urls)) == lags)


def field(line: str, name: str) -> str:
    return line.split(f"{name}=")[1].split()[0]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_lag_is_told_once_by_the_cluster_and_is_the_true_one(
    ready_line: str, protocol: str
) -> None:
    """The coordinator looks at its own replica, which hears of the high watermark a little later
    than the leader."""
    servers = {"bootstrap.servers": field(ready_line, "bootstrap.servers")}
    urls = field(ready_line, "metrics").split(",")
    seen: set[tuple[tuple[str, int], int]] = set()
    with group_in_a_new_topic(servers, protocol, replicas=3) as moving:
        for _ in range(PAUSES):
            with moving.pause_after_a_move():
                lags = moving.lags()
                until_told(urls, lags)
            seen |= set(lags.items())
    assert {index for (_, index), _ in seen} == set(range(MovingGroup.PARTITIONS))
    assert len({lag for _, lag in seen}) > 3, "it moved"
