"""`tidelog pipeline` as far as it goes without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.tools.cli.main import main


def test_init_writes_an_example_that_validates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "shop")
    assert main(["pipeline", "init", folder]) == 0
    assert f"tidelog pipeline validate {folder}" in capsys.readouterr().out
    assert main(["pipeline", "validate", "--structure", folder]) == 0
    assert "valid: 2 sources, 2 views, 2 sinks" in capsys.readouterr().out


def test_init_leaves_a_pipeline_that_is_there_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pipeline.toml").write_text("mine")
    assert main(["pipeline", "init", str(tmp_path)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "pipeline.toml").read_text() == "mine"


def test_every_problem_is_a_line_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pipeline.toml").write_text('[pipeline]\nnaem = "x"\n')
    assert main(["pipeline", "validate", "--structure", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith(str(tmp_path / "pipeline.toml")) for line in lines)


def test_a_broker_that_does_not_answer_is_told_with_its_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["pipeline", "init", str(tmp_path)])
    file = tmp_path / "pipeline.toml"
    file.write_text(file.read_text() + '[kafka]\n"default.api.timeout.ms" = 100\n')
    assert main(["pipeline", "run", str(tmp_path), "--bootstrap", "127.0.0.1:1"]) == 1
    told = capsys.readouterr().err
    assert "no answer from bootstrap 127.0.0.1:1" in told
    assert "is a broker there?" in told
