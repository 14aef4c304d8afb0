"""How the demo ends: with --once after the check, else when it is told to or its broker is gone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from tidelog.broker_process import ConsoleProcess
from tidelog.demo import story
from tidelog.demo.story import Demo, DemoSettings
from tidelog.tools.cli import demo as demo_command


class FakeBroker:
    """It is alive for as often as it is asked."""

    ready_line = "tidelog ready broker.id=0"
    bootstrap = "127.0.0.1:9092"
    log_file = Path("broker.log")
    metrics = ""

    def __init__(self, asked_max: int) -> None:
        self._left = asked_max
        self.stops = 0

    def start(self) -> None:
        pass

    @property
    def is_alive(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def stop(self) -> int:
        self.stops += 1
        return 0


def run(
    monkeypatch: pytest.MonkeyPatch, directory: Path, *, once: bool, check: int, alive: int = 2
) -> tuple[int, str]:
    """The exit code and what was said, where the check ends with a code."""
    monkeypatch.setattr(story, "interrupt_on_signals", lambda: None)
    monkeypatch.setattr(story, "POLL_S", 0.0)
    monkeypatch.setattr(Demo, "_pipeline", lambda self: check)
    demo = Demo(DemoSettings(directory, once=once), io.StringIO())
    broker = FakeBroker(alive)
    demo.broker = cast(Any, broker)
    code = demo.run()
    assert broker.stops == 1
    return code, cast(io.StringIO, demo.out).getvalue()


@pytest.mark.parametrize("check", [0, 1])
def test_once_ends_with_the_code_of_the_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, check: int
) -> None:
    code, said = run(monkeypatch, tmp_path, once=True, check=check)
    assert code == check
    assert "still serving" not in said


def test_without_once_it_serves_until_the_broker_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, said = run(monkeypatch, tmp_path, once=False, check=0)
    assert code == 1
    assert "still serving on 127.0.0.1:9092" in said
    assert "the broker has ended" in said


@pytest.mark.parametrize(
    ("options", "has_console"), [([], True), (["--once"], False), (["--no-console"], False)]
)
def test_the_demo_that_goes_on_has_a_console(
    monkeypatch: pytest.MonkeyPatch, options: list[str], has_console: bool
) -> None:
    monkeypatch.setattr(ConsoleProcess, "missing", classmethod(lambda cls: []))
    given: list[DemoSettings] = []

    def note(settings: DemoSettings) -> int:
        given.append(settings)
        return 0

    monkeypatch.setattr(story, "run_demo", note)
    ended = CliRunner().invoke(demo_command.command, [*options, "--port", "0"])
    assert ended.exit_code == 0, ended.output
    (settings,) = given
    assert (settings.console_port is not None) == has_console
    assert settings.once == ("--once" in options)
