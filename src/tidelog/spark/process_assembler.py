"""Buffers kept by a Python worker from one task to the next, as its connections are.

A worker runs one task at a time, so a task finds the memory that the one before it has decoded
into, about 12 MB, and does not pay for fresh pages.
"""

from __future__ import annotations

from functools import lru_cache

from tidelog.client.arrow import BatchAssembler


@lru_cache(maxsize=1)
def process_assembler(with_headers: bool) -> BatchAssembler:
    return BatchAssembler(with_headers=with_headers)
