"""The facts of this machine that checks look at, and the checks that need nothing else."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.tools.doctor.finding import Finding, warning

FILE_LIMIT_MIN: Final = 10_000
FILE_LIMIT: Final = 65_536
CONNECT_TIMEOUT_S: Final = 3.0


class Room(NamedTuple):
    total_bytes: int
    free_bytes: int


class Machine:
    """The real one."""

    def room(self, path: Path) -> Room:
        """For somebody who is not root."""
        found = os.statvfs(path)
        return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def file_limit(self) -> int:
        """Of this user's processes; a large number where there is none."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return 1 << 62 if soft == resource.RLIM_INFINITY else soft

    def user_id(self) -> int:
        return os.geteuid()

    def now_s(self) -> float:
        return time.time()

    def kernel_is_compiled(self) -> bool:
        from tidelog.record import kernel

        return kernel.COMPILED

    def java(self) -> str | None:
        from tidelog.pipeline.spark_session import java_command

        return java_command()

    def has_pyspark(self) -> bool:
        return find_spec("pyspark") is not None

    def has_compiler(self) -> bool:
        return shutil.which("cc") is not None or shutil.which("gcc") is not None

    def resolves(self, host: str) -> bool:
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            return False
        return True

    def why_not_reachable(self, host: str, port: int) -> str | None:
        """None where somebody listens."""
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except (OSError, UnicodeError) as problem:
            return str(getattr(problem, "strerror", None) or problem)
        return None


def check_machine(machine: Machine) -> Iterator[Finding]:
    limit = machine.file_limit()
    if limit < FILE_LIMIT_MIN:
        yield warning(
            "file-limit",
            "this user",
            f"a process may open {limit} files; a broker needs three for each partition and one "
            "for each connection",
            f"ulimit -n {FILE_LIMIT} before the start, or LimitNOFILE= in the systemd unit",
        )
    if not machine.kernel_is_compiled():
        hint = "" if machine.has_compiler() else "install a C compiler, then "
        yield warning(
            "no-compiled-kernel",
            "this installation",
            "records are checked and decoded in Python, many times slower than in C",
            f"{hint}pip install --force-reinstall --no-deps tidelog; unset TIDELOG_PURE",
        )
    if machine.has_pyspark() and machine.java() is None:
        yield warning(
            "java-missing",
            "this machine",
            "pyspark is installed, and there is no java for it on the PATH",
            "install Java 17 (apt install openjdk-17-jre-headless), or set JAVA_HOME",
        )
