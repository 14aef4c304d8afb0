"""A topic for consumers to read: every partition holds the same batches, on every peer.

What a producer leaves behind differs from broker to broker: batches grow while a broker is slow,
and partitions end up uneven. Both decide how fast a consumer gets on, whoever serves it: small
batches cost the client more, and once one partition is read to its end a consumer that asks for
that one alone waits its whole fetch.max.wait.ms while the others hold data. So the consumers of
the benchmark read what the raw client wrote, batch for batch the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.peers import BrokerProcess
from bench.wire import Batch

# a name is never used twice: Kafka goes on answering for a deleted topic for a moment
SERIAL = itertools.count()


@dataclass(frozen=True, slots=True)
class EvenTopic:
    """How much lies in the topic."""

    name: str
    partitions: int
    batch: Batch
    batches: int  # a partition

    @property
    def records(self) -> int:
        return self.partitions * self.batches * self.batch.records_count

    @property
    def value_bytes(self) -> int:
        return self.partitions * self.batches * self.batch.value_bytes


def even_topic(batch: Batch, records: int, partitions: int) -> EvenTopic:
    """As many equal batches as hold about so many records."""
    batches = max(2, records // (batch.records_count * partitions))
    return EvenTopic(f"bench-even-{next(SERIAL)}", partitions, batch, batches)


@contextmanager
def written(broker: BrokerProcess, topic: EvenTopic) -> Iterator[None]:
    """The topic, there for the time of the block."""
    with broker.connect() as client:
        client.create_topic(topic.name, topic.partitions)
        for partition in range(topic.partitions):
            # one request more goes ahead of the run
            client.produce(topic.name, topic.batch, topic.batches - 1, partition=partition)
        yield
        client.delete_topic(topic.name)
