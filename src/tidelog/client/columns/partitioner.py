"""Which partition a row goes to, a column at a time.

    default      murmur2 of the key, as Kafka's producer; rows without a key as `sticky`
    sticky       one partition for about `batch.size` bytes of rows, then the next; keys are ignored
    round-robin  one partition a row; keys are ignored

A partition given with the row comes before all of these.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.client.errors import InvalidRow
from tidelog.record import kernel

if TYPE_CHECKING:
    from tidelog.client.network.metadata import TopicView


class TopicPartitioner:
    """The state of one topic: where the next row without a key goes."""

    __slots__ = ("_bytes_in_run", "_kind", "_next", "_run_bytes")

    def __init__(self, kind: str, run_bytes: int) -> None:
        """`kind` as ProducerConfig.partitioner says."""
        self._kind = kind
        self._run_bytes = max(1, run_bytes)
        self._next = random.randrange(1 << 16)
        self._bytes_in_run = 0

    def partitions(
        self, topic: TopicView, keys: Any, given: Any | None, row_bytes: float
    ) -> pa.Array:
        """An int32 column of partitions. `row_bytes` is what a row takes on average."""
        count = len(keys)
        if given is not None:
            require_partitions(topic, given)
            if given.null_count == 0:
                return given
        chosen = self._chosen(topic, keys, count, row_bytes)
        return chosen if given is None else pc.coalesce(given, chosen)

    def _chosen(self, topic: TopicView, keys: Any, count: int, row_bytes: float) -> pa.Array:
        if self._kind == "default" and keys.null_count < count:
            hashed = hashed_partitions(keys, len(topic.partitions))
            if keys.null_count == 0:
                return hashed
            keyless = self._runs(topic, count, row_bytes)
            return pc.if_else(pc.is_null(keys), keyless, hashed)
        if self._kind == "round-robin":
            return self._round_robin(topic, count)
        return self._runs(topic, count, row_bytes)

    def _runs(self, topic: TopicView, count: int, row_bytes: float) -> pa.Array:
        """Rows in runs of about `_run_bytes`; the last run goes on with the next rows."""
        available = writable_partitions(topic)
        runs = []
        left = count
        while left:
            room = max(1, int((self._run_bytes - self._bytes_in_run) / max(row_bytes, 1)))
            rows = min(room, left)
            runs.append(
                pa.repeat(pa.scalar(available[self._next % len(available)], pa.int32()), rows)
            )
            left -= rows
            self._bytes_in_run += int(rows * row_bytes)
            if rows == room:
                self._next += 1
                self._bytes_in_run = 0
        return runs[0] if len(runs) == 1 else pa.concat_arrays(runs or [pa.array([], pa.int32())])

    def _round_robin(self, topic: TopicView, count: int) -> pa.Array:
        available = writable_partitions(topic)
        start = self._next % len(available)
        turn = pa.array(available[start:] + available[:start], pa.int32())
        self._next += count
        turns = -(-count // len(available))
        return pa.concat_arrays([turn] * max(turns, 1)).slice(0, count)


def hashed_partitions(keys: Any, partitions_count: int) -> pa.Array:
    """murmur2 of each key as Kafka computes it; null where the key is."""
    validity, offsets, data = keys.buffers()
    hashed = kernel.key_partitions(
        offsets, validity, data or b"", keys.offset, len(keys), partitions_count
    )
    return pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(hashed)])


def writable_partitions(topic: TopicView) -> list[int]:
    """Those that have a leader; all when none has."""
    led = sorted(row.partition for row in topic.partitions.values() if row.leader_id >= 0)
    return led or sorted(topic.partitions)


def require_partitions(topic: TopicView, given: Any) -> None:
    bounds = pc.min_max(given).as_py()
    for partition in (bounds["min"], bounds["max"]):
        if partition is not None and partition not in topic.partitions:
            raise InvalidRow(
                f"partition {partition} of topic {topic.name} is not there: it has partitions 0 to "
                f"{len(topic.partitions) - 1}"
            )
