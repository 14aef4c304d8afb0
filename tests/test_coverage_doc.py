"""docs/coverage.md keeps its word: every row is there and every named test
exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = (ROOT / "docs" / "coverage.md").read_text()

ROWS_OF_AREA = {
    "A": 16,
    "B": 17,
    "C": 3,
    "D": 10,
    "E": 13,
    "F": 6,
    "G": 16,
    "H": 8,
    "I": 6,
    "J": 8,
    "K": 15,
    "L": 14,
    "M": 12,
    "N": 2,
    "O": 12,
    "P": 7,
    "Q": 21,
    "R": 4,
}
NODE_ID = re.compile(r"`(tests/[^`]+\.py::[^`]+)`")
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)


@cache
def names_in(path: Path) -> set[str]:
    """Functions and Class::methods of a test file."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found


def test_every_named_test_exists() -> None:
    missing = []
    for node_id in sorted(set(NODE_ID.findall(DOCUMENT))):
        file, _, name = node_id.partition("::")
        path = ROOT / file
        if not path.is_file() or name.partition("[")[0] not in names_in(path):
            missing.append(node_id)
    assert missing == []


@pytest.mark.parametrize(("area", "count"), ROWS_OF_AREA.items())
def test_every_row_of_the_area_is_there_once(area: str, count: int) -> None:
    ids = [row[0] for row in ROW.findall(DOCUMENT) if row[0].startswith(area)]
    assert ids == [f"{area}{number}" for number in range(1, count + 1)]


def test_every_row_names_a_test_or_says_why_not() -> None:
    silent = [
        row
        for row, _, shown_by in ROW.findall(DOCUMENT)
        if not NODE_ID.search(shown_by)
        and not re.search(r"(later|client's|not served): \w", shown_by)
    ]
    assert silent == []
