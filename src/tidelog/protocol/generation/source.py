"""The source text of one generated module: lines, its classes, and the names its functions need.

What holds for a whole module is here: default values and types of fields, the heading with imports
and `struct` layouts, and a slots class per message and per struct.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.protocol.generation.schema import Field, MessageSchema, SchemaFile, Signature

LINE_LENGTH_MAX = 100
PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "Uuid",
    "string": "str",
    "bytes": "bytes",
    "records": "Any",
}
FROM_MESSAGE = {"EMPTY", "Message", "RecordsMessage", "Struct", "absent", "null_given"}


@dataclass(slots=True)
class Source:
    """Touched by the writers of classes, decoders and encoders in turn."""

    file: SchemaFile
    class_names: dict[tuple[str, str], str]
    lines: list[str] = field(default_factory=list)
    indent: int = 0
    unpackers: set[str] = field(default_factory=set)
    packers: set[str] = field(default_factory=set)
    row_layouts: set[str] = field(default_factory=set)  # of structs that are written by `Rows`
    made: set[str] = field(default_factory=set)  # classes of which decoders make objects
    names: set[str] = field(default_factory=set)
    functions: dict[tuple[str, str, Signature], str] = field(default_factory=dict)

    def __call__(self, line: str = "") -> None:
        self.lines.append("    " * self.indent + line if line else "")

    def start(self, line: str) -> None:
        """A class or function at module level."""
        assert self.indent == 0
        self()
        self()
        self(line)

    def assign(self, targets: list[str], call: str) -> None:
        """`a, b = call`, in one line if it fits."""
        left = f"({targets[0]},)" if len(targets) == 1 else ", ".join(targets)
        if self._fits(f"{left} = {call}"):
            self(f"{left} = {call}")
            return
        self("(")
        for target in targets:
            self(f"    {target},")
        self(f") = {call}")

    def call(self, head: str, arguments: list[str]) -> None:
        """`head(a, b)`, in one line if it fits."""
        line = f"{head}({', '.join(arguments)})"
        if self._fits(line):
            self(line)
            return
        self(f"{head}(")
        for argument in arguments:
            self(f"    {argument},")
        self(")")

    def _fits(self, line: str) -> bool:
        return len(line) + 4 * self.indent <= LINE_LENGTH_MAX

    def use(self, name: str) -> str:
        """A name to import."""
        self.names.add(name)
        return name

    def unpack(self, formats: str) -> str:
        self.unpackers.add(formats)
        return f"unpack_{_identifier(formats)}"

    def pack(self, formats: str) -> str:
        self.packers.add(formats)
        return f"pack_{_identifier(formats)}"

    def rows(self, letters: str) -> str:
        self.row_layouts.add(letters)
        self.use("Rows")
        return f"rows_{letters}"

    def maker(self, class_name: str) -> str:
        """What makes an object whose fields are set afterwards."""
        self.made.add(class_name)
        return f"new_{snake(class_name)}"

    def name_function(self, verb: str, class_name: str, version: int, layout: Signature) -> str:
        """A name for the function of a layout that has none yet."""
        name = base = f"_{verb}_{snake(class_name)}_v{version}"
        number = 2
        while name in self.functions.values():
            name = f"{base}_{number}"
            number += 1
        self.functions[verb, class_name, layout] = name
        return name

    def class_of(self, owner: str, row: Field) -> str:
        return self.class_names[owner, row.element]

    def default(self, owner: str, row: Field) -> str:
        """The expression of the value that a missing field has."""
        if row.default == "null" or row.type == "records":
            return "None"
        if row.is_array:
            return "[]"
        if row.is_struct:
            return "None" if row.tagged else f"{self.class_of(owner, row)}()"
        if row.type == "bool":
            return "True" if row.default == "true" else "False"
        if row.type == "uuid":
            return self.use("ZERO_UUID")
        if row.type == "string":
            return f'"{row.default or ""}"'
        if row.type == "bytes":
            return 'b""'
        return row.default or ("0.0" if row.type == "float64" else "0")

    def python_type(self, owner: str, row: Field) -> str:
        if row.is_struct:
            name = self.class_of(owner, row)
        else:
            name = PYTHON_TYPES.get(row.element, "int")
        if name in ("Any", "Uuid"):
            self.use(name)
        if name == "Any":
            return name
        if row.is_array:
            name = f"list[{name}]"
        return f"{name} | None" if self.can_be_none(owner, row) else name

    def can_be_none(self, owner: str, row: Field) -> bool:
        return bool(row.nullable) or self.default(owner, row) == "None"

    def is_default(self, owner: str, row: Field, value: str) -> str:
        return _comparison(value, self.default(owner, row), "", "==")

    def is_not_default(self, owner: str, row: Field, value: str) -> str:
        return _comparison(value, self.default(owner, row), "not ", "!=")

    def text(self) -> str:
        return "\n".join([*self._heading(), *self.lines, ""])

    def _heading(self) -> list[str]:
        file = self.file
        title = f"{file.api_name} (key {file.api_key})" if file.api_key >= 0 else file.module
        return [
            f'"""{title}: generated by tidelog.protocol.generator from {file.module}.schema."""',
            "",
            "from __future__ import annotations",
            "",
            *self._imports(),
            "",
            *(
                f"{self.unpack(each)}: Final = Layout({_layout(each)}).unpack_from"
                for each in sorted(self.unpackers)
            ),
            *(
                f"{self.pack(each)}: Final = Layout({_layout(each)}).pack"
                for each in sorted(self.packers)
            ),
            *(f'{self.rows(each)}: Final = Rows("{each}")' for each in sorted(self.row_layouts)),
        ]

    def _imports(self) -> list[str]:
        lines = ["from struct import Struct as Layout"] * bool(self.packers or self.unpackers)
        typing_names = ["TYPE_CHECKING"] * ("Iterable" in self.names)
        typing_names += ["Any"] * ("Any" in self.names)
        finals = self.packers or self.unpackers or self.row_layouts or self.made
        typing_names += ["Final"] * bool(finals)
        if typing_names:
            lines.append(f"from typing import {', '.join(typing_names)}")
        primitives = self.names - FROM_MESSAGE - {"Iterable", "Any", "Uuid", "ZERO_UUID"}
        lines.append("")
        for module, names in (
            ("protocol.message", self.names & FROM_MESSAGE),
            ("protocol.primitives", primitives),
            ("types", self.names & {"Uuid", "ZERO_UUID"}),
        ):
            if names:
                lines += [
                    f"from tidelog.{module} import (",
                    *(f"    {name}," for name in sorted(names)),
                    ")",
                ]
        if "Iterable" in self.names:
            lines += ["", "if TYPE_CHECKING:", "    from collections.abc import Iterable"]
        return lines


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _identifier(formats: str) -> str:
    return formats.replace("?", "t")


def _layout(formats: str) -> str:
    return '">' + formats.replace("u", "16s") + '"'


def _comparison(value: str, default: str, negation: str, operator: str) -> str:
    if default == "None":
        return f"{value} is {negation}None"
    if default in ("True", "False"):
        return f"{value} is {negation}{default}"
    return f"{value} {operator} {default}"


def write_classes(source: Source) -> None:
    classes = _struct_classes(source)
    for message in source.file.messages:
        _write_message(source, message)
        for name, (owner, rows) in classes.items():
            if owner == message.name:
                source.start(f"class {name}({source.use('Struct')}):")
                _write_fields(source, owner, rows)


def struct_class_names(file: SchemaFile) -> dict[tuple[str, str], str]:
    """(message, struct) to class; a name with two meanings in a file is led by its message's."""
    meanings: dict[str, set[tuple[Field, ...]]] = {}
    for message in file.messages:
        for name, rows in _structs_of(message.fields).items():
            meanings.setdefault(name, set()).add(rows)
    names = {
        (message.name, name): name if len(meanings[name]) == 1 else message.name + name
        for message in file.messages
        for name in _structs_of(message.fields)
    }
    assert not set(names.values()) & {message.name for message in file.messages}
    return names


def _struct_classes(source: Source) -> dict[str, tuple[str, tuple[Field, ...]]]:
    """Class name to (the first message that has it, fields)."""
    classes: dict[str, tuple[str, tuple[Field, ...]]] = {}
    for message in source.file.messages:
        for name, rows in _structs_of(message.fields).items():
            classes.setdefault(source.class_names[message.name, name], (message.name, rows))
    return classes


def _structs_of(rows: tuple[Field, ...]) -> dict[str, tuple[Field, ...]]:
    """Struct name to fields, outer ones first."""
    found: dict[str, tuple[Field, ...]] = {}
    for row in rows:
        if row.is_struct:
            for name, fields in ({row.element: row.fields} | _structs_of(row.fields)).items():
                assert found.setdefault(name, fields) == fields, name
    return found


def _write_message(source: Source, message: MessageSchema) -> None:
    base = source.use("RecordsMessage" if message.holds_records else "Message")
    source.start(f"class {message.name}({base}):")
    source.indent += 1
    if message.api_key >= 0:
        source(f"API_KEY = {message.api_key}")
    if message.record_type >= 0:
        source(f"RECORD_TYPE = {message.record_type}")
    source(f"MIN_VERSION = {message.versions.start}")
    source(f"MAX_VERSION = {message.versions.stop - 1}")
    source.indent -= 1
    _write_fields(source, message.name, message.fields)


def _write_fields(source: Source, owner: str, rows: tuple[Field, ...]) -> None:
    source.indent += 1
    names = [f'"{row.name}"' for row in rows]
    source.call("__slots__ = ", names if len(names) != 1 else [names[0] + ","])
    if rows:
        source()
        source("def __init__(")
        source("    self,")
        source("    *,")
        for row in rows:
            default = source.default(owner, row)
            if _is_made_anew(default):
                default = source.use("EMPTY")
            source(f"    {row.name}: {source.python_type(owner, row)} = {default},")
        source(") -> None:")
        for row in rows:
            default = source.default(owner, row)
            value = f"{default} if {row.name} is EMPTY else " * _is_made_anew(default) + row.name
            source(f"    self.{row.name} = {value}")
    source.indent -= 1


def _is_made_anew(default: str) -> bool:
    return default == "[]" or default.endswith("()")
