"""Builds messages of any schema and version from a source of choices."""

from __future__ import annotations

import random
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.generation.schema import Field, Layout, MessageSchema, SchemaFile, read_all
from tidelog.protocol.generation.source import struct_class_names
from tidelog.protocol.generator import WITHOUT_CODEC, message_module
from tidelog.protocol.message import Message
from tidelog.types import Uuid

INTEGER_RANGES = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}


class Choices(Protocol):
    def integer(self, low: int, high: int) -> int: ...
    def number(self) -> float: ...
    def text(self) -> str: ...
    def blob(self, length: int | None = None) -> bytes: ...
    def yes(self) -> bool: ...
    def length(self) -> int: ...


class RandomChoices:
    """Choices of a seeded generator: short arrays, strings of one to three bytes a character."""

    def __init__(self, seed: object) -> None:
        self._random = random.Random(repr(seed))

    def integer(self, low: int, high: int) -> int:
        edge = self._random.random()
        if edge < 0.1:
            return low
        if edge < 0.2:
            return high
        return self._random.randint(low, high)

    def number(self) -> float:
        return self._random.uniform(-1e9, 1e9)

    def text(self) -> str:
        length = self._random.choice((0, 1, 5, 20, 130))
        return "".join(self._random.choices("abcxyz-._09\u00e9\u20ac", k=length))

    def blob(self, length: int | None = None) -> bytes:
        return self._random.randbytes(
            self._random.choice((0, 3, 140)) if length is None else length
        )

    def yes(self) -> bool:
        return self._random.random() < 0.5

    def length(self) -> int:
        return self._random.choice((0, 1, 1, 2, 3))


class Case(NamedTuple):
    """One version of one message."""

    file: SchemaFile
    schema: MessageSchema
    version: int

    @property
    def name(self) -> str:
        return f"{self.schema.name}-v{self.version}"

    @property
    def layout(self) -> Layout:
        return Layout(self.version, self.version in self.schema.flexible)

    @property
    def message_class(self) -> type[Message]:
        found: type[Message] = class_named(self.file.module, self.schema.name)
        return found


@cache
def all_cases() -> tuple[Case, ...]:
    return tuple(
        Case(file, schema, version)
        for file in read_all()
        for schema in file.messages
        for version in schema.versions
    )


@cache
def distinct_layouts() -> tuple[Case, ...]:
    """The first version of every layout."""
    found: dict[object, Case] = {}
    for case in all_cases():
        found.setdefault((case.schema.name, case.layout.signature(case.schema.fields)), case)
    return tuple(found.values())


@cache
def class_named(module: str, name: str) -> Any:
    return getattr(codec(module), name)


@cache
def codec(module: str) -> ModuleType:
    """The module as committed; what tidelog itself does not use is generated here."""
    name = f"tidelog.protocol.messages.{module}"
    if module not in WITHOUT_CODEC:
        return import_module(name)
    made = ModuleType(name)
    exec(compile(message_module(_file(module)), f"<{name}>", "exec"), made.__dict__)
    return made


@cache
def _file(module: str) -> SchemaFile:
    return next(file for file in read_all() if file.module == module)


def request_of(api_key: ApiKey) -> Any:
    file = _file(api_key.name.lower())
    return class_named(file.module, file.messages[0].name)


@cache
def _class_names(module: str) -> dict[tuple[str, str], str]:
    return struct_class_names(_file(module))


def struct_class(case: Case, row: Field) -> Any:
    name = _class_names(case.file.module)[case.schema.name, row.element]
    return class_named(case.file.module, name)


def build(case: Case, choices: Choices) -> Message:
    """A message whose fields in the version are chosen and whose others have their defaults."""
    fields = _fields(case, case.schema.fields, choices)
    return case.message_class(**fields)


def _fields(case: Case, rows: tuple[Field, ...], choices: Choices) -> dict[str, Any]:
    layout = case.layout
    return {
        row.name: _value(case, row, choices)
        for row in rows
        if layout.has(row) and not (layout.is_tagged(row) and choices.yes())
    }


def _value(case: Case, row: Field, choices: Choices) -> Any:
    if case.layout.is_nullable(row) and choices.integer(0, 3) == 0:
        return None
    if row.is_array:
        return [_element(case, row, choices) for _ in range(choices.length())]
    value = _element(case, row, choices)
    if row.is_struct and case.layout.is_tagged(row) and value == type(value)():
        return None  # a tag that holds nothing but defaults is not written
    return value


def _element(case: Case, row: Field, choices: Choices) -> Any:
    if row.is_struct:
        return struct_class(case, row)(**_fields(case, row.fields, choices))
    match row.element:
        case "string":
            return choices.text()
        case "bytes":
            return choices.blob()
        case "records":
            return memoryview(choices.blob())
        case "uuid":
            return Uuid(choices.blob(16))
        case "bool":
            return choices.yes()
        case "float64":
            return choices.number()
    return choices.integer(*_integer_range(row))


def _integer_range(row: Field) -> tuple[int, int]:
    """Other codecs have types of their own for errors and times, with narrower ranges."""
    if row.name.endswith("error_code"):
        return 0, 100
    if row.name.endswith(("_ms", "timestamp")):
        return 0, 1_000_000_000
    return INTEGER_RANGES[row.element]
