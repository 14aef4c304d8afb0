"""Mutated frames, lying lengths, bombs, full disks and damaged files: the others never notice."""

from __future__ import annotations

import gzip
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from tests.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.frame_mutator import (
    SERVED_WEIGHT,
    Barrage,
    GoodClient,
    frames_of_logins,
    login_frames,
    valid_frames,
)
from tests.support.raw_batch import batch, encode_record, read_batches
from tests.support.raw_client import (
    LATEST,
    ClosedByBroker,
    RawClient,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
)
from tests.support.sasl_broker import PASSWORD, USER, start_sasl_broker

FUZZ_FRAMES = int(os.environ.get("TIDELOG_FUZZ_FRAMES", "20000"))
LOGIN_FRAMES = int(os.environ.get("TIDELOG_FUZZ_FRAMES", "400"))  # at each stage of a login
FUZZ_SEED = int(os.environ.get("TIDELOG_FUZZ_SEED", "3"))
MEBIBYTE = 1 << 20
# What a client may say of itself: with PLAIN, with SCRAM, with a delegation token, as a bearer.
TOKENS = [
    f"\0{USER}\0{PASSWORD}".encode(),
    f"bob\0{USER}\0wrong".encode(),
    f"n,,n={USER},r=fyko+d2lbbFgONRv9qkxdawL".encode(),
    b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    b"n,,n=token,r=rOprNGfwEbeRWgbNEkqO,tokenauth=true",
    b"n,,\x01auth=Bearer e30.e30.\x01\x01",
]
KAFKA_STORAGE_ERROR = 56

pytestmark = pytest.mark.timeout(600)


def test_mutated_frames_leave_the_broker_alive_small_and_serving(start_broker: StartBroker) -> None:
    broker = start_broker({"log.index.size.max.bytes": "4096"})
    with RawClient(broker.bootstrap) as client:
        for topic in ("victim", "good"):
            create_topic(client, topic)
    frames = valid_frames(broker.bootstrap, "victim")
    Barrage(broker.bootstrap, frames, seed=0).run(400)
    before = broker.resident_bytes()
    with GoodClient(broker.bootstrap, "good") as good:
        barrage = Barrage(broker.bootstrap, frames, FUZZ_SEED)
        barrage.run(FUZZ_FRAMES)
    assert broker.is_alive(), broker.log_text()[-4000:]
    assert barrage.refused_connections == 0
    grown = broker.resident_bytes() - before
    assert grown < 64 * MEBIBYTE, f"grew by {grown // MEBIBYTE} MiB"
    assert len(good.latencies_s) > 100
    assert not broker.long_stalls()
    assert good.p99_s() < 5.0, f"p99 {good.p99_s():.3f} s, longest {max(good.latencies_s):.3f} s"
    assert "Traceback" not in broker.log_text(), "an error nobody expected was logged"
    assert broker.stop() == 0


def test_mutated_frames_around_a_login_leave_the_broker_alive_small_and_serving(
    start_broker: StartBroker,
) -> None:
    """Before the handshake, between handshake and token, and of a user that has logged in."""
    overrides = {"log.index.size.max.bytes": "4096", "delegation.token.secret.key": "secret"}
    sasl = start_sasl_broker(start_broker, overrides)
    broker = sasl.process
    with RawClient(sasl.plain_bootstrap) as client:
        for topic in ("victim", "good"):
            create_topic(client, topic)
    frames = valid_frames(sasl.plain_bootstrap, "victim")
    login = login_frames(sasl.plain_bootstrap, USER, PASSWORD)
    logins = frames_of_logins(sasl.plain_bootstrap, TOKENS)
    stages = (
        ((), logins * SERVED_WEIGHT + frames),
        (login[:1], logins),
        (login, frames + logins * SERVED_WEIGHT),
    )
    for opening, sent in stages:
        Barrage(sasl.bootstrap, sent, seed=0, opening=opening).run(100)
    before = broker.resident_bytes()
    with GoodClient(sasl.bootstrap, "good", opening=login) as good:
        for opening, sent in stages:
            barrage = Barrage(sasl.bootstrap, sent, FUZZ_SEED, opening=opening)
            barrage.run(LOGIN_FRAMES)
            assert barrage.sent >= LOGIN_FRAMES
            assert barrage.refused_connections == 0
    assert broker.is_alive(), broker.log_text()[-4000:]
    grown = broker.resident_bytes() - before
    assert grown < 64 * MEBIBYTE, f"grew by {grown // MEBIBYTE} MiB"
    assert len(good.latencies_s) > 100
    assert not broker.long_stalls()
    assert good.p99_s() < 5.0, f"p99 {good.p99_s():.3f} s, longest {max(good.latencies_s):.3f} s"
    assert "Traceback" not in broker.log_text(), "an error nobody expected was logged"
    assert PASSWORD not in broker.log_text()
    with RawClient(sasl.bootstrap) as client, pytest.raises(ClosedByBroker):
        create_topic(client, "nobody's")
    assert broker.stop() == 0


def test_connections_that_announce_100_mb_and_send_100_bytes_cost_nothing(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "good")
    before = broker.resident_bytes()
    connections = []
    try:
        with GoodClient(broker.bootstrap, "good") as good:
            for _ in range(60):
                connection = socket.create_connection(("127.0.0.1", broker.port), timeout=60)
                connection.sendall(struct.pack(">i", 100_000_000) + bytes(100))
                connections.append(connection)
            time.sleep(1.0)
        grown = broker.resident_bytes() - before
    finally:
        for connection in connections:
            connection.close()
    assert grown < 30 * MEBIBYTE, f"grew by {grown // MEBIBYTE} MiB"
    assert not broker.long_stalls()
    assert good.p99_s() < 5.0


def test_a_half_closed_client_gets_the_answer_it_waits_for(client: RawClient, topic: str) -> None:
    request = fetch_request(topic, min_bytes=1, max_wait_ms=3_500)
    client.send(request)
    client.socket.shutdown(socket.SHUT_WR)

    response = client.receive(request)

    assert response.responses[0].partitions[0].error_code == 0
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("goes", ["by reset", "by closing"])
def test_sockets_of_clients_that_vanished_go_soon(start_broker: StartBroker, goes: str) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "quiet")
        waits = client.frame_of(fetch_request("quiet", min_bytes=1, max_wait_ms=600_000))
        sent = [b"", struct.pack(">i", 1_000) + bytes(10), waits, waits + waits]
        before = descriptors(broker)
        vanishing = []
        for number in range(400):
            connection = socket.create_connection(("127.0.0.1", broker.port), timeout=60)
            connection.sendall(sent[number % len(sent)])
            if goes == "by reset":
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            vanishing.append(connection)
        for connection in vanishing:
            connection.close()

        eventually(lambda: descriptors(broker) <= before)


def descriptors(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def well_formed_bomb(codec: str, size: int) -> bytes:
    """One record of `size` zeroes, compressed: valid in every other way."""
    record = encode_record(bytes(size), b"k")
    attributes, compressed = {
        "gzip": lambda: (1, gzip.compress(record, 9)),
        "lz4": lambda: (3, lz4.frame.compress(record, block_linked=False, compression_level=9)),
        "zstd": lambda: (4, zstandard.compress(record)),
    }[codec]()
    return batch(records=compressed, count=1, attributes=attributes)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_decompression_bomb_costs_bounded_memory(start_broker: StartBroker, codec: str) -> None:
    broker = start_broker({"message.max.bytes": "4000000"})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "bombed")
        create_topic(client, "good")
        bomb = well_formed_bomb(codec, 512 * MEBIBYTE)
        assert len(bomb) < 4_000_000
        peak = PeakMemory(broker)
        with peak, GoodClient(broker.bootstrap, "good") as good:
            row = produce(client, "bombed", bomb)
        assert row.error_code != 0
        assert list_offset(client, "bombed", LATEST).offset == 0
        assert produce(client, "bombed", batch(b"fine")).error_code == 0
    assert peak.grown_bytes < 256 * MEBIBYTE, f"grew by {peak.grown_bytes // MEBIBYTE} MiB"
    assert not broker.long_stalls()
    assert max(good.latencies_s) < 20.0


class PeakMemory:
    """Resident memory of a broker above where it began, sampled while the block runs."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.grown_bytes = 0

    def __enter__(self) -> None:
        self._before = self.broker.resident_bytes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(0.005):
            self.grown_bytes = max(self.grown_bytes, self.broker.resident_bytes() - self._before)


def fill(client: RawClient, topic: str) -> tuple[int, int]:
    """Produces until the broker refuses: acked records and the error code."""
    acked = 0
    while acked < 10_000:
        row = produce(client, topic, batch(b"%d " % acked + b"x" * 8000))
        if row.error_code:
            return acked, row.error_code
        assert row.base_offset == acked
        acked += 1
    raise AssertionError("the disk never filled up")


def read_values(client: RawClient, topic: str) -> list[int]:
    values: list[int] = []
    while True:
        row = fetch(client, topic, len(values), partition_max_bytes=8 * MEBIBYTE)
        assert row.error_code == 0
        fresh = [
            int((record.value or b"").split(b" ")[0])
            for found in read_batches(row.records)
            for record in found.records()
        ]
        if not fresh:
            return values
        values += fresh


def test_a_file_that_may_not_grow_refuses_the_write_and_others_are_served(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(
        {"log.index.size.max.bytes": "4096", "log.segment.bytes": str(64 * MEBIBYTE)},
        file_size_limit_bytes=2 * MEBIBYTE,
    )
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "full")
        create_topic(client, "roomy")
        acked, code = fill(client, "full")
        assert code == KAFKA_STORAGE_ERROR
        assert acked > 100
        assert produce(client, "roomy", batch(b"fine")).error_code == 0
        assert read_values(client, "full") == list(range(acked))
        assert produce(client, "full", batch(b"small enough")).error_code in (0, 56)
    broker.kill()
    broker.file_size_limit_bytes = None
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert list_offset(client, "full", LATEST).offset in (acked, acked + 1)
        assert produce(client, "full", batch(b"room again")).error_code == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB; needs the right to mount."""
    directory = tmp_path / "small"
    directory.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("may not mount")
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=8m", "tidelog-test", str(directory)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("may not mount")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def test_a_full_disk_refuses_writes_and_goes_on_when_there_is_room_again(
    start_broker: StartBroker, small_disk: Path
) -> None:
    data, spare = small_disk / "data", small_disk / "spare"
    broker = start_broker({"log.dirs": str(data), "log.index.size.max.bytes": "4096"})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "full")
        spare.write_bytes(bytes(2 * MEBIBYTE))
        acked, code = fill(client, "full")
        assert code == KAFKA_STORAGE_ERROR
        assert read_values(client, "full") == list(range(acked))
        spare.unlink()
        eventually(lambda: produce(client, "full", batch(b"%d x" % acked)).error_code == 0)
        assert read_values(client, "full") == list(range(acked + 1))
    broker.kill()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert read_values(client, "full") == list(range(acked + 1))
    broker.kill()


def test_a_segment_cut_short_on_disk_hurts_only_its_own_readers(start_broker: StartBroker) -> None:
    broker = start_broker({"log.segment.bytes": "20000"})
    with RawClient(broker.bootstrap) as client:
        for topic in ("damaged", "good"):
            create_topic(client, topic)
            for i in range(30):
                produce(client, topic, batch(b"%d " % i + b"x" * 2000))
        first = broker.data_directory / "damaged-0" / f"{0:020}.log"
        os.truncate(first, 100)
        with RawClient(broker.bootstrap) as reader:
            try:
                row = fetch(reader, "damaged", 0)
                assert row.error_code != 0 or not read_batches(row.records)
            except ClosedByBroker:
                pass
        assert read_values(client, "good") == list(range(30))
        assert produce(client, "damaged", batch(b"still written")).error_code == 0
    assert broker.is_alive()


@pytest.mark.parametrize("damage", ["missing", "directory", "empty"])
def test_a_segment_that_cannot_be_read_at_start_does_not_stop_the_other_partitions(
    start_broker: StartBroker, damage: str
) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        for topic in ("damaged", "good"):
            create_topic(client, topic)
            produce(client, topic, batch(b"0 x"))
    broker.kill()
    segment = broker.data_directory / "damaged-0" / f"{0:020}.log"
    segment.unlink()
    if damage == "directory":
        segment.mkdir()
    if damage == "empty":
        segment.touch()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert read_values(client, "good") == [0]
        assert produce(client, "good", batch(b"1 x")).base_offset == 1
    if damage == "directory":
        assert "damaged-0" in broker.log_text()
