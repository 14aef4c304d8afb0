"""`tidelog console` as a process, beside a broker, and for the users of a cluster with SASL."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.support.broker_process import START_TIMEOUT_S, TIDELOG, dies_with_us
from tests.support.console_client import ConsoleClient
from tests.support.eventually import eventually
from tests.support.sasl_broker import PASSWORD, USER, start_sasl_broker
from tidelog.acls import AclBinding, AclOperation, AclPermission, ResourceType
from tidelog.broker_process import ConsoleProcess
from tidelog.client.blocking.admin import Admin
from tidelog.tools.cli.main import main
from tidelog.tools.console.settings import ConsoleSettings

SERVES = re.compile(r"the console serves at (http://[^\s\"]+)")


@contextmanager
def running(*arguments: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as stderr:
        process = subprocess.Popen(
            dies_with_us([*TIDELOG, *arguments]), stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def test_the_console_serves_and_ends_at_once_though_a_page_is_live(
    bootstrap: str, tmp_path: Path
) -> None:
    command = ("console", "-b", bootstrap, "--listen", "http://127.0.0.1:0")
    with running(*command, log=tmp_path / "log") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("tidelog console ready console=http://127.0.0.1:"), line
        assert f"bootstrap.servers={bootstrap}" in line
        url = line.split("console=")[1].split()[0]
        assert "Overview" in page(url)
        with urllib.request.urlopen(f"{url}/overview/live", timeout=60) as live:
            assert live.readline().startswith(b"retry:")
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)  # as `timeout` does: to a process, then its group
            assert process.wait(60) == 0
            live.read()
    assert (tmp_path / "log").read_text() == ""


def test_a_broker_serves_its_console_in_a_process_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = ("serve", "--port", "0", "--data", str(tmp_path / "data"))
    console = ("--console", "http://127.0.0.1:0", "--console-write")
    with running(*command, *console, log=log) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("tidelog ready ")
        eventually(lambda: SERVES.search(log.read_text()) is not None, START_TIMEOUT_S)
        found = SERVES.search(log.read_text())
        assert found is not None
        settings = page(f"{found[1]}/settings")
        assert "read and write" in settings
        assert str(tmp_path / "data") in settings
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with pytest.raises(OSError, match="refused"):
        page(found[1])


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ConsoleProcess, "MODULES", ("jinja2", "no_such_module"))
    assert main(["console"]) == 2
    assert "pip install 'tidelog[console]'" in capsys.readouterr().err
    assert main(["serve", "--console"]) == 1
    assert "pip install 'tidelog[console]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--listen", "0.0.0.0:0"], 1, "nobody would have to log in"),
        (["--listen", "nonsense://x"], 1, "no address"),
        (["--user", "ada"], 2, "go together"),
        (["-X", "no.such.key=1"], 1, "no setting of Kafka's clients"),
        (["-X", "sasl.mechanism=NONE", "-X", "security.protocol=NONE"], 1, "security.protocol"),
        (["--logs", "/no/such/folder"], 1, "no folder"),
    ],
)
def test_what_the_command_cannot_work_with_is_told_at_its_start(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        found = main(["console", *arguments])
    except SystemExit as ended:
        found = int(ended.code or 0)
    assert found == code
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert main(["console", "--listen", address]) == 1
    assert f"cannot listen on {address}" in capsys.readouterr().err


def test_the_time_limit_is_that_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[ConsoleSettings] = []
    monkeypatch.setattr(
        "tidelog.tools.console.server.serve", lambda settings, on_ready: told.append(settings)
    )
    main(["console", "--timeout", "2s"])
    main(["console", "--timeout", "2s", "-X", "request.timeout.ms=700"])
    assert [each.properties["default.api.timeout.ms"] for each in told] == ["2000", "2000"]
    assert [each.properties["request.timeout.ms"] for each in told] == ["2000", "700"]


def test_a_short_password_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "password"
    file.write_text("short\n")
    assert main(["console", "--user", "ada", "--password-file", str(file)]) == 1
    assert "at least 8 characters" in capsys.readouterr().err


def test_a_broker_whose_listeners_all_want_tls_says_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from tidelog.config.definition import ConfigError
    from tidelog.config.listeners import Endpoint
    from tidelog.tools.console_beside import chosen_listener

    tls = Endpoint("SSL", "127.0.0.1", 1, "SSL")
    sasl = Endpoint("SASL", "127.0.0.1", 2, "SASL_PLAINTEXT")
    plain = Endpoint("PLAIN", "127.0.0.1", 3, "PLAINTEXT")
    assert chosen_listener([tls, sasl, plain], is_loopback=True) == plain
    assert chosen_listener([tls, plain, sasl], is_loopback=False) == sasl
    with pytest.raises(ConfigError, match="--config FILE"):
        chosen_listener([tls], is_loopback=True)


def test_requests_run_as_the_user_who_logged_in(start_broker: StartBroker) -> None:
    broker = start_sasl_broker(
        start_broker,
        {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )
    with Admin({"bootstrap.servers": broker.plain_bootstrap}) as admin:
        for result in admin.create_topics(["of-alice", "of-others"]).values():
            result.get()
        allowed = AclBinding(
            ResourceType.TOPIC, "of-alice", f"User:{USER}", AclOperation.ALL, AclPermission.ALLOW
        )
        for done in admin.create_acls([allowed]).values():
            done.get()
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        properties = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
        }
        with ConsoleClient(ConsoleSettings(properties), can_write=True) as console:
            assert console.get("/topics").location.startswith("/login")
            assert console.post("/login", user=USER, password="wrong").status == 403
            assert console.post("/login", user=USER, password=PASSWORD).status == 303
            listed = console.get("/topics").words
            assert "of-alice" in listed
            assert "of-others" not in listed
            assert console.get("/topics/of-others").status in (403, 404)
            refused = console.post("/topics/+new", name="mine", partitions="1")
            assert refused.status == 400
            assert "AUTHORIZATION_FAILED" in refused.words
            assert console.post("/logout").status == 303
            assert console.get("/topics").location.startswith("/login")
