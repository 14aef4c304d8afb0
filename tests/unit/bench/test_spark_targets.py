"""The targets of the Spark measure against the ratios that docs/benchmarks.md shows."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from bench.measures.spark import _figures
from tests.support.documents import ROOT

# Of every way that is measured; the columns are looked for by name.
NAMES = ("kafka", "tidelog", "spark")
ROUND = defaultdict(lambda: [1.0], {name: [1.0] for name in NAMES})


@pytest.mark.parametrize("row", ["batch read", "streaming read", "batch write", "streaming write"])
def test_a_target_is_nine_tenths_of_the_documented_ratio(row: str) -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    found = re.search(rf"^\| {row} +\|.*?\| ([\d.]+)x \|", text, re.MULTILINE)
    assert found is not None
    (target,) = (each.target for each in _figures(defaultdict(lambda: ROUND)) if each.label == row)
    assert target == pytest.approx(0.9 * float(found[1]), abs=0.01)
