"""The two files of the embedded store: a journal of transactions and a snapshot of all nodes.

`tidelog-metadata.journal`, big-endian:
    header        16 bytes: "tdlgmeta", u32 format (1), u32 CRC-32 of the 12 bytes before
    record        4  "tdl\\n", so that a reader can find the next one behind a damaged one
                  4  u32 length of the payload
                  4  u32 CRC-32 of the payload
    payload       8  zxid, greater than that of the record before
                  8  durable_zxid: the last zxid known to be on disk when this one was written
                  8  time in ms
                  4  count of changes, each: u8 kind, u64 created_children of the parent,
                     u32 path length, u32 data length, path in UTF-8, data
`tidelog-metadata.snapshot`:
    header        8  "tdlgsnap", u64 zxid, u32 count of nodes
    node          five u64 (czxid, mzxid, pzxid, ctime, mtime), u32 version,
                  u64 created_children, u32 path length, u32 data length, path, data
    end           4  u32 CRC-32 of all before

Ephemeral nodes are in neither file: they end with the process anyway.

The journal of a store that keeps its sessions, which other processes have (`tidelog zookeeper`),
differs in this:
    header        format 2, so that neither kind of store takes the other's files
    change        kind 4: a session is opened; the path is its id in decimal, the data u32 timeout
                  in ms and the password. Kind 5: it is closed. Kind 6: an ephemeral node is made;
                  u64 session id comes before the path. Kind 7: the node that has just been made
                  gets an access list, which is the data (`access_lists.py`). Kind 8: the access
                  list of a node is changed; no data is open to all.
    data length   2^32 - 1 for a node without data, which is not the same as empty data
    snapshot      "tdlgsnp3"; u64 session id behind created_children of each node; behind the nodes
                  u32 count of sessions, each: u64 id, u32 timeout in ms, u32 length, password;
                  behind them u32 count of nodes whose access list is or was not open to all, each:
                  u32 aversion, u32 path length, u32 length, path, access list (none: open to all).
                  "tdlgsnp2", written before there were access lists, ends before that count

A snapshot is written beside the old one, synced, renamed over it, and the directory synced; only
then is the journal cut back to its header. A crash between the two leaves records that the
snapshot has already: they are skipped by zxid.

On load the journal ends at its first bad record. What lies behind was being written when the
process or the machine stopped and nobody was told that it is done, so it is cut off. If a later
record shows by its durable_zxid that more had been on disk, the damage is of another kind and
loading refuses: cutting there would forget what was acknowledged.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from zlib import crc32

from tidelog.controller.access_lists import decode_access_list
from tidelog.controller.metadata_store import NO_DATA, StoreUnavailable
from tidelog.controller.node_tree import (
    Change,
    ChangeKind,
    KeptSession,
    Node,
    NodeTree,
    Transaction,
)
from tidelog.errors import StartupError

JOURNAL_NAME: Final = "tidelog-metadata.journal"
SNAPSHOT_NAME: Final = "tidelog-metadata.snapshot"

MAGIC: Final = b"tdlgmeta\0\0\0\x01"
HEADER: Final = MAGIC + crc32(MAGIC).to_bytes(4, "big")
SESSIONS_MAGIC: Final = b"tdlgmeta\0\0\0\x02"
SESSIONS_HEADER: Final = SESSIONS_MAGIC + crc32(SESSIONS_MAGIC).to_bytes(4, "big")
MARKER: Final = b"tdl\n"
RECORD: Final = struct.Struct(">4sII")
PAYLOAD: Final = struct.Struct(">QQQI")
CHANGE: Final = struct.Struct(">BQII")
SNAPSHOT_HEADER: Final = struct.Struct(">8sQI")
SNAPSHOT_MAGIC: Final = b"tdlgsnap"
NODE: Final = struct.Struct(">QQQQQIQII")
SESSIONS_SNAPSHOT_MAGIC: Final = b"tdlgsnp3"
OPEN_SNAPSHOT_MAGIC: Final = b"tdlgsnp2"
OWNED_NODE: Final = struct.Struct(">QQQQQIQQII")
SESSION: Final = struct.Struct(">QII")
OWNER: Final = struct.Struct(">Q")
ACCESS: Final = struct.Struct(">III")
COUNT: Final = struct.Struct(">I")
NO_DATA_LENGTH: Final = 0xFFFFFFFF
EPHEMERAL_CREATED: Final = 6

log = logging.getLogger(__name__)

KINDS: Final = {int(kind): kind for kind in ChangeKind}


class CorruptStore(StartupError):
    """The metadata on disk is damaged where it had been acknowledged, or of a later version."""


class StoreLocked(StartupError):
    """Another process has the metadata open."""


class _BadRecord(Exception):
    pass


class _UnknownKind(Exception):
    """A record is whole and has a change that this version does not know."""


def encode_transaction(
    transaction: Transaction, durable_zxid: int, keeps_sessions: bool = False
) -> bytes:
    """The journal record; empty if there is nothing to keep, as of a transaction that only touches
    ephemeral nodes where sessions are not kept.
    """
    parts = [b""]
    count = 0
    for kind, path, data, owner, created_children in transaction.changes:
        if owner and not keeps_sessions:
            continue
        name = path.encode()
        length = NO_DATA_LENGTH if data is NO_DATA else len(data)
        if owner and kind == ChangeKind.CREATED:
            parts.append(CHANGE.pack(EPHEMERAL_CREATED, created_children, len(name), length))
            parts.append(OWNER.pack(owner))
        else:
            parts.append(CHANGE.pack(kind, created_children, len(name), length))
        parts.append(name)
        parts.append(data)
        count += 1
    if not count:
        return b""
    parts[0] = PAYLOAD.pack(transaction.zxid, durable_zxid, transaction.time_ms, count)
    return _record(b"".join(parts))


def encode_start(zxid: int, time_ms: int, durable_zxid: int) -> bytes:
    """A record without changes: no later run gives zxids as low as this one's."""
    return _record(PAYLOAD.pack(zxid, durable_zxid, time_ms, 0))


def _record(payload: bytes) -> bytes:
    return RECORD.pack(MARKER, len(payload), crc32(payload)) + payload


def _payload_at(data: bytes, position: int) -> memoryview:
    """The checked payload of the record at this position."""
    if position + RECORD.size > len(data):
        raise _BadRecord("it is cut short")
    marker, length, crc = RECORD.unpack_from(data, position)
    if marker != MARKER or length < PAYLOAD.size:
        raise _BadRecord("there is no record")
    start = position + RECORD.size
    payload = memoryview(data)[start : start + length]
    if len(payload) < length:
        raise _BadRecord("it is cut short")
    if crc32(payload) != crc:
        raise _BadRecord("its checksum is wrong")
    return payload


def _decode_transaction(payload: memoryview) -> Transaction:
    zxid, _durable_zxid, time_ms, count = PAYLOAD.unpack_from(payload, 0)
    position = PAYLOAD.size
    changes = []
    for _ in range(count):
        kind, created_children, path_length, data_length = CHANGE.unpack_from(payload, position)
        position += CHANGE.size
        if kind not in KINDS and kind != EPHEMERAL_CREATED:
            raise _UnknownKind(kind)
        owner = 0
        if kind == EPHEMERAL_CREATED:
            kind = ChangeKind.CREATED
            owner = OWNER.unpack_from(payload, position)[0]
            position += OWNER.size
        path = str(payload[position : position + path_length], "utf-8")
        position += path_length
        if data_length == NO_DATA_LENGTH:
            data: bytes = NO_DATA
        else:
            data = bytes(payload[position : position + data_length])
            position += data_length
        changes.append(Change(KINDS[kind], path, data, owner, created_children))
    return Transaction(zxid, time_ms, changes)


def _ignore(path: str, what: str, error: OSError) -> None:
    pass


class Journal:
    """Appends records durably. Used by one thread at a time; the store sees to that."""

    def __init__(
        self,
        directory: Path,
        io_failed: Callable[[str, str, OSError], object] = _ignore,
        *,
        keeps_sessions: bool = False,
    ) -> None:
        self.keeps_sessions = keeps_sessions
        self._header = SESSIONS_HEADER if keeps_sessions else HEADER
        self._directory = directory
        self._io_failed = io_failed  # told of every write that failed
        self._path = directory / JOURNAL_NAME
        self._snapshot_path = directory / SNAPSHOT_NAME
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._directory_synced = False
        self._broken = False
        self.size = 0  # end of the last good record; what is behind it is overwritten
        self.snapshot_bytes = 0
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise StoreLocked(f"{self._path} is in use by another process") from error

    def load(self) -> NodeTree:
        tree = NodeTree()
        self._load_snapshot(tree)
        data = self._path.read_bytes()
        if len(data) < len(self._header):
            self._start_over()
            return tree
        if not data.startswith(self._header):
            raise CorruptStore(f"{self._path} does not start as a metadata journal of this version")
        self._replay(data, tree)
        return tree

    def _start_over(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, self._header, 0)
        self.size = len(self._header)

    def _replay(self, data: bytes, tree: NodeTree) -> None:
        self.size = position = len(self._header)
        while position < len(data):
            try:
                payload = _payload_at(data, position)
            except _BadRecord as reason:
                self._require_unacknowledged(data, position, tree.zxid)
                log.warning(
                    "cut %d bytes off %s at position %d: the last record was not finished (%s)",
                    len(data) - position,
                    self._path,
                    position,
                    reason,
                )
                os.ftruncate(self._descriptor, position)
                return
            transaction = self._decoded(payload, position)
            if transaction.zxid > tree.zxid:
                tree.apply(transaction)
            position += RECORD.size + len(payload)
            self.size = position

    def _decoded(self, payload: memoryview, position: int) -> Transaction:
        try:
            return _decode_transaction(payload)
        except _UnknownKind as unknown:
            raise CorruptStore(
                f"{self._path} has a change of kind {unknown} at position {position}, which a "
                f"later version of tidelog wrote; start that version"
            ) from unknown

    def _require_unacknowledged(self, data: bytes, position: int, last_zxid: int) -> None:
        bad_position = position
        while (position := data.find(MARKER, position + 1)) >= 0:
            try:
                payload = _payload_at(data, position)
            except _BadRecord:
                continue
            durable_zxid = PAYLOAD.unpack_from(payload, 0)[1]
            if durable_zxid > last_zxid:
                raise CorruptStore(
                    f"{self._path} is damaged at position {bad_position}, and acknowledged "
                    f"transactions follow; restore it, or cut it there to go without them"
                )

    def append(self, records: bytes) -> None:
        """Returns once the records are on disk; after an error none of them is."""
        if self._broken:
            raise StoreUnavailable(str(self._path))
        try:
            self._write(records)
            os.fdatasync(self._descriptor)
            if not self._directory_synced:
                self._sync_directory()
        except OSError as error:
            log.error("cannot write %s: %s", self._path, error)
            self._roll_back()
            self._io_failed(str(self._path), "write the metadata", error)
            raise StoreUnavailable(f"{self._path}: {error}") from error
        self.size += len(records)

    def _write(self, records: bytes) -> None:
        view = memoryview(records)
        position = self.size
        while view:
            written = os.pwrite(self._descriptor, view, position)
            view = view[written:]
            position += written

    def _roll_back(self) -> None:
        # The bytes may have reached the disk although the sync failed: they must be seen to go,
        # or a restart would bring back writes whose makers were told that they failed.
        try:
            os.ftruncate(self._descriptor, self.size)
            os.fsync(self._descriptor)
        except OSError as error:
            self._broken = True
            log.error("cannot cut %s back to %d bytes: %s", self._path, self.size, error)

    def wants_snapshot(self, journal_bytes_max: int) -> bool:
        return self.size > max(journal_bytes_max, 2 * self.snapshot_bytes)

    def write_snapshot(self, tree: NodeTree) -> None:
        """The tree is frozen: nobody changes it while this runs. Empties the journal."""
        if self.keeps_sessions:
            data = encode_snapshot_with_sessions(tree)
        else:
            rows = (row for row in tree.subtree("/") if not row[1].ephemeral_owner)
            data = encode_snapshot(tree.zxid, rows)
        temporary = self._snapshot_path.with_suffix(".snapshot.tmp")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._snapshot_path)
            self._sync_directory()
            self.snapshot_bytes = len(data)
            os.ftruncate(self._descriptor, len(self._header))
            # Whatever becomes of the sync: a record behind a gap would be lost with the next start.
            self.size = len(self._header)
            os.fsync(self._descriptor)
        except OSError as error:
            log.error("cannot write %s: %s", self._snapshot_path, error)
            self._io_failed(str(self._snapshot_path), "write the metadata", error)

    def _load_snapshot(self, tree: NodeTree) -> None:
        try:
            data = self._snapshot_path.read_bytes()
        except FileNotFoundError:
            return
        self.snapshot_bytes = len(data)
        magics = (
            (SESSIONS_SNAPSHOT_MAGIC, OPEN_SNAPSHOT_MAGIC)
            if self.keeps_sessions
            else (SNAPSHOT_MAGIC,)
        )
        if not data.startswith(magics):
            raise CorruptStore(f"{self._snapshot_path} does not start as a metadata snapshot")
        view = memoryview(data)
        if crc32(view[:-4]) != int.from_bytes(view[-4:], "big"):
            raise CorruptStore(f"{self._snapshot_path} is damaged")
        _, zxid, count = SNAPSHOT_HEADER.unpack_from(data)
        if self.keeps_sessions:
            body = view[SNAPSHOT_HEADER.size :]
            position = _restore_with_sessions(tree, body, count)
            if data.startswith(SESSIONS_SNAPSHOT_MAGIC):
                _restore_access(tree, body, position)
        else:
            for path, node in _decode_nodes(view[SNAPSHOT_HEADER.size :], count):
                tree.restore(path, node)
        tree.zxid = zxid

    def _sync_directory(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._directory_synced = True

    def close(self) -> None:
        os.close(self._descriptor)


def encode_snapshot(zxid: int, rows: Iterable[tuple[str, Node]]) -> bytes:
    parts = [b""]
    count = 0
    for path, node in rows:
        name = path.encode()
        parts.append(
            NODE.pack(
                node.czxid,
                node.mzxid,
                node.pzxid,
                node.ctime_ms,
                node.mtime_ms,
                node.version,
                node.created_children,
                len(name),
                len(node.data),
            )
        )
        parts.append(name)
        parts.append(node.data)
        count += 1
    parts[0] = SNAPSHOT_HEADER.pack(SNAPSHOT_MAGIC, zxid, count)
    data = b"".join(parts)
    return data + crc32(data).to_bytes(4, "big")


def _decode_nodes(body: memoryview, count: int) -> Iterable[tuple[str, Node]]:
    position = 0
    for _ in range(count):
        czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, created, path_length, data_length = (
            NODE.unpack_from(body, position)
        )
        position += NODE.size
        path = str(body[position : position + path_length], "utf-8")
        position += path_length
        node = Node(bytes(body[position : position + data_length]), czxid, ctime_ms, 0)
        position += data_length
        node.mzxid = mzxid
        node.pzxid = pzxid
        node.mtime_ms = mtime_ms
        node.version = version
        node.created_children = created
        yield path, node


def encode_snapshot_with_sessions(tree: NodeTree) -> bytes:
    parts = [b""]
    guarded = [b""]
    count = guarded_count = 0
    for path, node in tree.subtree("/"):
        name = path.encode()
        if node.access is not None or node.aversion:
            access = node.access.encoded if node.access is not None else b""
            guarded += (ACCESS.pack(node.aversion, len(name), len(access)), name, access)
            guarded_count += 1
        parts.append(
            OWNED_NODE.pack(
                node.czxid,
                node.mzxid,
                node.pzxid,
                node.ctime_ms,
                node.mtime_ms,
                node.version,
                node.created_children,
                node.ephemeral_owner,
                len(name),
                NO_DATA_LENGTH if node.data is NO_DATA else len(node.data),
            )
        )
        parts.append(name)
        parts.append(node.data)
        count += 1
    parts[0] = SNAPSHOT_HEADER.pack(SESSIONS_SNAPSHOT_MAGIC, tree.zxid, count)
    parts.append(COUNT.pack(len(tree.sessions)))
    for session_id, (timeout_ms, password) in tree.sessions.items():
        parts.append(SESSION.pack(session_id, timeout_ms, len(password)) + password)
    guarded[0] = COUNT.pack(guarded_count)
    parts += guarded
    data = b"".join(parts)
    return data + crc32(data).to_bytes(4, "big")


def _restore_with_sessions(tree: NodeTree, body: memoryview, count: int) -> int:
    """Where it ends."""
    position = 0
    for _ in range(count):
        (
            czxid,
            mzxid,
            pzxid,
            ctime_ms,
            mtime_ms,
            version,
            created_children,
            owner,
            path_length,
            data_length,
        ) = OWNED_NODE.unpack_from(body, position)
        position += OWNED_NODE.size
        path = str(body[position : position + path_length], "utf-8")
        position += path_length
        data: bytes = NO_DATA
        if data_length != NO_DATA_LENGTH:
            data = bytes(body[position : position + data_length])
            position += data_length
        node = Node(data, czxid, ctime_ms, owner)
        node.mzxid = mzxid
        node.pzxid = pzxid
        node.mtime_ms = mtime_ms
        node.version = version
        node.created_children = created_children
        tree.restore(path, node)
    (sessions,) = COUNT.unpack_from(body, position)
    position += COUNT.size
    for _ in range(sessions):
        session_id, timeout_ms, length = SESSION.unpack_from(body, position)
        position += SESSION.size
        password = bytes(body[position : position + length])
        position += length
        tree.sessions[session_id] = KeptSession(timeout_ms, password)
    return position


def _restore_access(tree: NodeTree, body: memoryview, position: int) -> None:
    (count,) = COUNT.unpack_from(body, position)
    position += COUNT.size
    for _ in range(count):
        aversion, path_length, length = ACCESS.unpack_from(body, position)
        position += ACCESS.size
        node = tree.nodes[str(body[position : position + path_length], "utf-8")]
        position += path_length
        node.aversion = aversion
        if length:
            node.access = decode_access_list(bytes(body[position : position + length]))
            position += length
