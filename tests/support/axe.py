"""What axe finds in the page that a browser shows: a sentence for each element that breaks a rule.

axe comes from the package axe-playwright-python as a file. It goes into the page through the
browser's protocol, so the content security policy of the page stays as strict as it is.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from playwright.sync_api import Page

# The size of what is clicked belongs to WCAG 2.2, which axe leaves out unless it is told.
ALL_RULES: Final[dict[str, Any]] = {"rules": {"target-size": {"enabled": True}}}
CONTRAST: Final[dict[str, Any]] = {"runOnly": ["color-contrast"]}


@cache
def _script() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def violations(page: Page, *, contrast_only: bool = False) -> list[str]:
    """Of any impact. Another theme changes no more of a page than its contrasts."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_script())
    options = {**(CONTRAST if contrast_only else ALL_RULES), "resultTypes": ["violations"]}
    found = page.evaluate(f"() => axe.run({json.dumps(options)})")
    return [
        f"{rule['id']} ({rule['impact']}): {node['html'][:160]} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
