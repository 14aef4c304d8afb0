"""`tidelog top` before a broker, on a terminal and without one."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.conftest import SharedBroker
from tests.support.raw_client import RawClient

TIDELOG = str(Path(sys.executable).parent / "tidelog")
LIMIT_S = 120


def test_once_prints_a_frame_of_80_columns(client: RawClient, bootstrap: str, topic: str) -> None:
    command = [TIDELOG, "top", "--once", "--interval", "0.1", "-b", bootstrap]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("tidelog top  cluster ")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in ended.stdout


@pytest.mark.parametrize(("how", "code"), [("q", 0), ("ctrl-c", 130), ("term", 130)])
def test_the_terminal_is_as_it_was_however_it_ends(
    broker: SharedBroker, how: str, code: int
) -> None:
    ours, theirs = pty.openpty()
    settings = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [TIDELOG, "top", "-b", broker.bootstrap],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(theirs), os.O_RDWR)),  # its terminal
    )
    try:
        seen = read_until(ours, b"q quits")
        assert seen.startswith(b"\x1b[?1049h\x1b[?25l"), seen[:200]
        if how == "term":
            process.send_signal(signal.SIGTERM)
        else:
            os.write(ours, b"q" if how == "q" else b"\x03")
        read_until(ours, b"\x1b[?25h\x1b[?1049l")
        assert process.wait(LIMIT_S) == code
        assert termios.tcgetattr(theirs) == settings
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def read_until(descriptor: int, end: bytes) -> bytes:
    seen = b""
    while end not in seen:
        ready, _, _ = select.select([descriptor], [], [], LIMIT_S)
        assert ready, seen[-2000:]
        seen += os.read(descriptor, 65_536)
    return seen
