"""The schema table: one file of rows per API key or group of stored records, in `schemas/`.

    api 1 Fetch                            key and name; the file's module is the snake-cased name
    records producer_snapshot              instead of `api`: stored or embedded messages

    request 0-18 flexible=12+              a message and its versions; also `response`, and
    message ProducerSnapshot 1             `message <Name>`, with `record_type=<n>` where the record
                                           is told apart by a number before its key
      cluster_id string 12+ null=12+ tag=0@12+ default=null ignorable
      topics []FetchTopic 0+               a row a field: name, type, versions, then as needed
        topic string 0-12 ignorable        null=     versions in which null is allowed
                                           tag=T@V   tag number and the versions that tag the field
                                           default=  value of an absent field (else 0, "", [] ...)
                                           ignorable a value may be dropped by a version without it
                                           plain     never in compact form

Rows indented below a row are the fields of its struct. Versions are `a`, `a-b` or `a+`, the last
up to the message's last version. Types are Kafka's: bool int8 int16 uint16 int32 uint32 int64
float64 string bytes records uuid, a struct's name, and `[]` before any of them.

The rows are the union of Apache Kafka 3.9.2 and 4.3.1. Keys 4 to 7 and versions below 4.3.1's first
are in 3.9.2 only; keys 93 and 94 are newer than both. Where both releases have a version
but lay it out differently (BrokerHeartbeatRequest v1, ReadShareGroupStateSummaryResponse v0), 4.3.1
counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_VERSIONS = range(0)

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
NUMBERS = "bhHiIq"
SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "u": 16}

Signature = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: str
    versions: range
    nullable: range
    tag: int
    tagged: range
    default: str | None
    ignorable: bool
    plain: bool
    fields: tuple[Field, ...]

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        return self.type.removeprefix("[]")

    @property
    def is_struct(self) -> bool:
        return self.element[0].isupper()

    @property
    def holds_records(self) -> bool:
        return self.type == "records" or any(row.holds_records for row in self.fields)


@dataclass(frozen=True, slots=True)
class MessageSchema:
    name: str
    api_key: int
    record_type: int
    versions: range
    flexible: range
    fields: tuple[Field, ...]

    @property
    def holds_records(self) -> bool:
        return any(row.holds_records for row in self.fields)


@dataclass(frozen=True, slots=True)
class SchemaFile:
    module: str
    api_key: int
    api_name: str
    messages: tuple[MessageSchema, ...]


@dataclass(slots=True)
class _Row:
    depth: int
    words: list[str]


def read_all() -> list[SchemaFile]:
    """Every schema file, API keys first in their order."""
    folder = files("tidelog.protocol") / "schemas"
    parsed = [
        parse(entry.name.removesuffix(".schema"), entry.read_text(encoding="ascii"))
        for entry in folder.iterdir()
        if entry.name.endswith(".schema")
    ]
    return sorted(parsed, key=lambda file: (file.api_key < 0, file.api_key, file.module))


def parse(module: str, text: str) -> SchemaFile:
    rows = [
        _Row((len(line) - len(line.lstrip())) // 2, line.split())
        for line in text.splitlines()
        if line.strip()
    ]
    api_key, api_name = -1, ""
    if rows[0].words[0] == "api":
        api_key, api_name = int(rows[0].words[1]), rows[0].words[2]
    starts = [index for index, row in enumerate(rows) if row.depth == 0][1:]
    messages = tuple(
        _message(rows[start], rows[start + 1 : end], api_key, api_name)
        for start, end in pairwise([*starts, len(rows)])
    )
    return SchemaFile(module, api_key, api_name, messages)


def _message(head: _Row, body: list[_Row], api_key: int, api_name: str) -> MessageSchema:
    words = iter(head.words)
    kind = next(words)
    name = next(words) if kind == "message" else api_name + kind.capitalize()
    versions = _versions(next(words), NO_VERSIONS)
    attributes = dict(word.split("=") for word in words)
    return MessageSchema(
        name,
        api_key,
        int(attributes.get("record_type", "-1")),
        versions,
        _versions(attributes.get("flexible", ""), versions),
        tuple(_fields(body, 1, versions)),
    )


def _fields(rows: list[_Row], depth: int, all_versions: range) -> Iterator[Field]:
    starts = [index for index, row in enumerate(rows) if row.depth == depth]
    for start, end in pairwise([*starts, len(rows)]):
        nested = tuple(_fields(rows[start + 1 : end], depth + 1, all_versions))
        yield _field(rows[start].words, nested, all_versions)


def _field(words: list[str], nested: tuple[Field, ...], all_versions: range) -> Field:
    attributes = dict(word.partition("=")[::2] for word in words[3:])
    tag, _, tagged = attributes.get("tag", "-1@").partition("@")
    return Field(
        name=words[0],
        type=words[1],
        versions=_versions(words[2], all_versions),
        nullable=_versions(attributes.get("null", ""), all_versions),
        tag=int(tag),
        tagged=_versions(tagged, all_versions),
        default=attributes.get("default"),
        ignorable="ignorable" in attributes,
        plain="plain" in attributes,
        fields=nested,
    )


def _versions(text: str, all_versions: range) -> range:
    if not text:
        return NO_VERSIONS
    if text.endswith("+"):
        return range(int(text[:-1]), all_versions.stop)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """One version of a message: which fields it has, in which form, and how small they can be."""

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
