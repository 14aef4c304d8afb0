"""Rows of a Produce request that are appended later than the others, because they take long.

They hold their own copy of the records, for the frame is gone by then. Heavy ones are checked in a
thread before that; the others wait for a slice of the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidelog.errors import KafkaError
from tidelog.log.log_validator import ValidBatch, validate_for_append
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.types import Uuid

if TYPE_CHECKING:
    from tidelog.config.topic import LogConfig
    from tidelog.record.inflation import InflationBudget


class RowPutOff:
    """Records that are appended later; if they are heavy, a thread checks them first."""

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


def part_of(request: ProduceRequest, rows: Sequence[RowPutOff]) -> ProduceRequest:
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


def bytes_of(rows: Iterable[RowPutOff] | Iterable[PartitionProduceData]) -> int:
    return sum(len(row.records) for row in rows if row.records is not None)
