"""Writes the encoders of a message, one function per layout.

Functions keep to these names: `out` for the buffer, `o` for the struct at hand (`o1`, `o2` ...
where structs are written in place), `n` for the length or count about to be written. Tagged values
are encoded into buffers of their own, since their size comes first.

A run of fixed-size values is one `struct` call, which also takes an empty tag buffer and, where
strings are written in place, a length of one byte. An array of structs of nothing but numbers is
written in place by one `struct` call for many of them (`Rows`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.protocol.generation.schema import FORMATS, NUMBERS, Layout

if TYPE_CHECKING:
    from tidelog.protocol.generation.schema import Field, MessageSchema
    from tidelog.protocol.generation.source import Source


@dataclass(slots=True)
class Encoder:
    """Writes strings, bytes, counts and arrays of structs by calls."""

    source: Source
    owner: str
    layout: Layout
    out: str = "out"
    run: list[tuple[str, str]] = field(default_factory=list)
    made: int = 0

    def write(self, message: MessageSchema) -> str:
        """A function that writes the message; returns its name."""
        source, rows = self.source, message.fields
        self._write_struct_functions(rows)
        signature = self.layout.signature(rows)
        name = source.name_function("write", message.name, self.layout.version, signature)
        if message.holds_records:
            source.start(f"def {name}(")
            source(
                f"    o: {message.name}, out: bytearray, parts: list[{source.use('Any')}] | None"
            )
            source(") -> bytearray:")
        else:
            source.start(f"def {name}(o: {message.name}, out: bytearray) -> None:")
        source.indent += 1
        before = len(source.lines)
        self._struct("o", rows)
        if message.holds_records:
            source("return out")
        if len(source.lines) == before:
            source("pass")
        source.indent -= 1
        return name

    def _write_struct_functions(self, rows: tuple[Field, ...]) -> None:
        for row in rows:
            if row.is_struct and self.layout.has(row):
                self._write_struct_functions(row.fields)
                self._write_struct_function(row)

    def _write_struct_function(self, row: Field) -> None:
        source, name = self.source, self.source.class_of(self.owner, row)
        signature = self.layout.signature(row.fields)
        if ("write", name, signature) in source.functions:
            return
        function = source.name_function("write", name, self.layout.version, signature)
        items = f"{source.use('Iterable')}[{name}]"
        source.start(f"def {function}(out: bytearray, items: {items}) -> None:")
        source.indent += 1
        source("for o in items:")
        source.indent += 1
        self._struct("o", row.fields)
        source.indent -= 2

    def _struct_function(self, row: Field) -> str:
        name = self.source.class_of(self.owner, row)
        return self.source.functions["write", name, self.layout.signature(row.fields)]

    def _struct(self, var: str, rows: tuple[Field, ...]) -> None:
        source, layout = self.source, self.layout
        for row in layout.missing(rows):
            if not row.ignorable:
                source(f"if {source.is_not_default(self.owner, row, f'{var}.{row.name}')}:")
                source(f'    raise {source.use("absent")}("{row.name}")')
        for row in layout.present(rows):
            self._field(f"{var}.{row.name}", row)
        if layout.flexible:
            self._tags(var, layout.tagged(rows))
        self._flush()

    def _field(self, value: str, row: Field) -> None:
        if self.source.can_be_none(self.owner, row) and not self.layout.is_nullable(row):
            self.source(f"if {value} is None:")
            self.source(f'    raise {self.source.use("null_given")}("{row.name}")')
        if row.is_array:
            self._array(value, row)
        elif row.is_struct:
            self._single_struct(value, row)
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
            self.source(f"{self.out}.append({run[0][0]})")
        else:
            self.source.call(
                f"{self.out} += {self.source.pack(formats)}", [value for value, _ in run]
            )

    def _string(self, value: str, row: Field) -> None:
        self._flush()
        writer = self.source.use(f"encode_{self.layout.form(row)}string")
        self.source(f"{writer}({self.out}, {value})")

    def _bytes(self, value: str, row: Field) -> None:
        self._flush()
        writer = self.source.use(f"encode_{self.layout.form(row)}bytes")
        self.source(f"{writer}({self.out}, {value})")

    def _array(self, value: str, row: Field) -> None:
        source, nullable = self.source, self.layout.is_nullable(row)
        items = self._count(value, row)
        if nullable:
            source(f"if {value} is not None:")
            source.indent += 1
        self._elements(items, row)
        source.indent -= nullable

    def _count(self, value: str, row: Field) -> str:
        """Writes the count; returns the expression of the array."""
        self._flush()
        writer = self.source.use(f"encode_{self.layout.form(row)}count")
        self.source(f"{writer}({self.out}, {value})")
        return value

    def _elements(self, items: str, row: Field) -> None:
        source = self.source
        if row.is_struct:
            self._structs(items, row)
        elif row.element == "string":
            writer = f"encode_{'compact_' * self.layout.is_compact(row)}strings"
            source(f"{source.use(writer)}({self.out}, {items})")
        elif row.element == "uuid":
            source(f'{self.out} += b"".join({items})')
        else:
            writer = source.use("encode_numbers")
            source(f'{writer}({self.out}, {items}, "{FORMATS[row.element]}")')

    def _structs(self, items: str, row: Field) -> None:
        self.source(f"{self._struct_function(row)}({self.out}, {items})")

    def _single_struct(self, value: str, row: Field) -> None:
        source, nullable = self.source, self.layout.is_nullable(row)
        self._flush()
        if nullable:
            source(f"if {value} is None:")
            source(f"    {self.out}.append(255)")
            source("else:")
            source.indent += 1
            source(f"{self.out}.append(1)")
        self._struct_value(value, row)
        source.indent -= nullable

    def _struct_value(self, value: str, row: Field) -> None:
        self.source(f"{self._struct_function(row)}({self.out}, ({value},))")

    def _tags(self, var: str, rows: list[Field]) -> None:
        if not rows:
            self.run.append(("0", "B"))
            return
        source, run = self.source, self.run
        defaults = [source.is_default(self.owner, row, f"{var}.{row.name}") for row in rows]
        source(f"if {' and '.join(defaults)}:")
        source.indent += 1
        self.run = [*run, ("0", "B")]
        self._flush()
        source.indent -= 1
        source("else:")
        source.indent += 1
        self.run = run
        self._flush()
        self._tagged_values(var, rows)
        source.indent -= 1

    def _tagged_values(self, var: str, rows: list[Field]) -> None:
        source, outer = self.source, self.out
        self.made += 1
        values, self.out = f"values{self.made}", f"value{self.made}"
        source(f"{values}: list[tuple[int, bytearray]] = []")
        for row in rows:
            source(f"if {self._is_worth_sending(f'{var}.{row.name}', row)}:")
            source.indent += 1
            source(f"{self.out} = bytearray()")
            self._field(f"{var}.{row.name}", row)
            self._flush()
            source(f"{values}.append(({row.tag}, {self.out}))")
            source.indent -= 1
        self.out = outer
        source(f"{source.use('encode_tags')}({self.out}, {values})")

    def _is_worth_sending(self, value: str, row: Field) -> str:
        condition = self.source.is_not_default(self.owner, row, value)
        if row.is_struct and not row.is_array and not self.layout.is_nullable(row):
            condition += f" and {value} != {self.source.class_of(self.owner, row)}()"
        return condition


class InPlaceEncoder(Encoder):
    """Writes everything in place, which lets a `records` value be a part of its own."""

    __slots__ = ()

    def _write_struct_functions(self, rows: tuple[Field, ...]) -> None:
        pass

    def _measure(self, name: str, value: str, made: str, row: Field) -> None:
        """Sets `name` to the value and `n` to what stands before it: length, length + 1, null."""
        source, compact = self.source, self.layout.is_compact(row)
        nullable = self.layout.is_nullable(row)
        if nullable:
            source(f"if {value} is None:")
            source(f"    n = {0 if compact else -1}")
            source("else:")
            source.indent += 1
        source(f"{name} = {made}")
        source(f"n = len({name}){' + 1' * compact}")
        source.indent -= nullable

    def _write_n(self, row: Field, letter: str, writer: str = "encode_uvarint") -> None:
        if not self.layout.is_compact(row):
            self.run.append(("n", letter))
            self._flush()
            return
        source, run = self.source, self.run
        source("if n < 128:")
        source.indent += 1
        self.run = [*run, ("n", "B")]
        self._flush()
        source.indent -= 1
        source("else:")
        source.indent += 1
        self.run = run
        self._flush()
        source(f"{self.out} += {source.use(writer)}(n)")
        source.indent -= 1

    def _is_not_empty(self, row: Field) -> str:
        return f"n > {int(self.layout.is_compact(row))}"

    def _string(self, value: str, row: Field) -> None:
        self._measure("raw", value, f"{value}.encode()", row)
        self._write_n(row, "h", "encode_string_length")
        if self.layout.is_nullable(row):
            self.source(f"if {self._is_not_empty(row)}:")
            self.source(f"    {self.out} += raw")
        else:
            self.source(f"{self.out} += raw")

    def _bytes(self, value: str, row: Field) -> None:
        source = self.source
        name = "records" if row.type == "records" else "data"
        self._measure(name, value, value, row)
        self._write_n(row, "i")
        source(f"if {self._is_not_empty(row)}:")
        source.indent += 1
        if row.type == "records":
            assert self.out == "out"
            source("if parts is None:")
            source("    out += records")
            source("else:")
            source("    parts.append(out)")
            source("    parts.append(records)")
            source("    out = bytearray()")
        else:
            source(f"{self.out} += {name}")
        source.indent -= 1

    def _count(self, value: str, row: Field) -> str:
        self.made += 1
        items = f"items{self.made}"
        self._measure(items, value, value, row)
        self._write_n(row, "i")
        return items

    def _structs(self, items: str, row: Field) -> None:
        self.made += 1
        var = f"o{self.made}"
        if self._is_of_numbers(row):
            self._rows(items, var, row)
            return
        self.source(f"for {var} in {items}:")
        self.source.indent += 1
        self._struct(var, row.fields)
        self.source.indent -= 1

    def _is_of_numbers(self, row: Field) -> bool:
        layout, source = self.layout, self.source
        return (
            not layout.tagged(row.fields)
            and all(each.ignorable for each in layout.missing(row.fields))
            and all(
                FORMATS.get(each.type, "u") in NUMBERS and not source.can_be_none(self.owner, each)
                for each in layout.present(row.fields)
            )
        )

    def _rows(self, items: str, var: str, row: Field) -> None:
        source, present = self.source, self.layout.present(row.fields)
        letters = "".join(FORMATS[each.type] for each in present) + "x" * self.layout.flexible
        values = f"values{self.made}"
        source(f"{values}: list[int] = []")
        source(f"for {var} in {items}:")
        for each in present:
            source(f"    {values}.append({var}.{each.name})")
        source(f"{source.rows(letters)}.encode({self.out}, {values})")

    def _struct_value(self, value: str, row: Field) -> None:
        self.made += 1
        var = f"o{self.made}"
        self.source(f"{var} = {value}")
        self._struct(var, row.fields)
