"""The schema table's own text form."""

from __future__ import annotations

from tidelog.protocol.generation.schema import NO_VERSIONS, Layout, parse
from tidelog.protocol.generation.source import struct_class_names

TEXT = """\
api 7 Sample

request 0-4 flexible=3+
  id int32 0+ default=-1
  name string 1-3 null=2+ ignorable
  items []Item 0+
    key uuid 0+
    extra int64 3+ tag=1@3+ default=7

response 0-4 flexible=3+
  items []Item 0+
    key string 0+
"""


def test_a_row_says_name_type_and_versions() -> None:
    request = parse("sample", TEXT).messages[0]
    assert request.name == "SampleRequest"
    assert request.versions == range(5)
    assert request.flexible == range(3, 5)
    name = request.fields[1]
    assert (name.type, name.versions, name.nullable) == ("string", range(1, 4), range(2, 5))
    assert name.ignorable
    assert name.tagged == NO_VERSIONS


def test_indented_rows_are_the_fields_of_the_struct_above() -> None:
    items = parse("sample", TEXT).messages[0].fields[2]
    assert items.is_array
    assert items.is_struct
    extra = items.fields[1]
    assert (extra.name, extra.tag, extra.tagged, extra.default) == ("extra", 1, range(3, 5), "7")


def test_records_have_names_and_record_types() -> None:
    file = parse("stored", "records stored\n\nmessage Key 0 record_type=3\n  id int8 0+\n")
    assert file.api_key == -1
    assert (file.messages[0].name, file.messages[0].record_type) == ("Key", 3)


def test_versions_of_one_layout_have_one_signature() -> None:
    request = parse("sample", TEXT).messages[0]
    signatures = [Layout(version, version >= 3).signature(request.fields) for version in range(5)]
    assert len(set(signatures)) == 5
    same = parse("sample", "api 1 A\n\nrequest 0-2\n  id int8 0-1\n").messages[0]
    assert Layout(0, False).signature(same.fields) == Layout(1, False).signature(same.fields)
    assert Layout(1, False).signature(same.fields) != Layout(2, False).signature(same.fields)


def test_the_smallest_struct_is_counted_by_version() -> None:
    items = parse("sample", TEXT).messages[0].fields[2]
    assert Layout(0, False).smallest_element_bytes(items) == 16
    assert Layout(3, True).smallest_element_bytes(items) == 17


def test_a_struct_name_with_two_meanings_is_led_by_its_message() -> None:
    assert struct_class_names(parse("sample", TEXT)) == {
        ("SampleRequest", "Item"): "SampleRequestItem",
        ("SampleResponse", "Item"): "SampleResponseItem",
    }
