from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.consumer_scenario import ConsumerScenario
from tests.support.group_scenario import REWRITE

FILES = sorted((Path(__file__).parents[2] / "scenarios").glob("consumer_group_*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    outcome = ConsumerScenario(tmp_path, text).run()
    if REWRITE:
        path.write_text(outcome)
        return
    assert outcome == text
