"""Which log directories have failed, and which errors say so.

An I/O error is the directory's (a dead disk, a mount gone read-only or away, rights taken away),
unless it is one of these, after which the directory goes on serving:

    the disk is full, a quota or a size limit met     may pass; an append that fails is rolled back
    no descriptors or memory left                     the process's, not the disk's
    a file is missing though its directory is there   one log's
    a name is taken or too long                       one log's

Apache Kafka takes the directory out on the first two as well. A failed directory stays failed until
the next start. Whoever meets an error reports it, in any thread; the first report of a directory
reaches the listener, which has to see to it that this happens on the broker loop.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Final

logger = logging.getLogger(__name__)

DISK_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
OF_THE_PROCESS: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN)
)
OF_ONE_FILE: Final = frozenset(
    (errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.EINVAL, None)
)
MISSING: Final = frozenset((errno.ENOENT, errno.ENOTDIR))


def is_of_directory(error: OSError, directory: str) -> bool:
    """Whether the error means that nothing in the directory can be relied on."""
    if error.errno in MISSING:
        return not os.path.isdir(directory)
    return error.errno not in DISK_FULL | OF_THE_PROCESS | OF_ONE_FILE


class LogDirFailures:
    """Of all directories of a broker. For any thread."""

    __slots__ = ("_directories", "_lock", "_reasons", "listener")

    def __init__(self, directories: Iterable[str]) -> None:
        self._directories = tuple(directories)
        self._lock = Lock()
        self._reasons: dict[str, str] = {}  # by directory; never shrinks
        self.listener: Callable[[str], object] = lambda directory: None

    def __contains__(self, directory: str) -> bool:
        return directory in self._reasons

    def covers(self, path: str) -> bool:
        """Whether the path lies in a directory that has failed."""
        return self._directory_of(path) in self._reasons

    def reason(self, directory: str) -> str:
        return self._reasons[directory]

    def report(self, path: str, what: str, error: OSError) -> bool:
        """Something in a directory could not be done; whether the directory has failed."""
        directory = self._directory_of(path)
        if directory is None or not is_of_directory(error, directory):
            return False
        self.fail(directory, what, error)
        return True

    def fail(self, directory: str, what: str, error: OSError) -> None:
        """The directory is of no use, whatever the error."""
        with self._lock:
            if directory in self._reasons:
                return
            self._reasons[directory] = reason = f"cannot {what}: {error}"
        logger.error("the log directory %s has failed: %s", directory, reason)
        self.listener(directory)

    def _directory_of(self, path: str) -> str | None:
        inside = (each for each in self._directories if path == each or path.startswith(each + "/"))
        return max(inside, key=len, default=None)
