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
from collections.abc import Collection, Iterable
from enum import IntFlag
from functools import lru_cache
from typing import Final, NamedTuple

from tidelog.controller.metadata_store import StoreError

ENTRIES_MAX: Final = 1000

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


AccessList = tuple[AccessEntry, ...]

OPEN: Final[AccessList] = (AccessEntry(ALL_PERMISSIONS, "world", "anyone"),)


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
    for entry in dict.fromkeys(entries):
        if entry.scheme == "auth":
            proven = [identity for identity in identities if identity.scheme == "digest"]
            if not proven:
                raise InvalidAccessList
            kept |= dict.fromkeys(AccessEntry(entry.permissions, *who) for who in proven)
        else:
            _require_valid(entry)
            kept[entry] = None
    if not 0 < len(kept) <= ENTRIES_MAX:
        raise InvalidAccessList
    found = tuple(kept)
    return None if found == OPEN else _interned(found)


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


@lru_cache(maxsize=1000)
def _interned(access: AccessList) -> AccessList:
    """Most nodes have one of a few lists; each is in memory once."""
    return access


def permits(access: AccessList, needed: int, identities: Collection[Identity]) -> bool:
    """Whether one of the needed permissions is there."""
    addresses = [name for scheme, name in identities if scheme == "ip"]
    for permissions, scheme, name in access:
        if not permissions & needed:
            continue
        if scheme == "world" or (scheme, name) in identities:
            return True
        if scheme == "ip" and any(_is_within(address, name) for address in addresses):
            return True
    return False


def without_digests(access: AccessList) -> AccessList:
    """As those see it who may not administrate the node."""
    return tuple(
        entry._replace(name=entry.name.partition(":")[0] + ":x")
        if entry.scheme == "digest" and ":" in entry.name
        else entry
        for entry in access
    )


# Addresses


def _is_within(address: str, expression: str) -> bool:
    network, own = _network(expression), _address(address)
    if network is None or own is None:
        return False
    bits, shift = network
    return own >> shift == bits


@lru_cache(maxsize=1000)
def _network(expression: str) -> tuple[int, int] | None:
    """Its significant bits, and how many of the 32 are not."""
    text, slash, length = expression.partition("/")
    address = _address(text)
    bits = _number(length, 32) if slash else 32
    if address is None or bits is None:
        return None
    return address >> 32 - bits, 32 - bits


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


@lru_cache(maxsize=1000)
def encode_access_list(access: AccessList) -> bytes:
    parts = [_INT.pack(len(access))]
    for permissions, scheme, name in access:
        parts.append(_INT.pack(permissions))
        for text in (scheme.encode(), name.encode()):
            parts += (_INT.pack(len(text)), text)
    return b"".join(parts)


@lru_cache(maxsize=1000)
def decode_access_list(encoded: bytes) -> AccessList:
    """Of the journal, whose bytes are ours."""
    position = _INT.size
    entries = []
    for _ in range(_INT.unpack_from(encoded)[0]):
        (permissions,) = _INT.unpack_from(encoded, position)
        position += _INT.size
        texts = []
        for _ in range(2):
            (length,) = _INT.unpack_from(encoded, position)
            position += _INT.size
            texts.append(encoded[position : position + length].decode())
            position += length
        entries.append(AccessEntry(permissions, *texts))
    return _interned(tuple(entries))
