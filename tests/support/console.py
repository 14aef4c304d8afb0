"""A command of `tidelog` as its user sees it: exit code, table, errors."""

from __future__ import annotations

import re

import pytest

from tidelog.tools.cli.main import main


class Console:
    """Runs one command against one broker and reads the table it prints."""

    def __init__(self, capsys: pytest.CaptureFixture[str], command: str, bootstrap: str) -> None:
        self._capsys = capsys
        self._command = command
        self._bootstrap = bootstrap
        self.text = ""
        self.errors = ""

    def __call__(self, *arguments: str, code: int = 0) -> list[dict[str, str]]:
        done = main([self._command, "--bootstrap-server", self._bootstrap, *arguments])
        printed = self._capsys.readouterr()
        self.text, self.errors = printed.out, printed.err
        assert done == code, printed.err
        return table_rows(printed.out)


def table_rows(text: str) -> list[dict[str, str]]:
    """The rows of a table by their headers; a cell holds no two blanks in a row."""
    lines = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]] if lines else []
