"""Writes docs/cli-reference.md from the commands: `python -m tidelog.tools.cli_reference`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from tidelog.tools.cli.main import PROGRAM, SECTIONS, root
from tidelog.tools.cli.session import GlobalOption

REFERENCE_PATH: Final = Path("docs/cli-reference.md")

INTRODUCTION: Final = """\
# Every command

Written by `python -m tidelog.tools.cli_reference` from the commands themselves.
[cli.md](cli.md) shows how to use them.
"""
GLOBAL: Final = """\
## Options of every command that asks a cluster

Before the command or after it.
"""
# Kafka's tools have Kafka's flags.
WITHOUT_VERBS: Final = ("kafka",)


def reference() -> str:
    group = root()
    context = click.Context(group, info_name=PROGRAM, **group.context_settings)
    shared = [option for option in group.params if isinstance(option, GlobalOption)]
    lines = [INTRODUCTION, GLOBAL, *_table(context, shared), ""]
    for title, names in SECTIONS.items():
        lines.append(f"## {title}\n")
        for name in names:
            command = group.get_command(context, name)
            assert command is not None, name
            lines += _told(context, name, command)
    return "\n".join(lines).rstrip() + "\n"


def _told(parent: click.Context, name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"### `{context.command_path}`\n"
    yield f"`{usage}`\n"
    if command.help:
        yield _prose(command.help)
    options = [
        each
        for each in command.params
        if isinstance(each, click.Option) and not isinstance(each, GlobalOption)
    ]
    rows = list(_table(context, options))
    if rows:
        yield from [*rows, ""]
    if isinstance(command, click.Group) and name not in WITHOUT_VERBS:
        for verb in command.list_commands(context):
            below = command.get_command(context, verb)
            if below is not None and not below.hidden:
                yield from _told(context, verb, below)


def _prose(help_text: str) -> str:
    """Paragraphs; click's mark of those it should not wrap makes them code."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", help_text.strip()):
        is_code = paragraph.startswith("\b")
        text = "\n".join(line.strip() for line in paragraph.strip("\b\n").splitlines())
        parts.append(f"```text\n{text}\n```" if is_code else text)
    return "\n\n".join(parts) + "\n"


def _table(context: click.Context, options: Sequence[click.Option]) -> Iterator[str]:
    records = [option.get_help_record(context) for option in options]
    rows = [record for record in records if record is not None]
    if not rows:
        return
    yield "| option | meaning |"
    yield "|---|---|"
    for names, meaning in rows:
        yield f"| `{names.replace('|', ' or ')}` | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    REFERENCE_PATH.write_text(reference())
