"""The command line as its tests look at it: parsed but not run, its flags, and its users."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import click
import pytest

from tidelog.tools.cli.main import PROGRAM, main, root
from tidelog.tools.cli.session import Session


def parsed(arguments: Sequence[str]) -> click.Context:
    """The context of the last command named; raises click.UsageError."""
    context = root().make_context(PROGRAM, list(arguments), obj=Session())
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            raise click.UsageError("no command", context)
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context


@cache
def flags_of(name: str) -> set[str]:
    """Those of a command and of all its verbs."""
    context = click.Context(root(), info_name=PROGRAM)
    command = root().get_command(context, name)
    assert command is not None
    found = {"--help"}
    for each in _with_verbs(command, context):
        found |= {
            flag
            for option in each.params
            for flag in (*option.opts, *option.secondary_opts)
            if flag.startswith("--")
        }
    return found


def _with_verbs(command: click.Command, context: click.Context) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            verb = command.get_command(context, name)
            assert verb is not None
            yield from _with_verbs(verb, context)


def completions(words: str, current: str) -> list[str]:
    """What bash is offered."""
    done = subprocess.run(
        [sys.executable, "-c", "from tidelog.tools.cli.main import main; main([])"],
        env={
            **os.environ,
            "_TIDELOG_COMPLETE": "bash_complete",
            "COMP_WORDS": f"{words} {current}",
            "COMP_CWORD": str(len(words.split())),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


class User:
    """Types commands for one cluster and reads what they print."""

    def __init__(
        self,
        bootstrap: str,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self._bootstrap = bootstrap
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.errors = ""

    def types(self, *arguments: str, stdin: str | bytes = "", code: int = 0) -> str:
        """What the command prints on standard output."""
        done, printed = self.tries(*arguments, stdin=stdin)
        assert done == code, f"{arguments}: {printed}\n{self.errors}"
        return printed

    def tries(self, *arguments: str, stdin: str | bytes = "") -> tuple[int, str]:
        """The exit code too. The time limit is for busy machines."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        self._monkeypatch.setattr("tidelog.tools.cli.session.SILENCE_MAX_S", 60.0)
        try:
            done = main(["-b", self._bootstrap, "--timeout", "60s", *arguments])
        except SystemExit as ended:
            done = int(ended.code or 0)
        printed = self._capsys.readouterr()
        self.errors = printed.err
        return done, printed.out

    def lines(self, *arguments: str, stdin: str | bytes = "", code: int = 0) -> list[str]:
        return self.types(*arguments, stdin=stdin, code=code).splitlines()

    def rows(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        """Of `-o jsonl`."""
        printed = self.types("-o", "jsonl", *arguments, code=code)
        return [json.loads(line) for line in printed.splitlines()]

    def kafka(self, tool: str, *arguments: str, stdin: str = "", code: int = 0) -> list[str]:
        """A drop-in tool."""
        server = () if tool in ("dump-log", "producer-perf-test") else self.server
        return self.lines("kafka", tool, *server, *arguments, stdin=stdin, code=code)

    @property
    def server(self) -> tuple[str, str]:
        return "--bootstrap-server", self._bootstrap
