"""The faults that a cluster goes through. Each begins, lasts a while, and ends; then all is whole.

killed, all killed     kill -9, started again
rebuilt                kill -9, started again with an empty disk; only if asked for, because the
                       others must be in sync
stopped                SIGTERM, waited for, started again
paused                 SIGSTOP, SIGCONT: it holds its connections and knows nothing
crawling               all brokers and ZooKeeper are paused most of the time, each for itself, as on
                       a machine that has no time for them
isolated               the other brokers do not hear it, nor it them; clients and ZooKeeper do
alone                  it reaches clients only
deaf, mute             one way: it does not hear the other brokers, they do not hear it
parted                 two brokers do not hear each other, the third hears both
reset                  its connections to the other brokers are closed, and new ones too
no ZooKeeper           it does not reach ZooKeeper, or resets
ZooKeeper gone, paused, killed
clients cut, unheard, unanswered    no client reaches a broker; one way
"""

from __future__ import annotations

import random
import shutil
import signal
import threading
from collections.abc import Callable, Collection
from typing import NamedTuple

from tests.support.cluster_network import CLIENTS, ZOOKEEPER, broker_name
from tests.support.faulty_cluster import FaultyCluster

CRAWL_PAUSE_S = (0.1, 2.0)
CRAWL_RUN_S = (0.005, 0.05)


class Fault(NamedTuple):
    name: str
    begin: Callable[[], object]
    end: Callable[[], object]


class Crawl:
    """A process that runs for a moment now and then."""

    def __init__(self, signal_process: Callable[[signal.Signals], object], seed: float) -> None:
        self._signal = signal_process
        self._dice = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            self._signal(signal.SIGSTOP)
            self._over.wait(self._dice.uniform(*CRAWL_PAUSE_S))
            self._signal(signal.SIGCONT)
            self._over.wait(self._dice.uniform(*CRAWL_RUN_S))


class FaultDice:
    """Faults of one cluster, by chance; the same ones for the same seed. `only` names the kinds
    that come up, where not all of them are to.
    """

    def __init__(
        self, cluster: FaultyCluster, dice: random.Random, only: Collection[str] = ()
    ) -> None:
        self._cluster = cluster
        self._dice = dice
        kinds: tuple[tuple[int, Callable[[], Fault]], ...] = (
            (5, self.killed),
            (1, self.all_killed),
            (2, self.two_killed),
            (2, self.stopped),
            (5, self.paused),
            (1, self.crawling),
            (2, self.isolated),
            (2, self.alone),
            (2, self.deaf),
            (2, self.mute),
            (2, self.parted),
            (2, self.reset),
            (2, self.without_zookeeper),
            (1, self.reset_to_zookeeper),
            (1, self.zookeeper_gone),
            (1, self.zookeeper_paused),
            (1, self.zookeeper_killed),
            (1, self.clients_cut),
            (1, self.clients_unheard),
            (1, self.clients_unanswered),
        )
        on_demand: tuple[tuple[int, Callable[[], Fault]], ...] = ((5, self.rebuilt),)
        self._kinds = [row for row in kinds if not only or row[1].__name__ in only]
        self._kinds += [row for row in on_demand if row[1].__name__ in only]

    def roll(self) -> tuple[str, Fault]:
        """The kind, and one of it."""
        weights = [weight for weight, _ in self._kinds]
        ((_, kind),) = self._dice.choices(self._kinds, weights)
        return kind.__name__.replace("_", " "), kind()

    def _any_broker(self) -> int:
        return self._dice.choice(list(self._cluster.brokers))

    # Processes

    def killed(self) -> Fault:
        broker = self._cluster.brokers[number := self._any_broker()]
        return Fault(f"broker {number} killed", broker.kill, broker.start)

    def rebuilt(self) -> Fault:
        broker = self._cluster.brokers[number := self._any_broker()]

        def lose_the_disk() -> None:
            broker.kill()
            shutil.rmtree(broker.data_directory)

        return Fault(f"broker {number} rebuilt", lose_the_disk, broker.start)

    def two_killed(self) -> Fault:
        return self._many_killed(self._dice.sample(list(self._cluster.brokers), 2))

    def all_killed(self) -> Fault:
        return self._many_killed(list(self._cluster.brokers))

    def _many_killed(self, numbers: list[int]) -> Fault:
        brokers = [self._cluster.brokers[number] for number in numbers]

        def kill() -> None:
            for broker in brokers:
                broker.kill()

        def start() -> None:
            for broker in brokers:
                broker.spawn()
            for broker in brokers:
                broker.wait_until_ready()

        return Fault(f"brokers {numbers} killed", kill, start)

    def stopped(self) -> Fault:
        broker = self._cluster.brokers[number := self._any_broker()]

        def stop() -> None:
            code = broker.stop()
            assert code == 0, f"broker {number} ended with {code}: {broker.log_text()[-2000:]}"

        return Fault(f"broker {number} stopped", stop, broker.start)

    def paused(self) -> Fault:
        broker = self._cluster.brokers[number := self._any_broker()]
        return Fault(
            f"broker {number} paused",
            lambda: broker.signal(signal.SIGSTOP),
            lambda: broker.signal(signal.SIGCONT),
        )

    def crawling(self) -> Fault:
        signals = [broker.signal for broker in self._cluster.brokers.values()]
        signals.append(self._cluster.zookeeper.signal)
        crawls = [Crawl(signal_process, self._dice.random()) for signal_process in signals]

        def begin() -> None:
            for crawl in crawls:
                crawl.begin()

        def end() -> None:
            for crawl in crawls:
                crawl.end()

        return Fault("all crawling", begin, end)

    # Between brokers

    def isolated(self) -> Fault:
        return self._split("isolated", self._any_broker())

    def alone(self) -> Fault:
        return self._split("alone", self._any_broker(), ZOOKEEPER)

    def _split(self, name: str, number: int, *also: str) -> Fault:
        def split() -> None:
            self._cluster.network.part([broker_name(number)], [*self._others(number), *also])

        return Fault(f"broker {number} {name}", split, self._heal)

    def deaf(self) -> Fault:
        number = self._any_broker()

        def block() -> None:
            for other in self._others(number):
                self._cluster.network.block(other, broker_name(number))

        return Fault(f"broker {number} deaf", block, self._heal)

    def mute(self) -> Fault:
        number = self._any_broker()

        def block() -> None:
            for other in self._others(number):
                self._cluster.network.block(broker_name(number), other)

        return Fault(f"broker {number} mute", block, self._heal)

    def parted(self) -> Fault:
        one, other = self._dice.sample(list(self._cluster.brokers), 2)

        def part() -> None:
            self._cluster.network.part([broker_name(one)], [broker_name(other)])

        return Fault(f"brokers {one} and {other} parted", part, self._heal)

    def reset(self) -> Fault:
        number = self._any_broker()

        def sever() -> None:
            for other in self._others(number):
                self._cluster.network.sever(broker_name(number), other)

        return Fault(f"broker {number} reset", sever, self._heal)

    def _others(self, number: int) -> list[str]:
        return [broker_name(other) for other in self._cluster.brokers if other != number]

    def _heal(self) -> None:
        self._cluster.network.heal()

    # ZooKeeper

    def without_zookeeper(self) -> Fault:
        name = broker_name(self._any_broker())
        return Fault(
            f"{name} without ZooKeeper",
            lambda: self._cluster.network.part([name], [ZOOKEEPER]),
            self._heal,
        )

    def reset_to_zookeeper(self) -> Fault:
        name = broker_name(self._any_broker())
        return Fault(
            f"{name} refused by ZooKeeper",
            lambda: self._cluster.network.sever(name, ZOOKEEPER),
            self._heal,
        )

    def zookeeper_gone(self) -> Fault:
        names = [broker_name(number) for number in self._cluster.brokers]
        return Fault(
            "ZooKeeper gone",
            lambda: self._cluster.network.part(names, [ZOOKEEPER]),
            self._heal,
        )

    def zookeeper_paused(self) -> Fault:
        zookeeper = self._cluster.zookeeper
        return Fault("ZooKeeper paused", zookeeper.pause, zookeeper.resume)

    def zookeeper_killed(self) -> Fault:
        zookeeper = self._cluster.zookeeper
        return Fault("ZooKeeper killed", zookeeper.kill, zookeeper.start)

    # Clients

    def clients_cut(self) -> Fault:
        name = broker_name(self._any_broker())
        return Fault(
            f"{name} cut from clients",
            lambda: self._cluster.network.sever(CLIENTS, name),
            self._heal,
        )

    def clients_unheard(self) -> Fault:
        name = broker_name(self._any_broker())
        return Fault(
            f"clients unheard by {name}",
            lambda: self._cluster.network.block(CLIENTS, name),
            self._heal,
        )

    def clients_unanswered(self) -> Fault:
        name = broker_name(self._any_broker())
        return Fault(
            f"clients unanswered by {name}",
            lambda: self._cluster.network.block(name, CLIENTS),
            self._heal,
        )
