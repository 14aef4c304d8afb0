"""What the exactly-once Spark sink keeps in a cluster, without Spark: drivers and tasks by hand.

The same stories run against Apache Kafka 3.9 and 4.3 (tests/interop).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from tests.integration.test_producer_client import protocol, values  # noqa: E402
from tests.support.eventually import eventually  # noqa: E402
from tidelog.client.admin.topics import NewTopic  # noqa: E402
from tidelog.client.blocking.admin import Admin  # noqa: E402
from tidelog.client.errors import ProducerFenced  # noqa: E402
from tidelog.spark.batch_commit import (  # noqa: E402
    BatchCommit,
    BatchMarker,
    CheckpointTooOld,
    RowsLost,
    TaskTransaction,
    TransactionsTimedOut,
)
from tidelog.spark.options import SinkOptions, sink_options  # noqa: E402
from tidelog.spark.sink_ledger import (  # noqa: E402
    PARTITIONS,
    ClusterLedger,
    ProgressTopicUnusable,
    task_ids_prefix,
)
from tidelog.spark.task_slots import TaskSlots  # noqa: E402


class Query:
    """The driver and the tasks of one query."""

    def __init__(self, bootstrap: str, topic: str, **options: str) -> None:
        self.query_id = str(uuid.uuid4())
        self.bootstrap = bootstrap
        self.topic = topic
        self.options: SinkOptions = sink_options(
            {
                "kafka.bootstrap.servers": bootstrap,
                "topic": topic,
                "deliveryGuarantee": "exactly-once",
                **options,
            }
        )
        self._slots: list[TaskSlots] = []

    def slots(self) -> TaskSlots:
        """Those of a new run."""
        self._slots.append(TaskSlots(self.query_id))
        return self._slots[-1]

    def close(self) -> None:
        for slots in self._slots:
            slots.close()

    def attempt(self, slots: TaskSlots, batch_id: int, *rows: str) -> TaskTransaction:
        """A task's attempt that has written its rows and handed its transaction over."""
        slot = slots.take(batch_id)
        producer = slot.producer(self.options.task_producer())
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_arrow(rows_of(*rows), self.topic).result()
        handed = producer.hand_over_transaction()
        slots.handed_over(slot)
        return TaskTransaction(handed, len(rows))

    def commit(self, batch_id: int, rows: list[Any], tasks: list[TaskTransaction]) -> bool:
        async def commit(ledger: ClusterLedger) -> bool:
            return await BatchCommit(ledger, self.query_id, batch_id).commit(rows, tasks)

        return self.with_ledger(commit)

    def abort(self, batch_id: int, tasks: list[TaskTransaction]) -> None:
        async def abort(ledger: ClusterLedger) -> None:
            await BatchCommit(ledger, self.query_id, batch_id).abort(tasks)

        self.with_ledger(abort)

    def decide_and_die(
        self, batch_id: int, rows: list[Any], tasks: tuple[TaskTransaction, ...]
    ) -> None:
        """A commit that ends before it has finished what it has decided."""

        async def decide(ledger: ClusterLedger) -> None:
            await ledger.fence()
            await ledger.marker_or_none()
            await ledger.decide(rows, BatchMarker(batch_id, tasks))

        self.with_ledger(decide)

    def with_ledger(self, act: Callable[[ClusterLedger], Coroutine[Any, Any, Any]]) -> Any:
        async def run() -> Any:
            ledger = ClusterLedger(self.options, self.query_id)
            try:
                return await act(ledger)
            finally:
                await ledger.close()

        return asyncio.run(run())

    def visible(self) -> list[str]:
        """What a reader of committed records finds now."""
        found = values(self.bootstrap, self.topic, isolation="read_committed")
        return sorted(value.decode() for value in found)

    def require_visible(self, *rows: str) -> None:
        """Soon: a commit is answered before readers see it."""
        eventually(lambda: self.visible() == list(rows), 20)

    def has_no_open_transactions(self) -> bool:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            listed = admin.list_transactions(states=["Ongoing", "PrepareAbort", "PrepareCommit"])
        prefix = task_ids_prefix(self.query_id)
        return not any(row.transactional_id.startswith(prefix) for row in listed)


def rows_of(*rows: str) -> Any:
    return pa.RecordBatch.from_pydict({"value": list(rows)})


# Told here by pytest, which finds it under this name.
PROTOCOLS = protocol


@pytest.fixture
def query(bootstrap: str, topic: str, protocol: str) -> Iterator[Query]:
    made = Query(bootstrap, topic)
    yield made
    made.close()


def test_rows_and_marker_are_one_transaction_and_a_repeated_batch_is_skipped(query: Query) -> None:
    assert query.commit(0, [rows_of("a", "b"), rows_of("c")], [])
    assert not query.commit(0, [rows_of("a", "b", "c")], [])
    assert query.commit(1, [rows_of("d")], [])
    query.require_visible("a", "b", "c", "d")
    with pytest.raises(CheckpointTooOld, match="batches up to 1"):
        query.commit(0, [rows_of("x")], [])
    query.require_visible("a", "b", "c", "d")


def test_queries_do_not_see_each_others_markers(query: Query, bootstrap: str) -> None:
    other = Query(bootstrap, query.topic)
    assert other.commit(7, [rows_of("other")], [])
    assert query.commit(0, [rows_of("a")], [])
    assert not other.commit(7, [rows_of("other")], [])
    query.require_visible("a", "other")


def test_a_marker_is_found_behind_many_of_other_queries(bootstrap: str, topic: str) -> None:
    """They share a partition: all queries here have one id but for the key of their records."""
    query = Query(bootstrap, topic, progressTopic=f"progress-{topic}")
    assert query.commit(0, [rows_of("a")], [])
    from tidelog.client.blocking.producer import Producer
    from tidelog.spark.sink_ledger import progress_partition

    _, partition = progress_partition(f"progress-{topic}", query.query_id)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(2_000):
            producer.send(f"progress-{topic}", b"{}", b"%d" % number, partition=partition)
    assert not query.commit(0, [rows_of("a")], [])
    query.require_visible("a")


def test_transactions_of_tasks_become_visible_with_the_batch_and_ids_are_used_again(
    query: Query,
) -> None:
    slots = query.slots()
    handed = []
    for batch_id in range(3):
        tasks = [
            query.attempt(slots, batch_id, f"{batch_id}a", f"{batch_id}b"),
            query.attempt(slots, batch_id, f"{batch_id}c"),
        ]
        handed += [task.handed for task in tasks]
        assert query.commit(batch_id, [rows_of(f"{batch_id}d")], tasks)
    query.require_visible(*(f"{batch_id}{row}" for batch_id in range(3) for row in "abcd"))
    assert len({each.transactional_id for each in handed}) == 2
    assert len({each.producer_id for each in handed}) == 2


def test_attempts_that_lost_are_never_visible_and_do_not_hold_up_readers(query: Query) -> None:
    """A failed attempt, a speculative one, and one of a driver that was killed."""
    dead_driver, slots = query.slots(), query.slots()
    query.attempt(dead_driver, 0, "a", "b", "c")
    query.attempt(slots, 0, "a")
    query.attempt(slots, 0, "b", "c")
    winner = query.attempt(slots, 0, "a", "b", "c")
    assert query.commit(0, [], [winner])
    query.require_visible("a", "b", "c")
    eventually(query.has_no_open_transactions, 20)


def test_a_batch_that_another_driver_decided_is_finished_and_not_written_again(
    query: Query,
) -> None:
    """The driver was killed between its decision and the end of the tasks' transactions. The
    batch is repeated with another partitioning."""
    old, new = query.slots(), query.slots()
    decided = (query.attempt(old, 0, "a", "b"), query.attempt(old, 0, "c"))

    query.decide_and_die(0, [rows_of("d")], decided)
    repeated = [query.attempt(new, 0, "d", "a"), query.attempt(new, 0, "c", "b")]
    assert not query.commit(0, [], repeated)
    query.require_visible("a", "b", "c", "d")
    eventually(query.has_no_open_transactions, 20)
    assert query.commit(1, [rows_of("e")], [])


def test_an_older_driver_cannot_decide(query: Query) -> None:
    async def fight(old: ClusterLedger) -> None:
        await old.fence()
        assert await old.marker_or_none() is None
        new = ClusterLedger(query.options, query.query_id)
        try:
            assert await BatchCommit(new, query.query_id, 0).commit([rows_of("new")], [])
        finally:
            await new.close()
        await old.decide([rows_of("old")], BatchMarker(0))

    with pytest.raises(ProducerFenced):
        query.with_ledger(fight)
    query.require_visible("new")


def test_an_abort_ends_the_tasks_transactions_unless_they_are_decided(query: Query) -> None:
    slots = query.slots()
    query.abort(0, [query.attempt(slots, 0, "x"), query.attempt(slots, 0, "y")])
    eventually(query.has_no_open_transactions, 20)
    decided = query.attempt(slots, 0, "a")

    query.decide_and_die(0, [], (decided,))
    query.abort(0, [decided])
    query.require_visible("a")


def test_a_transaction_that_has_ended_keeps_the_batch_from_being_decided(query: Query) -> None:
    slots = query.slots()
    gone, left = query.attempt(slots, 0, "a"), query.attempt(slots, 0, "b")
    fence(query, gone)
    with pytest.raises(TransactionsTimedOut, match="Nothing is lost"):
        query.commit(0, [], [gone, left])
    query.abort(0, [gone, left])
    assert query.commit(0, [], [query.attempt(slots, 0, "a", "b")])
    query.require_visible("a", "b")


def test_a_decided_transaction_that_was_aborted_stops_the_query_with_what_is_missing(
    query: Query,
) -> None:
    slots = query.slots()
    decided = query.attempt(slots, 0, "a", "b"), query.attempt(slots, 0, "c")

    query.decide_and_die(0, [], decided)
    fence(query, decided[0])
    for _ in range(2):
        with pytest.raises(RowsLost, match="aborted 1 of its 2 transactions with 2 rows"):
            query.commit(0, [rows_of("a", "b", "c")], [])
    query.require_visible("c")


def fence(query: Query, task: TaskTransaction) -> None:
    """What the coordinator does to a transaction that takes too long."""
    name = task.handed.transactional_id
    with Admin(bootstrap_servers=query.bootstrap) as admin:
        admin.fence_producers([name])[name].get()


def test_a_progress_topic_that_could_forget_is_refused_with_what_it_must_be(
    bootstrap: str, topic: str
) -> None:
    few, deleting = f"few-{topic}", f"deleting-{topic}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        made = admin.create_topics([NewTopic(few, 1, 1), NewTopic(deleting, PARTITIONS, 1)])
        assert all(result.is_ok for result in made.values())
    for name, problem in ((few, "it has 1 partitions"), (deleting, "cleanup.policy is delete")):
        query = Query(bootstrap, topic, progressTopic=name)
        with pytest.raises(ProgressTopicUnusable, match=problem):
            query.commit(0, [rows_of("a")], [])
    query.require_visible()
