"""One version of a message: which fields are there, in which form, and how small they can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.protocol.generation.schema import Field

# Letters of `struct`, but "u" for the 16 bytes of a uuid.
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

Signature = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    version: int
    flexible: bool

    def present(self, rows: tuple[Field, ...]) -> list[Field]:
        """Fields that stand in line."""
        return [row for row in rows if self.has(row) and not self.is_tagged(row)]

    def tagged(self, rows: tuple[Field, ...]) -> list[Field]:
        found = [row for row in rows if self.has(row) and self.is_tagged(row)]
        return sorted(found, key=lambda row: row.tag)

    def missing(self, rows: tuple[Field, ...]) -> list[Field]:
        return [row for row in rows if not self.has(row)]

    def has(self, row: Field) -> bool:
        return self.version in row.versions

    def is_tagged(self, row: Field) -> bool:
        return self.version in row.tagged

    def is_nullable(self, row: Field) -> bool:
        return self.version in row.nullable

    def is_compact(self, row: Field) -> bool:
        return self.flexible and not row.plain

    def form(self, row: Field) -> str:
        """Prefix that names the primitive for the field's strings, bytes and counts."""
        return "compact_" * self.is_compact(row) + "nullable_" * self.is_nullable(row)

    def signature(self, rows: tuple[Field, ...]) -> Signature:
        """Equal for two versions exactly when the same code serves both."""

        def of(row: Field) -> Signature:
            nested = self.signature(row.fields) if row.is_struct else None
            tag = row.tag if self.is_tagged(row) else None
            return (row.name, row.type, self.form(row), tag, nested)

        return (self.flexible, tuple(of(row) for row in rows if self.has(row)))

    def smallest_element_bytes(self, row: Field) -> int:
        """The least that an element of an array takes on the wire."""
        if row.is_struct:
            return self._smallest_struct_bytes(row.fields)
        return self._smallest_value_bytes(row)

    def _smallest_struct_bytes(self, rows: tuple[Field, ...]) -> int:
        return sum(self._smallest_field_bytes(row) for row in self.present(rows)) + self.flexible

    def _smallest_field_bytes(self, row: Field) -> int:
        if row.is_array:
            return 1 if self.is_compact(row) else 4
        if row.is_struct:
            return 1 if self.is_nullable(row) else self._smallest_struct_bytes(row.fields)
        return self._smallest_value_bytes(row)

    def _smallest_value_bytes(self, row: Field) -> int:
        if row.element in FORMATS:
            return SIZES[FORMATS[row.element]]
        if self.is_compact(row):
            return 1
        return 2 if row.element == "string" else 4
