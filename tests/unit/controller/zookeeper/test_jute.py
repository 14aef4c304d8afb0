"""The wire format, beside kazoo's: an independent reader and writer of the same bytes."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from tidelog.controller.metadata_store import (
    BadArguments,
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Stat,
    StoreClosed,
    StoreUnavailable,
)
from tidelog.controller.zookeeper import jute
from tidelog.controller.zookeeper.jute import (
    Code,
    Exists,
    GetChildren,
    GetData,
    Malformed,
    Multi,
    Reader,
    Refused,
    Request,
    Sync,
    encode_stat,
)

PATH = "/brokers/topics/ä"
STAT = struct.pack(">qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
OPERATIONS: list[Operation] = [
    Create(PATH, b"data", ephemeral=True),
    Create("/q/n", sequence=True),
    SetData(PATH, b"more", 3),
    SetData(PATH, b""),
    Delete(PATH, 4),
    Check(PATH, 5),
]


def kazoo_operations() -> list[Any]:
    return [
        serialization.Create(PATH, b"data", OPEN_ACL_UNSAFE, 1),
        serialization.Create("/q/n", None, OPEN_ACL_UNSAFE, 2),
        serialization.SetData(PATH, b"more", 3),
        serialization.SetData(PATH, None, -1),
        serialization.Delete(PATH, 4),
        serialization.CheckVersion(PATH, 5),
    ]


def watcher(event: object) -> None:
    pass


@pytest.mark.parametrize(
    ("request_", "kazoos"),
    [
        (Exists(PATH), serialization.Exists(PATH, None)),
        (GetData(PATH, watch=True), serialization.GetData(PATH, watcher)),
        (GetChildren(PATH, watch=True), serialization.GetChildren(PATH, watcher)),
        (Sync("/"), serialization.Sync("/")),
        (Multi(OPERATIONS), serialization.Transaction(kazoo_operations())),
        (Multi([]), serialization.Transaction([])),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_request_is_the_bytes_that_kazoo_sends(request_: Request, kazoos: Any) -> None:
    sent = jute.request_frame(77, request_)
    body = struct.pack(">ii", 77, kazoos.type) + kazoos.serialize()
    assert sent == struct.pack(">i", len(body)) + body


def test_so_are_ping_close_and_greeting() -> None:
    assert jute.PING_FRAME[4:] == struct.pack(">ii", -2, serialization.PingInstance.type)
    close = jute.request_frame(1, jute.CloseSession())
    assert close[4:] == struct.pack(">ii", 1, serialization.CloseInstance.type)
    password = bytes(range(16))
    connect = serialization.Connect(0, 5, 6000, 7, password, False)
    assert jute.connect_frame(5, 6000, 7, password)[4:] == connect.serialize()


def test_a_stat_has_its_fields_in_their_places() -> None:
    stat = Reader(STAT).stat()
    kazoos = ZnodeStat._make(struct.unpack(">qqqqiiiqiiq", STAT))
    assert stat == Stat(
        czxid=kazoos.czxid,
        mzxid=kazoos.mzxid,
        pzxid=kazoos.pzxid,
        ctime_ms=kazoos.ctime,
        mtime_ms=kazoos.mtime,
        version=kazoos.version,
        cversion=kazoos.cversion,
        ephemeral_owner=kazoos.ephemeralOwner,
        data_length=kazoos.dataLength,
        num_children=kazoos.numChildren,
        aversion=kazoos.aversion,
    )
    assert encode_stat(stat) == STAT


def test_a_node_without_data_has_null_and_reads_as_empty() -> None:
    assert b"/a" + struct.pack(">i", -1) in jute.request_frame(1, Multi([Create("/a")]))
    assert GetData("/a").decode(Reader(struct.pack(">i", -1) + STAT))[0] == b""


def result(kind: int, body: bytes = b"", *, last: bool = False) -> bytes:
    return struct.pack(">i?i", kind, last, -1) + body


LAST = result(-1, last=True)


def test_a_multi_that_happened_has_one_result_an_operation() -> None:
    path = struct.pack(">i", 2) + b"/a"
    answer = result(1, path) + result(5, STAT) + result(2) + result(13) + LAST
    multi = Multi([Create("/a"), SetData("/a", b""), Delete("/a"), Check("/a")])
    results = multi.decode(Reader(answer))
    assert results == ["/a", Reader(STAT).stat(), None, None]
    assert jute.refusal(results) is None


@pytest.mark.parametrize(
    ("codes", "found"),
    [
        ([0, Code.BAD_VERSION, Code.RUNTIME_INCONSISTENCY], (1, Code.BAD_VERSION)),
        ([Code.NO_NODE, Code.RUNTIME_INCONSISTENCY, Code.RUNTIME_INCONSISTENCY], (0, Code.NO_NODE)),
        ([0, 0, Code.RUNTIME_INCONSISTENCY], (2, Code.RUNTIME_INCONSISTENCY)),
    ],
)
def test_a_multi_that_was_refused_names_the_operation_at_fault(
    codes: list[int], found: tuple[int, int]
) -> None:
    answer = b"".join(result(-1, struct.pack(">i", code)) for code in codes) + LAST
    results = Multi([Delete("/a")] * 3).decode(Reader(answer))
    assert results == [Refused(code) for code in codes]
    assert jute.refusal(results) == found


@pytest.mark.parametrize(
    "answer",
    [
        LAST,
        result(2) + LAST,
        result(2) * 3 + LAST,
        result(2) * 2,
        result(2) + result(1, struct.pack(">i", 0)) + LAST,
        result(2) + result(99) + LAST,
    ],
    ids=["none", "too few", "too many", "no end", "of another kind", "unknown"],
)
def test_results_that_do_not_fit_the_operations_are_malformed(answer: bytes) -> None:
    with pytest.raises(Malformed):
        Multi([Delete("/a"), Delete("/b")]).decode(Reader(answer))


def test_whatever_the_bytes_decoding_ends_with_an_answer_or_malformed() -> None:
    chance = random.Random(11)
    requests: list[Request] = [
        Exists("/"),
        GetData("/"),
        GetChildren("/"),
        Multi(OPERATIONS),
    ]
    whole = {
        "Exists": STAT,
        "GetData": struct.pack(">i", 4) + b"data" + STAT,
        "GetChildren": struct.pack(">i", 1) + struct.pack(">i", 1) + b"x",
        "Multi": result(1, struct.pack(">i", 2) + b"/a") * 2
        + result(5, STAT) * 2
        + result(2)
        + result(13)
        + LAST,
    }
    ended = 0
    for _ in range(3000):
        request = chance.choice(requests)
        damaged = bytearray(whole[type(request).__name__])
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            request.decode(Reader(bytes(damaged[: chance.randint(0, len(damaged))])))
        except Malformed:
            ended += 1
    assert ended > 1000


def test_codes_are_the_stores_errors_and_others_make_it_unavailable() -> None:
    for code, error in (
        (Code.NO_NODE, NoNode),
        (Code.NODE_EXISTS, NodeExists),
        (Code.BAD_VERSION, BadVersion),
        (Code.SESSION_EXPIRED, StoreClosed),
        (-102, StoreUnavailable),
    ):
        made = jute.store_error(code, "/a", 3)
        assert type(made) is error
        assert (made.path, made.index) == ("/a", 3)
        assert str(code.real) in str(made.__cause__)


def test_frames_are_taken_whole_and_one_by_one() -> None:
    received = bytearray(b"\0\0\0\3abc\0\0\0\0\0\0\0\2x")
    assert jute.take_frame(received, 3) == b"abc"
    assert jute.take_frame(received, 3) == b""
    assert jute.take_frame(received, 3) is None
    assert received == b"\0\0\0\2x"
    with pytest.raises(Malformed):
        jute.take_frame(received, 1)


def test_a_request_is_never_larger_than_it_was_judged_to_be() -> None:
    operations: list[Operation] = [
        Create("/" + "x" * 50, b"y" * 100),
        SetData("/a", b"z"),
        Delete("/b"),
        Check("/"),
    ]
    for number in (1, 10, 100):
        many = operations * number
        judged = sum(
            jute.OPERATION_BYTES
            + len(each.path)
            + (len(each.data) if isinstance(each, Create | SetData) else 0)
            for each in many
        )
        assert len(jute.request_frame(1, Multi(many))) <= judged
    with pytest.raises(BadArguments):
        jute.require_valid([SetData("/a", bytes(jute.REQUEST_BYTES_MAX))])
