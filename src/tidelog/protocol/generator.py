"""Writes `messages/*.py` and `api_keys.py` from the schema table: `python -m tidelog.protocol.generator`.

Strategy
- A message becomes a slots class; versions with the same layout share one decoder and one encoder.
- Fields of fixed size that follow one another are one `struct` call, which also takes the length,
  count or tag count that comes next (for varints their first byte).
- An array of structs is one function per layout of the struct, called once per array. In APIs that
  carry `records` (the hot ones) structs are written out in place instead.
- Defaults are set where a version lacks a field; a non-default value there is refused on encode
  unless the field is ignorable.

Generated functions keep to these names: `buffer`, `position`, `limit` (its length), `budget` (objects
that may still be made), `n` (the last length or count), `o` (the struct at hand, `o1`, `o2` below
it where structs are written out in place).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.protocol.schema import Field, MessageSchema, SchemaFile, read_all

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "u",
}
SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "u": 16}
PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "Uuid",
    "string": "str",
    "bytes": "bytes",
    "records": "Any",
}
LINE_LENGTH_MAX = 100

Layout = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class At:
    """One version of one message."""

    version: int
    flexible: bool

    def compact(self, row: Field) -> bool:
        return self.flexible and not row.plain

    def present(self, rows: tuple[Field, ...]) -> list[Field]:
        return [row for row in rows if self.version in row.versions and not self.tagged(row)]

    def tags(self, rows: tuple[Field, ...]) -> list[Field]:
        found = [row for row in rows if self.version in row.versions and self.tagged(row)]
        return sorted(found, key=lambda row: row.tag)

    def absent(self, rows: tuple[Field, ...]) -> list[Field]:
        return [row for row in rows if self.version not in row.versions]

    def tagged(self, row: Field) -> bool:
        return self.version in row.tagged

    def nullable(self, row: Field) -> bool:
        return self.version in row.nullable

    def layout(self, rows: tuple[Field, ...]) -> Layout:
        def of(row: Field) -> Layout:
            nested = self.layout(row.fields) if row.is_struct else None
            tag = row.tag if self.tagged(row) else None
            return (row.name, row.type, self.nullable(row), self.compact(row), tag, nested)

        present = tuple(of(row) for row in rows if self.version in row.versions)
        return (self.flexible, present)

    def smallest_bytes(self, rows: tuple[Field, ...]) -> int:
        """The least a struct takes on the wire."""
        size = sum(self._smallest_field_bytes(row) for row in self.present(rows))
        return size + self.flexible

    def _smallest_field_bytes(self, row: Field) -> int:
        if row.is_array:
            return 1 if self.compact(row) else 4
        if row.is_struct:
            return 1 if self.nullable(row) else self.smallest_bytes(row.fields)
        return self.smallest_value_bytes(row)

    def smallest_value_bytes(self, row: Field) -> int:
        if row.element in FORMATS:
            return SIZES[FORMATS[row.element]]
        if self.compact(row):
            return 1
        return 2 if row.element == "string" else 4


@dataclass(slots=True)
class Code:
    """Lines of a generated module."""

    lines: list[str] = field(default_factory=list)
    indent: int = 0

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.indent + line if line else "")

    def assign(self, targets: list[str], call: str) -> None:
        """`a, b = call`, in one line if it fits."""
        left = targets[0] + "," if len(targets) == 1 else ", ".join(targets)
        if len(targets) == 1:
            left = f"({targets[0]},)"
        line = f"{left} = {call}"
        if len(line) + 4 * self.indent <= LINE_LENGTH_MAX:
            self(line)
            return
        self("(")
        for target in targets:
            self(f"    {target},")
        self(f") = {call}")

    def call(self, head: str, arguments: list[str], tail: str = ")") -> None:
        """`head(a, b)`, in one line if it fits."""
        line = f"{head}{', '.join(arguments)}{tail}"
        if len(line) + 4 * self.indent <= LINE_LENGTH_MAX:
            self(line)
            return
        self(head)
        for argument in arguments:
            self(f"    {argument},")
        self(tail)


@dataclass(slots=True)
class Module:
    """One generated file: its classes, its functions and the names they need."""

    file: SchemaFile
    inline: bool
    code: Code = field(default_factory=Code)
    unpackers: set[str] = field(default_factory=set)
    packers: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    class_names: dict[tuple[str, str], str] = field(default_factory=dict)
    functions: dict[tuple[str, Layout], str] = field(default_factory=dict)
    function_names: set[str] = field(default_factory=set)

    def use(self, name: str) -> str:
        self.imports.add(name)
        return name

    def unpack(self, formats: str) -> str:
        self.unpackers.add(formats)
        return f"unpack_{letters(formats)}"

    def pack(self, formats: str) -> str:
        self.packers.add(formats)
        return f"pack_{letters(formats)}"

    def function(self, verb: str, name: str, at: At) -> str:
        base = f"_{verb}_{snake(name)}_v{at.version}"
        while base in self.function_names:
            base += "_"
        self.function_names.add(base)
        return base


def letters(formats: str) -> str:
    return formats.replace("?", "t")


def struct_format(formats: str) -> str:
    return ">" + formats.replace("u", "16s")


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def default_of(row: Field, module: Module, owner: str) -> str:
    """The Python expression of the value that an absent field has."""
    if row.default == "null" or row.type == "records":
        return "None"
    if row.is_array:
        return "[]"
    if row.is_struct:
        return "None" if row.tagged else f"{module.class_names[owner, row.element]}()"
    if row.type == "bool":
        return "True" if row.default == "true" else "False"
    if row.type == "uuid":
        return module.use("ZERO_UUID")
    if row.type in ("string", "bytes"):
        return ('"' if row.type == "string" else 'b"') + (row.default or "") + '"'
    return row.default or ("0.0" if row.type == "float64" else "0")


def type_of(row: Field, module: Module, owner: str) -> str:
    if row.is_struct:
        name = module.class_names[owner, row.element]
    else:
        name = PYTHON_TYPES.get(row.element, "int")
    if row.is_array:
        name = f"list[{name}]"
    if name == "Any":
        return module.use("Any")
    if row.nullable or default_is_none(row):
        name += " | None"
    return name


def default_is_none(row: Field) -> bool:
    if row.default == "null":
        return True
    return row.is_struct and not row.is_array and bool(row.tagged)


def is_default(row: Field, value: str, module: Module, owner: str) -> str:
    """The condition under which a tagged or missing field need not be sent."""
    default = default_of(row, module, owner)
    if default == "None":
        return f"{value} is None"
    if default in ("True", "False"):
        return value if default == "True" else f"not {value}"
    return f"{value} == {default}"


def write_struct_class(module: Module, owner: str, name: str, rows: tuple[Field, ...]) -> None:
    code = module.code
    code("")
    code("")
    code(f"class {name}({module.use('Struct')}):")
    code.indent += 1
    write_class_body(module, owner, rows)
    code.indent -= 1


def write_message_class(module: Module, message: MessageSchema) -> None:
    code = module.code
    base = "RecordsMessage" if holds_records(message.fields) else "Message"
    code("")
    code("")
    code(f"class {message.name}({module.use(base)}):")
    code.indent += 1
    if message.api_key >= 0:
        code(f"API_KEY = {message.api_key}")
    if message.record_type >= 0:
        code(f"RECORD_TYPE = {message.record_type}")
    code(f"MIN_VERSION = {message.versions.start}")
    code(f"MAX_VERSION = {message.versions.stop - 1}")
    code("")
    write_class_body(module, message.name, message.fields)
    code.indent -= 1


def write_class_body(module: Module, owner: str, rows: tuple[Field, ...]) -> None:
    code = module.code
    names = [f'"{row.name}"' for row in rows]
    if len(names) == 1:
        names[0] += ","
    code.call("__slots__ = (", names)
    if not rows:
        return
    code("")
    code("def __init__(")
    code("    self,")
    code("    *,")
    for row in rows:
        default = default_of(row, module, owner)
        if default.endswith(("[]", "()")):
            default = module.use("EMPTY")
        code(f"    {row.name}: {type_of(row, module, owner)} = {default},")
    code(") -> None:")
    for row in rows:
        default = default_of(row, module, owner)
        if default.endswith(("[]", "()")):
            code(f"    self.{row.name} = {default} if {row.name} is EMPTY else {row.name}")
        else:
            code(f"    self.{row.name} = {row.name}")


def holds_records(rows: tuple[Field, ...]) -> bool:
    return any(row.type == "records" or holds_records(row.fields) for row in rows)


@dataclass(slots=True)
class Decoder:
    """Writes the reading of structs of one version of one message."""

    module: Module
    owner: str
    at: At
    run: list[tuple[str, str]] = field(default_factory=list)

    @property
    def code(self) -> Code:
        return self.module.code

    def root(self, name: str, rows: tuple[Field, ...]) -> str:
        """A function that reads the message's root struct; returns its name."""
        nested = self._nested_functions(rows)
        assert self.module.inline or nested is None
        function = self.module.function("read", name, self.at)
        code = self.code
        code("")
        code("")
        code(f"def {function}(buffer: memoryview, position: int) -> {name}:")
        code.indent += 1
        code("limit = len(buffer)")
        if self._counts_objects(rows):
            code(f"budget = {self.module.use('OBJECT_BUDGET')}")
        self._struct("o", name, rows, 0)
        code("if position > limit:")
        code(f"    raise {self.module.use('truncated')}()")
        code("return o")
        code.indent -= 1
        return function

    def _nested_functions(self, rows: tuple[Field, ...]) -> None:
        if self.module.inline:
            return
        for row in rows:
            if row.is_struct and self.at.version in row.versions:
                self._nested_functions(row.fields)
                self._array_function(row)

    def _array_function(self, row: Field) -> None:
        """A function that reads `count` structs."""
        name = self.module.class_names[self.owner, row.element]
        key = ("read " + name, self.at.layout(row.fields))
        if key in self.module.functions:
            return
        function = self.module.functions[key] = self.module.function("read", name, self.at)
        code = self.code
        code("")
        code("")
        code(f"def {function}(")
        code("    buffer: memoryview, position: int, count: int, budget: int")
        code(f") -> tuple[list[{name}], int, int]:")
        code.indent += 1
        if any(each.is_array and self.at.version in each.versions for each in row.fields):
            code("limit = len(buffer)")
        code(f"items: list[{name}] = []")
        code("for _ in range(count):")
        code.indent += 1
        self._struct("o", name, row.fields, 0)
        code("items.append(o)")
        code.indent -= 1
        code("return items, position, budget")
        code.indent -= 1

    def _counts_objects(self, rows: tuple[Field, ...]) -> bool:
        return any(
            self.at.version in row.versions and (row.is_struct or row.type == "[]string")
            for row in rows
        )

    def _struct(self, var: str, name: str, rows: tuple[Field, ...], depth: int) -> None:
        code = self.code
        code(f"{var} = {self.module.use('new')}({name})")
        for row in self.at.absent(rows) + self.at.tags(rows):
            code(f"{var}.{row.name} = {default_of(row, self.module, self.owner)}")
        for row in self.at.present(rows):
            self._field(var, row, depth)
        if self.at.flexible:
            self._tags(var, self.at.tags(rows), depth)
        self._flush()

    def _field(self, var: str, row: Field, depth: int) -> None:
        target = f"{var}.{row.name}"
        if row.is_array:
            self._array(target, row, depth)
        elif row.is_struct:
            self._single_struct(target, row, depth)
        elif row.type in FORMATS:
            self.run.append((target, FORMATS[row.type]))
        elif row.type == "string":
            self._string(target, row)
        else:
            self._bytes(target, row)

    def _flush(self) -> None:
        """Reads the pending run of fixed-size values."""
        if not self.run:
            return
        run, self.run = self.run, []
        formats = "".join(each for _, each in run)
        targets = [f"u{i}" if each == "u" else target for i, (target, each) in enumerate(run)]
        if formats == "B":
            self.code(f"{targets[0]} = buffer[position]")
            self.code("position += 1")
            return
        self.code.assign(targets, f"{self.module.unpack(formats)}(buffer, position)")
        self.code(f"position += {sum(SIZES[each] for each in formats)}")
        for i, (target, each) in enumerate(run):
            if each == "u":
                self.code(f"{target} = {self.module.use('make_uuid')}(u{i})")

    def _length(self, compact: bool, plain_format: str) -> None:
        """Reads into `n` the length + 1 (compact, at most its first byte) or the length."""
        self.run.append(("n", "B" if compact else plain_format))
        self._flush()

    def _string(self, target: str, row: Field) -> None:
        code, compact, nullable = self.code, self.at.compact(row), self.at.nullable(row)
        self._length(compact, "h")
        if nullable:
            code(f"if n {'== 0' if compact else '< 0'}:")
            code(f"    {target} = None")
            code("else:")
            code.indent += 1
            if compact:
                code("if n > 127:")
                code(
                    f"    n, position = {self.module.use('long_string_length')}(buffer, position, n)"
                )
        elif compact:
            code("if not 0 < n < 128:")
            code(f"    n, position = {self.module.use('string_length')}(buffer, position, n)")
        else:
            code("if n < 0:")
            code(f"    raise {self.module.use('null_refused')}()")
        code(f"end = position + n{' - 1' if compact else ''}")
        code(f"{target} = buffer[position:end].tobytes().decode()")
        code("position = end")
        code.indent -= nullable

    def _bytes(self, target: str, row: Field) -> None:
        code, compact, nullable = self.code, self.at.compact(row), self.at.nullable(row)
        self._length(compact, "i")
        null = "n == 0" if compact else "n < 0"
        code(f"if {null}:")
        if nullable:
            code(f"    {target} = None")
            code("else:")
            code.indent += 1
        else:
            code(f"    raise {self.module.use('null_refused')}()")
        if compact:
            code("if n > 127:")
            code(f"    n, position = {self.module.use('uvarint')}(buffer, position, n)")
        code(f"end = position + n{' - 1' if compact else ''}")
        copy = "" if row.type == "records" else ".tobytes()"
        code(f"{target} = buffer[position:end]{copy}")
        code("position = end")
        code.indent -= nullable

    def _array(self, target: str, row: Field, depth: int) -> None:
        code, nullable = self.code, self.at.nullable(row)
        self._length(self.at.compact(row), "i")
        if self.at.compact(row):
            code("if n > 127:")
            code(f"    n, position = {self.module.use('uvarint')}(buffer, position, n)")
            code("n -= 1")
        if nullable:
            code("if n < 0:")
            code(f"    {target} = None")
            code("else:")
            code.indent += 1
        self._bound_count(row)
        if row.is_struct:
            self._struct_array(target, row, depth)
        elif row.element == "string":
            kind = "compact_" if self.at.compact(row) else ""
            reader = self.module.use(f"read_{kind}strings")
            code(f"{target}, position = {reader}(buffer, position, n)")
        elif row.element == "uuid":
            code(f"{target}, position = {self.module.use('read_uuids')}(buffer, position, n)")
        else:
            letter = FORMATS[row.element]
            unpack = self.module.use("unpack_from")
            code(f'{target} = list({unpack}(f">{{n}}{letter}", buffer, position))')
            code(f"position += {SIZES[letter]} * n")
        code.indent -= nullable

    def _bound_count(self, row: Field) -> None:
        if row.is_struct:
            smallest = self.at.smallest_bytes(row.fields)
        else:
            smallest = self.at.smallest_value_bytes(row)
        assert smallest > 0, row
        bytes_needed = "n" if smallest == 1 else f"n * {smallest}"
        counted = row.is_struct or row.element == "string"
        conditions = ["n < 0"] * (not self.at.nullable(row)) + ["n > budget"] * counted
        conditions.append(f"{bytes_needed} > limit - position")
        self.code(f"if {' or '.join(conditions)}:")
        self.code(f"    raise {self.module.use('bad_count')}(n)")
        if counted:
            self.code("budget -= n")

    def _struct_array(self, target: str, row: Field, depth: int) -> None:
        code = self.code
        name = self.module.class_names[self.owner, row.element]
        if not self.module.inline:
            function = self.module.functions["read " + name, self.at.layout(row.fields)]
            code(f"{target}, position, budget = {function}(buffer, position, n, budget)")
            return
        items, var = f"items{depth + 1}", f"o{depth + 1}"
        code(f"{target} = {items} = []")
        code("for _ in range(n):")
        code.indent += 1
        self._struct(var, name, row.fields, depth + 1)
        code(f"{items}.append({var})")
        code.indent -= 1

    def _single_struct(self, target: str, row: Field, depth: int) -> None:
        code, nullable = self.code, self.at.nullable(row)
        if nullable:
            self.run.append(("n", "b"))
        self._flush()
        if nullable:
            code("if n < 0:")
            code(f"    {target} = None")
            code("else:")
            code.indent += 1
        name = self.module.class_names[self.owner, row.element]
        if self.module.inline:
            var = f"o{depth + 1}"
            self._struct(var, name, row.fields, depth + 1)
            code(f"{target} = {var}")
        else:
            function = self.module.functions["read " + name, self.at.layout(row.fields)]
            code(f"(item,), position, budget = {function}(buffer, position, 1, budget)")
            code(f"{target} = item")
        code.indent -= nullable

    def _tags(self, var: str, rows: list[Field], depth: int) -> None:
        code, module = self.code, self.module
        self._length(True, "")
        code("if n:")
        if not rows:
            code(f"    position = {module.use('skip_tags')}(buffer, position, n)")
            return
        tag, tag_end = f"tag{depth}", f"tag_end{depth}"
        code.indent += 1
        code("if n > 127:")
        code(f"    n, position = {module.use('uvarint')}(buffer, position, n)")
        code("for _ in range(n):")
        code.indent += 1
        code(f"{tag}, n, position = {module.use('read_tag')}(buffer, position)")
        code(f"{tag_end} = position + n")
        for index, row in enumerate(rows):
            code(f"{'if' if index == 0 else 'elif'} {tag} == {row.tag}:")
            code.indent += 1
            self._field(var, row, depth)
            self._flush()
            code.indent -= 1
        code("else:")
        code(f"    position = {tag_end}")
        code(f"if position != {tag_end}:")
        code(f"    raise {module.use('bad_tag')}({tag})")
        code.indent -= 2


@dataclass(slots=True)
class Encoder:
    """Writes the writing of structs of one version of one message."""

    module: Module
    owner: str
    at: At
    out: str = "out"
    run: list[tuple[str, str]] = field(default_factory=list)

    @property
    def code(self) -> Code:
        return self.module.code

    def root(self, name: str, rows: tuple[Field, ...]) -> str:
        self._nested_functions(rows)
        function = self.module.function("write", name, self.at)
        code = self.code
        code("")
        code("")
        if holds_records(rows):
            parts = f"parts: list[{self.module.use('Any')}] | None"
            code(f"def {function}(o: {name}, out: bytearray, {parts}) -> bytearray:")
        else:
            code(f"def {function}(o: {name}, out: bytearray) -> None:")
        code.indent += 1
        start = len(code.lines)
        self._struct("o", rows, 0)
        if holds_records(rows):
            code("return out")
        if len(code.lines) == start:
            code("pass")
        code.indent -= 1
        return function

    def _nested_functions(self, rows: tuple[Field, ...]) -> None:
        if self.module.inline:
            return
        for row in rows:
            if row.is_struct and self.at.version in row.versions:
                self._nested_functions(row.fields)
                self._array_function(row)

    def _array_function(self, row: Field) -> None:
        name = self.module.class_names[self.owner, row.element]
        key = ("write " + name, self.at.layout(row.fields))
        if key in self.module.functions:
            return
        function = self.module.functions[key] = self.module.function("write", name, self.at)
        code = self.code
        code("")
        code("")
        code(
            f"def {function}(out: bytearray, items: {self.module.use('Iterable')}[{name}]) -> None:"
        )
        code.indent += 1
        code("for o in items:")
        code.indent += 1
        self._struct("o", row.fields, 0)
        code.indent -= 2

    def _struct(self, var: str, rows: tuple[Field, ...], depth: int) -> None:
        for row in self.at.absent(rows):
            if not row.ignorable:
                condition = is_default(row, f"{var}.{row.name}", self.module, self.owner)
                self.code(
                    f"if not {condition}:"
                    if "==" not in condition and " is " not in condition
                    else f"if {condition.replace('==', '!=').replace(' is ', ' is not ')}:"
                )
                self.code(f'    raise {self.module.use("absent")}("{row.name}", {self.at.version})')
        for row in self.at.present(rows):
            self._field(var, row, depth)
        if self.at.flexible:
            self._tags(var, self.at.tags(rows), depth)
        self._flush()

    def _field(self, var: str, row: Field, depth: int) -> None:
        value = f"{var}.{row.name}"
        if row.is_array:
            self._array(value, row, depth)
        elif row.is_struct:
            self._single_struct(value, row, depth)
        elif row.type in FORMATS:
            self.run.append((value, FORMATS[row.type]))
        elif row.type == "string":
            self._string(value, row)
        else:
            self._bytes(value, row)

    def _flush(self) -> None:
        if not self.run:
            return
        run, self.run = self.run, []
        formats = "".join(each for _, each in run)
        if formats == "B":
            self.code(f"{self.out}.append({run[0][0]})")
            return
        self.code.call(f"{self.out} += {self.module.pack(formats)}(", [value for value, _ in run])

    def _length(
        self, compact: bool, plain_format: str, long_encoder: str = "encode_uvarint"
    ) -> None:
        """Writes the pending run and the length (compact: + 1) in `n`."""
        if not compact:
            self.run.append(("n", plain_format))
            self._flush()
            return
        run, self.run = self.run, []
        long = f"{self.module.use(long_encoder)}(n)"
        code = self.code
        code("if n < 128:")
        code.indent += 1
        self.run = [*run, ("n", "B")]
        self._flush()
        code.indent -= 1
        code("else:")
        code.indent += 1
        self.run = run
        self._flush()
        code(f"{self.out} += {long}")
        code.indent -= 1

    def _measure(self, name: str, value: str, made: str, row: Field, nothing: str) -> None:
        """Assigns the value to `name` and its length (compact: + 1) to `n`; null is 0 or -1."""
        code, compact = self.code, self.at.compact(row)
        plus_one = " + 1" if compact else ""
        if not self.at.nullable(row):
            code(f"{name} = {made}")
            code(f"n = len({name}){plus_one}")
            return
        code(f"if {value} is None:")
        code(f"    {name} = {nothing}")
        code(f"    n = {0 if compact else -1}")
        code("else:")
        code(f"    {name} = {made}")
        code(f"    n = len({name}){plus_one}")

    def _string(self, value: str, row: Field) -> None:
        self._measure("raw", value, f"{value}.encode()", row, 'b""')
        self._length(self.at.compact(row), "h", "encode_string_length")
        self.code(f"{self.out} += raw")

    def _bytes(self, value: str, row: Field) -> None:
        if row.type == "records":
            self._records(value, row)
            return
        self._measure("raw", value, value, row, 'b""')
        self._length(self.at.compact(row), "i")
        self.code(f"{self.out} += raw")

    def _records(self, value: str, row: Field) -> None:
        code = self.code
        assert self.out == "out"
        self._measure("records", value, value, row, 'b""')
        self._length(self.at.compact(row), "i")
        code(f"if n > {1 if self.at.compact(row) else 0}:")
        code("    if parts is None:")
        code("        out += records")
        code("    else:")
        code("        parts.append(out)")
        code("        parts.append(records)")
        code("        out = bytearray()")

    def _array(self, value: str, row: Field, depth: int) -> None:
        code = self.code
        name = f"items{depth + 1}"
        self._measure(name, value, value, row, "[]")
        self._length(self.at.compact(row), "i")
        if row.is_struct:
            self._struct_items(name, row, depth)
        elif row.element == "string":
            kind = "compact_" if self.at.compact(row) else ""
            code(f"{self.module.use(f'encode_{kind}strings')}({self.out}, {name})")
        elif row.element == "uuid":
            code(f'{self.out} += b"".join({name})')
        else:
            letter = FORMATS[row.element]
            code(f'{self.out} += {self.module.use("pack")}(f">{{len({name})}}{letter}", *{name})')

    def _struct_items(self, items: str, row: Field, depth: int) -> None:
        code = self.code
        if self.module.inline:
            var = f"o{depth + 1}"
            code(f"for {var} in {items}:")
            code.indent += 1
            self._struct(var, row.fields, depth + 1)
            code.indent -= 1
            return
        name = self.module.class_names[self.owner, row.element]
        function = self.module.functions["write " + name, self.at.layout(row.fields)]
        code(f"{function}({self.out}, {items})")

    def _single_struct(self, value: str, row: Field, depth: int) -> None:
        code, nullable = self.code, self.at.nullable(row)
        self._flush()
        if nullable:
            code(f"if {value} is None:")
            code(f"    {self.out}.append(255)")
            code("else:")
            code.indent += 1
            code(f"{self.out}.append(1)")
        elif default_is_none(row):
            code(f"if {value} is None:")
            code(f'    raise TypeError("{row.name} is null")')
        if self.module.inline:
            var = f"o{depth + 1}"
            code(f"{var} = {value}")
            self._struct(var, row.fields, depth + 1)
        else:
            name = self.module.class_names[self.owner, row.element]
            function = self.module.functions["write " + name, self.at.layout(row.fields)]
            code(f"{function}({self.out}, ({value},))")
        code.indent -= nullable

    def _tags(self, var: str, rows: list[Field], depth: int) -> None:
        if not rows:
            self.run.append(("0", "B"))
            return
        code = self.code
        defaults = [is_default(row, f"{var}.{row.name}", self.module, self.owner) for row in rows]
        pending, self.run = self.run, []
        code(f"if {' and '.join(defaults)}:")
        code.indent += 1
        self.run = [*pending, ("0", "B")]
        self._flush()
        code.indent -= 1
        code("else:")
        code.indent += 1
        self.run = pending
        self._flush()
        fields = f"fields{depth}"
        code(f"{fields}: list[tuple[int, bytearray]] = []")
        outer, self.out = self.out, f"field{depth}"
        for row in rows:
            self._tagged_field(var, row, fields, depth)
        self.out = outer
        code(f"{self.module.use('encode_tags')}({self.out}, {fields})")
        code.indent -= 1

    def _tagged_field(self, var: str, row: Field, fields: str, depth: int) -> None:
        code = self.code
        value = f"{var}.{row.name}"
        code(f"if {self._worth_sending(value, row)}:")
        code.indent += 1
        code(f"{self.out} = bytearray()")
        self._field(var, row, depth)
        self._flush()
        code(f"{fields}.append(({row.tag}, {self.out}))")
        code.indent -= 1

    def _worth_sending(self, value: str, row: Field) -> str:
        default = default_of(row, self.module, self.owner)
        if default in ("True", "False"):
            return f"not {value}" if default == "True" else value
        if default != "None":
            return f"{value} != {default}"
        if row.is_struct and not row.is_array and not self.at.nullable(row):
            name = self.module.class_names[self.owner, row.element]
            return f"{value} is not None and {value} != {name}()"
        return f"{value} is not None"


def structs_of(rows: tuple[Field, ...]) -> dict[str, tuple[Field, ...]]:
    """Struct name to fields, outer ones first."""
    found: dict[str, tuple[Field, ...]] = {}
    for row in rows:
        if row.is_struct:
            for name, fields in ({row.element: row.fields} | structs_of(row.fields)).items():
                assert found.setdefault(name, fields) == fields, name
    return found


def name_structs(module: Module) -> dict[str, tuple[str, tuple[Field, ...]]]:
    """Class name to (owning message, fields); a name with two meanings gets its message's before it."""
    meanings: dict[str, set[tuple[Field, ...]]] = {}
    for message in module.file.messages:
        for name, rows in structs_of(message.fields).items():
            meanings.setdefault(name, set()).add(rows)
    classes: dict[str, tuple[str, tuple[Field, ...]]] = {}
    taken = {message.name for message in module.file.messages}
    for message in module.file.messages:
        for name, rows in structs_of(message.fields).items():
            class_name = name
            if len(meanings[name]) > 1 or name in taken:
                class_name = message.name + name
            module.class_names[message.name, name] = class_name
            classes.setdefault(class_name, (message.name, rows))
    return classes


def write_codecs(module: Module, message: MessageSchema) -> list[str]:
    """Functions of every layout; returns the lines that hang them on the class."""
    readers: dict[Layout, str] = {}
    writers: dict[Layout, str] = {}
    tables: tuple[list[str], list[str]] = ([], [])
    for version in message.versions:
        at = At(version, version in message.flexible)
        layout = at.layout(message.fields)
        if layout not in readers:
            readers[layout] = Decoder(module, message.name, at).root(message.name, message.fields)
            writers[layout] = Encoder(module, message.name, at).root(message.name, message.fields)
        tables[0].append(f"    {version}: {readers[layout]},")
        tables[1].append(f"    {version}: {writers[layout]},")
    return [
        f"{message.name}.DECODERS = {{",
        *tables[0],
        "}",
        f"{message.name}.ENCODERS = {{",
        *tables[1],
        "}",
    ]


def module_text(file: SchemaFile) -> str:
    module = Module(file, any(holds_records(message.fields) for message in file.messages))
    structs = name_structs(module)
    for message in file.messages:
        write_message_class(module, message)
        for name, (owner, rows) in structs.items():
            if owner == message.name:
                write_struct_class(module, owner, name, rows)
    tables: list[str] = []
    for message in file.messages:
        tables += write_codecs(module, message)
    body = "\n".join([*module.code.lines, "", "", *tables, ""])
    return module_head(module, body) + body


def module_head(module: Module, body: str) -> str:
    file = module.file
    title = f"{file.api_name} (key {file.api_key})" if file.api_key >= 0 else file.module
    lines = [
        f'"""{title}: generated by tidelog.protocol.generator from schemas/{file.module}.schema."""',
        "",
        "from __future__ import annotations",
        "",
    ]
    struct_names = sorted(module.imports & {"pack", "unpack_from"})
    if module.packers or module.unpackers or struct_names:
        names = ["Struct as Layout"] * bool(module.packers or module.unpackers) + struct_names
        lines.append(f"from struct import {', '.join(names)}")
    typing_names = ["Any"] * ("Any" in module.imports)
    if "Iterable" in module.imports:
        typing_names.insert(0, "TYPE_CHECKING")
    if typing_names:
        lines.append(f"from typing import {', '.join(typing_names)}")
    lines.append("")
    lines.append("from tidelog.protocol.primitives import (")
    here = {"pack", "unpack_from", "Any", "Iterable", "ZERO_UUID"}
    lines += [f"    {name}," for name in sorted(module.imports - here)]
    lines.append(")")
    type_names = [name for name in ("ZERO_UUID", "Uuid") if re.search(rf"\b{name}\b", body)]
    if type_names:
        lines.append(f"from tidelog.types import {', '.join(type_names)}")
    if "Iterable" in module.imports:
        lines += ["", "if TYPE_CHECKING:", "    from collections.abc import Iterable"]
    lines.append("")
    for formats in sorted(module.unpackers):
        lines.append(f'unpack_{letters(formats)} = Layout("{struct_format(formats)}").unpack_from')
    for formats in sorted(module.packers):
        lines.append(f'pack_{letters(formats)} = Layout("{struct_format(formats)}").pack')
    return "\n".join(lines) + "\n"


def api_keys_text(schema_files: list[SchemaFile]) -> str:
    apis = [file for file in schema_files if file.api_key >= 0]
    lines = [
        '"""API keys and the versions the codec has of each: generated by tidelog.protocol.generator.',
        "",
        "What a broker offers is its own table's choice among these.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum",
        "from typing import NamedTuple",
        "",
        "",
        "class VersionRange(NamedTuple):",
        "    min_version: int",
        "    max_version: int",
        "    first_flexible: int | None",
        "",
        "",
        "class ApiKey(IntEnum):",
    ]
    lines += [f"    {file.module.upper()} = {file.api_key}" for file in apis]
    lines += ["", "", "VERSIONS: dict[ApiKey, VersionRange] = {"]
    for file in apis:
        request = file.messages[0]
        flexible = request.flexible.start if request.flexible else None
        row = f"VersionRange({request.versions.start}, {request.versions.stop - 1}, {flexible})"
        lines.append(f"    ApiKey.{file.module.upper()}: {row},")
    lines += ["}", ""]
    return "\n".join(lines)


def generate() -> dict[str, str]:
    """Path below the protocol package to content."""
    schema_files = read_all()
    made = {f"messages/{file.module}.py": module_text(file) for file in schema_files}
    made["api_keys.py"] = api_keys_text(schema_files)
    return made


def main(write: Callable[[Path, str], object] = Path.write_text) -> None:
    package = Path(__file__).parent
    (package / "messages").mkdir(exist_ok=True)
    made = generate()
    for path in (package / "messages").glob("*.py"):
        if f"messages/{path.name}" not in made and path.name != "__init__.py":
            path.unlink()
    for name, text in made.items():
        write(package / name, text)


if __name__ == "__main__":
    main()
