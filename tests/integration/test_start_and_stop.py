"""The contract of `tidelog serve`: ready line, clean and hard stop, refusals to start."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.support.broker_process import (
    EXTERNAL_BOOTSTRAP,
    READY_LINE,
    BrokerProcess,
    dies_with_us,
    run_serve,
    serve_command,
)
from tests.support.eventually import eventually
from tests.support.lingering_broker import program_that_lingers
from tests.support.raw_batch import batch
from tests.support.raw_client import (
    RawClient,
    api_versions,
    create_topic,
    fetch_request,
    metadata,
    produce,
    produce_request,
)
from tests.support.zookeeper import ZooKeeperProcess, fresh_chroot, zookeeper_client
from tidelog.controller import znodes

pytestmark = pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="starts its own brokers")

ANY_PORT = "PLAINTEXT://127.0.0.1:0"


@pytest.fixture
def hangups_are_heard() -> Iterator[None]:
    """By brokers that the test starts, also where the suite itself runs under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_the_ready_line_is_the_only_line_on_stdout_and_names_the_port(
    start_broker: StartBroker,
) -> None:
    broker = start_broker({"broker.id": "7"})
    lines = broker.stdout_path.read_text().splitlines()
    assert len(lines) == 1
    ready = READY_LINE.match(lines[0])
    assert ready is not None
    assert ready["data"] == str(broker.data_directory)
    assert broker.broker_id == 7
    with RawClient(broker.bootstrap) as client:
        response = metadata(client, [])
        assert response.cluster_id == broker.cluster_id
        assert [(b.node_id, b.port) for b in response.brokers] == [(7, broker.port)]


@pytest.mark.usefixtures("hangups_are_heard")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_cleanly_and_leaves_the_marker(
    start_broker: StartBroker, number: signal.Signals
) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "kept")
        produce(client, "kept", batch(b"a"))
    broker.signal(number)
    assert broker.process is not None
    assert broker.process.wait(60) == 0
    marker = json.loads((broker.data_directory / ".kafka_cleanshutdown").read_text())
    assert marker == {"version": 0, "brokerEpoch": -1}
    recovery = (broker.data_directory / "recovery-point-offset-checkpoint").read_text()
    assert recovery == "0\n1\nkept 0 1\n"
    high_watermark = (broker.data_directory / "replication-offset-checkpoint").read_text()
    assert high_watermark == "0\n1\nkept 0 1\n"
    files = {p.name: p.stat().st_size for p in (broker.data_directory / "kept-0").iterdir()}
    assert files[f"{0:020}.index"] == 0, "indexes are trimmed"
    assert files[f"{1:020}.snapshot"] == 10


@pytest.mark.usefixtures("hangups_are_heard")
def test_a_terminal_that_closes_with_several_signals_stops_it_cleanly(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    broker.signal(signal.SIGSTOP)
    broker.signal(signal.SIGHUP)
    broker.signal(signal.SIGCONT)
    eventually(lambda: "stopping" in broker.log_text() or not broker.is_alive())
    with suppress(ProcessLookupError):
        broker.signal(signal.SIGHUP)
    assert broker.process is not None
    assert broker.process.wait(60) == 0
    assert (broker.data_directory / ".kafka_cleanshutdown").exists()


@pytest.mark.usefixtures("hangups_are_heard")
def test_a_terminal_that_closes_while_a_stopped_broker_exits_does_not_spoil_the_exit(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    lingers = tmp_path / "lingers"
    broker = start_broker(program=program_that_lingers(lingers))
    broker.signal(signal.SIGHUP)
    eventually(lingers.exists)
    broker.signal(signal.SIGHUP)
    lingers.unlink()
    assert broker.process is not None
    assert broker.process.wait(60) == 0


def test_a_broker_started_under_nohup_outlives_the_terminal(tmp_path: Path) -> None:
    overrides = {"listeners": ANY_PORT, "log.dirs": str(tmp_path / "data")}
    command = ["nohup", *serve_command(overrides)]
    process = subprocess.Popen(
        dies_with_us(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = READY_LINE.match(process.stdout.readline().strip())
        assert ready
        process.send_signal(signal.SIGHUP)
        with RawClient(f"127.0.0.1:{ready['port']}") as client:
            assert api_versions(client)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_clean_marker_is_gone_while_the_broker_runs(start_broker: StartBroker) -> None:
    broker = start_broker()
    assert broker.stop() == 0
    marker = broker.data_directory / ".kafka_cleanshutdown"
    assert marker.exists()
    broker.start()
    assert not marker.exists()


def test_requests_in_hand_are_answered_before_the_stop(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "kept")
        requests = [produce_request("kept", batch(b"%d" % i)) for i in range(50)]
        client.send_bytes(b"".join(client.frame_of(request) for request in requests))
        client.receive(requests[0])
        broker.signal(signal.SIGTERM)
        acked = 1
        try:
            for request in requests[1:]:
                row = client.receive(request).responses[0].partition_responses[0]
                assert row.error_code == 0
                acked += 1
        except ConnectionError:
            pass
    assert broker.process is not None
    assert broker.process.wait(60) == 0
    checkpoint = (broker.data_directory / "recovery-point-offset-checkpoint").read_text()
    assert int(checkpoint.split()[-1]) >= acked


def test_a_waiting_fetch_does_not_hold_up_the_stop(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "quiet")
        client.send(fetch_request("quiet", 0, max_wait_ms=60_000, min_bytes=1))
        time.sleep(0.1)
        started = time.monotonic()
        assert broker.stop() == 0
    assert time.monotonic() - started < 45


def test_a_second_signal_exits_at_once(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.signal(signal.SIGSTOP)
    broker.signal(signal.SIGTERM)
    broker.signal(signal.SIGINT)
    broker.signal(signal.SIGCONT)
    assert broker.process is not None
    assert broker.process.wait(60) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert not (broker.data_directory / ".kafka_cleanshutdown").exists()


def test_a_signal_while_the_start_blocks_exits_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        broker = BrokerProcess(tmp_path / "b", {"zookeeper.connect": address})
        broker.spawn()
        try:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                broker.signal(signal.SIGTERM)
                assert broker.process is not None
                assert broker.process.wait(60) == 128 + signal.SIGTERM
        finally:
            broker.kill()
    assert broker.stdout_path.read_text() == ""


def test_a_signal_while_a_broker_waits_for_a_controller_stops_it_cleanly(
    tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    connect = zookeeper.address + fresh_chroot("waits")
    broker = BrokerProcess(tmp_path / "b", {"zookeeper.connect": connect, "broker.id": "1"})
    broker.start()
    broker.stop()
    with zookeeper_client(connect) as client:
        client.create(znodes.CONTROLLER, znodes.encode_controller(9, 0))
        broker.spawn()
        try:
            eventually(lambda: client.exists(znodes.broker_path(1)) is not None)
            broker.signal(signal.SIGTERM)
            assert broker.process is not None
            assert broker.process.wait(60) == 0
        finally:
            broker.kill()
        assert client.exists(znodes.broker_path(1)) is None, "its session has ended"
    assert broker.stdout_path.read_text() == ""
    assert "Traceback" not in broker.log_text()


def test_a_taken_port_is_named(start_broker: StartBroker, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = f"PLAINTEXT://127.0.0.1:{port}"
        done = run_serve({"log.dirs": str(tmp_path / "data"), "listeners": listeners})
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_data_directory_of_another_broker_is_refused(start_broker: StartBroker) -> None:
    broker = start_broker()
    done = run_serve({"log.dirs": str(broker.data_directory), "listeners": ANY_PORT})
    assert done.returncode == 1
    assert str(broker.data_directory) in done.stderr
    assert "lock" in done.stderr.lower()
    assert "Traceback" not in done.stderr
    with RawClient(broker.bootstrap) as client:
        assert api_versions(client)


@pytest.mark.parametrize(
    "content",
    [
        "version=7\nbroker.id=0\ncluster.id=x\n",
        "version=abc\n",
        "broker.id=0\n",
        "\x00\x00\x00garbage",
    ],
)
def test_a_corrupt_meta_properties_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "meta.properties").write_text(content)
    done = run_serve({"log.dirs": str(tmp_path), "listeners": ANY_PORT})
    assert done.returncode == 1
    assert "meta.properties" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "meta.properties").read_text() == content


def test_another_broker_id_than_the_directory_holds_is_refused(start_broker: StartBroker) -> None:
    broker = start_broker({"broker.id": "1"})
    broker.stop()
    done = run_serve(
        {"log.dirs": str(broker.data_directory), "listeners": ANY_PORT, "broker.id": "2"}
    )
    assert done.returncode == 1
    assert "broker.id" in done.stderr


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "authorizer.class.name",
            "com.example.Authorizer",
            "authorizer.class.name",
        ),
        ("process.roles", "broker", "process.roles"),
        ("log.segment.bytes", "many", "log.segment.bytes"),
        ("log.segment.bytes", "-5", "log.segment.bytes"),
        ("listeners", "SSL://127.0.0.1:0", "SSL"),
        ("listeners", "nonsense", "listeners"),
    ],
)
def test_bad_settings_are_refused_by_name(tmp_path: Path, key: str, value: str, said: str) -> None:
    settings = {"log.dirs": str(tmp_path), "listeners": ANY_PORT, key: value}
    done = run_serve(settings)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_keys_are_warned_of_and_a_strict_start_refuses_them(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("num.partition=3\n\nplugin.key=x\nnum.partition=4\n")
    broker = start_broker({"num.partition": "3"})
    assert "unknown configuration key num.partition; did you mean num.partitions?" in (
        broker.log_text()
    )
    settings = {"log.dirs": str(tmp_path), "listeners": ANY_PORT}
    done = run_serve(settings, ["--config", str(properties), "--strict"])
    assert done.returncode == 1
    for line in (1, 3, 4):
        assert f"line {line}: " in done.stderr


def test_a_properties_file_is_read_and_overrides_win(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "# a comment\nbroker.id=3\nnum.partitions=5\nlisteners=PLAINTEXT://127.0.0.1:0\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    command = serve_command({"num.partitions": "2"}, ["--config", str(properties)])
    process = subprocess.Popen(
        dies_with_us(command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        match = READY_LINE.match(process.stdout.readline())
        assert match is not None
        assert match["broker_id"] == "3"
        with RawClient(f"127.0.0.1:{match['port']}") as client:
            metadata(client, ["auto"], auto_create=True)
            eventually(lambda: len(metadata(client, ["auto"]).topics[0].partitions) == 2)
    finally:
        process.kill()
        process.communicate()


def test_the_version_is_told() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "tidelog"), "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "tidelog" in done.stdout.lower()


def test_idle_memory_and_start_up_time_stay_small(tmp_path: Path) -> None:
    """Loose bounds for noisy machines; the bench measures, this catches a blunder."""
    with BrokerProcess(tmp_path / "b") as broker:
        assert broker.cpu_s() < 3
        assert broker.resident_bytes() < 80 << 20


def held_for_a_while(broker: BrokerProcess) -> None:
    broker.signal(signal.SIGSTOP)
    time.sleep(0.1)
    broker.signal(signal.SIGCONT)


def test_what_holds_the_loop_is_logged_if_asked_for(start_broker: StartBroker) -> None:
    broker = start_broker({"tidelog.loop.stall.warn.ms": "20"})

    def is_told() -> bool:
        held_for_a_while(broker)  # again, in case the monitor had not started
        return "the event loop was held" in broker.log_text()

    eventually(is_told)


def test_what_holds_the_loop_is_not_logged_unasked(start_broker: StartBroker) -> None:
    broker = start_broker({"tidelog.loop.stall.warn.ms": "0"})
    with RawClient(broker.bootstrap) as client:
        for number in range(3):
            held_for_a_while(broker)
            create_topic(client, f"t{number}")
    assert "the event loop was held" not in broker.log_text()
