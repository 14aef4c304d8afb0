"""What commands of `tidelog` are made of: click's commands with our usage lines, lazy groups.

A module of this folder has an attribute `command`. A `LazyGroup` knows the names and summaries of
its modules and imports only the one that is asked for, so `tidelog --help` imports none.

A command's function returns its exit code; None means 0. It raises CommandFailed for a failure that
is one line for the user, and click.UsageError for arguments that do not go together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar

import click

HELP_WIDTH_MAX: Final = 100
Function = TypeVar("Function", bound=Callable[..., Any])


class CommandFailed(Exception):
    """The message says what went wrong and, where there is one, the next step."""


class SectionOption(click.Option):
    """An option that the help shows under a heading of its own."""

    section = "Options"


class _Usage:
    """Usage lines as the other tools of a Unix system print them."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        pieces = " ".join(ctx.command.collect_usage_pieces(ctx))
        formatter.write_usage(ctx.command_path, pieces, prefix="usage: ")


class Command(_Usage, click.Command):
    """One verb."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                name = parameter.section if isinstance(parameter, SectionOption) else "Options"
                sections.setdefault(name, []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)


class Group(_Usage, click.Group):
    """A command with verbs. An unknown verb is answered with the nearest known one."""

    command_class = Command

    def __init__(self, *args: Any, aliases: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order in which one needs them

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        Command.format_options(self, ctx, formatter)  # type: ignore[arg-type]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            if name.startswith("-"):
                ctx.fail(f"no such option: {name}")
            from difflib import get_close_matches

            near = get_close_matches(name, self.list_commands(ctx), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            ctx.fail(f"there is no command {name!r}{hint}")
        return super().resolve_command(ctx, args)


Group.group_class = Group


class Lazy(NamedTuple):
    """A command by the module, of the group's package, that has it."""

    module: str
    summary: str


class LazyGroup(Group):
    """Its commands are modules; the help lists them in sections without importing them."""

    def __init__(
        self,
        *args: Any,
        package: str,
        sections: Mapping[str, Mapping[str, Lazy]],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.package = package
        self.sections = sections
        self.rows = {name: row for rows in sections.values() for name, row in rows.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = self.rows.get(self.aliases.get(cmd_name, cmd_name))
        if row is None:
            return None
        command: click.Command = import_module(f"{self.package}.{row.module}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.rows))
        for title, rows in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), row.summary) for name, row in rows.items()])


class KeyValue(click.ParamType[tuple[str, str]]):
    """`key=value`; the value may be empty and may contain further equals signs."""

    name = "KEY=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is not of the form key=value", param, ctx)
        return key.strip(), text


class Parsed(click.ParamType[object]):
    """What `parse` makes of the text; its ValueError is wrong usage."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def is_given(value: object) -> bool:
    """None, False and () stand for an option that was not given; 0 was given."""
    return value is not None and value is not False and value != ()


def one_of(given: Mapping[str, object], *, required: bool = True) -> str | None:
    """The one flag of these that was given, by its name with dashes; wrong usage if there are
    more."""
    found = [flag for flag, value in given.items() if is_given(value)]
    if len(found) > 1:
        raise click.UsageError(f"{found[0]} and {found[1]} exclude each other")
    if not found and required:
        raise click.UsageError(f"one of {', '.join(given)} is needed")
    return found[0] if found else None


def usage_lines(error: click.UsageError, program: str) -> Iterator[str]:
    """The usage of the command that the user meant, then what is wrong."""
    context = error.ctx
    if context is not None:
        yield context.get_usage()
        program = context.command_path
    message = error.format_message().strip()
    yield f"{program}: error: {message[:1].lower()}{message[1:].rstrip('.')}"


def together(*decorators: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Several decorators as one; the first stands first in the help."""

    def decorate(function: Function) -> Function:
        for each in reversed(decorators):
            function = each(function)
        return function

    return decorate
