"""Avro and Protobuf records; each kind is skipped where its library is not installed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from tidelog.pipeline.declaration import AVRO, PROTOBUF, Format
from tidelog.pipeline.record_codecs import RecordCodec, missing_codec

AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def avro_codec(folder: Path, *, is_confluent: bool = False) -> RecordCodec:
    pytest.importorskip("fastavro")
    file = folder / "order.avsc"
    file.write_text(json.dumps(AVRO_SCHEMA))
    return RecordCodec(Format(AVRO, schema_file=file, is_confluent=is_confluent))


def protobuf_codec(folder: Path, *, is_confluent: bool = False) -> RecordCodec:
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=9, label=1)
    message.field.add(name="cents", number=2, type=3, label=1)
    path = folder / "shop.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    format = Format(PROTOBUF, schema_file=path, message="shop.Order", is_confluent=is_confluent)
    return RecordCodec(format)


def encoded_avro(identifier: str, cents: int, at_ms: int) -> bytes:
    def zigzag(number: int) -> bytes:
        number = (number << 1) ^ (number >> 63)
        out = bytearray()
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        return bytes((*out, number))

    text = identifier.encode()
    return zigzag(len(text)) + text + zigzag(cents) + zigzag(at_ms)


def test_avro_becomes_json_text(tmp_path: Path) -> None:
    text, problem = avro_codec(tmp_path).decode(encoded_avro("o1", 450, 1_000))
    assert problem is None
    assert json.loads(text or "") == {
        "id": "o1",
        "cents": 450,
        "at": "1970-01-01T00:00:01+00:00",
    }


def test_bytes_that_are_no_avro_record_have_a_reason(tmp_path: Path) -> None:
    codec = avro_codec(tmp_path)
    for broken in (b"", b"\x08o1", encoded_avro("o1", 1, 1) + b"x", b"\xff" * 30):
        text, problem = codec.decode(broken)
        assert text is None
        assert (problem or "").startswith("is no avro record")
    assert codec.decode(None) == (None, "the record has no value")


def test_confluents_framing_is_cut_off(tmp_path: Path) -> None:
    codec = avro_codec(tmp_path, is_confluent=True)
    text, _ = codec.decode(b"\0\0\0\0\7" + encoded_avro("o1", 450, 1_000))
    assert json.loads(text or "")["id"] == "o1"
    assert codec.decode(encoded_avro("o1", 450, 1_000))[0] is None


def test_protobuf_goes_there_and_back(tmp_path: Path) -> None:
    codec = protobuf_codec(tmp_path)
    record = codec.encode('{"id": "o1", "cents": 450}')
    assert record == b"\x0a\x02o1\x10\xc2\x03"
    assert json.loads(codec.decode(record)[0] or "") == {"id": "o1", "cents": 450}
    assert (codec.decode(b"\x0a\xff")[1] or "").startswith("is no protobuf record of shop.Order")
    framed = protobuf_codec(tmp_path, is_confluent=True)
    assert json.loads(framed.decode(b"\0\0\0\0\7\0" + record)[0] or "")["id"] == "o1"


def test_a_codec_travels_to_workers_with_its_schema(tmp_path: Path) -> None:
    codec = avro_codec(tmp_path)
    codec.decode(b"")
    (tmp_path / "order.avsc").unlink()
    copy = pickle.loads(pickle.dumps(codec))
    assert copy.decode(encoded_avro("o1", 450, 1_000))[1] is None


def test_what_is_not_installed_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.pipeline.record_codecs.find_spec", lambda name: None)
    assert missing_codec(AVRO) == "format avro needs an extra: pip install 'tidelog[avro]'"
    assert missing_codec(PROTOBUF) == (
        "format protobuf needs an extra: pip install 'tidelog[protobuf]'"
    )
