"""What each request of a session does and how it is answered, as ZooKeeper does it.

A write is answered when it is on disk. A read is answered from the tree at once, because whatever
the tree shows is on disk. `sync` waits for the writes under way, of all sessions. An unknown type
gets UNIMPLEMENTED, a body that cannot be read MARSHALLING_ERROR, and the connection stays.

Reads need the permission READ of the node, but for `getACL`, which is content with ADMIN, and for
requests about watches and `getEphemerals`, which need none. Writes: `outstanding_changes.py`.

A request of many parts is a generator, a step for each part. A large one is worked through in
slices of the loop, while the requests of other connections go on. The reads of a large multiRead
may so show what was written between them, but no half of a transaction.

Differs from ZooKeeper: no quotas, no reconfiguration, no SASL, no superuser.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.controller.access_lists import (
    OPEN,
    NoAuth,
    Permission,
    digest_identity,
    permits,
    without_digests,
)
from tidelog.controller.metadata_store import (
    Create,
    Delete,
    EventType,
    Outcome,
    StoreError,
)
from tidelog.controller.node_database import SMALL_TRANSACTION, Result
from tidelog.controller.node_tree import Node
from tidelog.controller.outstanding_changes import CreateGuarded, Refused
from tidelog.controller.zookeeper.jute import (
    INT,
    MULTI_HEADER,
    Code,
    Malformed,
    Reader,
    code_of,
    encode_stat,
    encode_text,
)
from tidelog.zookeeper.watch_manager import WatchKind
from tidelog.zookeeper.wire import (
    END_OF_RESULTS,
    OpCode,
    Refusal,
    Write,
    decode_multi,
    decode_operation,
    encode_data,
    encode_names,
    encode_outcome,
    encode_refused_multi,
    encode_refused_result,
    encode_result,
)

if TYPE_CHECKING:
    from tidelog.zookeeper.server import EmbeddedZooKeeper
    from tidelog.zookeeper.server_connection import ServerConnection

logger = logging.getLogger(__name__)

CHILDREN_ENCODED_AT_ONCE: Final = 2000
FRAME_AT_ONCE: Final = 8 * 1024  # bytes; a larger one that has many parts is a large one
MULTI_READ_BYTES_MAX: Final = 32 * 1024 * 1024  # of an answer
WATCHES_MAX: Final = 100_000  # of a connection
RESERVED: Final = ("/zookeeper", "/zookeeper/config", "/zookeeper/quota")
# What ZooKeeper keeps out of paths besides the null character.
UNPRINTABLE: Final = re.compile("[\x01-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")

IDENTITIES_MAX: Final = 100  # of a connection
# By ZooKeeper's numbers: children, data, any; persistent, recursive.
WATCHER_TYPES: Final = {
    1: (WatchKind.CHILD,),
    2: (WatchKind.DATA,),
    3: tuple(WatchKind),
    4: (WatchKind.PERSISTENT,),
    5: (WatchKind.RECURSIVE,),
}

Unmet = StoreError | Malformed  # why a request is refused
REFUSALS: Final = (StoreError, Malformed)
Submitted = Write | Refused
Answer = tuple[int, bytes]  # a code and a body
Outcomes = list[Outcome]
Handler = Callable[["ServerConnection", int, Reader], None]
Steps = Callable[["ServerConnection", int, Reader], Iterator[None]]


class RequestProcessor:
    """Touched only on the loop."""

    def __init__(self, server: EmbeddedZooKeeper) -> None:
        self._server = server
        self._tree = server.database.tree
        self._watches = server.watches
        self._handlers: dict[int, Handler] = {
            OpCode.EXISTS: self._exists,
            OpCode.GET_DATA: self._get_data,
            OpCode.GET_ACL: self._get_acl,
            OpCode.GET_CHILDREN: self._get_children,
            OpCode.GET_CHILDREN2: self._get_children2,
            OpCode.GET_ALL_CHILDREN_NUMBER: self._get_all_children_number,
            OpCode.GET_EPHEMERALS: self._get_ephemerals,
            OpCode.SYNC: self._sync,
            OpCode.PING: self._ping,
            OpCode.AUTH: self._auth,
            OpCode.WHO_AM_I: self._who_am_i,
            OpCode.ADD_WATCH: self._add_watch,
            OpCode.CHECK_WATCHES: self._check_watches,
            OpCode.REMOVE_WATCHES: self._remove_watches,
            OpCode.CLOSE_SESSION: self._close_session,
        }
        for type in (
            OpCode.CREATE,
            OpCode.CREATE2,
            OpCode.CREATE_CONTAINER,
            OpCode.CREATE_TTL,
            OpCode.DELETE,
            OpCode.SET_DATA,
            OpCode.SET_ACL,
        ):
            self._handlers[type] = self._writing(type)
        for type, steps, bytes_at_once in (
            (OpCode.MULTI, self._multi, FRAME_AT_ONCE),
            (OpCode.MULTI_READ, self._multi_read, 0),  # its answer may be large
            (OpCode.SET_WATCHES, self._set_watches, FRAME_AT_ONCE),
            (OpCode.SET_WATCHES2, self._set_watches2, FRAME_AT_ONCE),
        ):
            self._handlers[type] = self._stepping(steps, bytes_at_once)

    def begin(self, connection: ServerConnection, frame: bytes) -> None:
        session = connection.session
        if session is None or session.is_closing:
            connection.close()
            return
        reader = Reader(frame)
        xid, type = reader.integer(), reader.integer()
        handler = self._handlers.get(type)
        try:
            if handler is None:
                raise Refusal(Code.UNIMPLEMENTED)
            handler(connection, xid, reader)
        except REFUSALS as refusal:
            self._refuse(connection, xid, refusal)

    def _refuse(self, connection: ServerConnection, xid: int, refusal: Unmet) -> None:
        """Behind the answers to the writes that came before."""
        code = _code_of(refusal)
        if connection.writes_unanswered:
            self._submit(connection, xid, [Refused(Refusal(code))], lambda result: (code, b""))
        else:
            connection.answer(xid, code)

    def _stepping(self, steps: Steps, bytes_at_once: int) -> Handler:
        def begin(connection: ServerConnection, xid: int, reader: Reader) -> None:
            work = steps(connection, xid, reader)
            if reader.size <= bytes_at_once:
                for _ in work:
                    pass
            else:
                connection.is_answering_later = True
                self._server.start_work(self._work_in_slices(connection, xid, work))

        return begin

    async def _work_in_slices(
        self, connection: ServerConnection, xid: int, work: Iterator[None]
    ) -> None:
        try:
            for _ in work:
                await self._server.breathe()
                if not connection.has_session:
                    return
        except REFUSALS as refusal:
            self._refuse(connection, xid, refusal)
        finally:
            connection.is_answering_later = False
            self._server.wants_turn(connection)

    # Writes

    def _writing(self, type: int) -> Handler:
        def write(connection: ServerConnection, xid: int, reader: Reader) -> None:
            operation = decode_operation(type, reader, connection.identities)
            _require_allowed(operation)

            def answer(result: Result) -> Answer:
                if isinstance(result, StoreError):
                    return code_of(result), b""
                return Code.OK, self._encode_outcome(type, operation, result[0])

            self._submit(connection, xid, [operation], answer)

        return write

    def _encode_outcome(self, type: int, operation: Write, outcome: str | int | None) -> bytes:
        path = outcome if isinstance(outcome, str) else operation.path
        node = self._tree.nodes.get(path)
        return encode_outcome(type, operation, outcome, node.stat() if node else None)

    def _multi(self, connection: ServerConnection, xid: int, reader: Reader) -> Iterator[None]:
        types: list[int] = []
        operations: list[Submitted] = []
        for type, operation in decode_multi(reader, connection.identities):
            types.append(type)
            operations.append(_unless_refused(operation))
            yield

        def results(outcomes: Outcomes) -> Iterator[bytes]:
            for type, operation, outcome in zip(types, operations, outcomes, strict=True):
                assert not isinstance(operation, Refused)
                yield encode_result(type, self._encode_outcome(type, operation, outcome))
            yield END_OF_RESULTS

        def answer(result: Result) -> Answer | Iterator[bytes]:
            if isinstance(result, list):
                parts = results(result)
                return parts if len(result) > SMALL_TRANSACTION else (Code.OK, b"".join(parts))
            if result.index is None:  # it was not judged, or is lost
                return _code_of(result), b""
            return Code.OK, encode_refused_multi(len(types), result.index, _code_of(result))

        self._submit(connection, xid, operations, answer)

    def _sync(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        path = encode_text(reader.text())

        def answer(result: Result) -> Answer:
            return (code_of(result), b"") if isinstance(result, StoreError) else (Code.OK, path)

        self._submit(connection, xid, [], answer)

    def _submit(
        self,
        connection: ServerConnection,
        xid: int,
        operations: Sequence[Submitted],
        answer: Callable[[Result], Answer | Iterator[bytes]],
    ) -> None:
        """An answer in pieces is made in slices, before anything else is written."""
        session = connection.session
        assert session is not None
        session.writes_under_way += 1
        connection.writes_unanswered += 1

        def tell(code: int, body: bytes) -> None:
            connection.writes_unanswered -= 1
            connection.answer(xid, code, body)
            session.write_is_done()
            self._server.wants_turn(connection)

        async def tell_in_slices(pieces: Iterator[bytes]) -> None:
            found = []
            for piece in pieces:
                found.append(piece)
                await self._server.breathe()
            tell(Code.OK, b"".join(found))

        def done(result: Result) -> Coroutine[object, object, None] | None:
            answered = answer(result)
            if not isinstance(answered, tuple):
                return tell_in_slices(answered)
            tell(*answered)
            return None

        self._server.database.submit(operations, session.id, done, connection.identities)

    # Reads

    def _node(self, connection: ServerConnection, path: str, needed: int = Permission.READ) -> Node:
        node = self._tree.node(path)
        if node.access is not None and not permits(node.access, needed, connection.identities):
            raise NoAuth(path)
        return node

    def _watch(self, connection: ServerConnection, kind: WatchKind, path: str) -> None:
        if len(connection.watches) >= WATCHES_MAX:
            raise Refusal(Code.THROTTLED_OP)
        self._watches.add(connection, kind, path)

    def _exists(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        path, is_watched = reader.text(), reader.boolean()
        node = self._node(connection, path) if path in self._tree.nodes else None
        if is_watched:
            self._watch(connection, WatchKind.DATA, path)
        if node is None:
            raise Refusal(Code.NO_NODE)
        connection.answer(xid, Code.OK, encode_stat(node.stat()))

    def _get_data(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        path, is_watched = reader.text(), reader.boolean()
        node = self._node(connection, path)
        if is_watched:
            self._watch(connection, WatchKind.DATA, path)
        connection.answer(xid, Code.OK, encode_data(node.data) + encode_stat(node.stat()))

    def _get_acl(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        """Who may not change the list does not see the digests in it."""
        node = self._node(connection, reader.text(), Permission.READ | Permission.ADMIN)
        access = OPEN if node.access is None else node.access
        if not permits(access, Permission.ADMIN, connection.identities):
            access = without_digests(access)
        connection.answer(xid, Code.OK, access.encoded + encode_stat(node.stat()))

    def _get_children(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        self._list_children(connection, xid, reader, with_stat=False)

    def _get_children2(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        self._list_children(connection, xid, reader, with_stat=True)

    def _list_children(
        self, connection: ServerConnection, xid: int, reader: Reader, *, with_stat: bool
    ) -> None:
        path, is_watched = reader.text(), reader.boolean()
        node = self._node(connection, path)
        if is_watched:
            self._watch(connection, WatchKind.CHILD, path)
        stat = encode_stat(node.stat()) if with_stat else b""
        names = list(node.children or ())
        if len(names) <= CHILDREN_ENCODED_AT_ONCE:
            connection.answer(xid, Code.OK, encode_names(names) + stat)
        else:
            self._answer_from_thread(connection, xid, names, stat)

    def _answer_from_thread(
        self, connection: ServerConnection, xid: int, names: list[str], more: bytes
    ) -> None:
        """Events wait for it: the client does not know of the watch that this begins before."""
        zxid = self._tree.zxid
        connection.is_answering_later = connection.is_holding_events = True
        encoding = self._server.loop.run_in_executor(None, encode_names, names)

        def done(encoded: asyncio.Future[bytes]) -> None:
            connection.is_answering_later = connection.is_holding_events = False
            if not encoded.cancelled():
                connection.answer(xid, Code.OK, encoded.result() + more, zxid)
                self._server.wants_turn(connection)

        encoding.add_done_callback(done)

    def _get_all_children_number(
        self, connection: ServerConnection, xid: int, reader: Reader
    ) -> None:
        """Of all below a node. Counts a few thousand nodes in a turn, and answers what it counted:
        the tree may change meanwhile.
        """
        path = reader.text()
        self._node(connection, path)
        connection.is_answering_later = True
        self._server.count_below(path, lambda count: self._counted(connection, xid, count))

    def _counted(self, connection: ServerConnection, xid: int, count: int) -> None:
        connection.is_answering_later = False
        connection.answer(xid, Code.OK, INT.pack(count))
        self._server.wants_turn(connection)

    def _get_ephemerals(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        prefix = reader.text()
        assert connection.session is not None
        paths = self._tree.ephemerals_of(connection.session.id)
        self._answer_from_thread(
            connection, xid, sorted(path for path in paths if path.startswith(prefix)), b""
        )

    def _multi_read(self, connection: ServerConnection, xid: int, reader: Reader) -> Iterator[None]:
        """Each for itself: one that fails does not fail the others."""
        parts: list[bytes] = []
        size = 0
        while True:
            type, is_last, _ = reader.fields(MULTI_HEADER)
            if is_last:
                break
            if type not in (OpCode.GET_DATA, OpCode.GET_CHILDREN):
                raise Malformed(f"a read of type {type} in a multi")
            path = reader.text()
            reader.boolean()
            try:
                node = self._node(connection, path)
            except StoreError as error:
                parts.append(encode_refused_result(code_of(error)))
            else:
                if type == OpCode.GET_DATA:
                    body = encode_data(node.data) + encode_stat(node.stat())
                else:
                    body = yield from _names_in_steps(list(node.children or ()))
                parts.append(encode_result(type, body))
            size += len(parts[-1])
            if size > MULTI_READ_BYTES_MAX:
                logger.warning("ended a connection that asked for too much in one request")
                connection.abort()
                return
            yield
        connection.answer(xid, Code.OK, b"".join(parts) + END_OF_RESULTS)

    # Watches

    def _set_watches(
        self, connection: ServerConnection, xid: int, reader: Reader
    ) -> Iterator[None]:
        yield from self._set_one_shot_watches(connection, reader)
        connection.answer(xid, Code.OK)

    def _set_watches2(
        self, connection: ServerConnection, xid: int, reader: Reader
    ) -> Iterator[None]:
        yield from self._set_one_shot_watches(connection, reader)
        for kind in (WatchKind.PERSISTENT, WatchKind.RECURSIVE):
            for path in reader.each_text():
                self._watch(connection, kind, path)
                yield
        connection.answer(xid, Code.OK)

    def _set_one_shot_watches(self, connection: ServerConnection, reader: Reader) -> Iterator[None]:
        """Of an earlier connection; those that missed something fire at once."""
        nodes = self._tree.nodes
        zxid_seen = reader.long()
        for path in reader.each_text():
            node = nodes.get(path)
            if node is None:
                connection.send_event(EventType.DELETED, path)
            elif node.mzxid > zxid_seen:
                self._catch_up(connection, WatchKind.DATA, EventType.CHANGED, path, node)
            else:
                self._watch(connection, WatchKind.DATA, path)
            yield
        for path in reader.each_text():  # of nodes that were not there
            node = nodes.get(path)
            if node is not None:
                self._catch_up(connection, WatchKind.DATA, EventType.CREATED, path, node)
            else:
                self._watch(connection, WatchKind.DATA, path)
            yield
        for path in reader.each_text():
            node = nodes.get(path)
            if node is None:
                connection.send_event(EventType.DELETED, path)
            elif node.pzxid > zxid_seen:
                self._catch_up(connection, WatchKind.CHILD, EventType.CHILD, path, node)
            else:
                self._watch(connection, WatchKind.CHILD, path)
            yield

    def _catch_up(
        self,
        connection: ServerConnection,
        kind: WatchKind,
        type: EventType,
        path: str,
        node: Node,
    ) -> None:
        """Who may not read the node is not told; the watch then waits for the next change."""
        if node.access is None or connection.may_read(node.access):
            connection.send_event(type, path)
        else:
            self._watch(connection, kind, path)

    def _add_watch(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        path, mode = reader.text(), reader.integer()
        if mode not in (0, 1):
            raise Refusal(Code.BAD_ARGUMENTS)
        kind = WatchKind.RECURSIVE if mode else WatchKind.PERSISTENT
        self._watch(connection, kind, path)
        # ZooKeeper's ErrorResponse, with no error in it.
        connection.answer(xid, Code.OK, INT.pack(Code.OK))

    def _check_watches(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        path, kinds = _watches_named(reader)
        if not any((kind, path) in connection.watches for kind in kinds):
            raise Refusal(Code.NO_WATCHER)
        connection.answer(xid, Code.OK)

    def _remove_watches(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        path, kinds = _watches_named(reader)
        if not any([self._watches.remove(connection, kind, path) for kind in kinds]):
            raise Refusal(Code.NO_WATCHER)
        connection.answer(xid, Code.OK)

    # The session

    def _ping(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        connection.answer(xid, Code.OK)

    def _close_session(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        assert connection.session is not None
        connection.is_answering_later = True

        def closed() -> None:
            connection.answer(xid, Code.OK)
            connection.close()

        self._server.close_session(connection.session, closed)

    def _auth(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        """What is proven holds for this connection."""
        reader.integer()
        scheme, secret = reader.text(), reader.buffer()
        if scheme == "digest" and secret is not None:
            identity = digest_identity(secret)
        elif scheme == "ip":
            identity = connection.address
        else:
            connection.answer(xid, Code.AUTH_FAILED)
            connection.close()
            return
        identities = connection.identities
        if identity not in identities:
            if len(identities) >= IDENTITIES_MAX:
                raise Refusal(Code.THROTTLED_OP)
            connection.identities = {**identities, identity: None}
        connection.answer(xid, Code.OK)

    def _who_am_i(self, connection: ServerConnection, xid: int, reader: Reader) -> None:
        rows = [
            encode_text(scheme)
            + encode_text(name.partition(":")[0] if scheme == "digest" else name)
            for scheme, name in connection.identities
        ]
        connection.answer(xid, Code.OK, INT.pack(len(rows)) + b"".join(rows))


def _watches_named(reader: Reader) -> tuple[str, tuple[WatchKind, ...]]:
    path, type = reader.text(), reader.integer()
    kinds = WATCHER_TYPES.get(type)
    if kinds is None:
        raise Refusal(Code.BAD_ARGUMENTS)
    return path, kinds


def _names_in_steps(names: list[str]) -> Generator[None, None, bytes]:
    parts = [INT.pack(len(names))]
    for start in range(0, len(names), CHILDREN_ENCODED_AT_ONCE):
        parts.append(encode_names(names[start : start + CHILDREN_ENCODED_AT_ONCE])[INT.size :])
        yield
    return b"".join(parts)


def _code_of(refusal: Unmet) -> Code:
    if isinstance(refusal, Refusal):
        return refusal.code
    return code_of(refusal) if isinstance(refusal, StoreError) else Code.MARSHALLING_ERROR


def _unless_refused(operation: Write | Refusal) -> Submitted:
    if isinstance(operation, Refusal):
        return Refused(operation)
    try:
        _require_allowed(operation)
    except Refusal as refusal:
        return Refused(refusal)
    return operation


def _require_allowed(operation: Write) -> None:
    """What the store does not know of."""
    if isinstance(operation, Delete) and operation.path in RESERVED:
        raise Refusal(Code.BAD_ARGUMENTS)
    if isinstance(operation, Create | CreateGuarded) and UNPRINTABLE.search(operation.path):
        raise Refusal(Code.BAD_ARGUMENTS)
