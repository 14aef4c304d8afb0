"""A disk that can really die: a small ext4 image, mounted, and shut down by its own ioctl.

After `die` every write, sync, creation and uncached read on it is an I/O error, as on a disk that
has dropped off the bus; `revive` mounts the image again, with the journal replayed. Needs Linux,
the right to mount, and mkfs.ext4; `mounted_disk_or_skip` says which one is missing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

SHUTDOWN_IOCTL = 0x8004587D
FLUSH_LOG_FIRST = 1
IMAGE_BYTES = 48 * 1024 * 1024


class CannotMount(Exception):
    pass


class MountedDisk:
    def __init__(self, root: Path) -> None:
        self.image = root / "disk.img"
        self.path = root / "disk"
        self.path.mkdir()
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self.image))
        self.mount()
        shutil.rmtree(self.path / "lost+found")  # log directories hold nothing but logs

    def mount(self, *options: str) -> None:
        _run("mount", "-o", ",".join(("loop", *options)), str(self.image), str(self.path))

    def unmount(self) -> None:
        _run("umount", str(self.path))

    def die(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN_IOCTL, struct.pack("I", FLUSH_LOG_FIRST))
        finally:
            os.close(descriptor)

    def revive(self) -> None:
        """Nobody may have a file of it open."""
        self.unmount()
        self.mount()

    def discard(self) -> None:
        """Even from under whoever still uses it."""
        subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)


def mounted_disk_or_skip(root: Path) -> MountedDisk:
    for program in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}")
    try:
        return MountedDisk(root)
    except CannotMount as problem:
        pytest.skip(f"no file system can be mounted here: {problem}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMount(f"{' '.join(command)}: {done.stderr.strip()}")
