"""The manifest of a package, and whether the package fits the Python that runs it.

`tidelog pipeline package` puts tidelog and its dependencies, some of them compiled, into one
archive; `tidelog_package.json` at its root says for which Python. Importing `tidelog.spark` from
such a package checks that first, so that a package of another machine is one clear error instead of
an import that fails somewhere inside.
"""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import Any, Final

MANIFEST: Final = "tidelog_package.json"


class PackageMismatch(ImportError):
    """The package was made for another Python or another platform."""


def abi() -> str:
    """What compiled modules of this Python are made for, such as cpython-311-x86_64-linux-gnu."""
    return str(sysconfig.get_config_var("SOABI"))


def require_fitting(manifest: dict[str, Any], place: object) -> None:
    made_for = manifest.get("abi")
    if made_for != abi():
        raise PackageMismatch(
            f"{place} was packaged for {made_for}, and this Python is {abi()}: run `tidelog "
            f"pipeline package` with the Python and on the platform of Spark's workers"
        )


def require_fitting_here() -> None:
    """Does nothing where tidelog was not imported from a package."""
    root = Path(__file__).resolve().parents[2]
    file = root / MANIFEST
    if file.is_file():
        require_fitting(json.loads(file.read_text(encoding="utf-8")), root)
