"""Rows of a Produce request that are appended later than the others, because they take long.

They hold their own copy of the records, because the frame is gone by then. A thread checks heavy
ones first; the others wait for a slice of the loop. Then each part is handled as a request of its
own: leadership, transaction and sequences are those of that moment.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.errors import KafkaError
from tidelog.log.log_validator import ValidBatch, validate_for_append
from tidelog.pending import Pending
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.types import Uuid

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.config.topic import LogConfig
    from tidelog.record.inflation import InflationBudget

ROWS_A_PART: Final = 200


class DeferredRow:
    """The records of one partition; heavy ones come with what a thread needs to check them."""

    __slots__ = ("budget", "checked", "config", "index", "now_ms", "records", "topic")

    def __init__(
        self,
        topic: TopicProduceData,
        index: int,
        records: memoryview | None,
        config: LogConfig | None = None,
        now_ms: int = 0,
        budget: InflationBudget | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.records = records
        self.config = config
        self.now_ms = now_ms
        self.budget = budget
        self.checked: ValidBatch | KafkaError | None = None

    @property
    def is_heavy(self) -> bool:
        return self.config is not None

    def check(self, version: int) -> None:
        assert self.config is not None
        assert self.records is not None
        try:
            self.checked = validate_for_append(
                self.records,
                config=self.config,
                next_offset=0,
                now_ms=self.now_ms,
                leader_epoch=0,
                produce_version=version,
                inflation=self.budget,
            )
        except KafkaError as error:
            self.checked = error

    def batch(self, config: LogConfig) -> ValidBatch | None:
        """KafkaError if it may not be appended; None if that is to be found out anew."""
        if self.config is not config:
            return None
        if isinstance(self.checked, KafkaError):
            raise self.checked
        return self.checked


# A part's answer, and the rows of it that are deferred once more.
PartOutcome = tuple[ProduceResponse, Sequence[DeferredRow]]
HandlePart = Callable[[ProduceRequest, Sequence[DeferredRow]], PartOutcome | Pending[PartOutcome]]


class DeferredRows:
    """All of one request, whose `response` already has a place for each. `handle_part` is called
    with one part after another.
    """

    def __init__(
        self,
        broker: Broker,
        request: ProduceRequest,
        response: ProduceResponse,
        rows: Sequence[DeferredRow],
        handle_part: HandlePart,
        version: int,
        *,
        by_topic_id: bool,
    ) -> None:
        self._broker = broker
        self._request = request
        self._rows = deque(rows)
        self._handle_part = handle_part
        self._version = version
        self._by_topic_id = by_topic_id
        self._done: Pending[None] = Pending()
        # Where the rows of the answer are: list and position.
        self._places = {
            (self._key(topic), row.index): (topic.partition_responses, place)
            for topic in response.responses
            for place, row in enumerate(topic.partition_responses)
        }
        self._held_bytes = bytes_of(self._rows)

    def _key(self, topic: TopicProduceResponse) -> str | Uuid:
        return topic.topic_id if self._by_topic_id else topic.name

    def append(self) -> Pending[None]:
        """Until the last one has its outcome in the response."""
        self._broker.record_threads.hold(self._held_bytes)
        self._next_part()
        return self._done

    def _next_part(self) -> None:
        rows = [self._rows.popleft() for _ in range(min(ROWS_A_PART, len(self._rows)))]
        heavy = [row for row in rows if row.is_heavy and row.checked is None]
        if heavy:
            ready = self._broker.record_threads.run(0, partial(self._check, heavy))
        else:
            breath = asyncio.ensure_future(self._broker.slices.breathe())
            ready = Pending.of_future(breath)
        ready.and_then(lambda _: self._handle(rows)).then(self._handled, self._fail)

    def _check(self, rows: Sequence[DeferredRow]) -> None:
        for row in rows:
            row.check(self._version)

    def _handle(self, rows: Sequence[DeferredRow]) -> PartOutcome | Pending[PartOutcome]:
        return self._handle_part(_part_of(self._request, rows), rows)

    def _handled(self, outcome: PartOutcome) -> None:
        response, deferred_again = outcome
        for topic in response.responses:
            key = self._key(topic)
            for row in topic.partition_responses:
                rows, place = self._places[key, row.index]
                rows[place] = row
        self._rows.extendleft(reversed(deferred_again))
        if self._rows:
            self._next_part()
        else:
            self._let_go()
            self._done.complete(None)

    def _fail(self, cause: BaseException) -> None:
        self._let_go()
        self._done.fail(cause)

    def _let_go(self) -> None:
        held_bytes, self._held_bytes = self._held_bytes, 0
        self._broker.record_threads.let_go(held_bytes)


def _part_of(request: ProduceRequest, rows: Sequence[DeferredRow]) -> ProduceRequest:
    topics: dict[tuple[str, Uuid], TopicProduceData] = {}
    for row in rows:
        name, topic_id = row.topic.name, row.topic.topic_id
        topic = topics.setdefault(
            (name, topic_id), TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
        )
        topic.partition_data.append(PartitionProduceData(index=row.index, records=row.records))
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=list(topics.values()),
    )


def bytes_of(rows: Iterable[DeferredRow] | Iterable[PartitionProduceData]) -> int:
    return sum(len(row.records) for row in rows if row.records is not None)
