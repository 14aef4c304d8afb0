"""Headers by hand and against kio."""

from __future__ import annotations

import io

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from tidelog.protocol import DecodeError, UnsupportedApi
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.header import (
    decode_request_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)


def test_v1_header_with_client_id() -> None:
    header = decode_request_header(memoryview(b"\x00\x00\x00\x03\x00\x00\x00\x07\x00\x02idbody"))
    assert (header.api_key, header.api_version, header.correlation_id) == (0, 3, 7)
    assert header.client_id == "id"
    assert header.body_position == 12


def test_v2_header_skips_its_tags() -> None:
    frame = b"\x00\x00\x00\x09\x00\x00\x00\x07\x00\x02id" + b"\x01\x05\x03abc" + b"body"
    header = decode_request_header(memoryview(frame))
    assert frame[header.body_position :] == b"body"


@pytest.mark.parametrize("length", [b"\xff\xff", b"\x80\x00", b"\xff\xfe"])
def test_any_negative_client_id_length_is_null(length: bytes) -> None:
    header = decode_request_header(memoryview(b"\x00\x00\x00\x09\x00\x00\x00\x07" + length + b"\0"))
    assert header.client_id is None
    assert header.body_position == 11


def test_controlled_shutdown_v0_has_no_client_id() -> None:
    frame = encode_request_header(ApiKey.CONTROLLED_SHUTDOWN, 0, 9, "ignored")
    assert frame == b"\x00\x07\x00\x00\x00\x00\x00\x09"
    for rest in (b"", b"\x00\x00\x00\x01"):
        header = decode_request_header(memoryview(frame + rest))
        assert (header.client_id, header.body_position) == (None, 8)


@pytest.mark.parametrize(("api_key", "version"), [(95, 0), (-1, 0), (3, 99), (18, 32767), (0, -1)])
def test_unknown_keys_and_versions_keep_what_was_said(api_key: int, version: int) -> None:
    frame = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    with pytest.raises(UnsupportedApi) as caught:
        decode_request_header(memoryview(frame + b"\x00\x00\x00\x2a\xff\xff"))
    assert caught.value.api_key == api_key
    assert caught.value.api_version == version
    assert caught.value.correlation_id == 42


@pytest.mark.parametrize("version", [3, 9])
def test_truncated_headers_are_refused(version: int) -> None:
    frame = encode_request_header(ApiKey.PRODUCE, version, 1, "client")
    for cut in range(len(frame)):
        with pytest.raises(DecodeError):
            decode_request_header(memoryview(frame[:cut]))


def test_client_id_need_not_be_utf8() -> None:
    header = decode_request_header(memoryview(b"\x00\x00\x00\x03\x00\x00\x00\x07\x00\x02\xc3\x28"))
    assert (header.client_id, header.body_position) == ("\N{REPLACEMENT CHARACTER}(", 12)


@pytest.mark.parametrize("client_id", [None, "", "client-\u00e9"])
@pytest.mark.parametrize("version", [8, 9])
def test_headers_are_as_kio_writes_them(version: int, client_id: str | None) -> None:
    header_class = KioHeaderV2 if version >= 9 else KioHeaderV1
    expected = io.BytesIO()
    theirs = header_class(
        request_api_key=i16(0),
        request_api_version=i16(version),
        correlation_id=i32(5),
        client_id=client_id,
    )
    entity_writer(header_class)(expected, theirs)
    ours = encode_request_header(ApiKey.PRODUCE, version, 5, client_id)
    assert bytes(ours) == expected.getvalue()
    decoded = decode_request_header(memoryview(ours))
    assert decoded.client_id == client_id
    assert decoded.body_position == len(ours)


def test_header_versions_are_those_of_kio() -> None:
    for api_key, name in api_key_map.items():
        for version in schema_name_map[name]:
            request, response = (
                load_request_schema(api_key, version),
                load_response_schema(api_key, version),
            )
            assert request_header_version(api_key, version) == request.__header_schema__.__version__
            assert (
                response_header_version(api_key, version) == response.__header_schema__.__version__
            )


def test_response_header_has_a_tag_buffer_in_flexible_versions() -> None:
    assert encode_response_header(258, ApiKey.PRODUCE, 8) == b"\x00\x00\x01\x02"
    assert encode_response_header(258, ApiKey.PRODUCE, 9) == b"\x00\x00\x01\x02\x00"


def test_response_header_of_api_versions_never_has_tags() -> None:
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0
    assert encode_response_header(1, ApiKey.API_VERSIONS, 4) == b"\x00\x00\x00\x01"
