"""What a server reads and writes of ZooKeeper's protocol (no I/O).

The records and the layout of frames are those of `controller/zookeeper/jute.py`, seen from the
other side.

Container nodes and nodes with a time to live are not there: UNIMPLEMENTED, as a ZooKeeper answers
where they are turned off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.controller.access_lists import (
    ENTRIES_MAX,
    AccessEntry,
    AccessList,
    Identity,
    InvalidAccessList,
    resolved,
)
from tidelog.controller.metadata_store import (
    NO_DATA,
    Check,
    Create,
    Delete,
    Operation,
    Outcome,
    SetData,
    Stat,
    StoreError,
)
from tidelog.controller.outstanding_changes import CreateGuarded, SetAccess
from tidelog.controller.zookeeper.jute import (
    ANSWER_HEADER,
    CONNECT,
    CONNECTED,
    EPHEMERAL,
    ERROR_TYPE,
    INT,
    MULTI_HEADER,
    PASSWORD_BYTES,
    SEQUENCE,
    WATCH_EVENT_XID,
    Code,
    Malformed,
    Reader,
    encode_buffer,
    encode_stat,
    encode_text,
)

CONNECTED_STATE: Final = 3  # of the session, in every watch event
EXTENDED_FLAGS: Final = frozenset({4, 5, 6})  # container; with a time to live, with a sequence too


class OpCode(IntEnum):
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11


CREATES: Final = frozenset(
    {OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL}
)


class Refusal(StoreError):
    """A request that gets no answer but this code."""

    def __init__(self, code: Code) -> None:
        super().__init__("")
        self.code = code


# The handshake


class ConnectRequest(NamedTuple):
    zxid_seen: int
    timeout_ms: int
    session_id: int  # 0 for a new session
    password: bytes
    knows_read_only: bool  # clients before 3.4 neither say nor expect it


def decode_connect(frame: bytes) -> ConnectRequest:
    reader = Reader(frame)
    _, zxid_seen, timeout_ms, session_id = reader.fields(CONNECT)
    password = reader.buffer() or b""
    knows_read_only = not reader.is_at_end
    if knows_read_only:
        reader.boolean()
    return ConnectRequest(zxid_seen, timeout_ms, session_id, password, knows_read_only)


def connected_frame(
    timeout_ms: int, session_id: int, password: bytes, knows_read_only: bool
) -> bytes:
    body = CONNECTED.pack(0, timeout_ms, session_id) + encode_buffer(password)
    if knows_read_only:
        body += b"\0"  # this server is not read-only
    return INT.pack(len(body)) + body


def session_over_frame(knows_read_only: bool) -> bytes:
    return connected_frame(0, 0, bytes(PASSWORD_BYTES), knows_read_only)


# Frames


def answer_frame(xid: int, zxid: int, code: int, body: bytes = b"") -> bytes:
    header = ANSWER_HEADER.pack(xid, zxid, code)
    return INT.pack(len(header) + len(body)) + header + body


def event_frame(type: int, path: str) -> bytes:
    body = INT.pack(type) + INT.pack(CONNECTED_STATE) + encode_text(path)
    return answer_frame(WATCH_EVENT_XID, -1, Code.OK, body)


def encode_names(names: Iterable[str]) -> bytes:
    """A vector of strings. For any thread."""
    encoded = [name.encode() for name in names]
    parts = [INT.pack(len(encoded))]
    for name in encoded:
        parts += (INT.pack(len(name)), name)
    return b"".join(parts)


def encode_data(data: bytes) -> bytes:
    return encode_buffer(None if data is NO_DATA else data)


# Writes


def decode_data(reader: Reader) -> bytes:
    data = reader.buffer()
    return NO_DATA if data is None else data


def decode_access_list(reader: Reader) -> list[AccessEntry]:
    count = reader.integer()
    if count > ENTRIES_MAX:
        raise Malformed(f"an access list of {count}")
    return [AccessEntry(reader.integer(), reader.text(), reader.text()) for _ in range(count)]


def kept_access(entries: list[AccessEntry], identities: Collection[Identity]) -> AccessList | None:
    try:
        return resolved(entries, identities)
    except InvalidAccessList as invalid:
        raise Refusal(Code.INVALID_ACL) from invalid


def decode_create(
    type: int, reader: Reader, identities: Collection[Identity]
) -> Create | CreateGuarded:
    path, data = reader.text(), decode_data(reader)
    entries, flags = decode_access_list(reader), reader.integer()
    if type == OpCode.CREATE_TTL:
        reader.long()
    if flags in EXTENDED_FLAGS or type in (OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL):
        raise Refusal(Code.UNIMPLEMENTED)
    if not 0 <= flags <= EPHEMERAL + SEQUENCE:
        raise Refusal(Code.BAD_ARGUMENTS)
    access = kept_access(entries, identities)
    create = Create(path, data, bool(flags & EPHEMERAL), bool(flags & SEQUENCE))
    return create if access is None else CreateGuarded(create, access)


Write = Operation | CreateGuarded | SetAccess


def decode_operation(type: int, reader: Reader, identities: Collection[Identity]) -> Write:
    """The identities are those of whoever asks."""
    if type in CREATES:
        return decode_create(type, reader, identities)
    path = reader.text()
    if type == OpCode.SET_ACL:
        access = kept_access(decode_access_list(reader), identities)
        return SetAccess(path, access, reader.integer())
    if type == OpCode.DELETE:
        return Delete(path, reader.integer())
    if type == OpCode.SET_DATA:
        return SetData(path, decode_data(reader), reader.integer())
    if type == OpCode.CHECK:
        return Check(path, reader.integer())
    raise Malformed(f"an operation of type {type} in a multi")


def decode_multi(
    reader: Reader, identities: Collection[Identity]
) -> Iterator[tuple[int, Write | Refusal]]:
    """The type of each operation, and what it is or why no store need see it."""
    while True:
        type, is_last, _ = reader.fields(MULTI_HEADER)
        if is_last:
            return
        if type == OpCode.SET_ACL:
            raise Malformed("an access list in a multi")
        try:
            yield type, decode_operation(type, reader, identities)
        except Refusal as refusal:
            yield type, refusal


END_OF_RESULTS: Final = MULTI_HEADER.pack(ERROR_TYPE, True, -1)


def encode_refused_multi(count: int, index: int, code: int) -> bytes:
    """What ZooKeeper says of the operations around the one that was refused."""
    before, behind = map(encode_refused_result, (Code.OK, Code.RUNTIME_INCONSISTENCY))
    refused = before * index + encode_refused_result(code) + behind * (count - index - 1)
    return refused + END_OF_RESULTS


def encode_refused_result(code: int) -> bytes:
    return MULTI_HEADER.pack(ERROR_TYPE, False, code) + INT.pack(code)


def encode_result(type: int, body: bytes) -> bytes:
    """Of an operation that was done."""
    return MULTI_HEADER.pack(type, False, Code.OK) + body


def encode_outcome(type: int, operation: Write, outcome: Outcome, stat: Stat | None) -> bytes:
    """`stat` is the node's after the whole multi, which may have changed it further; None if it has
    deleted it again.
    """
    if isinstance(operation, CreateGuarded):
        operation = operation.create
    if isinstance(operation, Create):
        assert isinstance(outcome, str)
        path = encode_text(outcome)
        if type == OpCode.CREATE:
            return path
        found = stat or _GONE
        made = found._replace(
            mzxid=found.czxid,
            pzxid=found.czxid,
            mtime_ms=found.ctime_ms,
            version=0,
            cversion=0,
            data_length=len(operation.data),
            num_children=0,
        )
        return path + encode_stat(made)
    if isinstance(operation, SetData):
        assert isinstance(outcome, int)
        changed = (stat or _GONE)._replace(version=outcome, data_length=len(operation.data))
        return encode_stat(changed)
    if isinstance(operation, SetAccess):
        return encode_stat(stat or _GONE)
    return b""


_GONE: Final = Stat(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
