"""Which tests stay together in one of xdist's processes: those of clusters and those of Spark are
too heavy to run beside their like, and those of a file that share a browser.

The marks of xdist for this have no effect with pytest 9.2: xdist writes the group into a field of
the test that pytest no longer reads.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

TOGETHER: Final = (
    "tests/cluster/",
    "tests/integration/spark/",
    "tests/integration/test_console_in_browser.py",
)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid)
