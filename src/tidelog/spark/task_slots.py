"""Transactional ids for attempts of tasks: few, and never one that may still be decided.

The transaction of an attempt stays open until the driver ends it, and a worker runs many tasks of a
batch. So a worker has a numbered list of ids for each run of a query, and an attempt takes the
first that is free:

- not used yet, or
- last used by an attempt that failed here, so that no driver knows of it, or
- last used by an earlier batch. Spark starts a batch after it has committed the one before, and
  that commit ends every transaction that counts.

Another process or another run of the query has other ids: a driver may be about to end those. To
take an id again, its next epoch is asked for, which aborts what a losing attempt has left.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.blocking.producer import Producer
from tidelog.spark.sink_ledger import task_ids_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNS_MAX: Final = 8
# Producers that are kept open from task to task; further slots keep only their id.
PRODUCERS_MAX: Final = 8

FREE: Final = -1


class QueryRun(NamedTuple):
    query_id: str
    run_id: str


class TaskSlot:
    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.batch_id = FREE  # of the last attempt that took it
        self._producer: Producer | None = None

    def producer(self, options: Mapping[str, str]) -> Producer:
        if self._producer is None:
            self._producer = Producer({**options, "transactional.id": self.transactional_id})
        return self._producer

    def close(self, timeout_s: float | None = None) -> None:
        """An open transaction is aborted; one that was handed over is not."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout_s)


class TaskSlots:
    """Of one process and one run of a query; a worker runs one task at a time."""

    def __init__(self, query_id: str) -> None:
        self._prefix = f"{task_ids_prefix(query_id)}{uuid.uuid4().hex[:16]}"
        self._slots: list[TaskSlot] = []

    def take(self, batch_id: int) -> TaskSlot:
        slot = next((each for each in self._slots if each.batch_id < batch_id), None)
        if slot is None:
            slot = TaskSlot(f"{self._prefix}-{len(self._slots)}")
            self._slots.append(slot)
        slot.batch_id = batch_id
        return slot

    def handed_over(self, slot: TaskSlot) -> None:
        if self._slots.index(slot) >= PRODUCERS_MAX:
            slot.close()

    def failed(self, slot: TaskSlot) -> None:
        slot.close(timeout_s=5.0)
        slot.batch_id = FREE

    def close(self) -> None:
        for slot in self._slots:
            slot.close(timeout_s=0)


_slots: dict[tuple[int, QueryRun], TaskSlots] = {}


def process_slots(run: QueryRun) -> TaskSlots:
    """Those of this process; the least used are forgotten, and their ids with them."""
    key = os.getpid(), run
    slots = _slots.pop(key, None) or TaskSlots(run.query_id)
    _slots[key] = slots
    while len(_slots) > RUNS_MAX:
        _slots.pop(next(iter(_slots))).close()
    return slots
