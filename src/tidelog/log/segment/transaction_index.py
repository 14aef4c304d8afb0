"""The aborted transactions of a segment (`.txnindex`).

The file appears with the first abort marker of the segment. An entry is 34 bytes, big-endian:

    at  size  field
     0     2  version               0
     2     8  producer_id
    10     8  first_offset          first record of the transaction; may lie in an older segment
    18     8  last_offset           the abort marker, in this segment; grows from entry to entry
    26     8  last_stable_offset    first offset of another open transaction, else marker + 1

The entries of a segment are few and kept in memory once read.
"""

from __future__ import annotations

import contextlib
import os
from struct import Struct
from typing import Final, NamedTuple

from tidelog.log.segment.index_file import CorruptIndex

ENTRY: Final = Struct(">hqqqq")
assert ENTRY.size == 34


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    __slots__ = ("_entries", "base_offset", "path")

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._entries: list[AbortedTxn] | None = None

    def entries(self) -> list[AbortedTxn]:
        """CorruptIndex when the file is not what this module writes."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def _read(self) -> list[AbortedTxn]:
        try:
            with open(self.path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return []
        if len(content) % ENTRY.size:
            raise CorruptIndex(f"{self.path} does not end with a whole entry")
        found = []
        last_offset = self.base_offset - 1
        for version, *fields in ENTRY.iter_unpack(content):
            aborted = AbortedTxn(*fields)
            if version != 0 or aborted.last_offset <= last_offset:
                raise CorruptIndex(f"{self.path} holds an entry that cannot be: {aborted}")
            last_offset = aborted.last_offset
            found.append(aborted)
        return found

    def append(self, aborted: AbortedTxn) -> None:
        entries = self.entries()
        assert not entries or entries[-1].last_offset < aborted.last_offset, aborted
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, ENTRY.pack(0, *aborted), len(entries) * ENTRY.size)
        finally:
            os.close(descriptor)
        entries.append(aborted)

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions that touch the range, and whether later segments hold no more."""
        found = []
        for aborted in self.entries():
            if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def keep_below(self, offset: int) -> None:
        entries = self.entries()
        kept = [aborted for aborted in entries if aborted.last_offset < offset]
        if len(kept) < len(entries):
            os.truncate(self.path, len(kept) * ENTRY.size)
            self._entries = kept

    def reset(self) -> None:
        """Forget everything, in order to be written anew by recovery."""
        self._entries = []
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self.path, 0)
