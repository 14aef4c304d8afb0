r"""What commands print: tables for people, JSON, JSON lines and YAML for programs.

A command gathers rows (mappings with snake_case keys) and says which of them a table shows, under
which headers. The other formats print all fields. A table has its columns padded to the widest
cell, two blanks apart; numbers stand at the right. Colours appear on a terminal only, unless
NO_COLOR is set or TERM is dumb.

    table    TOPIC   PARTITIONS
             orders           3
    json     a list of objects, or one object
    jsonl    one object a line
    yaml     the same as json, as blocks
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Final, NamedTuple

from tidelog.tools.cli.frame import CommandFailed

MISSING: Final = "-"
_PLAIN_SCALAR: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./@+-]+)*")
_YAML_WORDS: Final = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
STYLES: Final = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "bold": "1", "head": "1"}

Row = Mapping[str, object]


class Column(NamedTuple):
    """A column of a table: its header and the field it shows."""

    header: str
    field: str
    right: bool = False
    style: Callable[[object], str] | None = None  # the name of a style, or nothing


def columns(*names: str) -> list[Column]:
    """`"partition>"` is the field partition under PARTITION, at the right; `"id=#ID"` names it."""
    made = []
    for name in names:
        right = name.endswith(">")
        field, _, header = name.removesuffix(">").partition("=")
        made.append(Column(header or field.replace("_", "-").upper(), field, right))
    return made


def wants_colour(stream: IO[str]) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: IO[str] | None = None) -> str:
    if not wants_colour(stream or sys.stdout):
        return text
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m"


def show_rows(
    format: str | None, rows: Sequence[Row], shown: Sequence[Column], *, empty: str = ""
) -> None:
    """`empty` goes to standard error in place of a table without rows."""
    if format in (None, "table"):
        if not rows and empty:
            print(empty, file=sys.stderr)
        else:
            print("\n".join(table_lines(rows, shown)))
    else:
        show_data(format, rows)


def show_data(format: str | None, data: object) -> None:
    """A list of rows or one object, for programs."""
    if format == "jsonl":
        for row in data if isinstance(data, list | tuple) else [data]:
            print(json_line(row))
    elif format == "yaml":
        print("\n".join(yaml_lines(plain(data))))
    else:
        print(json.dumps(plain(data), indent=2, ensure_ascii=False))


def json_line(row: object) -> str:
    return json.dumps(plain(row), separators=(",", ":"), ensure_ascii=False)


def plain(value: object) -> Any:
    """What JSON knows of it: objects, lists, text, numbers."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, bytes):
        return bytes_as_json(value)
    if isinstance(value, list | tuple | set | frozenset):
        found = sorted(value) if isinstance(value, set | frozenset) else value
        return [plain(each) for each in found]
    return str(value)


def bytes_as_json(value: bytes) -> object:
    """Text where it is UTF-8, otherwise {"base64": ...}."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(value).decode()}


def bytes_from_json(value: object) -> bytes | None:
    """The way back; raises CommandFailed for anything else."""
    import base64
    import binascii

    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error:
            raise CommandFailed("a value of base64 that is not base64") from None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# Tables


def table_lines(rows: Sequence[Row], shown: Sequence[Column]) -> list[str]:
    cells = [[cell(row.get(column.field)) for column in shown] for row in rows]
    heads = [column.header for column in shown]
    widths = [
        max(len(head), *(len(line[index]) for line in cells)) if cells else len(head)
        for index, head in enumerate(heads)
    ]
    lines = [styled(_line(heads, shown, widths), "head")]
    for row, line in zip(rows, cells, strict=True):
        styles = [column.style(row.get(column.field)) if column.style else "" for column in shown]
        lines.append(_line(line, shown, widths, styles))
    return lines


def _line(
    cells: Sequence[str],
    shown: Sequence[Column],
    widths: Sequence[int],
    styles: Sequence[str] = (),
) -> str:
    padded = [
        text.rjust(width) if column.right else text.ljust(width)
        for text, column, width in zip(cells, shown, widths, strict=True)
    ]
    if padded:
        padded[-1] = padded[-1].rstrip()
    for index, style in enumerate(styles):
        if style:
            padded[index] = styled(padded[index], style)
    return "  ".join(padded).rstrip()


def cell(value: object) -> str:
    """One line of text that leaves the terminal as it is."""
    if value is None or value == "" or value == []:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        found = sorted(value) if isinstance(value, set | frozenset) else value
        return ",".join(cell(each) for each in found)
    if isinstance(value, bytes):
        return printable(value.decode(errors="backslashreplace"))
    if isinstance(value, Mapping):
        return ",".join(f"{key}={cell(each)}" for key, each in value.items())
    return printable(str(value))


def printable(text: str) -> str:
    """Control characters as escapes: a name or a message must not move the cursor."""
    flat = text.replace("\n", "\\n").replace("\t", "\\t")
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", flat)


# YAML


def yaml_lines(value: object, indent: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _yaml_entry(f"{indent}{_yaml_scalar(str(key))}:", each, indent + "  ")
    elif isinstance(value, list) and value:
        for each in value:
            if isinstance(each, dict | list) and each:
                first, *rest = yaml_lines(each, indent + "  ")
                yield f"{indent}- {first.lstrip()}"
                yield from rest
            else:
                yield f"{indent}- {_yaml_scalar(each)}"
    else:
        yield f"{indent}{_yaml_scalar(value)}"


def _yaml_entry(head: str, value: object, indent: str) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        yield head
        yield from yaml_lines(value, indent)
    else:
        yield f"{head} {_yaml_scalar(value)}"


def _yaml_scalar(value: object) -> str:
    """A plain word where YAML reads it as one; otherwise as in JSON, which YAML reads too."""
    if (
        isinstance(value, str)
        and _PLAIN_SCALAR.fullmatch(value)
        and value.lower() not in _YAML_WORDS
    ):
        return value
    return json.dumps(value)


# Numbers


def human_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(size) < 1_000 or unit == "TB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_000
    raise AssertionError


def say(message: str, *, style: str = "") -> None:
    """A remark for the person at the terminal; never a part of the output."""
    text = printable(message)
    print(styled(text, style, sys.stderr) if style else text, file=sys.stderr, flush=True)


def failures(lines: Iterable[str]) -> int:
    """Each on standard error; the exit code."""
    code = 0
    for line in lines:
        say(f"tidelog: error: {line}", style="bad")
        code = 1
    return code
