"""A Fetch answer leaves the broker through sendfile, straight from the segment file."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.support.raw_batch import batch, read_batches
from tests.support.raw_client import RawClient, create_topic, fetch, produce

SENDFILE = re.compile(r"sendfile(?:64)?\(.*\) = (\d+)")
COPIES = re.compile(r"(?:read|pread64|preadv)\(.*\) = (\d+)")


class SystemCalls:
    """strace on a running broker, a file for each thread so that no call is cut in two lines;
    where tracing is not allowed the test is skipped."""

    TRACED = "trace=sendfile,read,pread64,preadv"

    def __init__(self, pid: int, output: Path) -> None:
        strace = shutil.which("strace")
        if strace is None:
            pytest.skip("no strace")
        self.output = output
        self.process = subprocess.Popen(
            [strace, "-ff", "-y", "-s", "0", "-o", str(output), "-e", self.TRACED, "-p", str(pid)],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        attached = self.process.stderr.readline()
        if "attached" not in attached:
            self.process.kill()
            self.process.communicate()
            pytest.skip(f"may not trace: {attached}")

    def lines(self) -> list[str]:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)
        files = self.output.parent.glob(self.output.name + ".*")
        return [line for file in files for line in file.read_text().splitlines()]


@pytest.mark.parametrize("processors", ["1", "3"])
def test_a_fetch_answer_leaves_through_sendfile(
    start_broker: StartBroker, tmp_path: Path, processors: str
) -> None:
    broker = start_broker({"num.network.threads": processors})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "sent")
        for _ in range(4):
            produce(client, "sent", batch(b"x" * 250_000))
        calls = SystemCalls(broker.pid, tmp_path / "strace.txt")
        row = fetch(client, "sent", 0, partition_max_bytes=2 << 20)
        # The next answer comes when the calls for the last one have returned.
        fetch(client, "sent", 4)
        lines = calls.lines()
    assert len(read_batches(row.records)) == 4
    sent = sum(int(m[1]) for line in lines if (m := SENDFILE.search(line)))
    copied = sum(int(m[1]) for line in lines if ".log>" in line and (m := COPIES.search(line)))
    assert sent == len(row.records) > 1_000_000
    assert copied < 10_000, "record bytes were read into the broker"
