"""What systemd hears, over a socket of the test's own."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tidelog.service_notification import ServiceNotification


@pytest.mark.parametrize("abstract", [False, True], ids=["file", "abstract"])
def test_the_manager_hears_of_the_start_the_stop_and_the_watchdog(
    tmp_path: Path, abstract: bool
) -> None:
    name = f"tidelog-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if abstract else str(tmp_path / "s"))
        address = f"@{name}" if abstract else str(tmp_path / "s")
        environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000", "HOME": "/"}
        service = ServiceNotification(environment)
        assert environment == {"HOME": "/"}, "children must not speak for their parent"
        assert service.watchdog_pause_s == 1.5
        service.ready("serves")
        assert manager.recv(4096) == f"READY=1\nSTATUS=serves\nMAINPID={os.getpid()}".encode()
        service.alive()
        assert manager.recv(4096) == b"WATCHDOG=1"
        service.stopping()
        assert manager.recv(4096).startswith(b"STOPPING=1")


def test_without_a_manager_nothing_is_said() -> None:
    service = ServiceNotification({})
    service.ready("serves")
    assert service.watchdog_pause_s is None


def test_a_manager_that_is_gone_hurts_nobody(tmp_path: Path) -> None:
    service = ServiceNotification({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    service.ready("serves")
    service.stopping()


@pytest.mark.parametrize("pid", ["1", "x"])
def test_the_watchdog_of_another_process_is_not_fed(pid: str) -> None:
    environment = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": pid}
    assert ServiceNotification(environment).watchdog_pause_s is None
