"""Groups of real clients in processes of their own, through random events.

A group has 1 to 8 members of one library, or of several, with one assignor. Members join, leave,
are killed and come back (in a static group under the name they had), or are stopped for a while,
shorter or longer than their session, while records keep coming. Each group takes its share of the
events; several groups live at once.

What must hold:
- no partition is two members' at one time;
- an owner begins where the commits before it end and goes on record by record, so that no record
  is skipped and no answered commit is lost (`group_process.misdeliveries`);
- whenever the group is left in peace, all partitions are shared out evenly and everything is read.

With --protocol consumer the members (tidelog's and confluent-kafka's) use the new protocol
(KIP-848) with the assignors of the broker. There the name of a static member that was killed is not
free before its session is over (UNRELEASED_INSTANCE_ID ends who tries); the classic protocol gives
it away at once.

With --protocol mixed the members of each group are tidelog's, confluent-kafka's and Java's, and the
groups are of either protocol.

    python -m tests.support.group_harness --events 200 [--seed 7] [--protocol consumer|mixed]
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from tests.support.broker_process import BrokerProcess
from tests.support.group_process import (
    MemberOptions,
    MemberProcess,
    consumed,
    misdeliveries,
    overlaps,
)
from tests.support.raw_batch import now_ms
from tests.support.raw_client import RawClient, create_topic

PARTITIONS = 8
MEMBERS_MAX = 8
ROUND = 10  # records a partition between two events
GROUPS_AT_ONCE = 2
PEACE_WITHIN_S = 60.0
SESSION_TIMEOUT_MS = 5_000
BROKER_OVERRIDES = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "5",
}


@dataclass(frozen=True)
class GroupKind:
    client: str  # several, joined by +, for a group of which each member is one of them
    strategy: str
    is_static: bool = False
    protocol: str = "classic"

    @property
    def keeps_names(self) -> bool:
        """Whether a name stays that of a killed member until its session is over."""
        return self.is_static and self.protocol == "consumer"

    def __str__(self) -> str:
        return f"{self.client} {self.strategy}{' static' if self.is_static else ''}"


CLASSIC_KINDS = (
    GroupKind("confluent", "range"),
    GroupKind("confluent", "roundrobin", is_static=True),
    GroupKind("confluent", "cooperative-sticky"),
    GroupKind("confluent", "cooperative-sticky", is_static=True),
    GroupKind("kafka-python", "range", is_static=True),
    GroupKind("kafka-python", "roundrobin"),
    GroupKind("kafka-python", "sticky"),
    GroupKind("kafka-python", "cooperative-sticky"),
    GroupKind("aiokafka", "range"),
    GroupKind("aiokafka", "roundrobin", is_static=True),
    GroupKind("aiokafka", "sticky"),
    GroupKind("tidelog", "range"),
    GroupKind("tidelog-async", "sticky", is_static=True),
    GroupKind("tidelog+confluent", "roundrobin"),
    GroupKind("tidelog+tidelog-async+confluent", "cooperative-sticky"),
)
CONSUMER_KINDS = tuple(
    GroupKind(client, strategy, is_static, "consumer")
    for client in ("confluent", "tidelog+confluent")
    for strategy in ("range", "uniform")
    for is_static in (False, True)
)
# Java's members need the jars of Kafka.
MIXED = "tidelog+tidelog-async+confluent+java"
MIXED_KINDS = (
    GroupKind(MIXED, "range"),
    GroupKind(MIXED, "roundrobin", is_static=True),
    GroupKind("tidelog+tidelog-async+java", "sticky"),
    GroupKind(MIXED, "cooperative-sticky"),
    GroupKind(MIXED, "uniform", protocol="consumer"),
    GroupKind(MIXED, "range", is_static=True, protocol="consumer"),
)
KINDS = {"classic": CLASSIC_KINDS, "consumer": CONSUMER_KINDS, "mixed": MIXED_KINDS}


class GroupLife:
    """One group from its first member to its last."""

    def __init__(self, bootstrap: str, name: str, kind: GroupKind, seed: str) -> None:
        self.kind = kind
        self._bootstrap = bootstrap
        self._name = name
        self._dice = random.Random(seed)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._count = 0  # records a partition
        self.members: list[MemberProcess] = []
        self.live: list[MemberProcess] = []
        self.events: Counter[str] = Counter()

    def run(self, events: int) -> None:
        with RawClient(self._bootstrap) as client:
            create_topic(client, self._name, PARTITIONS)
        try:
            self._join()
            for number in range(events):
                self._event()
                self._feed()
                time.sleep(self._dice.choice((0, 0.3, 1.0)))
                if number % 4 == 3:
                    self._peace()
            self._peace()
            for member in self.live:
                member.leave()
            self._check()
        except AssertionError as failure:
            raise AssertionError(f"{self.kind}: {failure}\n{self._story()}") from failure
        finally:
            self.close()

    def close(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.kill()

    # Events

    def _event(self) -> None:
        choices = ["join"] * 3 if len(self.live) < MEMBERS_MAX else []
        if len(self.live) > 1:
            choices += ["leave", "leave", "kill"]
        choices += ["restart", "kill and restart", "pause", "long pause"]
        event = self._dice.choice(choices)
        self.events[event] += 1
        if event == "join":
            self._join()
            return
        if "pause" in event:
            self._pause(is_long=event == "long pause")
            return
        member = self.live.pop(self._dice.randrange(len(self.live)))
        if "kill" in event:
            member.kill()
        else:
            member.leave()
        if "restart" in event:
            if self.kind.keeps_names and "kill" in event:
                time.sleep(SESSION_TIMEOUT_MS / 1000 + 1)
            self._join(member.options.instance)

    def _join(self, instance: str | None = None) -> None:
        if self.kind.is_static and instance is None:
            known = self.members if self.kind.keeps_names else self.live
            taken = {member.options.instance for member in known}
            instance = next(f"i{n}" for n in itertools.count() if f"i{n}" not in taken)
        options = MemberOptions(
            self._dice.choice(self.kind.client.split("+")),
            self._bootstrap,
            self._name,
            self._name,
            self.kind.strategy,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            instance=instance,
            protocol=self.kind.protocol,
        )
        member = MemberProcess(options)
        self.members.append(member)
        self.live.append(member)

    def _pause(self, *, is_long: bool) -> None:
        # Whoever is stopped in the middle of a rebalance may learn of a generation that is over.
        self._feed()
        self._peace()
        member = self._dice.choice(self.live)
        pause_s = SESSION_TIMEOUT_MS / 1000 + 1.5 if is_long else 1.0
        member.stop(pause_s, is_evicted=is_long)

    def _feed(self) -> None:
        for number in range(self._count, self._count + ROUND):
            for partition in range(PARTITIONS):
                self._producer.produce(self._name, b"%d" % number, partition=partition)
        assert self._producer.flush(30) == 0
        self._count += ROUND

    # What must hold

    def _peace(self) -> None:
        deadline = time.monotonic() + PEACE_WITHIN_S
        everything = {partition: set(range(self._count)) for partition in range(PARTITIONS)}
        while not (self._is_shared_out() and consumed(self.members) == everything):
            dead = [member for member in self.live if member.process.poll() is not None]
            assert not dead, f"{len(dead)} members ended by themselves"
            assert time.monotonic() < deadline, "no peace"
            time.sleep(0.05)

    def _is_shared_out(self) -> bool:
        owned = [member.owned for member in self.live]
        most = -(-PARTITIONS // len(owned))
        return (
            sum(map(len, owned)) == PARTITIONS
            and set().union(*owned) == set(range(PARTITIONS))
            and all(len(partitions) <= most for partitions in owned)
        )

    def _check(self) -> None:
        assert overlaps(self.members) == []
        assert misdeliveries(self.members) == []

    def _story(self) -> str:
        lines = [f"events {dict(self.events)}, {self._count} records a partition"]
        for member in self.members:
            state = "live" if member in self.live else "gone"
            failed = [event for event in member.events if event["what"] == "commit failed"]
            lines.append(
                f"{member.process.pid} {member.options.instance or ''} {state}: owns "
                f"{sorted(member.owned)}, {len(member.events)} lines, commits failed {failed[-1:]}"
            )
        found = consumed(self.members)
        lines += [
            f"partition {partition}: not read {sorted(missing)[:5]}"
            for partition in range(PARTITIONS)
            if (missing := set(range(self._count)) - found.get(partition, set()))
        ]
        return "\n".join(lines)


class GroupHarness:
    def __init__(self, directory: Path, kinds: Sequence[GroupKind], *, seed: int) -> None:
        self._kinds = kinds
        self._seed = seed
        self.events: Counter[str] = Counter()
        self.broker = BrokerProcess(directory / "broker", BROKER_OVERRIDES)
        self.broker.start()

    def close(self) -> None:
        self.broker.kill()

    def run(self, events: int) -> None:
        share = -(-events // len(self._kinds))
        lives = [
            GroupLife(self.broker.bootstrap, f"group-{number}", kind, f"{self._seed}-{number}")
            for number, kind in enumerate(self._kinds)
        ]
        with ThreadPoolExecutor(GROUPS_AT_ONCE) as pool:
            for life, done in [(life, pool.submit(life.run, share)) for life in lives]:
                done.result()
                self.events += life.events


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--seed", type=int, default=now_ms() % 100_000)
    parser.add_argument("--protocol", choices=sorted(KINDS), default="classic")
    parser.add_argument("--client", help="groups of this library only")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS[arguments.protocol] if (arguments.client or "") in kind.client]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="group-harness-") as directory:
        harness = GroupHarness(Path(directory), kinds, seed=arguments.seed)
        try:
            harness.run(arguments.events)
        finally:
            harness.close()
    events = ", ".join(f"{count} {name}" for name, count in sorted(harness.events.items()))
    sys.stdout.write(
        f"{harness.events.total()} events in {len(kinds)} groups, seed {arguments.seed}: {events}; "
        f"{time.monotonic() - started:.0f} s, all well\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
