"""Over a TLS listener: Produce, Fetch, and many clients that shake hands.

Both peers have the same certificate, of an RSA key of 2048 bits as most have, and the same
listener; the client is OpenSSL's. A handshake is counted from the connect to the answer of an
ApiVersions request, with several clients at once.
"""

from __future__ import annotations

import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import wire
from bench.arena import Arena, Sample, alternate, best, with_broker_cpu
from bench.peers import TLS_PORT, BrokerProcess
from bench.raw_client import RawClient
from bench.table import Figure, Report
from bench.tools import ToolFailed
from bench.wire import Batch, batch_filling
from tidelog.tools.free_ports import free_port

TITLE = "TLS: one connection, and handshakes"
TOPIC = "bench-tls"
MAX_BYTES = 1 << 20
HANDSHAKES = 500
THREADS = 8


def run(arena: Arena) -> Report:
    folder = arena.data_file("certificates")
    folder.mkdir(parents=True, exist_ok=True)
    certificate = _make_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(folder / "certificate.pem")
    with _brokers(arena, certificate) as (brokers, ports):
        measure = _Measure(arena, brokers, ports, context)
        return Report(TITLE, measure.figures())


def _make_certificate(folder: Path) -> Path:
    """A key store in PEM, for both peers."""
    key, certificate, store = (
        folder / name for name in ("key.pem", "certificate.pem", "store.pem")
    )
    done = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"),
            *("-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ToolFailed(f"openssl: {done.stderr}")
    store.write_text(key.read_text() + certificate.read_text())
    return store


@contextmanager
def _brokers(arena: Arena, store: Path) -> Iterator[tuple[list[BrokerProcess], dict[str, int]]]:
    """With the port of each one's TLS listener, by name."""
    ports = {peer.name: free_port() for peer in arena.peers}
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(
                arena.running(
                    peer,
                    {
                        TLS_PORT: str(ports[peer.name]),
                        "ssl.keystore.type": "PEM",
                        "ssl.keystore.location": str(store),
                    },
                )
            )
            for peer in arena.peers
        ]
        yield brokers, ports


class _Measure:
    def __init__(
        self,
        arena: Arena,
        brokers: Sequence[BrokerProcess],
        ports: dict[str, int],
        context: ssl.SSLContext,
    ) -> None:
        self._size = arena.size
        self._brokers = brokers
        self._ports = ports
        self._context = context

    def figures(self) -> list[Figure]:
        small, large = batch_filling(1_000, 16_384), batch_filling(1_000, 900_000)
        return [
            self._produced("Produce, 16 KB batches", small, self._size.of(2_000, 10_000)),
            self._produced("Produce, 900 KB batches", large, self._size.of(100, 400)),
            self._fetched("Fetch of 1 MB, 16 KB batches", small),
            self._shaken(),
        ]

    def _connect(self, broker: BrokerProcess) -> RawClient:
        return RawClient(self._ports[broker.name], tls=self._context)

    def _produced(self, label: str, batch: Batch, count: int) -> Figure:
        def once(broker: BrokerProcess) -> list[Sample]:
            with self._connect(broker) as client:
                client.create_topic(TOPIC)

                def work() -> Sample:
                    done = client.produce(TOPIC, batch, count)
                    return Sample(done.megabytes_per_second, done.client_busy)

                sample = with_broker_cpu(broker, work)
                client.delete_topic(TOPIC)
            return [sample]

        for broker in self._brokers:
            once(broker)
        rounds = alternate(self._brokers, self._size.rounds, once)
        return Figure(label, "MB/s", best(rounds, 0, higher=True), True, target=1.0)

    def _fetched(self, label: str, batch: Batch) -> Figure:
        batches = self._size.of(100, 300) * 1_000_000 // len(batch.data)

        def once(broker: BrokerProcess) -> list[Sample]:
            with self._connect(broker) as client:

                def work() -> Sample:
                    done = client.fetch_all(TOPIC, batch, batches, max_bytes=MAX_BYTES)
                    return Sample(done.megabytes_per_second, done.client_busy)

                return [with_broker_cpu(broker, work)]

        for broker in self._brokers:
            with broker.connect() as client:
                client.create_topic(TOPIC)
                client.produce(TOPIC, batch, batches)
            once(broker)
        rounds = alternate(self._brokers, self._size.rounds, once)
        return Figure(label, "MB/s", best(rounds, 0, higher=True), True, target=1.0)

    def _shaken(self) -> Figure:
        count = self._size.of(200, HANDSHAKES)

        def once(broker: BrokerProcess) -> list[Sample]:
            return [with_broker_cpu(broker, lambda: self._shake(broker, count))]

        for broker in self._brokers:
            once(broker)
        rounds = alternate(self._brokers, self._size.rounds, once)
        label = f"{count} handshakes, {THREADS} at once"
        return Figure(label, "a second", best(rounds, 0, higher=True), True, target=1.0)

    def _shake(self, broker: BrokerProcess, count: int) -> Sample:
        failures: list[OSError] = []

        def some() -> None:
            try:
                for _ in range(count // THREADS):
                    with self._connect(broker) as client:
                        client.ask(wire.api_versions_request())
            except OSError as failure:
                failures.append(failure)

        threads = [threading.Thread(target=some) for _ in range(THREADS)]
        started, cpu_started = time.perf_counter(), time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        if failures:
            raise failures[0]
        made = count // THREADS * THREADS
        return Sample(made / seconds, (time.process_time() - cpu_started) / seconds)
