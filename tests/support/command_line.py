"""The command line as its tests look at it: parsed but not run, and its flags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import click

from tidelog.tools.cli.main import PROGRAM, root
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
        found |= {flag for option in each.params for flag in option.opts if flag.startswith("--")}
    return found


def _with_verbs(command: click.Command, context: click.Context) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            verb = command.get_command(context, name)
            assert verb is not None
            yield from _with_verbs(verb, context)
