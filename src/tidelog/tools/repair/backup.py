"""Copies of everything a repair is about to change or take away.

They lie in a folder beside the log directory, never in it (a broker would not start on it), under
the names they had. The folder is made with the first copy.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tidelog.log.segment.index_file import fsync_path


class Backup:
    def __init__(self, log_dir: Path, folder: Path) -> None:
        self._log_dir = log_dir
        self.folder = folder

    @property
    def is_used(self) -> bool:
        return self.folder.exists()

    def keep(self, path: Path) -> None:
        """Copy a file, once, durably."""
        target = self._target(path)
        if target.exists() or not path.exists():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
        fsync_path(str(target))
        fsync_path(str(target.parent))

    def take(self, path: Path) -> None:
        """Move a file or folder."""
        target = self._target(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
        fsync_path(str(target.parent))

    def _target(self, path: Path) -> Path:
        return self.folder / os.path.relpath(path, self._log_dir)
