"""Requests that come late, twice and out of order, as on connections that were given up."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.metadata import in_loop
from tests.support.txn_stage import PARTITIONS, Producer, TxnStage, txn_stage

REQUESTS = 4_000


class Disorder:
    """Producers of transaction.version 2, each with what it is owed, and late copies of what they
    asked for before.
    """

    def __init__(self, stage: TxnStage, dice: random.Random) -> None:
        self._stage = stage
        self._dice = dice
        self.producers: list[Producer] = []
        self.open: list[list[tuple[int, bytes]]] = []
        self.owed: list[set[bytes]] = [set() for _ in range(PARTITIONS)]
        self._ended: list[tuple[Producer, bool]] = []
        self._numbers = 0
        self.requests = 0

    async def begin(self, transactional_id: str) -> None:
        self.producers.append(await self._stage.producer(transactional_id))
        self.open.append([])

    async def step(self) -> None:
        self.requests += 1
        place = self._dice.randrange(len(self.producers))
        kind = self._dice.random()
        if kind < 0.45 and self._ended:
            await self._late()
        elif kind < 0.8:
            await self._send(place)
        elif kind < 0.99:
            await self._end(place)
        else:
            await self._replace(place)

    async def _send(self, place: int) -> None:
        self._numbers += 1
        index, value = self._dice.randrange(PARTITIONS), b"%d" % self._numbers
        if self._dice.random() < 0.3:
            assert await self.producers[place].add(index) == [0]
        assert await self.producers[place].send(value, index, version=12) == 0
        self.open[place].append((index, value))

    async def _end(self, place: int) -> None:
        producer, written = self.producers[place], self.open[place]
        committed = bool(written) and self._dice.random() < 0.7
        self._ended.append((self._copy(producer), committed))
        assert await producer.end(committed=committed, version=5) == 0
        self._settle(place, committed)

    async def _replace(self, place: int) -> None:
        """Another instance takes over; what was open is lost."""
        old = self.producers[place]
        self._ended.append((self._copy(old), True))
        self.producers[place] = await self._stage.producer(old.transactional_id)
        self._settle(place, committed=False)

    async def _late(self) -> None:
        """Something from before, on another connection; whatever it is answered."""
        producer, committed = self._dice.choice(self._ended)
        producer = self._copy(producer)
        kind = self._dice.randrange(4)
        if kind == 0:
            await producer.end(committed=committed, version=5)
        elif kind == 1:
            await producer.end(committed=not committed, version=5)
        elif kind == 2:
            assert await producer.add(self._dice.randrange(PARTITIONS)) != [0]
        else:
            assert await producer.send(b"late", self._dice.randrange(PARTITIONS), version=12) != 0

    def _settle(self, place: int, committed: bool) -> None:
        if committed:
            for index, value in self.open[place]:
                self.owed[index].add(value)
        self.open[place] = []

    def _copy(self, producer: Producer) -> Producer:
        return Producer(self._stage, producer.transactional_id, *producer.identity)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_transaction_is_torn_lost_or_resurrected(tmp_path: Path, seed: int) -> None:
    @in_loop
    async def story() -> None:
        async with txn_stage(tmp_path) as stage:
            disorder = Disorder(stage, random.Random(seed))
            for name in ("a", "b", "c"):
                await disorder.begin(name)
            while disorder.requests < REQUESTS:
                await disorder.step()
            for producer in disorder.producers:
                await producer.end(committed=False, version=5)
            for index in range(PARTITIONS):
                log = stage.log(index)
                assert log.last_stable_offset == log.log_end_offset
                seen = stage.committed(index)
                assert len(seen) == len(set(seen))
                assert set(seen) == disorder.owed[index]

    story()
