"""`make docs`: builds the documentation as a site in build/site, and fails if a link is broken.

mkdocs wants all its sources in one directory. This copies the documents there in the places that
they have in the repository, so that the links which work on disk work on the site too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "build" / "site-sources"
# The documents, and the files that they link to.
COPIED = (
    *("*.md", "docs/**/*.md", "docs/pictures/*", "examples/**/*"),
    *("bench/*.py", "bench/csrc/*", "bench/java/*", "tests/interop/*.py"),
)


def copied_files() -> list[Path]:
    found = (path for pattern in COPIED for path in ROOT.glob(pattern))
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def main() -> int:
    shutil.rmtree(SOURCES, ignore_errors=True)
    for path in copied_files():
        target = SOURCES / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    config = ROOT / "packaging" / "mkdocs.yml"
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config)]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
