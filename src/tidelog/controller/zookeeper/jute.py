"""ZooKeeper's wire format (jute), as far as the store speaks it.

A frame is a 4-byte length and its body, big-endian throughout. A string or a buffer is a 4-byte
length and its bytes, and -1 for null; a vector is a 4-byte count and its elements.

    to the server     first ConnectRequest, then   xid int, type int, request
    from the server   first ConnectResponse, then  xid int, zxid long, err int, answer if err is 0

Answers come in the order of the requests. Three xids are not a request's number: -1 is a watch
event, -2 a ping and its answer, -4 authentication, which is not spoken here.

Every write is a multi, also one of a single operation: it has one answer, one zxid and an index for
its error. A node without data holds null and not an empty string, as Kafka makes it: Kafka's
brokers tell `/latest_producer_id_block` without a block by that. Access is open to all.

Bytes from a peer are not trusted: a length or a count beyond the frame is Malformed. What only the
server of `tidelog zookeeper` speaks is in `tidelog/zookeeper/wire.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from tidelog.controller.access_lists import OPEN, NoAuth
from tidelog.controller.metadata_store import (
    BadArguments,
    BadVersion,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    Stat,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    require_valid_path,
)

REQUEST_BYTES_MAX: Final = 0xFFFFF  # jute.maxbuffer, unless the servers have another
# Not jute.maxbuffer: a server lists the children of a node in one answer, however many they are.
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
HANDSHAKE_BYTES_MAX: Final = 1024
SET_WATCHES_BYTES_MAX: Final = 128 * 1024  # of paths in one request
OPERATION_BYTES: Final = 64  # of an operation besides its path and data, at most
PASSWORD_BYTES: Final = 16

WATCH_EVENT_XID: Final = -1
PING_XID: Final = -2
AUTH_XID: Final = -4

_PING_TYPE: Final = 11
_CHECK_TYPE: Final = 13
ERROR_TYPE: Final = -1  # of a result in the answer to a multi

EPHEMERAL: Final = 1
SEQUENCE: Final = 2

INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_BOOL: Final = struct.Struct(">?")
_FRAME_HEADER: Final = struct.Struct(">iii")  # length, xid, type
ANSWER_HEADER: Final = struct.Struct(">iqi")  # xid, zxid, err
CONNECT: Final = struct.Struct(">iqiq")  # protocol version, zxid seen, timeout in ms, session id
CONNECTED: Final = struct.Struct(">iiq")  # protocol version, timeout in ms, session id
MULTI_HEADER: Final = struct.Struct(">i?i")  # type, whether it is the last, err
# czxid mzxid ctime mtime version cversion aversion ephemeralOwner dataLength numChildren pzxid
STAT: Final = struct.Struct(">qqqqiiiqiiq")
_NULL: Final = INT.pack(-1)


class Code(IntEnum):
    """ZooKeeper's error codes, those that mean something here."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NO_WATCHER = -121
    THROTTLED_OP = -127


# The connection is gone, or the session is served elsewhere by now: to be tried again.
LOST: Final = frozenset({Code.CONNECTION_LOSS, Code.SESSION_MOVED})

_ERRORS: Final[dict[int, type[StoreError]]] = {
    Code.NO_NODE: NoNode,
    Code.NODE_EXISTS: NodeExists,
    Code.BAD_VERSION: BadVersion,
    Code.NOT_EMPTY: NotEmpty,
    Code.NO_CHILDREN_FOR_EPHEMERALS: NoChildrenForEphemerals,
    Code.BAD_ARGUMENTS: BadArguments,
    Code.SESSION_EXPIRED: StoreClosed,
}


class ServerError(Exception):
    """What the server answered, as the cause of a StoreError."""


class Malformed(Exception):
    """Bytes that no ZooKeeper sends."""


def code_of(error: StoreError) -> Code:
    """What a server answers for it; the write of one that is not in the table has not happened."""
    if isinstance(error, NoAuth):
        return Code.NO_AUTH
    return next((Code(c) for c, kind in _ERRORS.items() if type(error) is kind), Code.SYSTEM_ERROR)


def store_error(code: int, path: str, index: int | None = None) -> StoreError:
    made = _ERRORS.get(code, StoreUnavailable)(path, index)
    made.__cause__ = ServerError(f"ZooKeeper's error {code}")
    return made


class Reader:
    """Takes the fields of one frame, from the front."""

    __slots__ = ("_frame", "_position")

    def __init__(self, frame: bytes, position: int = 0) -> None:
        self._frame = frame
        self._position = position

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        start = self._position
        self._position += layout.size
        if self._position > len(self._frame):
            raise Malformed("the frame ends early")
        return layout.unpack_from(self._frame, start)

    def integer(self) -> int:
        value: int = self.fields(INT)[0]
        return value

    def long(self) -> int:
        value: int = self.fields(_LONG)[0]
        return value

    def boolean(self) -> bool:
        value: bool = self.fields(_BOOL)[0]
        return value

    @property
    def size(self) -> int:
        """Of the frame."""
        return len(self._frame)

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._frame)

    def buffer(self) -> bytes | None:
        size = self.integer()
        if size == -1:
            return None
        start = self._position
        if not 0 <= size <= len(self._frame) - start:
            raise Malformed(f"{size} bytes where {len(self._frame) - start} are left")
        self._position = start + size
        return self._frame[start : self._position]

    def text(self) -> str:
        try:
            return (self.buffer() or b"").decode()
        except UnicodeDecodeError as error:
            raise Malformed("a string is not UTF-8") from error

    def texts(self) -> list[str]:
        return list(self.each_text())

    def each_text(self) -> Iterator[str]:
        count = self.integer()
        if not -1 <= count <= (len(self._frame) - self._position) // INT.size:
            raise Malformed(f"a list of {count}")
        for _ in range(count):
            yield self.text()

    def stat(self) -> Stat:
        czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, length, children, pzxid = (
            self.fields(STAT)
        )
        return Stat(
            *(czxid, mzxid, pzxid, ctime, mtime),
            *(version, cversion, owner, length, children, aversion),
        )


def encode_buffer(data: bytes | None) -> bytes:
    return _NULL if data is None else INT.pack(len(data)) + data


def encode_text(text: str) -> bytes:
    return encode_buffer(text.encode())


def encode_texts(texts: Sequence[str]) -> bytes:
    return INT.pack(len(texts)) + b"".join(map(encode_text, texts))


def encode_stat(stat: Stat) -> bytes:
    czxid, mzxid, pzxid, ctime, mtime, version, cversion, owner, length, children, aversion = stat
    return STAT.pack(
        czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, length, children, pzxid
    )


OPEN_TO_ALL: Final = OPEN.encoded


# Requests


class Request:
    """One that has neither fields nor an answer, unless a subclass says so."""

    type: int

    def encode(self) -> bytes:
        return b""

    def decode(self, reader: Reader) -> Any:
        return None


@dataclass(frozen=True, slots=True)
class Read(Request):
    """A request that may leave a watch."""

    path: str
    watch: bool = False

    def encode(self) -> bytes:
        return encode_text(self.path) + bytes([self.watch])


class Exists(Read):
    """Its answer is None for a node that is absent."""

    type = 3

    def decode(self, reader: Reader) -> Stat | None:
        return reader.stat()


class GetData(Read):
    type = 4

    def decode(self, reader: Reader) -> tuple[bytes, Stat]:
        return reader.buffer() or b"", reader.stat()


class GetChildren(Read):
    type = 8

    def decode(self, reader: Reader) -> list[str]:
        return sorted(reader.texts())


@dataclass(frozen=True, slots=True)
class Sync(Request):
    """Answered when this server has everything that its leader had by then."""

    type = 9
    path: str

    def encode(self) -> bytes:
        return encode_text(self.path)


@dataclass(frozen=True, slots=True)
class SetWatches(Request):
    """Watches of an earlier connection; those that missed something fire at once."""

    type = 101
    zxid_seen: int
    data: Sequence[str]
    exist: Sequence[str]
    child: Sequence[str]

    def encode(self) -> bytes:
        paths = encode_texts(self.data) + encode_texts(self.exist) + encode_texts(self.child)
        return struct.pack(">q", self.zxid_seen) + paths


class CloseSession(Request):
    type = -11


class Refused(NamedTuple):
    """An operation of a multi that did not happen."""

    code: int


Result = str | Stat | None | Refused  # of Create, of SetData, of the others


@dataclass(frozen=True, slots=True)
class Multi(Request):
    """Paths are the server's."""

    type = 14
    operations: Sequence[Operation]

    def encode(self) -> bytes:
        parts: list[bytes] = []
        for operation in self.operations:
            parts += (MULTI_HEADER.pack(_type_of(operation), False, -1), _body_of(operation))
        parts.append(MULTI_HEADER.pack(-1, True, -1))
        return b"".join(parts)

    def decode(self, reader: Reader) -> list[Result]:
        results = [_result(operation, reader) for operation in self.operations]
        if not reader.fields(MULTI_HEADER)[1]:
            raise Malformed("more results than operations")
        return results


def _type_of(operation: Operation) -> int:
    if isinstance(operation, Create):
        return 1
    if isinstance(operation, Delete):
        return 2
    return 5 if isinstance(operation, SetData) else _CHECK_TYPE


def _body_of(operation: Operation) -> bytes:
    path = encode_text(operation.path)
    if isinstance(operation, Create):
        flags = EPHEMERAL * operation.ephemeral + SEQUENCE * operation.sequence
        return path + encode_buffer(operation.data or None) + OPEN_TO_ALL + INT.pack(flags)
    if isinstance(operation, SetData):
        path += encode_buffer(operation.data or None)
    return path + INT.pack(operation.version)


def _result(operation: Operation, reader: Reader) -> Result:
    kind, is_last, _ = reader.fields(MULTI_HEADER)
    if kind == ERROR_TYPE and not is_last:
        return Refused(reader.integer())
    if kind != _type_of(operation) or is_last:
        raise Malformed(f"a result of type {kind} for {type(operation).__name__}")
    if isinstance(operation, Create):
        return reader.text()
    return reader.stat() if isinstance(operation, SetData) else None


def refusal(results: Sequence[Result]) -> tuple[int, int] | None:
    """Which operation of a multi was refused, and the code; None if all have happened.

    The operations around it are marked too: OK before it, RUNTIME_INCONSISTENCY behind it.
    """
    found = None
    for index, result in enumerate(results):
        if isinstance(result, Refused):
            found = index, result.code
            if result.code not in (Code.OK, Code.RUNTIME_INCONSISTENCY):
                break
    return found


def require_valid(operations: Sequence[Operation]) -> None:
    """What ZooKeeper would refuse later, not at all because of the chroot, or by hanging up."""
    size = sum(OPERATION_BYTES + _content_bytes(operation) for operation in operations)
    if size > REQUEST_BYTES_MAX:
        raise BadArguments(operations[0].path) from ValueError(
            f"{size} bytes in one request; ZooKeeper takes {REQUEST_BYTES_MAX}"
        )
    for index, operation in enumerate(operations):
        path = operation.path
        try:
            require_valid_path(
                path + "0" if isinstance(operation, Create) and operation.sequence else path
            )
            if path == "/" and isinstance(operation, Create) and not operation.sequence:
                raise NodeExists(path)
            if path == "/" and isinstance(operation, Delete):
                raise BadArguments(path)
        except StoreError as error:
            error.index = index
            raise


def _content_bytes(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return len(operation.path.encode()) + len(data)


# Frames


def request_frame(xid: int, request: Request) -> bytes:
    body = request.encode()
    return _FRAME_HEADER.pack(len(body) + 8, xid, request.type) + body


PING_FRAME: Final = _FRAME_HEADER.pack(8, PING_XID, _PING_TYPE)


def connect_frame(zxid_seen: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """Of a new session if its id is 0. The last byte: a read-only server will not do."""
    body = CONNECT.pack(0, zxid_seen, timeout_ms, session_id) + encode_buffer(password) + b"\0"
    return INT.pack(len(body)) + body


class Connected(NamedTuple):
    """The answer to `connect_frame`."""

    timeout_ms: int  # what the server grants; 0 if the session is over
    session_id: int
    password: bytes


def decode_connected(frame: bytes) -> Connected:
    reader = Reader(frame)
    _, timeout_ms, session_id = reader.fields(CONNECTED)
    return Connected(timeout_ms, session_id, reader.buffer() or b"")


class AnswerHeader(NamedTuple):
    xid: int
    zxid: int
    code: int


def decode_answer_header(frame: bytes) -> tuple[AnswerHeader, Reader]:
    reader = Reader(frame)
    return AnswerHeader(*reader.fields(ANSWER_HEADER)), reader


def decode_event(reader: Reader) -> tuple[EventType | None, str]:
    """The type is None for what is not about a node: the connection tells of the session."""
    number, _, path = reader.integer(), reader.integer(), reader.text()
    try:
        return EventType(number), path
    except ValueError:
        return None, path


def take_frame(received: bytearray, bytes_max: int) -> bytes | None:
    """The first frame, if it is there as a whole; it is taken out."""
    if len(received) < INT.size:
        return None
    size: int = INT.unpack_from(received)[0]
    if not 0 <= size <= bytes_max:
        raise Malformed(f"a frame of {size} bytes")
    end = INT.size + size
    if len(received) < end:
        return None
    frame = bytes(received[INT.size : end])
    del received[:end]
    return frame
