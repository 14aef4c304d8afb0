"""Access lists of nodes: ZooKeeper's model, without a store and without I/O.

A list has entries: permissions, and who has them. An identity is what a connection has proven to
be: `ip` by where it comes from, `digest` by a password. A node whose list is None is open to all,
as is one of `world:anyone:cdrwa`, which is kept as None.

    world    anyone                    everybody
    digest   user:base64(sha1(...))    who has given `user:password` to addauth
    ip       a.b.c.d or a.b.c.d/bits   who comes from there; IPv4 only, as ZooKeeper 3.8 has it
    auth     anything                  not kept: stands for the digests of whoever sets the list

Encoded, for the wire and for the journal: u32 count, each: i32 permissions, the scheme and the
name as u32 length and UTF-8.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Collection, Iterable, Iterator
from enum import IntFlag
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from tidelog.controller.metadata_store import StoreError

ENTRIES_MAX: Final = 100  # of a new list; one that is on disk may have more
INTERNED_BYTES_MAX: Final = 1024 * 1024  # encoded; the lists that they stand for take more

_INT: Final = struct.Struct(">i")
_NUMBER: Final = re.compile("[+-]?[0-9]{1,9}")


class Permission(IntFlag):
    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16


ALL_PERMISSIONS: Final = 31


class Identity(NamedTuple):
    scheme: str
    name: str


class AccessEntry(NamedTuple):
    permissions: int
    scheme: str
    name: str


class AccessList(tuple[AccessEntry, ...]):
    """Its entries, and who may do what by them. Judging takes time for each identity, not for each
    entry, because a change may be judged for a thousand listeners at once.
    """

    def __init__(self, entries: Iterable[AccessEntry]) -> None:
        self._of_everybody = 0
        self._of_digest: dict[tuple[str, str], int] = {}
        # The permissions by how many bits of an address do not count, and by those that do.
        self._of_network: dict[int, dict[int, int]] = {}
        for permissions, scheme, name in self:
            if scheme == "world":
                self._of_everybody |= permissions
            elif scheme != "ip":
                who = (scheme, name)
                self._of_digest[who] = self._of_digest.get(who, 0) | permissions
            elif (network := _network(name)) is not None:
                bits, shift = network
                of_bits = self._of_network.setdefault(shift, {})
                of_bits[bits] = of_bits.get(bits, 0) | permissions

    def permissions_of(self, identities: Iterable[Identity]) -> int:
        granted = self._of_everybody
        for identity in identities:
            if identity[0] != "ip":
                granted |= self._of_digest.get(identity, 0)
            elif self._of_network:
                granted |= self._permissions_at(_client_address(identity[1]))
        return granted

    def _permissions_at(self, address: int | None) -> int:
        if address is None:
            return 0
        granted = 0
        for shift, of_bits in self._of_network.items():
            granted |= of_bits.get(address >> shift, 0)
        return granted

    @cached_property
    def encoded(self) -> bytes:
        parts = [_INT.pack(len(self))]
        for permissions, scheme, name in self:
            parts.append(_INT.pack(permissions))
            for text in (scheme.encode(), name.encode()):
                parts += (_INT.pack(len(text)), text)
        return b"".join(parts)


class NoAuth(StoreError):
    pass


class InvalidAccessList(Exception):
    pass


def digest_identity(secret: bytes) -> Identity:
    """Of what addauth is given: `user:password`."""
    import hashlib  # loads OpenSSL's hash functions, and a broker's own nodes never ask for one

    text = secret.decode(errors="replace")
    digest = base64.b64encode(hashlib.sha1(text.encode(), usedforsecurity=False).digest())
    return Identity("digest", f"{text.partition(':')[0]}:{digest.decode()}")


def resolved(entries: Iterable[AccessEntry], identities: Collection[Identity]) -> AccessList | None:
    """The list that is kept of one that is asked for; None is open to all."""
    kept: dict[AccessEntry, None] = {}
    proven = [identity for identity in identities if identity.scheme == "digest"]
    resolved_auth: set[int] = set()  # permissions
    for entry in dict.fromkeys(entries):
        if entry.scheme != "auth":
            _require_valid(entry)
            kept[entry] = None
        elif entry.permissions not in resolved_auth:
            if not proven:
                raise InvalidAccessList
            resolved_auth.add(entry.permissions)
            kept |= dict.fromkeys(AccessEntry(entry.permissions, *who) for who in proven)
        if len(kept) > ENTRIES_MAX:
            raise InvalidAccessList
    if not kept:
        raise InvalidAccessList
    found = AccessList(kept)
    return None if found == OPEN else _interned.same(found)


def _require_valid(entry: AccessEntry) -> None:
    scheme, name = entry.scheme, entry.name
    if scheme == "digest":
        # As Java splits: empty parts at the end do not count.
        is_valid = len(name.rstrip(":").split(":")) == 2
    elif scheme == "ip":
        is_valid = _network(name) is not None
    else:
        is_valid = (scheme, name) == ("world", "anyone")
    if not is_valid:
        raise InvalidAccessList


class _Interned:
    """Most nodes have one of a few lists; each is in memory once. Forgets the oldest ones first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._by_encoded: dict[bytes, AccessList] = {}
        self.size = 0  # bytes, encoded

    def same(self, access: AccessList) -> AccessList:
        found = self._by_encoded.get(access.encoded)
        if found is None:
            found = self._by_encoded[access.encoded] = access
            self.size += len(access.encoded)
            while self.size > self._bytes_max:
                self.size -= len(self._by_encoded.pop(next(iter(self._by_encoded))).encoded)
        return found

    def decoded(self, encoded: bytes) -> AccessList:
        found = self._by_encoded.get(encoded)
        return found if found is not None else self.same(AccessList(_decode(encoded)))


def permits(access: AccessList, needed: int, identities: Iterable[Identity]) -> bool:
    """Whether one of the needed permissions is there."""
    return bool(access.permissions_of(identities) & int(needed))


def without_digests(access: AccessList) -> AccessList:
    """As those see it who may not administrate the node."""
    return AccessList(
        entry._replace(name=entry.name.partition(":")[0] + ":x")
        if entry.scheme == "digest" and ":" in entry.name
        else entry
        for entry in access
    )


# Addresses


def _network(expression: str) -> tuple[int, int] | None:
    """Its significant bits, and how many of the 32 are not."""
    text, slash, length = expression.partition("/")
    address = _address(text)
    bits = _number(length, 32) if slash else 32
    if address is None or bits is None:
        return None
    return address >> 32 - bits, 32 - bits


@lru_cache(maxsize=1000)
def _client_address(text: str) -> int | None:
    return _address(text)


def _address(text: str) -> int | None:
    parts = [_number(part, 255) for part in text.split(".")]
    if len(parts) != 4:
        return None
    value = 0
    for part in parts:
        if part is None:
            return None
        value = value << 8 | part
    return value


def _number(text: str, most: int) -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    value = int(text)
    return value if 0 <= value <= most else None


# Encoding


def decode_access_list(encoded: bytes) -> AccessList:
    """Of the journal, whose bytes are ours."""
    return _interned.decoded(encoded)


def _decode(encoded: bytes) -> Iterator[AccessEntry]:
    position = _INT.size
    for _ in range(_INT.unpack_from(encoded)[0]):
        (permissions,) = _INT.unpack_from(encoded, position)
        position += _INT.size
        texts = []
        for _ in range(2):
            (length,) = _INT.unpack_from(encoded, position)
            position += _INT.size
            texts.append(encoded[position : position + length].decode())
            position += length
        yield AccessEntry(permissions, *texts)


_interned: Final = _Interned(INTERNED_BYTES_MAX)
OPEN: Final = AccessList((AccessEntry(ALL_PERMISSIONS, "world", "anyone"),))
