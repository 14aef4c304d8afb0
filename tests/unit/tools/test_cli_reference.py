from __future__ import annotations

from pathlib import Path

from tidelog.tools.cli.main import SECTIONS
from tidelog.tools.cli_reference import REFERENCE_PATH, reference

ROOT = Path(__file__).parents[3]


def test_the_committed_reference_is_what_the_commands_say() -> None:
    assert (ROOT / REFERENCE_PATH).read_text() == reference(), "run: make generate"


def test_every_command_and_its_verbs_are_there() -> None:
    lines = reference().splitlines()
    for names in SECTIONS.values():
        for name in names:
            assert f"### `tidelog {name}`" in lines
    assert "### `tidelog topic create`" in lines
    assert any(line.startswith("| `--if-not-exists` | ") for line in lines)
