"""Producers with transactions behind a network that delays, repeats and reorders their requests.

Each producer runs transactions over several partitions and its group's offset. Every request goes
out in copies on connections of their own; the producer takes the first answer and goes on while
the other copies are still under way, often into its later transactions. Now and then another
instance takes over in the middle, with or without an EndTxn of the old one under way, or a
transaction is left until its timeout. `txn_model` judges what is in the log in the end.

Producers of transaction.version 2 (Produce v12, TxnOffsetCommit v5, EndTxn v5) bear any disorder:
every end takes an epoch. Classic ones (AddPartitionsToTxn v3, AddOffsetsToTxn v3, TxnOffsetCommit
v3, EndTxn v3) keep theirs, so that a broker cannot tell a late EndTxn from one of the next
transaction (KIP-890); as long as copies of EndTxn or TxnOffsetCommit are under way, they take a
new epoch (InitProducerId, KIP-360) before they begin again.

    python -m tests.support.disorder_harness --requests 10000 [--seed 7] [--flush-each]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.broker_process import BrokerProcess
from tests.support.raw_batch import batch, now_ms, read_batches
from tests.support.raw_client import (
    LATEST,
    RawClient,
    create_topic,
    fetch_partition,
    fetch_request,
    list_offset,
)
from tests.support.txn_model import TRANSACTIONAL, LogStory, Sent, check, read_log
from tests.support.wire_pool import Delivery, Disorder, WirePool
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TOPIC = "t"
PARTITIONS = 3
PRODUCERS = 4  # of each kind
CONNECTIONS = 24
STRAY_MAX_S = 0.3
RETRY_S = 0.005
SETTLED_WITHIN_S = 60.0
LONG_TIMEOUT_MS, SHORT_TIMEOUT_MS = 60_000, 700
COUNTED = ("EndTxn", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit")
BROKER_OVERRIDES = {
    # The coordinators' topics are compacted all the time.
    "offsets.topic.segment.bytes": "16384",
    "transaction.state.log.segment.bytes": "16384",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
FOR_LATER = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,  # Produce, for the others
    }
)
FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class Fenced(Exception):
    """This instance is out of date; its transaction is over, one way or the other."""


class DisorderlyProducer:
    """One transactional id: its instances, one after the other, and what each has sent."""

    def __init__(
        self, disorder: Disorder, dice: random.Random, transactional_id: str, *, bumps_epoch: bool
    ) -> None:
        self._disorder = disorder
        self._dice = dice
        self.transactional_id = transactional_id
        self._bumps_epoch = bumps_epoch
        self._identity = (-1, -1)
        self._sequences = [0] * PARTITIONS
        self._numbers = itertools.count()
        self._offsets = itertools.count(1)
        self.sent: list[Sent] = []

    async def run(self, goes_on: Callable[[], bool]) -> None:
        await self.init()
        while goes_on():
            try:
                await self._transaction()
            except Fenced:
                await self.init()

    async def init(self, *, renew: bool = False, timeout_ms: int = LONG_TIMEOUT_MS) -> None:
        """Another instance, or (`renew`) the same one with a new epoch."""
        producer_id, epoch = self._identity if renew else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer = await self._answered(request, 4, repeats=False)
        self._identity = (answer.producer_id, answer.producer_epoch)
        self._sequences = [0] * PARTITIONS

    # One transaction

    async def _transaction(self) -> None:
        dice, sent = self._dice, Sent()
        self.sent.append(sent)
        abandons = dice.random() < 0.01
        if abandons:
            await self.init(timeout_ms=SHORT_TIMEOUT_MS)
        is_patient = dice.random() < 0.5
        for index in dice.sample(range(PARTITIONS), dice.randint(1, PARTITIONS)):
            await self._write(sent, index)
        if dice.random() < 0.5:
            await self._commit_offset(sent, strays=self._bumps_epoch or not is_patient)
        if dice.random() < 0.04:
            await self._replace_in_the_middle(sent)
            return
        if abandons:
            await asyncio.sleep(SHORT_TIMEOUT_MS / 1000 + 0.3)
        await self._end(sent, strays=self._bumps_epoch or not is_patient)

    async def _write(self, sent: Sent, index: int) -> None:
        if not self._bumps_epoch or self._dice.random() < 0.3:
            await self._answered(self._add_request(index), 3)
        for _ in range(self._dice.randint(1, 2)):
            value = f"{self.transactional_id}/{next(self._numbers)}".encode()
            request = self._produce_request(index, value)
            await self._answered(request, 12 if self._bumps_epoch else 11)
            self._sequences[index] += 1
            sent.values.setdefault(index, []).append(value)

    async def _commit_offset(self, sent: Sent, *, strays: bool) -> None:
        if not self._bumps_epoch:
            producer_id, epoch = self._identity
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=self.transactional_id,
            )
            await self._answered(request, 3)
        sent.offset = next(self._offsets)
        await self._answered(
            self._offset_request(sent.offset),
            5 if self._bumps_epoch else 3,
            strays=strays,
            is_harmful=True,
        )

    async def _end(self, sent: Sent, *, strays: bool) -> None:
        committed = self._dice.random() < 0.7
        request = self._end_request(committed)
        answer = await self._answered(
            request,
            self._end_version,
            strays=strays,
            is_harmful=True,
            then=self._noted(sent, request),
        )
        if self._bumps_epoch:
            if self._dice.random() < 0.2:
                self._disorder.send_late(self._end_request(not committed), self._end_version)
            self._identity = (answer.producer_id, answer.producer_epoch)
            self._sequences = [0] * PARTITIONS
        elif strays:
            await self.init(renew=True)

    async def _replace_in_the_middle(self, sent: Sent) -> None:
        """Another instance comes while this one is, perhaps, ending its transaction."""
        if self._dice.random() < 0.6:
            request = self._end_request(True)
            delivery = self._disorder.send(request, self._end_version, strays=True)
            self._watch(delivery, self._noted(sent, request))
            await asyncio.sleep(self._dice.uniform(0, 0.006))
        await self.init()

    def _noted(self, sent: Sent, request: EndTxnRequest) -> Callable[[Any], None]:
        """Any copy that is answered well is an answer."""
        sent.commit_was_asked = sent.commit_was_asked or request.committed

        def note(answer: Any) -> None:
            if answer.error_code == ErrorCode.NONE:
                if request.committed:
                    sent.commit_was_answered = True
                else:
                    sent.abort_was_answered = True

        return note

    # Requests

    @property
    def _end_version(self) -> int:
        return 5 if self._bumps_epoch else 3

    async def _answered(
        self,
        request: Any,
        version: int,
        *,
        strays: bool = True,
        repeats: bool = True,
        is_harmful: bool = False,
        then: Callable[[Any], None] = lambda answer: None,
    ) -> Any:
        """The first answer, once it is a good one; raises Fenced."""
        while True:
            if repeats:
                delivery = self._disorder.send(request, version, strays=strays)
            else:
                delivery = self._disorder.send_once(request, version)
            self._watch(delivery, then)
            waits = is_harmful and not strays
            answers = await delivery.settled() if waits else [await delivery.first()]
            codes = [code_of(answer) for answer in answers]
            for answer, code in zip(answers, codes, strict=True):
                if code is ErrorCode.NONE:
                    return answer
            if codes[0] in FENCED:
                raise Fenced
            assert codes[0] in FOR_LATER, (self.transactional_id, request, codes)
            await asyncio.sleep(RETRY_S)

    @staticmethod
    def _watch(delivery: Delivery, then: Callable[[Any], None]) -> None:
        for copy in delivery.copies:
            copy.add_done_callback(lambda task: then(task.result()))

    def _add_request(self, index: int) -> AddPartitionsToTxnRequest:
        producer_id, epoch = self._identity
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[index])],
        )

    def _produce_request(self, index: int, value: bytes) -> ProduceRequest:
        producer_id, epoch = self._identity
        records = batch(
            value,
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences[index],
        )
        row = PartitionProduceData(index=index, records=memoryview(records))
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[row])],
        )

    def _offset_request(self, offset: int) -> TxnOffsetCommitRequest:
        producer_id, epoch = self._identity
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[row])],
        )

    def _end_request(self, committed: bool) -> EndTxnRequest:
        producer_id, epoch = self._identity
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
        )


def code_of(answer: Any) -> ErrorCode:
    """The one error code there is in an answer, wherever it stands."""
    if hasattr(answer, "error_code") and not getattr(answer, "results_by_topic_v3_and_below", ()):
        return ErrorCode.of(answer.error_code)
    if hasattr(answer, "results_by_topic_v3_and_below"):
        (topic,) = answer.results_by_topic_v3_and_below
        return ErrorCode.of(topic.results_by_partition[0].partition_error_code)
    if hasattr(answer, "responses"):
        return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)
    return ErrorCode.of(answer.topics[0].partitions[0].error_code)


class DisorderHarness:
    def __init__(
        self, directory: Path, *, seed: int, requests: int, flush_each: bool = False
    ) -> None:
        self._dice = random.Random(seed)
        self._wanted = requests
        self.requests: dict[str, int] = {}
        self.transactions = 0
        self.committed = 0
        overrides = BROKER_OVERRIDES | ({"log.flush.interval.messages": "1"} if flush_each else {})
        self.broker = BrokerProcess(directory / "broker", overrides)
        self.broker.start()

    def close(self) -> None:
        self.broker.kill()

    def run(self) -> None:
        with RawClient(self.broker.bootstrap) as client:
            create_topic(client, TOPIC, PARTITIONS)
        asyncio.run(self._run())

    async def _run(self) -> None:
        pool = await WirePool.open(self.broker.bootstrap, CONNECTIONS)
        try:
            disorder = Disorder(pool, self._dice, STRAY_MAX_S)
            self.requests = disorder.sent
            await self._find_coordinators(pool)
            producers = [
                DisorderlyProducer(disorder, self._dice, f"{kind}-{number}", bumps_epoch=bumps)
                for number in range(PRODUCERS)
                for kind, bumps in (("classic", False), ("second", True))
            ]
            await asyncio.gather(*(each.run(self._goes_on) for each in producers))
            while disorder.under_way:
                await asyncio.wait(disorder.under_way)
            for each in producers:
                await each.init()
            offsets = {
                each.transactional_id: await self._offset(pool, each.transactional_id)
                for each in producers
            }
        finally:
            await pool.close()
        sent = {each.transactional_id: each.sent for each in producers}
        self.transactions = sum(map(len, sent.values()))
        self.committed = check(sent, self._stories(), offsets)

    @property
    def counted(self) -> int:
        return sum(self.requests.get(name, 0) for name in COUNTED)

    def _goes_on(self) -> bool:
        return self.counted < self._wanted

    async def _find_coordinators(self, pool: WirePool) -> None:
        """Makes their topics."""
        for kind in (0, 1):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])
            deadline = time.monotonic() + SETTLED_WITHIN_S
            while (await pool.ask(request, 4)).coordinators[0].error_code:
                assert time.monotonic() < deadline
                await asyncio.sleep(RETRY_S)

    async def _offset(self, pool: WirePool, group_id: str) -> int:
        topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=group_id, topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while True:
            row = (await pool.ask(request, 8)).groups[0].topics[0].partitions[0]
            if row.error_code == ErrorCode.NONE:
                return int(row.committed_offset)
            assert time.monotonic() < deadline, f"{group_id}: {ErrorCode.of(row.error_code)}"
            await asyncio.sleep(RETRY_S)

    def _stories(self) -> list[LogStory]:
        with RawClient(self.broker.bootstrap) as client:
            return [self._story(client, index) for index in range(PARTITIONS)]

    def _story(self, client: RawClient, index: int) -> LogStory:
        end = list_offset(client, TOPIC, LATEST, index).offset
        found, offset = [], 0
        while offset < end:
            row = fetch_partition(index, offset, max_bytes=1 << 22)
            answer = client.call(fetch_request(TOPIC, [row]))
            batches = read_batches(answer.responses[0].partitions[0].records)
            found += batches
            offset = batches[-1].last_offset + 1
        return read_log(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=now_ms() % 100_000)
    parser.add_argument("--flush-each", action="store_true", help="log.flush.interval.messages=1")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="disorder-harness-") as directory:
        harness = DisorderHarness(
            Path(directory),
            seed=arguments.seed,
            requests=arguments.requests,
            flush_each=arguments.flush_each,
        )
        try:
            harness.run()
        finally:
            harness.close()
    counts = ", ".join(f"{count} {name}" for name, count in sorted(harness.requests.items()))
    sys.stdout.write(
        f"{harness.counted} requests, seed {arguments.seed}: {harness.transactions} transactions, "
        f"{harness.committed} committed ({counts}), {time.monotonic() - started:.0f} s, all well\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
