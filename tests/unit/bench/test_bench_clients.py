"""`bench.measures.clients` and what it sends: the checks of a run, the bytes of its frames."""

from __future__ import annotations

import struct

import pytest

from bench import group_wire, wire
from bench.load import frames_in
from bench.measures import clients
from bench.table import Figure
from bench.wire import BadAnswer
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

HEADER_BYTES = 4 + 2 + 2 + 4 + 2 + len(wire.CLIENT_ID)  # of a request that is not flexible


def body(frame: bytes) -> memoryview:
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    return memoryview(frame)[HEADER_BYTES:]


def answer(encoded: bytearray) -> bytes:
    """With the correlation id in front, not flexible."""
    return struct.pack(">ii", len(encoded) + 4, 1) + encoded


def test_a_join_is_one_of_a_classic_consumer() -> None:
    request = JoinGroupRequest.decode(body(group_wire.join_request("g", "m", "t")), 0, 4)
    assert (request.group_id, request.member_id, request.protocol_type) == ("g", "m", "consumer")
    assert [protocol.name for protocol in request.protocols] == ["range"]


def test_a_join_answer_tells_the_leader_and_its_members() -> None:
    members = [JoinGroupResponseMember(member_id=name, metadata=b"x") for name in ("m", "n")]
    response = JoinGroupResponse(
        error_code=0,
        generation_id=7,
        protocol_name="range",
        leader="m",
        member_id="m",
        members=members,
    )
    found = group_wire.joined(answer(response.encode(4)))
    assert (found.error, found.generation_id, found.members) == (0, 7, ["m", "n"])
    assert found.leads


def test_a_sync_carries_assignments_and_brings_one_back() -> None:
    assignment = group_wire.assignment_of("t", 3)
    frame = group_wire.sync_request("g", 7, "m", {"m": assignment})
    request = SyncGroupRequest.decode(body(frame), 0, 2)
    assert (request.group_id, request.generation_id, request.member_id) == ("g", 7, "m")
    assert [(row.member_id, row.assignment) for row in request.assignments] == [("m", assignment)]
    response = SyncGroupResponse(error_code=27, assignment=assignment)
    assert group_wire.synced(answer(response.encode(2))) == (27, assignment)


def test_a_heartbeat_names_its_member_and_its_answer_an_error() -> None:
    request = HeartbeatRequest.decode(body(group_wire.heartbeat_request("g", 7, "m")), 0, 2)
    assert (request.group_id, request.generation_id, request.member_id) == ("g", 7, "m")
    response = HeartbeatResponse(error_code=25)
    assert group_wire.heartbeat_error(answer(response.encode(2))) == 25


def test_the_offset_of_a_fetch_is_found_in_its_frame() -> None:
    frame = bytearray(wire.fetch_request("t", 5, 11, max_bytes=100))
    position = clients.offset_position("t", 5)
    assert struct.unpack_from(">q", frame, position) == (11,)
    struct.pack_into(">q", frame, position, 12)
    request = FetchRequest.decode(memoryview(frame), HEADER_BYTES + 1, 12)
    assert request.topics[0].partitions[0].fetch_offset == 12


def test_answers_are_told_apart_by_their_lengths() -> None:
    frames = [answer(bytearray(b"one")), answer(bytearray(b"")), answer(bytearray(b"three"))]
    assert list(frames_in(b"".join(frames))) == frames


@pytest.mark.parametrize("moved", [19, 21])
def test_offsets_that_moved_by_another_number_fail_the_run(moved: int) -> None:
    clients.check_moved({0: 5, 1: 9}, {0: 15, 1: 19}, 20)
    with pytest.raises(BadAnswer, match=f"moved by {moved}, sent 20"):
        clients.check_moved({0: 5}, {0: 5 + moved}, 20)


@pytest.mark.parametrize("errors", [[], [0, 25, 0]])
def test_a_refused_answer_fails_the_run_and_so_does_none_at_all(errors: list[int]) -> None:
    clients.check_errors([0, 0])
    with pytest.raises(BadAnswer, match="refused"):
        clients.check_errors(errors)


def test_a_consumer_that_misses_the_last_record_fails_the_run() -> None:
    batch = struct.pack(">q", 41) + wire.record_batch(100, 1).data[8:]
    partition = PartitionData(high_watermark=42, records=batch)
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[partition])]
    ).encode(12)
    frame = answer(bytearray(b"\0") + response)
    clients.check_delivered(frame, "t", 42)
    with pytest.raises(BadAnswer, match="stands at offset 41, the log ends at 43"):
        clients.check_delivered(frame, "t", 43)


def test_the_note_of_a_round_stands_beside_its_peer() -> None:
    load = clients.Load(100, 0, 2.0, 0.0005, 30.0, 90.0, 0.004, [])
    rate, cpu = clients.samples(load, 100)
    assert (rate.value, round(cpu.value, 6)) == (50.0, 40.0)
    row = Figure("Produce", "requests/s", {"tidelog": rate}, higher_is_better=True)
    assert row.notes("kafka") == "tidelog: p50 30 us, p99 90 us, client 5.0 us"
