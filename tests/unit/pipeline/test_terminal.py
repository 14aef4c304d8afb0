from __future__ import annotations

import io

import pytest

from tidelog.pipeline.console.terminal import LiveLines, painted


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_lines_are_drawn_over_the_last_ones() -> None:
    terminal = Terminal()
    live = LiveLines(terminal)
    live.show(["a", "b"])
    live.show(["c"])
    assert terminal.getvalue() == "a\nb\n\x1b[2A\x1b[Jc\n"


def test_a_line_wider_than_the_terminal_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    terminal = Terminal()
    LiveLines(terminal).show(["0123456789abc"])
    assert terminal.getvalue() == "012345678\n"


def test_elsewhere_they_come_now_and_then_and_only_when_new() -> None:
    now = [0.0]
    stream = io.StringIO()
    live = LiveLines(stream, plain_interval_s=5, now=lambda: now[0])
    for second, line in ((0, "a"), (1, "b"), (5, "a"), (6, "c"), (7, "d")):
        now[0] = second
        live.show([line])
    live.show(["d"], force=True)
    assert stream.getvalue() == "a\nc\nd\n"


def test_colour_is_for_terminals() -> None:
    assert painted("x", "32", Terminal()) == "\x1b[32mx\x1b[0m"
    assert painted("x", "32", io.StringIO()) == "x"
