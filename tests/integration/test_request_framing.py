"""Frames, headers and versions on the wire: what is answered, what closes the connection, in which
order."""

from __future__ import annotations

import struct
import time

import pytest
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from tests.support.kio_samples import kio_samples
from tests.support.raw_batch import batch
from tests.support.raw_client import (
    ClosedByBroker,
    RawClient,
    api_versions,
    fetch_request,
    metadata,
    produce_request,
)
from tests.support.request_samples import sample_requests

API_VERSIONS, METADATA = 18, 3
UNSUPPORTED_VERSION = 35


def header(
    api_key: int, version: int, correlation_id: int = 7, client_id: bytes = b"\0\1x"
) -> bytes:
    return struct.pack(">hhi", api_key, version, correlation_id) + client_id


def metadata_v1_all_topics() -> bytes:
    return struct.pack(">i", -1)


@pytest.mark.parametrize("version", [5, 99, 32_767])
def test_api_versions_of_an_unknown_version_is_answered_as_v0_with_error_35(
    client: RawClient, version: int
) -> None:
    client.send_frame(header(API_VERSIONS, version) + b"\0\2x\2y\0")
    correlation_id, error_code, count = struct.unpack_from(">ihi", client.read_frame())
    assert (correlation_id, error_code) == (7, UNSUPPORTED_VERSION)
    assert count > 0
    assert api_versions(client), "the connection goes on"


def test_api_versions_answer_names_every_key_once_and_has_no_tagged_response_header(
    client: RawClient,
) -> None:
    request = ApiVersionsRequest(
        version=3, client_software_name="raw", client_software_version="1.0"
    )
    response = client.call(request)
    keys = [row.api_key for row in response.api_keys]
    assert response.error_code == 0
    assert len(keys) == len(set(keys))
    assert {0, 1, 2, 3, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 44, 60, 75} <= set(keys)


def test_api_versions_refuses_a_software_name_of_forbidden_characters(client: RawClient) -> None:
    request = ApiVersionsRequest(
        version=3, client_software_name="-bad name-", client_software_version="1.0"
    )
    client.send(request)
    assert struct.unpack_from(">h", client.read_frame(), 4)[0] == 42


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(header(999, 0), id="unknown api key"),
        pytest.param(header(-1, 0), id="negative api key"),
        pytest.param(header(METADATA, 99) + metadata_v1_all_topics(), id="version too new"),
        pytest.param(header(METADATA, -1) + metadata_v1_all_topics(), id="negative version"),
        pytest.param(header(METADATA, 1) + struct.pack(">i", 1), id="cut body"),
        pytest.param(header(METADATA, 1) + struct.pack(">ih", 1, -1), id="null topic name"),
        pytest.param(header(METADATA, 1) + struct.pack(">i", 2**31 - 1), id="count bomb"),
        pytest.param(b"\0\3\0", id="cut header"),
        pytest.param(b"", id="empty frame"),
    ],
)
def test_what_does_not_parse_closes_the_connection(client: RawClient, body: bytes) -> None:
    client.send_frame(body)
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("length", [-1, -(2**31), 104_857_601, 2**31 - 1])
def test_a_frame_length_out_of_bounds_closes_the_connection(client: RawClient, length: int) -> None:
    client.send_bytes(struct.pack(">i", length))
    assert client.is_closed_by_broker()


def test_bytes_after_the_body_are_ignored(client: RawClient) -> None:
    client.send_frame(header(METADATA, 1) + metadata_v1_all_topics() + b"trailing")
    assert struct.unpack_from(">i", client.read_frame())[0] == 7


@pytest.mark.parametrize("length", [-1, -2, -32_768])
def test_a_negative_client_id_length_is_a_null_client_id(client: RawClient, length: int) -> None:
    client.send_frame(
        header(METADATA, 1, client_id=struct.pack(">h", length)) + metadata_v1_all_topics()
    )
    assert struct.unpack_from(">i", client.read_frame())[0] == 7


@pytest.mark.parametrize(("api_key", "version"), [(METADATA, 1), (API_VERSIONS, 0)])
def test_a_client_id_need_not_be_utf8(client: RawClient, api_key: int, version: int) -> None:
    body = metadata_v1_all_topics() if api_key == METADATA else b""
    client.send_frame(header(api_key, version, client_id=b"\0\3\xff\xfe\0") + body)
    assert struct.unpack_from(">i", client.read_frame())[0] == 7


def test_unknown_tagged_fields_are_skipped_in_header_and_body(client: RawClient) -> None:
    unknown_tag = b"\1" + b"\x64" + b"\3" + b"abc"
    client.send_frame(header(METADATA, 9) + unknown_tag + b"\0" + b"\1\0\0" + unknown_tag)
    assert struct.unpack_from(">i", client.read_frame())[0] == 7


def test_a_frame_that_arrives_byte_by_byte_is_answered(client: RawClient) -> None:
    for byte in client.frame_of(MetadataRequest(version=1, topics=[])):
        client.send_bytes(bytes([byte]))
    assert struct.unpack_from(">i", client.read_frame())[0] == client.correlation_id


def test_pipelined_requests_are_answered_in_order(client: RawClient, topic: str) -> None:
    requests = []
    for i in range(60):
        match i % 3:
            case 0:
                requests.append(produce_request(topic, batch(b"%d" % i)))
            case 1:
                requests.append(MetadataRequest(version=5, topics=[]))
            case _:
                requests.append(fetch_request(topic, 0))
    client.send_bytes(b"".join(client.frame_of(request) for request in requests))
    answers = [client.receive(request) for request in requests]
    offsets = [a.responses[0].partition_responses[0].base_offset for a in answers[::3]]
    assert offsets == list(range(20))
    for i, answer in enumerate(answers[2::3]):
        assert answer.responses[0].partitions[0].high_watermark == i + 1


def test_a_waiting_fetch_holds_back_the_answers_behind_it(client: RawClient, topic: str) -> None:
    waiting = fetch_request(topic, 0, max_wait_ms=500, min_bytes=1)
    behind = MetadataRequest(version=5, topics=[])
    started = time.monotonic()
    client.send_bytes(client.frame_of(waiting) + client.frame_of(behind))
    assert client.receive(waiting).responses[0].partitions[0].error_code == 0
    assert time.monotonic() - started >= 0.45
    client.receive(behind)


def test_a_response_is_sent_only_when_asked_for(client: RawClient, topic: str) -> None:
    client.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.read_frame()


def test_every_advertised_version_is_answered_in_that_version(
    client: RawClient, topic: str
) -> None:
    advertised = api_versions(client)
    answered = 0
    for request_class, fields in sample_requests(topic):
        low, high = advertised.get(request_class.API_KEY, (0, -1))
        for version in range(low, min(high, request_class.max_version) + 1):
            request = request_class(version=version, **fields(version))
            client.send(request)
            frame = client.read_frame()
            response_class = ResponseClassRegistry.get_response_class(request.header)
            response = response_class.decode(frame, header=True)
            response.with_header(correlation_id=client.correlation_id)
            assert bytes(response.encode(header=True)) == frame, (request_class, version)
            answered += 1
    assert answered > 80


TELEMETRY_KEYS = (71, 72)


def test_apis_that_kafka_python_lacks_are_answered_as_kio_reads_them(client: RawClient) -> None:
    advertised = api_versions(client)
    for sample in kio_samples():
        if sample.api_key not in TELEMETRY_KEYS:  # not advertised where nobody takes it
            low, high = advertised[sample.api_key]
            assert low <= sample.version <= high
        client.send_frame(sample.frame(7, "kio"))
        frame = client.read_frame()
        assert frame[:4] == struct.pack(">i", 7)
        if sample.is_readable:
            sample.response(frame)


def test_metadata_v0_names_no_controller_and_v1_does(client: RawClient) -> None:
    client.send(MetadataRequest(version=0, topics=[]))
    old = client.read_frame()
    client.send(MetadataRequest(version=1, topics=[]))
    new = client.read_frame()
    brokers_v0, node_id, host_length = struct.unpack_from(">iih", old, 4)
    assert (brokers_v0, node_id) == (1, 0)
    end_of_brokers_v0 = 4 + 4 + 4 + 2 + host_length + 4
    rack_length = 2
    assert struct.unpack_from(">i", old, end_of_brokers_v0)[0] >= 0
    assert struct.unpack_from(">i", new, end_of_brokers_v0 + rack_length)[0] == 0
    assert metadata(client, None).controller_id == 0


def test_a_client_that_vanishes_mid_frame_disturbs_nobody(
    bootstrap: str, client: RawClient
) -> None:
    frame = client.frame_of(MetadataRequest(version=1, topics=[]))
    for cut in (1, 3, 4, 9, len(frame) - 1):
        with RawClient(bootstrap) as vanishing:
            vanishing.send_bytes(frame[:cut])
    client.send_bytes(frame)
    assert client.read_frame()


def test_a_broken_connection_leaves_the_others_open(bootstrap: str, client: RawClient) -> None:
    with RawClient(bootstrap) as bad:
        bad.send_frame(header(999, 0))
        with pytest.raises(ClosedByBroker):
            bad.read_frame()
    assert api_versions(client)
