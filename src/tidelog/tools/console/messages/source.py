"""One topic of a cluster as `reading` and `tail` need it: a consumer without a group.

    async with TopicSource(properties, "orders", partitions=None, is_committed=True) as source:
        await source.open()

It lives in one task of one event loop. `open` learns the partitions, and raises UnknownTopic. A
topic is never created by looking at it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Self

from tidelog.client.consumer.consumer import AsyncConsumer
from tidelog.client.errors import UnknownTopic
from tidelog.errors import ErrorCode
from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.console.messages.cursor import Span
from tidelog.types import TopicPartition

POLL_RECORDS_MAX: Final = 5_000
FETCH_BYTES_MAX: Final = 8 << 20
SCAN_FETCH_BYTES: Final = 4 << 20
PAGE_FETCH_BYTES: Final = 256 << 10


class TopicSource:
    """`partitions` are those wanted, None for all; `fetch_bytes` of one partition at a time."""

    def __init__(
        self,
        properties: Mapping[str, str],
        topic: str,
        partitions: Collection[int] | None,
        *,
        is_committed: bool,
        fetch_bytes: int = SCAN_FETCH_BYTES,
    ) -> None:
        self.topic = topic
        self._wanted = partitions
        self._partitions: list[TopicPartition] = []
        self._consumer = AsyncConsumer(
            {
                **properties,
                "isolation.level": "read_committed" if is_committed else "read_uncommitted",
                "allow.auto.create.topics": "false",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "fetch.max.bytes": str(FETCH_BYTES_MAX),
                "max.partition.fetch.bytes": str(fetch_bytes),
            }
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._consumer.close(timeout=1.0)

    async def open(self) -> None:
        known = sorted(await self._consumer.partitions_for(self.topic))
        unknown = sorted(set(self._wanted or ()) - set(known))
        if unknown:
            raise UnknownTopic(
                f"topic {self.topic} has no partition {unknown[0]}; it has {len(known)}",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        wanted = known if self._wanted is None else sorted(set(self._wanted))
        self._partitions = [TopicPartition(self.topic, each) for each in wanted]

    @property
    def partitions(self) -> list[int]:
        return [each.partition for each in self._partitions]

    async def bounds(self) -> dict[int, Span]:
        beginnings = await self._consumer.beginning_offsets(self._partitions)
        ends = await self._consumer.end_offsets(self._partitions)
        return {
            each.partition: Span(beginnings[each], max(beginnings[each], ends[each]))
            for each in self._partitions
        }

    async def offsets_at(self, timestamp: int) -> dict[int, int]:
        """Of the first record from that time on, where there is one."""
        found = await self._consumer.offsets_for_times(dict.fromkeys(self._partitions, timestamp))
        return {each.partition: row.offset for each, row in found.items() if row is not None}

    def seek(self, starts: Mapping[int, int]) -> None:
        places = [TopicPartition(self.topic, each) for each in starts]
        self._consumer.assign(places)
        self._consumer.resume(places)
        for partition, offset in starts.items():
            self._consumer.seek(TopicPartition(self.topic, partition), offset)

    def leave(self, partitions: Iterable[int]) -> None:
        self._consumer.pause([TopicPartition(self.topic, each) for each in partitions])

    async def poll(self, seconds: float) -> list[ConsumerRecord]:
        return await self._consumer.poll(seconds, POLL_RECORDS_MAX)

    def positions(self) -> dict[int, int]:
        found = self._consumer.iterated.consumed()
        return {each.partition: row.offset for each, row in found.items()}

    def lag(self) -> int:
        """Records, about, that are written and not polled yet."""
        return sum(self._consumer.lag(each) or 0 for each in self._consumer.assignment())
