"""Writes the decoders of a message, one function per layout.

Functions keep to these names: `buffer`, `position`, `n` for the last length, count or tag count,
`budget` for the structs that may still be made, `o` for the struct at hand. Where structs are read
in place the inner ones are `o1`, `o2` ... and `limit` is the buffer's length. There `n` is declared
an int, because compiled code is slow with what `struct` gives without a type.

A run of fixed-size values is one `struct` call. It also takes the tag count that follows and, where
strings are read in place, the length or count; of a varint it takes the first byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.protocol.generation.schema import FORMATS, SIZES, Layout

if TYPE_CHECKING:
    from tidelog.protocol.generation.schema import Field, MessageSchema
    from tidelog.protocol.generation.source import Source


@dataclass(slots=True)
class Decoder:
    """Reads strings, bytes, counts and arrays of structs by calls."""

    source: Source
    owner: str
    layout: Layout
    run: list[tuple[str, str]] = field(default_factory=list)
    made: int = 0

    def write(self, message: MessageSchema) -> str:
        """A function that reads the message; returns its name."""
        source, rows = self.source, message.fields
        self._write_struct_functions(rows)
        signature = self.layout.signature(rows)
        name = source.name_function("read", message.name, self.layout.version, signature)
        source.start(f"def {name}(buffer: memoryview, position: int) -> {message.name}:")
        source.indent += 1
        self._write_prologue(rows)
        self._struct("o", message.name, rows)
        source(f"if position > {self._limit()}:")
        source(f"    raise {source.use('truncated')}()")
        source("return o")
        source.indent -= 1
        return name

    def _write_prologue(self, rows: tuple[Field, ...]) -> None:
        if any(row.is_struct and self.layout.has(row) for row in rows):
            self.source(f"budget = {self.source.use('OBJECT_BUDGET')}")

    def _limit(self) -> str:
        return "len(buffer)"

    def _write_struct_functions(self, rows: tuple[Field, ...]) -> None:
        for row in rows:
            if row.is_struct and self.layout.has(row):
                self._write_struct_functions(row.fields)
                self._write_struct_function(row)

    def _write_struct_function(self, row: Field) -> None:
        source, name = self.source, self.source.class_of(self.owner, row)
        signature = self.layout.signature(row.fields)
        if ("read", name, signature) in source.functions:
            return
        function = source.name_function("read", name, self.layout.version, signature)
        source.start(f"def {function}(")
        source("    buffer: memoryview, position: int, count: int, budget: int")
        source(f") -> tuple[list[{name}], int, int]:")
        source.indent += 1
        source("if count > budget:")
        source(f"    raise {source.use('bad_count')}(count)")
        source("budget -= count")
        source(f"items: list[{name}] = []")
        source("for _ in range(count):")
        source.indent += 1
        self._struct("o", name, row.fields)
        source("items.append(o)")
        source.indent -= 1
        source("return items, position, budget")
        source.indent -= 1

    def _struct_function(self, row: Field) -> str:
        name = self.source.class_of(self.owner, row)
        return self.source.functions["read", name, self.layout.signature(row.fields)]

    def _struct(self, var: str, name: str, rows: tuple[Field, ...]) -> None:
        source, layout = self.source, self.layout
        source(f"{var} = {source.maker(name)}({name})")
        tagged = layout.tagged(rows)
        for row in layout.missing(rows) + tagged:
            source(f"{var}.{row.name} = {source.default(self.owner, row)}")
        for row in layout.present(rows):
            self._field(f"{var}.{row.name}", row)
        if layout.flexible:
            self._read_into_n("B")
            source("if n:")
            source.indent += 1
            self._tags(var, tagged)
            source.indent -= 1
        self._flush()

    def _field(self, target: str, row: Field) -> None:
        if row.is_array:
            self._array(target, row)
        elif row.is_struct:
            self._single_struct(target, row)
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
        source = self.source
        formats = "".join(each for _, each in run)
        if formats == "B":
            source(f"{run[0][0]} = buffer[position]")
            source("position += 1")
            return
        uuids = [(f"u{index}", target) for index, (target, each) in enumerate(run) if each == "u"]
        targets = [
            f"u{index}" if each == "u" else target for index, (target, each) in enumerate(run)
        ]
        source.assign(targets, f"{source.unpack(formats)}(buffer, position)")
        source(f"position += {sum(SIZES[each] for each in formats)}")
        for raw, target in uuids:
            source(f"{target} = {source.use('make_uuid')}({raw})")

    def _read_into_n(self, letter: str) -> None:
        self.run.append(("n", letter))
        self._flush()

    def _string(self, target: str, row: Field) -> None:
        self._flush()
        reader = self.source.use(f"read_{self.layout.form(row)}string")
        self.source(f"{target}, position = {reader}(buffer, position)")

    def _bytes(self, target: str, row: Field) -> None:
        self._flush()
        reader = self.source.use(f"read_{self.layout.form(row)}{row.type}")
        self.source(f"{target}, position = {reader}(buffer, position)")

    def _array(self, target: str, row: Field) -> None:
        source, nullable = self.source, self.layout.is_nullable(row)
        smallest = self.layout.smallest_element_bytes(row)
        assert smallest > 0, row
        self._count(row, smallest)
        if nullable:
            source("if n < 0:")
            source(f"    {target} = None")
            source("else:")
            source.indent += 1
        self._elements(target, row, smallest)
        source.indent -= nullable

    def _count(self, row: Field, smallest: int) -> None:
        self._flush()
        reader = self.source.use(f"read_{self.layout.form(row)}count")
        self.source(f"n, position = {reader}(buffer, position, {smallest})")

    def _elements(self, target: str, row: Field, smallest: int) -> None:
        source = self.source
        if row.is_struct:
            self._structs(target, row)
            return
        arguments = "buffer, position, n"
        if row.element == "string":
            reader = f"read_{'compact_' * self.layout.is_compact(row)}strings"
        elif row.element == "uuid":
            reader = "read_uuids"
        else:
            reader = "read_numbers"
            arguments += f', "{FORMATS[row.element]}", {smallest}'
        source(f"{target}, position = {source.use(reader)}({arguments})")

    def _structs(self, target: str, row: Field) -> None:
        function = self._struct_function(row)
        self.source(f"{target}, position, budget = {function}(buffer, position, n, budget)")

    def _single_struct(self, target: str, row: Field) -> None:
        source, nullable = self.source, self.layout.is_nullable(row)
        if nullable:
            self._read_into_n("b")
            source("if n < 0:")
            source(f"    {target} = None")
            source("else:")
            source.indent += 1
        self._flush()
        self._struct_value(target, row)
        source.indent -= nullable

    def _struct_value(self, target: str, row: Field) -> None:
        function = self._struct_function(row)
        self.source(f"({target},), position, budget = {function}(buffer, position, 1, budget)")

    def _tags(self, var: str, rows: list[Field]) -> None:
        """The tag buffer whose count's first byte, not zero, is in `n`."""
        source = self.source
        if not rows:
            source(f"position = {source.use('skip_tags')}(buffer, position - 1)")
            return
        self.made += 1
        tag, end = f"tag{self.made}", f"tag_end{self.made}"
        source("if n > 127:")
        source(f"    n, position = {source.use('uvarint')}(buffer, position, n)")
        source(f"tags{self.made} = n")
        source(f"for _ in range(tags{self.made}):")
        source.indent += 1
        source(f"{tag}, n, position = {source.use('read_tag')}(buffer, position)")
        source(f"{end} = position + n")
        for index, row in enumerate(rows):
            source(f"{'if' if index == 0 else 'elif'} {tag} == {row.tag}:")
            source.indent += 1
            self._field(f"{var}.{row.name}", row)
            self._flush()
            source.indent -= 1
        source("else:")
        source(f"    position = {end}")
        source(f"if position != {end}:")
        source(f"    raise {source.use('bad_tag')}({tag})")
        source.indent -= 1


class InPlaceDecoder(Decoder):
    """Reads everything in place: one function per message layout, without calls."""

    __slots__ = ()

    def _write_prologue(self, rows: tuple[Field, ...]) -> None:
        self.source("limit = len(buffer)")
        self.source("n: int")
        Decoder._write_prologue(self, rows)

    def _limit(self) -> str:
        return "limit"

    def _write_struct_functions(self, rows: tuple[Field, ...]) -> None:
        pass

    def _string(self, target: str, row: Field) -> None:
        source, compact = self.source, self.layout.is_compact(row)
        nullable = self.layout.is_nullable(row)
        self._read_into_n("B" if compact else "h")
        if nullable:
            source(f"if n {'== 0' if compact else '< 0'}:")
            source(f"    {target} = None")
            source(f"elif n == {'1' if compact else '0'}:")  # the metadata of most commits
            source(f'    {target} = ""')
            source("else:")
            source.indent += 1
        if compact:
            source("if not 0 < n < 128:")
            source(f"    n, position = {source.use('string_length')}(buffer, position, n)")
        elif not nullable:
            source("if n < 0:")
            source(f"    raise {source.use('null_refused')}()")
        source(f"end = position + n{' - 1' * compact}")
        source(f"{target} = buffer[position:end].tobytes().decode()")
        source("position = end")
        source.indent -= nullable

    def _bytes(self, target: str, row: Field) -> None:
        source, compact = self.source, self.layout.is_compact(row)
        nullable = self.layout.is_nullable(row)
        self._read_into_n("B" if compact else "i")
        source(f"if n {'== 0' if compact else '< 0'}:")
        if nullable:
            source(f"    {target} = None")
            source("else:")
            source.indent += 1
        else:
            source(f"    raise {source.use('null_refused')}()")
        if compact:
            source("if n > 127:")
            source(f"    n, position = {source.use('uvarint')}(buffer, position, n)")
        source(f"end = position + n{' - 1' * compact}")
        source(f"{target} = buffer[position:end]{'.tobytes()' * (row.type != 'records')}")
        source("position = end")
        source.indent -= nullable

    def _count(self, row: Field, smallest: int) -> None:
        source, compact = self.source, self.layout.is_compact(row)
        self._read_into_n("B" if compact else "i")
        if compact:
            source("if n > 127:")
            source(f"    n, position = {source.use('uvarint')}(buffer, position, n)")
            source("n -= 1")
        conditions = ["n < 0"] * (not self.layout.is_nullable(row)) + ["n > budget"] * row.is_struct
        conditions.append(f"n * {smallest} > limit - position")
        source(f"if {' or '.join(conditions)}:")
        source(f"    raise {source.use('bad_count')}(n)")

    def _structs(self, target: str, row: Field) -> None:
        source, name = self.source, self.source.class_of(self.owner, row)
        self.made += 1
        items, var = f"items{self.made}", f"o{self.made}"
        source("budget -= n")
        source(f"{target} = {items} = []")
        source(f"count{self.made} = n")  # compiled, a range whose end changes changes too
        source(f"for _ in range(count{self.made}):")
        source.indent += 1
        self._struct(var, name, row.fields)
        source(f"{items}.append({var})")
        source.indent -= 1

    def _struct_value(self, target: str, row: Field) -> None:
        self.made += 1
        var = f"o{self.made}"
        self._struct(var, self.source.class_of(self.owner, row), row.fields)
        self.source(f"{target} = {var}")
