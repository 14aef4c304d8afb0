"""`tidelog config validate`, `explain` and `diff`: what server.properties say, without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidelog.client.admin.configs import ConfigEntry, ConfigSource
from tidelog.config.broker import BROKER_TABLE, BrokerConfig
from tidelog.config.definition import ConfigError
from tidelog.tools.cli.main import main
from tidelog.tools.config_comparison import differences, side_of_broker, side_of_file

WRONG = """\
# everything is wrong with this one
num.partitions=many
log.segment.byte=5
replica.fetch.wait.max.ms=90000
num.partitions=0
log.dirs=a,a
zookeeper.set.acl=true
ssl.key.password=hush
listeners=PLAINTEXT:/9092
principal.builder.class=x.Y
"""


def file_with(tmp_path: Path, text: str, name: str = "server.properties") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_everything_that_is_wrong_is_said_at_once_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_with(tmp_path, WRONG)
    assert main(["config", "validate", file]) == 1
    lines = [line.removeprefix(f"{file}:") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == (
        "3: warning: unknown configuration key log.segment.byte; did you mean log.segment.bytes?"
    )
    assert "4: error: replica.fetch.wait.max.ms must not be above replica.lag.time.max.ms" in lines
    begins = [line.partition(":")[0] for line in lines]
    assert begins == ["3", "4", "4", "5", "5", "6", "7", "9", "10"]
    assert any(line.startswith("5: error: Invalid value 0") for line in lines)
    assert any(line.startswith("5: warning: num.partitions is set again") for line in lines)
    assert not any("hush" in line for line in lines)


def test_a_file_with_warnings_alone_is_valid_unless_it_has_to_be_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_with(tmp_path, "com.example.key=1\nnum.partitions=3\n")
    assert main(["config", "validate", file]) == 0
    assert main(["config", "validate", "--strict", file, "-o", "json"]) == 1
    (row,) = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert (row["line"], row["level"], row["key"]) == (1, "warning", "com.example.key")


TLS = """\
listeners=EXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9093
listener.security.protocol.map=EXT:SSL,PLAINTEXT:PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location=server.pem
ssl.truststore.type=PEM
ssl.truststore.location=ca.pem
ssl.client.auth=required
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ssl.cipher.suites=FOO", "8: error: listener EXT: ssl.cipher.suites: FOO is not known"),
        (
            "listener.name.ext.ssl.enabled.protocols=TLSv9",
            "8: error: listener EXT: ssl.enabled.protocols: TLSv9 is not spoken here",
        ),
        (
            "ssl.endpoint.identification.algorithm=x",
            "8: error: listener EXT: ssl.endpoint.identification.algorithm=x",
        ),
        (
            "ssl.principal.mapping.rules=RULE:(/x",
            "8: error: listener EXT: ssl.principal.mapping.rules: ",
        ),
        ("ssl.keystore.type=x", "8: error: listener EXT: ssl.keystore.type=x is not known"),
        ("ssl.keystore.location=", " error: listener EXT: a TLS listener needs a key"),
        ("ssl.truststore.location=", ": error: listener EXT: ssl.client.auth=required needs"),
        ("ssl.truststore.password=x", ": error: listener EXT: ssl.truststore.password cannot be"),
    ],
)
def test_tls_that_no_listener_could_start_with_is_an_error_without_a_look_at_the_stores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, said: str
) -> None:
    assert main(["config", "validate", file_with(tmp_path, TLS)]) == 0
    assert main(["config", "validate", file_with(tmp_path, f"{TLS}{change}\n")]) == 1
    assert said in capsys.readouterr().out


def test_a_good_file_and_one_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "validate", file_with(tmp_path, "num.partitions=3\n")]) == 0
    assert capsys.readouterr().out == ""
    assert main(["config", "validate", str(tmp_path / "none")]) == 1
    assert "cannot read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "properties",
    [
        {"num.partitions": "x", "background.threads": "y"},
        {"listeners": "A://:1", "log.dirs": ","},
        {"broker.id": "x"},
        {"super.users": "User:a", "log.roll.ms": "0"},
        {"broker.id": "1", "node.id": "2", "super.users": "User:a"},
    ],
)
def test_the_first_problem_is_what_a_start_says(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig(properties)
    problems = BrokerConfig.problems(properties)
    assert str(problems[0]) == str(raised.value)
    assert len({str(problem) for problem in problems}) == len(problems)


@pytest.mark.parametrize("key", BROKER_TABLE, ids=lambda key: key.name)
def test_every_key_is_explained(key: object, capsys: pytest.CaptureFixture[str]) -> None:
    name = getattr(key, "name", "")
    assert main(["config", "explain", name, "-o", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)[0]
    assert facts["what"]
    assert facts["effect"].partition(":")[0] in ("wired", "checked", "refused", "harmless")


def test_an_explanation_names_type_default_change_topic_key_and_variable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["config", "explain", "log.retention.ms"]) == 0
    printed = capsys.readouterr().out
    for line in (
        "log.retention.ms  (a key of a broker)",
        "  type: long",
        "  change: cluster-wide",
        "  default of: retention.ms",
        "  variable: KAFKA_LOG_RETENTION_MS",
    ):
        assert line in printed.splitlines()
    assert main(["config", "explain", "retention.ms"]) == 0
    assert "default from: log.retention.ms" in capsys.readouterr().out
    assert main(["config", "explain", "min.insync.replicas", "-o", "json"]) == 0
    assert [each["of"] for each in json.loads(capsys.readouterr().out)] == ["broker", "topic"]


def test_an_unknown_key_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "explain", "log.retention.millis"]) == 1
    assert "did you mean log.retention." in capsys.readouterr().err


def test_files_differ_by_values_not_by_their_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = file_with(
        tmp_path, "num.partitions=01\nbroker.id=1\nssl.key.password=hush\nx.y=hush\n", "a"
    )
    right = file_with(tmp_path, "num.partitions=1\nbroker.id=2\nssl.key.password=shush\n", "b")
    assert main(["config", "diff", left, right, "-o", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [(row["key"], row["left"], row["right"]) for row in rows] == [
        ("broker.id", "1", "2"),
        ("ssl.key.password", "(hidden)", "(hidden)"),
        ("x.y", "(hidden)", "(not set)"),
    ]
    assert main(["config", "diff", left, left]) == 0


@pytest.mark.parametrize(
    ("text", "differing"),
    [
        ("", []),
        ("broker.id=-1\n", []),
        ("node.id=7\n", []),
        ("node.id=8\n", ["broker.id", "node.id"]),
    ],
)
def test_a_broker_does_not_differ_from_its_own_file_by_a_number_it_found(
    tmp_path: Path, text: str, differing: list[str]
) -> None:
    entries = {
        name: ConfigEntry(name, "7", ConfigSource.STATIC_BROKER, False, False, 2)
        for name in ("broker.id", "node.id")
    }
    rows = differences(
        side_of_file(Path(file_with(tmp_path, text))), side_of_broker("broker:7", entries)
    )
    assert [row["key"] for row in rows] == differing


def test_a_secret_of_a_broker_cannot_be_compared(tmp_path: Path) -> None:
    file = side_of_file(Path(file_with(tmp_path, "ssl.key.password=hush\nnum.partitions=3\n")))
    entries = {
        name: ConfigEntry(name, value, source, False, value is None, 2)
        for name, value, source in (
            ("ssl.key.password", None, ConfigSource.STATIC_BROKER),
            ("ssl.truststore.password", None, ConfigSource.DEFAULT),
            ("num.partitions", "1", ConfigSource.DEFAULT),
            ("background.threads", "10", ConfigSource.DEFAULT),
        )
    }
    rows = differences(file, side_of_broker("broker:1", entries))
    assert [(row["key"], row["comparison"]) for row in rows] == [
        ("num.partitions", "differs"),
        ("ssl.key.password", "cannot be compared"),
    ]
