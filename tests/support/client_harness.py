"""Tidelog's own client against a broker that is killed (-9), over links that are cut.

Two idempotent producers write all the while: a blocking one with keys, one on asyncio without.
Groups of tidelog's consumers, one of each protocol, read along in processes of their own. Meanwhile
the broker is killed and started again, and the links of the producers and of the consumers are cut,
frozen, or lose answers. Now and then a consumer leaves and another one joins.

What must hold in the end:
- every record is acknowledged and lies where its acknowledgement said, once, those of one producer
  in the order in which they were sent, and nothing else is there;
- each group has read every record; no partition was two members' at one time, an owner began where
  the commits before it ended and went on record by record, so that none was skipped and none came
  twice in one generation (`group_process.misdeliveries`).

With --impatient delivery.timeout.ms is so short that records fail while the broker is away. A
record that failed may be there or not; all else holds.

With --transactions two members of one group copy the records in transactions (KIP-447), instead of
the two groups. Then the copy must hold each record once, in the order of the source, and the
committed offsets must be the ends of the source.

    python -m tests.support.client_harness [--kills 50] [--cuts 200] [--seed 7] [--transactions]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer as ForeignConsumer
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as ForeignPartition

from tests.support.broker_process import dies_with_us
from tests.support.client_copy_process import ClientCopyOptions
from tests.support.copy_process import transformed
from tests.support.cuttable_link import CuttableLink
from tests.support.group_process import (
    MemberOptions,
    MemberProcess,
    consumed,
    misdeliveries,
    overlaps,
)
from tests.support.linked_broker import LinkedBroker
from tests.support.raw_batch import now_ms
from tests.support.raw_client import LATEST, RawClient, create_topic, list_offset
from tidelog.client.blocking.producer import Producer
from tidelog.client.errors import ClientError
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.client.producer.delivery import RecordMetadata

ROOT = Path(__file__).resolve().parents[2]
TOPIC, COPY = "records", "copy"
PARTITIONS = 4
KEYS = 40
PRODUCING, CONSUMING = "PRODUCING", "CONSUMING"
SETTLED_WITHIN_S = 120.0
REQUEST_TIMEOUT_MS = 3_000
SESSION_TIMEOUT_MS = 20_000  # nobody is to lose its partitions to a slow machine
BROKER_OVERRIDES = {
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "log.segment.bytes": "262144",
}
IMPATIENT = {"request.timeout.ms": 200, "delivery.timeout.ms": 400, "retry.backoff.ms": 20}
BURST = 300  # now and then, so that several batches of a partition are in flight
CLASSIC = ("cooperative-sticky", "classic")
NEW = ("uniform", "consumer")


class Found(NamedTuple):
    offset: int
    value: bytes


@dataclass
class SentRecords:
    """What one producer has sent and what it was told; values are unique."""

    name: str
    sent: list[bytes] = field(default_factory=list)
    acked: dict[bytes, RecordMetadata] = field(default_factory=dict)
    failed: dict[bytes, str] = field(default_factory=dict)

    def next_value(self, padding_bytes: int) -> bytes:
        value = b"%s/%08d/" % (self.name.encode(), len(self.sent)) + b"x" * padding_bytes
        self.sent.append(value)
        return value

    def note(self, value: bytes) -> Callable[[RecordMetadata, ClientError | None], None]:
        def delivered(metadata: RecordMetadata, problem: ClientError | None) -> None:
            if problem is None:
                self.acked[value] = metadata
            else:
                self.failed[value] = f"{type(problem).__name__}: {problem}"

        return delivered


class Feeds:
    """The producers, each in a thread, until they are told to stop."""

    def __init__(self, bootstrap: str, seed: int, *, is_impatient: bool = False) -> None:
        self._config: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "linger.ms": 5,
        }
        if is_impatient:
            self._config |= IMPATIENT
        self._seed = seed
        self._stopping = threading.Event()
        self.keyed = SentRecords("keyed")
        self.loose = SentRecords("loose")
        self.sent = (self.keyed, self.loose)
        self._problems: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._send_keyed, lambda: asyncio.run(self._send_loose()))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns when everything is acknowledged."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(SETTLED_WITHIN_S)
            assert not thread.is_alive(), "a producer does not come to an end"
        assert not self._problems, self._problems

    def require_alive(self) -> None:
        assert not self._problems, self._problems

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as problem:
            self._problems.append(problem)
            raise

    def _send_keyed(self) -> None:
        dice = random.Random(f"{self._seed}-keyed")
        with Producer(self._config) as producer:
            while not self._stopping.is_set():
                for _ in range(_burst(dice)):
                    value = self.keyed.next_value(dice.choice((0, 20, 1000)))
                    key = b"key-%d" % dice.randrange(KEYS)
                    producer.send(TOPIC, value, key, on_delivery=self.keyed.note(value))
                time.sleep(dice.uniform(0.01, 0.06))
            producer.flush(SETTLED_WITHIN_S)

    async def _send_loose(self) -> None:
        dice = random.Random(f"{self._seed}-loose")
        config = {**self._config, "compression.type": "lz4", "batch.size": 2000}
        async with AsyncProducer(config) as producer:
            while not self._stopping.is_set():
                for _ in range(_burst(dice)):
                    value = self.loose.next_value(dice.choice((0, 20, 1000)))
                    await producer.send(TOPIC, value, on_delivery=self.loose.note(value))
                await asyncio.sleep(dice.uniform(0.01, 0.06))
            await producer.flush(SETTLED_WITHIN_S)


def _burst(dice: random.Random) -> int:
    return BURST if dice.random() < 0.03 else dice.randint(1, 20)


class CopyMember:
    """A `client_copy_process` and what it has told so far."""

    def __init__(self, options: ClientCopyOptions, errors: Path) -> None:
        self.told: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        with errors.open("ab") as stderr:
            self.process = subprocess.Popen(
                dies_with_us(
                    [
                        sys.executable,
                        "-m",
                        "tests.support.client_copy_process",
                        json.dumps(asdict(options)),
                    ]
                ),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                told = json.loads(line)
                self.told[told["what"]] += 1
                if told["what"] != "committed":
                    self.reasons[f"{told['what']}: {told['detail'][:200]}"] += 1

    def leave(self) -> None:
        self.process.terminate()
        assert self.process.wait(SETTLED_WITHIN_S) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SETTLED_WITHIN_S)


class ClientHarness:
    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        kills: int,
        cuts: int,
        transactions: bool = False,
        is_impatient: bool = False,
    ) -> None:
        self._copy_errors = directory / "copy-stderr.txt"
        self._dice = random.Random(seed)
        self._plan = ["kill"] * kills + ["cut"] * cuts
        self._dice.shuffle(self._plan)
        self._transactions = transactions
        self._copy_protocol = self._dice.choice(("classic", "consumer"))
        self.events: Counter[str] = Counter()
        self._broker = LinkedBroker(directory / "broker", (PRODUCING, CONSUMING), BROKER_OVERRIDES)
        self._broker.process.start()
        self._is_impatient = is_impatient
        self.feeds = Feeds(self._link(PRODUCING).address, seed, is_impatient=is_impatient)
        self._groups: dict[str, list[MemberProcess]] = {}
        self._live: dict[str, list[MemberProcess]] = {}
        self.copies: list[CopyMember] = []

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def _link(self, name: str) -> CuttableLink:
        return self._broker.links[name]

    def close(self) -> None:
        for member in (each for members in self._groups.values() for each in members):
            if member.process.poll() is None:
                member.kill()
        for copy in self.copies:
            copy.kill()
        self._broker.close()

    def run(self) -> None:
        with RawClient(self.bootstrap) as client:
            for topic in (TOPIC, COPY):
                create_topic(client, topic, PARTITIONS)
        if self._transactions:
            for number in range(2):
                self._join_copying(number)
        else:
            for strategy, protocol in (CLASSIC, NEW):
                for client_name in ("tidelog", "tidelog-async"):
                    self._join(client_name, strategy, protocol)
        self.feeds.start()
        for event in self._plan:
            time.sleep(self._dice.uniform(0, 0.4))
            self._kill() if event == "kill" else self._cut()
            self._require_alive()
        self.feeds.stop()
        self.check()

    # Members

    def _join(self, client: str, strategy: str, protocol: str) -> None:
        options = MemberOptions(
            client,
            self._link(CONSUMING).address,
            f"group-{protocol}",
            TOPIC,
            strategy,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            protocol=protocol,
        )
        member = MemberProcess(options)
        self._groups.setdefault(protocol, []).append(member)
        self._live.setdefault(protocol, []).append(member)

    def _replace_member(self) -> None:
        live = self._live[self._dice.choice(sorted(self._live))]
        member = live.pop(self._dice.randrange(len(live)))
        self.events["replaced"] += 1
        member.leave()
        self._join(member.options.client, member.options.strategy, member.options.protocol)

    def _join_copying(self, number: int) -> None:
        options = ClientCopyOptions(
            bootstrap=self._link(CONSUMING).address,
            source=TOPIC,
            target=COPY,
            group="copying",
            transactional_id=f"copying-{number}",
            protocol=self._copy_protocol,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        self.copies.append(CopyMember(options, self._copy_errors))

    def _require_alive(self) -> None:
        self.feeds.require_alive()
        processes = [member.process for live in self._live.values() for member in live]
        processes += [copy.process for copy in self.copies]
        ended = sum(process.poll() is not None for process in processes)
        said = self._copy_errors.read_text() if self._copy_errors.exists() else ""
        assert not ended, f"{ended} members ended by themselves\n{said[-3000:]}"

    # Events

    def _kill(self) -> None:
        self.events["kill"] += 1
        self._broker.process.kill()
        time.sleep(self._dice.choice((0, 0.2)))
        self._broker.process.start()
        if self._live and self._dice.random() < 0.2:
            self._replace_member()

    def _cut(self) -> None:
        """Of one link or of both."""
        names = self._dice.choice(((PRODUCING,), (CONSUMING,), (PRODUCING, CONSUMING)))
        links = [self._link(name) for name in names]
        how = self._dice.choices(
            ("reset", "cut", "answers lost", "frozen", "frozen for long"), (8, 4, 6, 3, 1)
        )[0]
        self.events[how] += 1
        for link in links:
            if how.startswith("frozen"):
                link.freeze()
            elif how == "answers lost":
                link.swallow_answers()
            else:
                link.cut()
        match how:
            case "reset":
                pass
            case "frozen for long":
                time.sleep(REQUEST_TIMEOUT_MS / 1000 + 0.5)
            case _:
                time.sleep(self._dice.uniform(0.02, 0.3))
        for link in links:
            if how == "answers lost":
                link.cut()
            link.heal()

    # What came of it

    def check(self) -> None:
        found = {partition: self.read(TOPIC, partition) for partition in range(PARTITIONS)}
        check_records(self.feeds.sent, found, may_fail=self._is_impatient)
        if self._transactions:
            self._check_copy(found)
        else:
            self._check_groups(found)

    def _check_groups(self, found: Mapping[int, list[Found]]) -> None:
        everything = {
            partition: {row.offset for row in rows} for partition, rows in found.items() if rows
        }
        deadline = time.monotonic() + SETTLED_WITHIN_S
        for protocol, members in self._groups.items():
            while (read := consumed(members)) != everything:
                self._require_alive()
                left = {p: len(offsets - read.get(p, set())) for p, offsets in everything.items()}
                assert time.monotonic() < deadline, f"{protocol}: records not read: {left}"
                time.sleep(0.2)
            for member in self._live.pop(protocol):
                member.leave()
            assert overlaps(members) == [], protocol
            assert misdeliveries(members) == [], protocol

    def _check_copy(self, found: Mapping[int, list[Found]]) -> None:
        ends = {partition: rows[-1].offset + 1 for partition, rows in found.items() if rows}
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while (committed := self._committed()) != ends:
            self._require_alive()
            assert time.monotonic() < deadline, f"committed {committed}, the ends are {ends}"
            time.sleep(0.2)
        for copy in self.copies:
            copy.leave()
        for partition, rows in found.items():
            copied = [row.value for row in self.read(COPY, partition)]
            wanted = [transformed(row.value) for row in rows]
            assert len(copied) == len(set(copied)), f"{partition}: copied twice"
            assert set(wanted) <= set(copied), f"{partition}: records are not copied"
            assert copied == wanted, f"{partition}: the copy has another order, or more"

    def _committed(self) -> dict[int, int]:
        consumer = ForeignConsumer({"bootstrap.servers": self.bootstrap, "group.id": "copying"})
        places = [ForeignPartition(TOPIC, index) for index in range(PARTITIONS)]
        found = consumer.committed(places, SETTLED_WITHIN_S)
        consumer.close()
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def read(self, topic: str, partition: int) -> list[Found]:
        """Everything to the end of the log, by a client that is not under test. An open
        transaction would not let it get there."""
        with RawClient(self.bootstrap) as client:
            end = list_offset(client, topic, LATEST, partition).offset
        consumer = ForeignConsumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        rows: list[Found] = []
        deadline = time.monotonic() + SETTLED_WITHIN_S
        try:
            consumer.assign([ForeignPartition(topic, partition, 0)])
            while time.monotonic() < deadline:
                for message in consumer.consume(5000, 0.05):
                    error, offset = message.error(), message.offset()
                    assert offset is not None
                    if error is None:
                        rows.append(Found(offset, message.value() or b""))
                    elif error.code() == KafkaError._PARTITION_EOF and offset >= end:
                        return rows
        finally:
            consumer.close()
        raise AssertionError(f"offset {end} of {topic}-{partition} is not reached")

    def summary(self) -> str:
        sent = sum(len(each.sent) for each in self.feeds.sent)
        unknown = sum(told.offset < 0 for each in self.feeds.sent for told in each.acked.values())
        kills = self.events["kill"]
        cuts = ", ".join(
            f"{count} {how}" for how, count in sorted(self.events.items()) if how != "kill"
        )
        failed = sum(len(each.failed) for each in self.feeds.sent)
        text = (
            f"{sent} records sent, {failed} failed, {unknown} acknowledged without offset; "
            f"{kills} kills, {cuts}"
        )
        if not self._transactions:
            members = sum(len(each) for each in self._groups.values())
            return f"{text}; {members} members in {len(self._groups)} groups"
        told: Counter[str] = sum((copy.told for copy in self.copies), Counter())
        return f"{text}; transactions: " + ", ".join(f"{n} {what}" for what, n in told.items())


def check_records(
    sents: Sequence[SentRecords], found: Mapping[int, list[Found]], *, may_fail: bool = False
) -> None:
    """What lies in the partitions against what was sent and acknowledged."""
    values = [row.value for rows in found.values() for row in rows]
    twice = [value[:20] for value, times in Counter(values).items() if times > 1]
    assert not twice, f"{len(twice)} records are there twice: {twice[:5]}"
    invented = set(values).difference(*(sent.sent for sent in sents))
    assert not invented, f"nobody has sent {sorted(invented)[:3]}"
    for sent in sents:
        failures = sorted(set(sent.failed.values()))
        assert may_fail or not failures, f"{len(sent.failed)} records failed: {failures[:3]}"
        open_count = len(sent.sent) - len(sent.acked) - len(sent.failed)
        assert not open_count, f"{open_count} records have no outcome"
        lost = sent.acked.keys() - set(values)
        assert not lost, f"{len(lost)} acknowledged records are lost: {sorted(lost)[:3]}"
        for partition, rows in found.items():
            _check_places(sent, partition, rows)


def _check_places(sent: SentRecords, partition: int, rows: Sequence[Found]) -> None:
    order = {value: number for number, value in enumerate(sent.sent)}
    own = [row for row in rows if row.value in order]
    numbers = [order[row.value] for row in own]
    assert numbers == sorted(numbers), f"{sent.name} records of {partition} are out of order"
    for row in own:
        if row.value in sent.failed:
            continue
        told = sent.acked[row.value]
        assert (told.partition, told.offset) in ((partition, row.offset), (partition, -1)), (
            f"{told} lies at {partition}:{row.offset}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=now_ms() % 100_000)
    parser.add_argument("--transactions", action="store_true")
    parser.add_argument("--impatient", action="store_true", help="records may fail")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="client-harness-") as directory:
        harness = ClientHarness(
            Path(directory),
            seed=arguments.seed,
            kills=arguments.kills,
            cuts=arguments.cuts,
            transactions=arguments.transactions,
            is_impatient=arguments.impatient,
        )
        try:
            harness.run()
        except AssertionError as failure:
            raise AssertionError(f"seed {arguments.seed}: {harness.summary()}") from failure
        finally:
            harness.close()
            for copy in harness.copies:
                for reason, times in copy.reasons.most_common():
                    sys.stderr.write(f"{times} x {reason}\n")
    sys.stdout.write(
        f"seed {arguments.seed}: {harness.summary()}; {time.monotonic() - started:.0f} s, "
        "all well\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
