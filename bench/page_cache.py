"""Memory the page cache will need, touched once before anything is timed.

In a virtual machine a page of memory used for the first time costs many times what it costs later
(the host has to find it). A log of some GB would pay that in whichever round comes first. Reading
through a file that is one big hole fills the cache with clean pages; removing the file frees them
for the logs to come.
"""

from __future__ import annotations

import os
from pathlib import Path

CHUNK_BYTES = 1 << 20


def touch_page_cache(folder: Path, wanted_bytes: int) -> None:
    """Touches wanted_bytes, or half of what is available if that is less."""
    size = min(wanted_bytes, available_bytes() // 2)
    hole = folder / "hole"
    buffer = bytearray(CHUNK_BYTES)
    with hole.open("w+b", buffering=0) as file:
        hole.unlink()
        os.ftruncate(file.fileno(), size)
        while file.readinto(buffer):
            pass


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
