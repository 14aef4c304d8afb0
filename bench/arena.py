"""Where measures run: the peers there are, how big a run is, and fresh brokers on demand.

Every measure takes its own brokers and leaves no data behind. Rounds alternate between the peers
(A B A B ...), so that a slow minute of the machine hits both; of the rounds the best counts, since
noise only ever makes a round worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from bench.peers import ApacheKafka, BrokerProcess, Peer
from bench.wire import BadAnswer


@dataclass(frozen=True, slots=True)
class Size:
    """How much a run does. quick is for a few minutes in all."""

    quick: bool

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 5

    def of(self, quick: int, full: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one peer."""

    value: float
    client_busy: float | None = None  # share of the round the client's processor time takes
    broker_seconds: float | None = None  # processor time of the broker
    note: str = ""  # what else to know about the round


class Arena:
    """Shared by all measures of one run."""

    def __init__(self, peers: Sequence[Peer], size: Size, data: Path) -> None:
        self.peers = peers
        self.size = size
        self._data = data
        self._serial = 0

    @property
    def kafka(self) -> ApacheKafka | None:
        return next((peer for peer in self.peers if isinstance(peer, ApacheKafka)), None)

    @property
    def tidelog(self) -> Peer | None:
        return next((peer for peer in self.peers if peer.name == "tidelog"), None)

    def data_dir(self, peer: Peer) -> Path:
        self._serial += 1
        return self._data / f"{peer.name}-{self._serial}"

    def data_file(self, name: str) -> Path:
        """A file for a client's input, on the same disk; whoever asks removes it."""
        return self._data / name

    @contextmanager
    def laid_out(
        self, peer: Peer, overrides: Mapping[str, str] | None = None
    ) -> Iterator[BrokerProcess]:
        """A broker over a fresh directory, not started; discarded at the end."""
        broker = BrokerProcess(peer, self.data_dir(peer), overrides or {})
        try:
            yield broker
        except (BadAnswer, OSError) as failure:
            failure.add_note(f"{broker.name} wrote last:\n{broker.last_output()}")
            raise
        finally:
            broker.discard()

    @contextmanager
    def running(
        self, peer: Peer, overrides: Mapping[str, str] | None = None
    ) -> Iterator[BrokerProcess]:
        with self.laid_out(peer, overrides) as broker:
            broker.start()
            yield broker

    @contextmanager
    def brokers(self, overrides: Mapping[str, str] | None = None) -> Iterator[list[BrokerProcess]]:
        """One running broker a peer."""
        with ExitStack() as stack:
            yield [stack.enter_context(self.running(peer, overrides)) for peer in self.peers]


class Served(Protocol):
    """What is measured: a broker, or several as one."""

    @property
    def name(self) -> str: ...

    def cpu_seconds(self) -> float: ...


ServedT = TypeVar("ServedT", bound=Served)


def with_broker_cpu(broker: Served, work: Callable[[], Sample]) -> Sample:
    """The sample of the work, with the processor time the broker used for it."""
    before = broker.cpu_seconds()
    sample = work()
    return replace(sample, broker_seconds=broker.cpu_seconds() - before)


def alternate(
    brokers: Sequence[ServedT],
    rounds: int,
    measure: Callable[[ServedT], Sequence[Sample]],
) -> dict[str, list[list[Sample]]]:
    """Runs the measure on each broker in turn; for each peer its rounds, each a list of samples."""
    taken: dict[str, list[list[Sample]]] = {broker.name: [] for broker in brokers}
    for _ in range(rounds):
        for broker in brokers:
            taken[broker.name].append(list(measure(broker)))
    return taken


def best(
    rounds: Mapping[str, Sequence[Sequence[Sample]]], position: int, *, higher: bool
) -> dict[str, Sample]:
    """Of each peer's rounds the best sample at that position."""
    choose = max if higher else min
    return {
        name: choose((samples[position] for samples in taken), key=lambda sample: sample.value)
        for name, taken in rounds.items()
    }
