from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tidelog.config.broker import BrokerConfig
from tidelog.errors import StartupError
from tidelog.tools.cli.main import main

RunBroker = Callable[[BrokerConfig], int]


@pytest.fixture
def broker_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[RunBroker], None]:
    """Puts a function in the place of the broker."""

    def install(run: RunBroker) -> None:
        module = ModuleType("tidelog.broker.process")
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return install


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["--version"])
    assert exit.value.code == 0
    assert capsys.readouterr().out == "tidelog 0.1.0\n"


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["fly"],
        ["serve", "--no-such-option"],
        ["serve", "--override", "log.dirs"],
        ["serve", "--override", "=x"],
        ["serve", "--log-level", "loud"],
        ["serve", "--log-format", "xml"],
    ],
)
def test_wrong_usage_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(argv)
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith("usage: tidelog")


@pytest.mark.parametrize(
    ("argv", "usage"),
    [
        (["serve", "--no-such-option"], "usage: tidelog serve "),
        (["groups", "list", "--grop", "x"], "usage: tidelog groups list "),
        (["transactions", "abort", "--topic", "t"], "usage: tidelog transactions abort "),
        (["groups", "list", "--timeout", "0"], "usage: tidelog groups list "),
        (["dev", "-n", "0"], "usage: tidelog dev "),
        (["zookeeper", "--myid", "1"], "usage: tidelog zookeeper "),
        (["verify-log"], "usage: tidelog verify-log "),
    ],
)
def test_wrong_arguments_show_the_usage_of_their_command(
    argv: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(argv)
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith(usage)


@pytest.mark.parametrize("command", [["--help"], ["groups", "--help"], ["dump-log", "--help"]])
def test_a_reader_that_goes_is_no_error(command: list[str]) -> None:
    run = "import sys; from tidelog.tools.cli.main import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", run, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert errors == b""


@pytest.mark.parametrize("verb", ["groups", "transactions"])
def test_a_command_waits_for_a_broker_as_long_as_it_is_told_and_says_so(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.tools.cli.session.SILENCE_MAX_S", 0.01)
    assert main([verb, "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "200"]) == 1
    waiting, failed = capsys.readouterr().err.splitlines()
    assert waiting == "tidelog: waiting up to 200 ms for 127.0.0.1:1"
    assert failed.startswith("tidelog: error: the brokers: gave up after 200 ms")
    assert failed.endswith("Is a broker running at 127.0.0.1:1? -b names another one.")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--strict", "--override", "log.segment.byte=5", "--override", "x=1"],
            "refused by --strict: --override: unknown configuration key log.segment.byte; did you "
            "mean log.segment.bytes?; --override: unknown configuration key x",
        ),
        (
            ["--override", "num.partitions=0"],
            "Invalid value 0 for configuration num.partitions: Value must be at least 1",
        ),
        (["--config", "/no/such/file"], "cannot read /no/such/file: No such file or directory"),
        (
            ["--override", "sasl.enabled.mechanisms=PLAIN"],
            "sasl.enabled.mechanisms: no listener has SASL, so nobody would have to authenticate; "
            "remove the key, or give a listener the protocol SASL_SSL",
        ),
        (
            ["--override", "client.quota.callback.class=com.example.Quotas"],
            "client.quota.callback.class: no class is loaded here; quotas are decided by Kafka's "
            "default rules; remove the key",
        ),
    ],
)
def test_a_bad_configuration_is_one_line_and_exit_code_1(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *argv]) == 1
    captured = capsys.readouterr()
    assert captured.err == f"tidelog: error: {message}\n"
    assert captured.out == ""


def test_the_broker_gets_the_file_with_the_overrides_over_it(
    broker_runs: Callable[[RunBroker], None], tmp_path: Path
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=3\nnum.partitions=2\n")
    got: list[BrokerConfig] = []

    def run(config: BrokerConfig) -> int:
        got.append(config)
        return 0

    broker_runs(run)
    argv = ["serve", "--config", str(path), "--override", "num.partitions=5"]
    assert main([*argv, "--override", "log.dirs=/a=b", "--override", "num.partitions=6"]) == 0
    assert (got[0].broker_id, got[0].num_partitions) == (3, 6)
    assert got[0].log_dirs == (Path("/a=b"),)


def test_serving_prints_nothing_itself(
    broker_runs: Callable[[RunBroker], None], capsys: pytest.CaptureFixture[str]
) -> None:
    broker_runs(lambda config: 0)
    assert main(["serve"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (StartupError("port 9092 on 127.0.0.1 is taken"), "port 9092 on 127.0.0.1 is taken"),
        (StartupError("two\n  lines"), "two lines"),
        (PermissionError(13, "Permission denied", "/data"), "/data: Permission denied"),
        (OSError("no file"), "no file"),
    ],
)
def test_a_broker_that_cannot_start_is_one_line_and_exit_code_1(
    error: Exception,
    message: str,
    broker_runs: Callable[[RunBroker], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(config: BrokerConfig) -> int:
        raise error

    broker_runs(run)
    assert main(["serve"]) == 1
    assert capsys.readouterr().err == f"tidelog: error: {message}\n"


def test_a_bug_leaves_a_traceback_in_the_log_and_exit_code_1(
    broker_runs: Callable[[RunBroker], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(config: BrokerConfig) -> int:
        raise ZeroDivisionError("division by zero")

    broker_runs(run)
    assert main(["serve"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "level=critical" in lines[0]
    assert "Traceback" in lines[0]
    assert lines[1] == "tidelog: error: a bug in tidelog: ZeroDivisionError: division by zero"


def test_an_interrupt_before_the_broker_runs_exits_with_130(
    broker_runs: Callable[[RunBroker], None],
) -> None:
    def run(config: BrokerConfig) -> int:
        raise KeyboardInterrupt

    broker_runs(run)
    assert main(["serve"]) == 130


def test_the_command_line_alone_imports_no_part_of_the_broker() -> None:
    script = (
        "import sys, tidelog.tools.cli.main\n"
        "print([name for name in sorted(sys.modules) if name.startswith('tidelog.')])\n"
        "print('asyncio' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "['tidelog._compiled', 'tidelog.errors', 'tidelog.tools', 'tidelog.tools.cli', "
        "'tidelog.tools.cli.frame', 'tidelog.tools.cli.main', 'tidelog.tools.cli.session']",
        "False",
    ]


def test_the_broker_loads_what_only_some_listeners_need_when_one_needs_it() -> None:
    """Its start and its memory pay for the rest."""
    seldom = {
        "_hashlib",  # the hash functions of OpenSSL
        "difflib",
        "email",
        "http.client",
        "shutil",
        "tempfile",
        "tidelog.controller.kraft_adoption",
        "tidelog.sasl.scram",
        "tidelog.tools.console",
    }
    script = f"import sys, tidelog.broker.process; print({seldom} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("argv", "listeners", "log_dirs", "delay_ms"),
    [
        ([], "PLAINTEXT://127.0.0.1:9092", "/tmp/kafka-logs", 0),
        (["--port", "1234", "--data", "/d"], "PLAINTEXT://127.0.0.1:1234", "/d", 0),
        (
            ["--port", "1234", "--override", "listeners=PLAINTEXT://127.0.0.1:5"],
            "PLAINTEXT://127.0.0.1:5",
            "/tmp/kafka-logs",
            0,
        ),
        (
            ["--override", "group.initial.rebalance.delay.ms=7"],
            "PLAINTEXT://127.0.0.1:9092",
            "/tmp/kafka-logs",
            7,
        ),
    ],
)
def test_port_and_data_are_short_for_settings_that_an_override_beats(
    argv: list[str],
    listeners: str,
    log_dirs: str,
    delay_ms: int,
    broker_runs: Callable[[RunBroker], None],
) -> None:
    got: list[BrokerConfig] = []

    def run(config: BrokerConfig) -> int:
        got.append(config)
        return 0

    broker_runs(run)
    assert main(["serve", "--strict", *argv]) == 0
    assert got[0].get_str("listeners") == listeners
    assert got[0].log_dirs == (Path(log_dirs),)
    assert got[0].get_int("group.initial.rebalance.delay.ms") == delay_ms


def test_a_broker_with_a_configuration_file_waits_as_kafka_does(
    broker_runs: Callable[[RunBroker], None], tmp_path: Path
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=3\n")
    got: list[BrokerConfig] = []

    def run(config: BrokerConfig) -> int:
        got.append(config)
        return 0

    broker_runs(run)
    assert main(["serve", "--config", str(path)]) == 0
    assert got[0].get_int("group.initial.rebalance.delay.ms") == 3_000
