"""Which variables of the environment set which keys, and what wins over what."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.config.broker import BROKER_TABLE
from tidelog.config.definition import ConfigError
from tidelog.config.environment import key_of, means_something_else, variable_of, variables
from tidelog.config.server_properties import load_broker_config

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("KAFKA_LISTENERS", "listeners"),
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_TEST__KEY", "test_key"),
        (
            "KAFKA_LISTENER_NAME_MY___NET_SSL_KEYSTORE_TYPE",
            "listener.name.my-net.ssl.keystore.type",
        ),
        ("KAFKA_A____B", "a-.b"),
    ],
)
def test_names_become_keys_as_in_the_images_of_kafka(name: str, key: str) -> None:
    assert [each.key for each in variables({name: "x"}, with_kafka=True)] == [key]


def test_every_key_has_a_variable_that_sets_it() -> None:
    for key in BROKER_TABLE:
        (found,) = variables({variable_of(key.name): ""}, with_kafka=True)
        assert found.key == key.name


def test_a_key_of_tidelogs_own_needs_its_first_word_once() -> None:
    assert key_of("TIDELOG_LOOP_STALL_WARN_MS", "TIDELOG_") == "tidelog.loop.stall.warn.ms"
    assert key_of("TIDELOG_NUM_PARTITIONS", "TIDELOG_") == "num.partitions"
    assert key_of("TIDELOG_NUM_PARTITONS", "TIDELOG_") == "num.partitons"


def test_variables_of_kafka_count_only_where_they_are_asked_for() -> None:
    environment = {"KAFKA_NUM_PARTITIONS": "3", "PATH": "/bin"}
    assert variables(environment, with_kafka=False) == []
    assert len(variables(environment, with_kafka=True)) == 1


@pytest.mark.parametrize(
    "name",
    [
        *("KAFKA_VERSION", "KAFKA_HEAP_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS", "KAFKA_JMX_OPTS"),
        *("KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL"),
        *("KAFKA_LOG4J_LOGGERS", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_JMX_HOSTNAME"),
        *("KAFKA_SERVICE_HOST", "KAFKA_SERVICE_PORT", "KAFKA_SERVICE_PORT_CLIENTS", "KAFKA_PORT"),
        *("KAFKA_PORT_9092_TCP", "KAFKA_PORT_9092_TCP_ADDR", "TIDELOG_PORT", "KAFKA_", "TIDELOG_"),
    ],
)
def test_variables_that_mean_something_else_are_passed_over(name: str) -> None:
    assert variables({name: "x"}, with_kafka=True) == []


def test_no_variable_of_this_repository_is_taken_for_a_setting() -> None:
    """But for those that set one."""
    places = [*(ROOT / name for name in ("src", "tests", "bench", "docs"))]
    files = [path for place in places for path in place.rglob("*") if path.suffix in (".py", ".md")]
    files += [ROOT / "setup.py", ROOT / "Makefile", ROOT / "CONTRIBUTING.md"]
    files = [path for path in files if not path.name.startswith("test_environment")]
    names = {
        name
        for path in files
        for name in re.findall(r"(?<![A-Z_])TIDELOG_[A-Z][A-Z_]+[A-Z](?!_)", path.read_text())
    }
    wrong = [
        name
        for name in sorted(names)
        if not means_something_else(name) and key_of(name, "TIDELOG_") not in BROKER_TABLE
    ]
    assert {"TIDELOG_PURE", "TIDELOG_COMPILE"} <= names
    assert wrong == []


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nqueued.max.requests=1\nbackground.threads=1\n")
    environment = variables(
        {"KAFKA_QUEUED_MAX_REQUESTS": "2", "KAFKA_BACKGROUND_THREADS": "2"}, with_kafka=True
    )
    config = load_broker_config(file, [("background.threads", "3")], environment=environment)
    named = ("num.partitions", "queued.max.requests", "background.threads")
    assert [config[name] for name in named] == [1, 2, 3]


def test_a_variable_of_tidelog_wins_over_one_of_kafka() -> None:
    environment = variables(
        {"TIDELOG_NUM_PARTITIONS": "7", "KAFKA_NUM_PARTITIONS": "3"}, with_kafka=True
    )
    config = load_broker_config(None, environment=environment)
    assert config["num.partitions"] == 7
    assert "TIDELOG_NUM_PARTITIONS: num.partitions is set again" in config.warnings[0]


def test_a_variable_that_is_no_key_is_named_with_the_nearest_key_and_without_its_value() -> None:
    environment = variables({"KAFKA_NUM_PARTITONS": "hush"}, with_kafka=True)
    (warning, *_) = load_broker_config(None, environment=environment).warnings
    assert warning == (
        "KAFKA_NUM_PARTITONS: unknown configuration key num.partitons; did you mean num.partitions?"
    )
    with pytest.raises(ConfigError, match="refused by --strict: KAFKA_NUM_PARTITONS") as refused:
        load_broker_config(None, environment=environment, strict=True)
    assert "hush" not in str(refused.value)
