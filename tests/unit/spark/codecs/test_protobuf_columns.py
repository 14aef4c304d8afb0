"""Protobuf messages to columns and back."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")

from google.protobuf import (  # noqa: E402
    duration_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tidelog.spark.codecs.broken_rows import BrokenRows  # noqa: E402
from tidelog.spark.codecs.errors import EncodeError, SchemaError  # noqa: E402
from tidelog.spark.codecs.protobuf_columns import ProtobufReader, ProtobufWriter  # noqa: E402
from tidelog.spark.codecs.protobuf_schema import (  # noqa: E402
    ProtobufSchema,
    message_names,
)

OPTIONAL, REPEATED = 1, 3
SCALARS: dict[str, tuple[int, Any, st.SearchStrategy[Any]]] = {
    "double": (1, pa.float64(), st.floats(allow_nan=False)),
    "float": (2, pa.float32(), st.floats(width=32, allow_nan=False)),
    "int64": (3, pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (4, pa.decimal128(20, 0), st.integers(0, 2**64 - 1)),
    "int32": (5, pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "bool": (8, pa.bool_(), st.booleans()),
    "string": (9, pa.string(), st.text(max_size=5)),
    "bytes": (12, pa.binary(), st.binary(max_size=5)),
    "uint32": (13, pa.int64(), st.integers(0, 2**32 - 1)),
    "enum": (14, pa.string(), st.sampled_from(["ZERO", "ONE"])),
    "sfixed64": (16, pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "sint64": (18, pa.int64(), st.integers(-(2**63), 2**63 - 1)),
}
INNER = pa.struct([("sku", pa.int64())])


def descriptors(syntax: str = "proto3") -> Any:
    """A message with every scalar: plain, optional and repeated; messages; a map; a oneof."""
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="all", syntax=syntax)
    enum = file.enum_type.add(name="Number")
    enum.value.add(name="ZERO", number=0)
    enum.value.add(name="ONE", number=1)
    file.message_type.add(name="Inner").field.add(name="sku", number=1, type=3, label=OPTIONAL)
    message = file.message_type.add(name="All")
    number = 0

    def add(name: str, kind: int, label: int = OPTIONAL, **more: Any) -> None:
        nonlocal number
        number += 1
        message.field.add(name=name, number=number, type=kind, label=label, **more)

    oneofs: list[str] = []
    for name, (kind, _, _) in SCALARS.items():
        more: dict[str, Any] = {"type_name": ".all.Number"} if name == "enum" else {}
        add(name, kind, **more)
        add(f"{name}s", kind, REPEATED, **more)
        if syntax == "proto3":
            add(f"maybe_{name}", kind, proto3_optional=True, oneof_index=len(oneofs), **more)
            oneofs.append(f"_maybe_{name}")
    for oneof in oneofs:
        message.oneof_decl.add(name=oneof)
    add("inner", 11, type_name=".all.Inner")
    add("inners", 11, REPEATED, type_name=".all.Inner")
    entry = message.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=OPTIONAL)
    entry.field.add(name="value", number=2, type=11, label=OPTIONAL, type_name=".all.Inner")
    add("by_name", 11, REPEATED, type_name=".all.All.ByNameEntry")
    for name in ("Timestamp", "Duration", "Int64Value", "Struct"):
        add(name.lower(), 11, type_name=f".google.protobuf.{name}")
    known = [
        module.DESCRIPTOR for module in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2)
    ]
    file.dependency.extend(row.name for row in known)
    files = descriptor_pb2.FileDescriptorSet()
    for row in known:
        row.CopyToProto(files.file.add())
    files.file.add().CopyFrom(file)
    return files


def schema(syntax: str = "proto3") -> ProtobufSchema:
    return ProtobufSchema(descriptors(syntax).SerializeToString(), "all.All")


def read(
    columns: Any, records: list[bytes], syntax: str = "proto3"
) -> tuple[list[Any], list[str | None]]:
    broken = BrokenRows(len(records))
    found = ProtobufReader(schema(syntax), columns).read(records, np.arange(len(records)), broken)
    found.validate(full=True)
    assert found.type == columns
    return found.to_pylist(), broken.reasons().to_pylist()


def message(**fields: Any) -> bytes:
    data: bytes = schema().message(**fields).SerializeToString()
    return data


ROUND_TRIP = pa.struct(
    [
        *((name, column) for name, (_, column, _) in SCALARS.items()),
        *((f"{name}s", pa.list_(column)) for name, (_, column, _) in SCALARS.items()),
        *((f"maybe_{name}", column) for name, (_, column, _) in SCALARS.items()),
        ("inner", INNER),
        ("inners", pa.list_(INNER)),
        ("by_name", pa.map_(pa.string(), INNER)),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("int64value", pa.int64()),
    ]
)
INNERS = st.fixed_dictionaries({"sku": st.integers(-(2**63), 2**63 - 1)})
ROWS = st.fixed_dictionaries(
    {
        **{name: values for name, (_, _, values) in SCALARS.items()},
        **{f"{name}s": st.lists(values, max_size=3) for name, (_, _, values) in SCALARS.items()},
        **{f"maybe_{name}": st.none() | values for name, (_, _, values) in SCALARS.items()},
        "inner": st.none() | INNERS,
        "inners": st.lists(INNERS, max_size=3),
        "by_name": st.dictionaries(st.text(max_size=2), INNERS, max_size=3).map(
            lambda row: sorted(row.items())
        ),
        "timestamp": st.none()
        | st.datetimes(datetime.datetime(1, 1, 2), timezones=st.just(datetime.UTC)),
        "int64value": st.none() | st.integers(-(2**63), 2**63 - 1),
    }
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ROWS, max_size=3))
def test_any_messages_go_there_and_back(rows: list[dict[str, Any]]) -> None:
    array = pa.array(rows, ROUND_TRIP)
    records = ProtobufWriter(schema(), ROUND_TRIP).write(array).to_pylist()
    found, reasons = read(ROUND_TRIP, records)
    assert reasons == [None] * len(rows)
    for row in found:
        row["by_name"].sort()
    assert found == rows


def test_proto3_zeros_are_zeros_and_what_has_presence_is_null() -> None:
    found, reasons = read(ROUND_TRIP, [b""])
    assert reasons == [None]
    row = found[0]
    assert [row[name] for name in ("int64", "string", "bool", "bytes", "enum")] == [
        0,
        "",
        False,
        b"",
        "ZERO",
    ]
    assert row["int64s"] == row["inners"] == row["by_name"] == []
    assert row["maybe_int64"] is row["inner"] is row["timestamp"] is row["int64value"] is None


def test_proto2_fields_that_are_not_set_are_null() -> None:
    columns = pa.struct([("int64", pa.int64()), ("string", pa.string())])
    assert read(columns, [b""], "proto2") == ([{"int64": None, "string": None}], [None])


def test_known_types_have_their_texts() -> None:
    names = ("duration", "struct", "timestamp", "inner", "inners", "by_name", "int64s")
    columns = pa.struct([*((name, pa.string()) for name in names), ("gone", pa.int8())])
    some = struct_pb2.Struct()
    some.update({"a": [1, None]})
    record = message(
        duration={"seconds": 1, "nanos": 500_000_000},
        struct=some,
        timestamp={"seconds": 1},
        inner={"sku": 7},
        inners=[{}, {"sku": 8}],
        by_name={"ä": {"sku": 9}},
        int64s=[1],
    )
    items = pa.struct([("inners", pa.list_(pa.string()))])
    assert read(items, [record])[0] == [{"inners": ["{}", '{"sku":"8"}']}]
    full = {
        "duration": "1.500s",
        "struct": '{"a":[1.0,null]}',
        "timestamp": "1970-01-01T00:00:01Z",
        "inner": '{"sku":"7"}',
        "inners": '[{},{"sku":"8"}]',
        "by_name": '{"ä":{"sku":"9"}}',
        "int64s": '["1"]',
        "gone": None,
    }
    assert read(columns, [record, b""]) == ([full, dict.fromkeys(full)], [None, None])


def test_enums_are_names_or_numbers() -> None:
    names, numbers = pa.struct([("enum", pa.string())]), pa.struct([("enum", pa.int32())])
    records = [message(enum=1), message(enum=7)]
    assert read(names, records)[0] == [{"enum": "ONE"}, {"enum": "7"}]
    assert read(numbers, records)[0] == [{"enum": 1}, {"enum": 7}]


def test_broken_bytes_and_values_that_do_not_fit_break_their_rows() -> None:
    columns = pa.struct([("uint64", pa.int64()), ("int64s", pa.list_(pa.int8()))])
    records = [
        message(uint64=5, int64s=[1]),
        message(uint64=2**64 - 1),
        b"\xff",
        message(int64s=[1, 300]),
        message(uint64=6),
    ]
    found, reasons = read(columns, records)
    assert [found[0], found[4]] == [
        {"uint64": 5, "int64s": [1]},
        {"uint64": 6, "int64s": []},
    ]
    assert [reasons[0], reasons[4]] == [None, None]
    assert reasons[1] == "field uint64: 18446744073709551615 is no bigint"
    assert (reasons[2] or "").startswith("is no protobuf record of all.All: ")
    assert reasons[3] == "field int64s: 300 is no tinyint"


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("gone", pa.int64()),
        ("string", pa.int64()),
        ("int64s", pa.int64()),
        ("int64", pa.list_(pa.int64())),
        ("by_name", pa.list_(INNER)),
        ("inner", pa.string()),
        ("timestamp", pa.string()),
    ],
)
def test_columns_that_are_no_field_are_refused_in_writing(name: str, column: Any) -> None:
    with pytest.raises(SchemaError, match=name):
        ProtobufWriter(schema(), pa.struct([(name, column)]))


def test_values_that_no_message_holds_are_told_in_writing() -> None:
    for name, column, value in (
        ("int32", pa.int64(), 2**40),
        ("enum", pa.string(), "TWO"),
        ("inners", pa.list_(INNER), [None]),
    ):
        columns = pa.struct([(name, column)])
        with pytest.raises(EncodeError):
            ProtobufWriter(schema(), columns).write(pa.array([{name: value}], columns))


def test_descriptors_without_their_imports_are_told_with_the_option() -> None:
    files = descriptors()
    del files.file[:-1]
    with pytest.raises(SchemaError, match=r"--include_imports"):
        ProtobufSchema(files.SerializeToString(), "all.All")
    with pytest.raises(SchemaError, match=r"is no output of protoc"):
        ProtobufSchema(b"\xff\xff", "all.All")


TEXT = """
syntax = "proto3"; // message Wrong { }
/* message Wrong { */
package shop.v1;
option java_package = "message Wrong {";
enum Kind { A = 0; }
message Order {
  map<string, int64> totals = 1;
  enum State { NEW = 0; }
  message Line { message Part {} oneof what { int32 a = 1; } }
  optional group Extra = 3 { optional int32 x = 1; }
}
service Shop { rpc Get(Order) returns (Order) { option (x) = { a: 1 }; } }
message Refund {}
"""


@pytest.mark.parametrize(
    ("indexes", "names"),
    [
        ((0,), {"shop.v1.Order"}),
        ((1,), {"shop.v1.Refund"}),
        ((0, 1), {"shop.v1.Order.Line", "shop.v1.Order.Extra"}),
        ((0, 1, 0), {"shop.v1.Order.Line.Part"}),
        ((0, 2), {"shop.v1.Order.Extra"}),
    ],
)
def test_indexes_name_a_message_in_the_text_of_a_schema(
    indexes: tuple[int, ...], names: set[str]
) -> None:
    assert message_names(TEXT, indexes) == names


@pytest.mark.parametrize("indexes", [(2,), (1, 0), (-1,)])
def test_indexes_without_a_message_are_told(indexes: tuple[int, ...]) -> None:
    with pytest.raises(SchemaError, match=r"has no message"):
        message_names(TEXT, indexes)


def test_proto2_strings_that_are_not_utf_8_break_their_rows() -> None:
    """Proto2 does not check them when it parses: alone, in lists and as keys of maps."""
    numbers = {row.name: row.number for row in schema("proto2").descriptor.fields}

    def text(name: str, value: bytes) -> bytes:
        key = numbers[name] << 3 | 2
        head = bytes([key]) if key < 0x80 else bytes([key & 0x7F | 0x80, key >> 7])
        return head + bytes([len(value)]) + value

    columns = pa.struct(
        [
            ("string", pa.string()),
            ("strings", pa.list_(pa.string())),
            ("by_name", pa.map_(pa.string(), INNER)),
        ]
    )
    bad = [text("string", b"\xff"), text("strings", b"\xff"), text("by_name", b"\x0a\x01\xff")]
    good = text("string", b"a") + text("strings", b"b")
    found, reasons = read(columns, [good, *bad, good], "proto2")
    assert [reasons[0], reasons[4]] == [None, None]
    assert all("UTF-8" in (reason or "") for reason in reasons[1:4])
    assert found[0] == found[4] == {"string": "a", "strings": ["b"], "by_name": []}
