"""kio, generated from Apache Kafka 4's schemas, reads and writes every message as we do."""

from __future__ import annotations

import datetime
import io
import uuid
from dataclasses import fields
from enum import Enum
from typing import Any

import pytest
from kio.index import load_entity_schema
from kio.schema.index import LoadableEntityType, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tests.support.messages import Case, RandomChoices, all_cases, build, struct_class
from tidelog.protocol.generation.schema import Field
from tidelog.protocol.generation.source import snake
from tidelog.types import ZERO_UUID

MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
SAMPLES_PER_LAYOUT = 4


def kio_type(case: Case) -> Any:
    """kio's class of the message, None if it has no such version."""
    schema = case.schema
    kind: LoadableEntityType = EntityType.data
    name = case.file.module if schema.api_key >= 0 else snake(schema.name)
    if schema.name.endswith("Header"):
        kind = EntityType.header
    elif schema.api_key >= 0:
        kind = EntityType.request if schema.name.endswith("Request") else EntityType.response
    path = schema_name_map.get(name, {}).get(case.version, {}).get(kind)
    return None if path is None else load_entity_schema(name, case.version, kind)


CASES = [case for case in all_cases() if kio_type(case) is not None]


def plain(value: Any) -> Any:
    """A kio value as we would hold it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


def assert_same_fields(case: Case, rows: tuple[Field, ...], ours: Any, theirs: Any) -> None:
    present = [row for row in rows if case.layout.has(row)]
    for row, their_field in zip(present, fields(theirs), strict=True):
        assert their_field.name.rstrip("_") in (row.name, row.name.removesuffix("_ms"))
        assert_same_value(case, row, getattr(ours, row.name), getattr(theirs, their_field.name))


def assert_same_value(case: Case, row: Field, ours: Any, theirs: Any) -> None:
    if row.type == "uuid":
        assert ours == (ZERO_UUID if theirs is None else theirs.bytes), row.name
    elif ours is None and row.is_struct and not case.layout.is_nullable(row):
        assert_same_fields(case, row.fields, struct_class(case, row)(), theirs)
    elif ours is None or theirs is None:
        assert ours is theirs is None, row.name
    elif row.is_struct:
        ours, theirs = (ours, theirs) if row.is_array else ([ours], [theirs])
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_same_fields(case, row.fields, our_item, their_item)
    elif row.is_array:
        assert ours == [plain(each) for each in theirs], row.name
    else:
        assert ours == plain(theirs), row.name


def test_kio_covers_most_layouts() -> None:
    assert len(CASES) >= 604


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kio_reads_and_writes_the_same(case: Case) -> None:
    their_type = kio_type(case)
    read, write = entity_reader(their_type), entity_writer(their_type)
    for sample in range(SAMPLES_PER_LAYOUT):
        ours = build(case, RandomChoices((case.name, sample)))
        encoded = bytes(ours.encode(case.version))
        theirs, size = read(encoded, 0)
        assert size == len(encoded)
        assert_same_fields(case, case.schema.fields, ours, theirs)
        buffer = io.BytesIO()
        write(buffer, theirs)
        assert buffer.getvalue() == encoded
        assert type(ours).decode(memoryview(buffer.getvalue()), 0, case.version) == ours
