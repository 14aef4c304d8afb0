"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs over a real metadata store."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.config_broker import (
    ConfigBroker,
    ConfigClusterBroker,
    HasConfig,
    create_topic,
    found_cluster,
)
from tests.support.metadata import in_loop
from tidelog.broker.dynamic_config import DynamicConfig
from tidelog.broker.handlers import alter_configs, describe_configs, incremental_alter_configs
from tidelog.broker.handlers.incremental_alter_configs import Operation
from tidelog.config.broker import BROKER_TABLE, BrokerConfig
from tidelog.config.definition import ConfigType
from tidelog.config.description import Source
from tidelog.config.group import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, GroupConfig
from tidelog.config.topic import TOPIC_TABLE
from tidelog.controller import znodes
from tidelog.errors import ErrorCode
from tidelog.protocol.messages import alter_configs as replace
from tidelog.protocol.messages import incremental_alter_configs as incremental
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = Operation


async def describe(
    broker: HasConfig,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    *,
    synonyms: bool = False,
    documentation: bool = False,
    version: int = 4,
) -> DescribeConfigsResult:
    response = await describe_configs.handle(
        broker.context(version),
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource_type, resource_name=name, configuration_keys=keys
                )
            ],
            include_synonyms=synonyms,
            include_documentation=documentation,
        ),
    )
    assert isinstance(response, DescribeConfigsResponse)
    return response.results[0]


def rows(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert result.error_code == 0, result.error_message
    return {row.name: row for row in result.configs}


async def alter(
    broker: ConfigBroker,
    resources: Iterable[tuple[int, str, dict[str, str | None]]],
    *,
    validate_only: bool = False,
) -> list[tuple[int, str | None]]:
    """Error code and message of each resource."""
    response = await alter_configs.handle(
        broker.context(2),
        replace.AlterConfigsRequest(
            resources=[
                replace.AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=[
                        replace.AlterableConfig(name=key, value=value)
                        for key, value in configs.items()
                    ],
                )
                for resource_type, name, configs in resources
            ],
            validate_only=validate_only,
        ),
    )
    return [(row.error_code, row.error_message) for row in response.responses]


async def increment(
    broker: ConfigBroker,
    resource_type: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[int, str | None]:
    response = await incremental_alter_configs.handle(
        broker.context(1),
        incremental.IncrementalAlterConfigsRequest(
            resources=[
                incremental.AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=[
                        incremental.AlterableConfig(
                            name=key, config_operation=operation, value=value
                        )
                        for key, operation, value in changes
                    ],
                )
            ],
            validate_only=validate_only,
        ),
    )
    (row,) = response.responses
    assert (row.resource_type, row.resource_name) == (resource_type, name)
    return row.error_code, row.error_message


@in_loop
async def test_a_topic_is_described_with_all_keys(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t", {"segment.bytes": " 5000 "})
    result = await describe(broker, TOPIC, "t")
    assert (result.resource_type, result.resource_name) == (TOPIC, "t")
    assert result.error_message == ""
    described = rows(result)
    assert set(described) == {key.name for key in TOPIC_TABLE}
    segment = described["segment.bytes"]
    assert (segment.value, segment.config_source) == ("5000", Source.DYNAMIC_TOPIC)
    assert (segment.read_only, segment.is_sensitive) == (False, False)
    assert segment.config_type == ConfigType.INT
    assert (segment.synonyms, segment.documentation) == ([], None)
    assert described["retention.ms"].config_source == Source.DEFAULT
    await broker.close()


@in_loop
async def test_a_topic_that_is_hosted_elsewhere_is_described_as_the_store_has_it(
    tmp_path: Path,
) -> None:
    store = found_cluster(tmp_path)
    stranger = ConfigClusterBroker(store, 2)
    await create_topic(store, "t", {"cleanup.policy": "compact"}, stranger)
    row = rows(await describe(stranger, TOPIC, "t"))["cleanup.policy"]
    assert (row.value, row.config_source) == ("compact", Source.DYNAMIC_TOPIC)
    await store.close()


@in_loop
async def test_synonyms_and_documentation_come_when_asked_for(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path, {"log.segment.bytes": "1000"})
    await broker.create_topic("t", {"segment.bytes": "5000"})
    row = rows(await describe(broker, TOPIC, "t", synonyms=True, documentation=True))[
        "segment.bytes"
    ]
    assert [(s.name, s.value, s.source) for s in row.synonyms] == [
        ("segment.bytes", "5000", Source.DYNAMIC_TOPIC),
        ("log.segment.bytes", "1000", Source.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", Source.DEFAULT),
    ]
    assert row.documentation == TOPIC_TABLE["segment.bytes"].doc
    await broker.close()


@in_loop
async def test_the_broker_is_described_with_all_keys_and_types(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path, {"broker.id": "0", "ssl.key.password": "secret"})
    described = rows(await describe(broker, BROKER, "0"))
    assert set(described) == {key.name for key in BROKER_TABLE if not key.internal}
    assert all(row.config_type > 0 for row in described.values())
    assert described["broker.id"].config_source == Source.STATIC_BROKER
    assert described["log.dir"].read_only
    assert described["num.partitions"].config_source == Source.DEFAULT
    password = described["ssl.key.password"]
    assert (password.value, password.is_sensitive) == (None, True)
    assert password.config_type == ConfigType.PASSWORD
    await broker.close()


@in_loop
async def test_only_the_keys_asked_for_are_described(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    assert set(rows(await describe(broker, TOPIC, "t", ["flush.ms", "no.such"]))) == {"flush.ms"}
    assert rows(await describe(broker, BROKER, "0", ["no.such"])) == {}
    assert len(rows(await describe(broker, TOPIC, "t", []))) == len(TOPIC_TABLE)
    await broker.close()


@in_loop
async def test_a_resource_named_often_is_described_once(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")

    def named(name: str, keys: list[str] | None) -> DescribeConfigsResource:
        return DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=keys
        )

    response = await describe_configs.handle(
        broker.context(4),
        DescribeConfigsRequest(
            resources=[
                named("t", ["flush.ms"]),
                named("u", None),
                named("t", ["flush.ms", "retention.ms"]),
                named("u", ["flush.ms"]),
            ]
        ),
    )
    assert isinstance(response, DescribeConfigsResponse)
    assert [result.resource_name for result in response.results] == ["t", "u"]
    assert sorted(rows(response.results[0])) == ["flush.ms", "retention.ms"]
    everything = await describe_configs.handle(
        broker.context(4),
        DescribeConfigsRequest(resources=[named("t", ["flush.ms"]), named("t", None)]),
    )
    assert isinstance(everything, DescribeConfigsResponse)
    assert len(everything.results[0].configs) > 10
    await broker.close()


@pytest.mark.parametrize("name", ["00", "+0", " 0", "0_0", "\u0660"])
@in_loop
async def test_a_broker_has_one_name(tmp_path: Path, name: str) -> None:
    broker = ConfigBroker(tmp_path)
    assert (await describe(broker, BROKER, name)).error_code == ErrorCode.INVALID_REQUEST
    await broker.close()


@in_loop
async def test_the_default_broker_shows_what_was_set_for_all(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path, {"message.max.bytes": "1"})
    assert rows(await describe(broker, BROKER, "")) == {}
    assert await increment(broker, BROKER, "", ("message.max.bytes", SET, "7")) == (0, None)
    row = rows(await describe(broker, BROKER, "", synonyms=True))["message.max.bytes"]
    assert (row.value, row.config_source) == ("7", Source.DYNAMIC_DEFAULT_BROKER)
    assert [s.source for s in row.synonyms] == [Source.DYNAMIC_DEFAULT_BROKER]
    row = rows(await describe(broker, BROKER, "0"))["message.max.bytes"]
    assert (row.value, row.config_source) == ("7", Source.DYNAMIC_DEFAULT_BROKER)
    await broker.close()


@pytest.mark.parametrize(
    ("resource_type", "name", "code", "message"),
    [
        (TOPIC, "gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (TOPIC, "bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION, "bad/name"),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
        (BROKER, "1", ErrorCode.INVALID_REQUEST, "expected 0 or empty string"),
        (BROKER, "one", ErrorCode.INVALID_REQUEST, "must be an integer"),
        (LOGGER, "", ErrorCode.INVALID_REQUEST, "must not be empty"),
        (LOGGER, "1", ErrorCode.INVALID_REQUEST, "Unexpected broker id"),
        (METRICS, "", ErrorCode.INVALID_REQUEST, "must not be empty"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "must not be empty"),
        (77, "x", ErrorCode.INVALID_REQUEST, "77"),
    ],
)
@in_loop
async def test_what_cannot_be_described_says_why(
    resource_type: int, name: str, code: ErrorCode, message: str | None, tmp_path: Path
) -> None:
    result = await describe(ConfigBroker(tmp_path), resource_type, name)
    assert result.error_code == code
    assert result.configs == []
    if message is None:
        assert result.error_message == ""
    else:
        assert message in (result.error_message or "")


@pytest.mark.parametrize("version", range(5))
@in_loop
async def test_every_version_of_the_description_goes_over_the_wire(
    version: int, tmp_path: Path
) -> None:
    broker = ConfigBroker(tmp_path)
    result = await describe(
        broker, BROKER, "0", synonyms=version > 0, documentation=version > 2, version=version
    )
    encoded = DescribeConfigsResponse(results=[result]).encode(version)
    decoded = DescribeConfigsResponse.decode(memoryview(encoded), 0, version)
    row = {row.name: row for row in decoded.results[0].configs}["num.partitions"]
    assert (row.value, row.read_only) == ("1", True)
    if version == 0:
        assert row.is_default
    else:
        assert row.config_source == Source.DEFAULT
    assert (row.config_type == ConfigType.INT) is (version >= 3)


@in_loop
async def test_alter_replaces_all_overrides(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t", {"segment.bytes": "5000"})
    assert await alter(broker, [(TOPIC, "t", {"retention.ms": "7"})]) == [(0, None)]
    assert broker.dynamic_config.topic_overrides("t") == {"retention.ms": "7"}
    assert await alter(broker, [(BROKER, "0", {"max.connections": "5"})]) == [(0, None)]
    assert await alter(broker, [(BROKER, "0", {"message.max.bytes": "6"})]) == [(0, None)]
    assert broker.dynamic_config.layers.dynamic_broker == {"message.max.bytes": "6"}
    await broker.close()


@in_loop
async def test_resources_of_one_request_fail_singly(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    outcomes = await alter(
        broker,
        [
            (TOPIC, "gone", {"retention.ms": "7"}),
            (TOPIC, "t", {"retention.ms": "7"}),
            (BROKER, "0", {"log.dirs": "/x"}),
        ],
    )
    assert [code for code, _ in outcomes] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert broker.dynamic_config.topic_overrides("t") == {"retention.ms": "7"}
    await broker.close()


@in_loop
async def test_a_resource_named_twice_fails_in_both_places(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    await broker.create_topic("u")
    outcomes = await alter(
        broker,
        [
            (TOPIC, "t", {"retention.ms": "7"}),
            (TOPIC, "u", {"retention.ms": "8"}),
            (TOPIC, "t", {"flush.ms": "9"}),
        ],
    )
    assert [code for code, _ in outcomes] == [ErrorCode.INVALID_REQUEST, 0, 42]
    assert broker.dynamic_config.topic_overrides("t") == {}
    assert broker.dynamic_config.topic_overrides("u") == {"retention.ms": "8"}
    await broker.close()


@in_loop
async def test_alter_that_only_validates_changes_nothing(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    changes: list[tuple[int, str, dict[str, str | None]]] = [(TOPIC, "t", {"retention.ms": "7"})]
    assert await alter(broker, changes, validate_only=True) == [(0, None)]
    assert broker.dynamic_config.topic_overrides("t") == {}
    await broker.close()


@in_loop
async def test_set_and_delete_change_single_keys(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t", {"segment.bytes": "5000", "flush.ms": "1"})
    outcome = await increment(
        broker, TOPIC, "t", ("retention.ms", SET, "7"), ("flush.ms", DELETE, None)
    )
    assert outcome == (0, None)
    assert broker.dynamic_config.topic_overrides("t") == {
        "segment.bytes": "5000",
        "retention.ms": "7",
    }
    await broker.close()


@in_loop
async def test_deleting_what_is_not_set_is_no_error(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    assert await increment(broker, TOPIC, "t", ("retention.ms", DELETE, None)) == (0, None)
    await broker.close()


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact", APPEND, "compact", "compact"),
        ("", APPEND, "compact", "compact"),
        ("compact,delete", SUBTRACT, "compact", "delete"),
        ("compact", SUBTRACT, "delete", "compact"),
        (None, SUBTRACT, "delete", ""),
    ],
)
def test_lists_are_appended_to_and_subtracted_from(
    before: str | None, operation: int, value: str, after: str, tmp_path: Path
) -> None:
    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        await broker.create_topic("t", {} if before is None else {"cleanup.policy": before})
        outcome = await increment(broker, TOPIC, "t", ("cleanup.policy", operation, value))
        assert outcome == (0, None)
        assert broker.dynamic_config.topic_overrides("t") == {"cleanup.policy": after}
        await broker.close()

    story()


@pytest.mark.parametrize(
    ("resource_type", "name", "change", "code", "message"),
    [
        (TOPIC, "t", ("no.such", SET, "1"), 40, "Unknown topic config name: no.such"),
        (TOPIC, "t", ("no.such", APPEND, "1"), 40, "unknown configuration key no.such"),
        (TOPIC, "t", ("retention.ms", SET, "x"), 40, "Not a number of type LONG"),
        (TOPIC, "t", ("retention.ms", SET, ""), 40, "Not a number of type LONG"),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), 40, "append is not allowed"),
        (TOPIC, "t", ("retention.ms", SUBTRACT, "1"), 40, "subtract is not allowed"),
        (TOPIC, "t", ("retention.ms", SET, None), 42, "Null value not supported for: retention"),
        (TOPIC, "t", ("retention.ms", 9, "1"), 42, "Unknown operation type 9"),
        (TOPIC, "", ("retention.ms", SET, "1"), 42, "Default topic resources"),
        (TOPIC, "bad/name", ("retention.ms", SET, "1"), 17, "bad/name"),
        (TOPIC, "gone", ("no.such", SET, "1"), 40, "Unknown topic config name: no.such"),
        (TOPIC, "gone", ("retention.ms", SET, "1"), 3, "The topic 'gone' does not exist."),
        (BROKER, "0", ("log.dirs", SET, "/x"), 42, "Cannot update these configs dynamically"),
        (BROKER, "0", ("no.such", SET, "1"), 42, "unknown configuration key no.such"),
        (BROKER, "0", ("max.connections", SET, "x"), 42, "Not a number of type INT"),
        (BROKER, "", ("ssl.client.auth", SET, "none"), 42, "a broker id is needed"),
        (BROKER, "1", ("max.connections", SET, "1"), 42, "Unexpected broker id"),
        (BROKER, "x", ("max.connections", SET, "1"), 42, "must be an integer"),
        (GROUP, "", (SESSION_TIMEOUT, SET, "50000"), 42, "Default group resources"),
        (GROUP, "g", (SESSION_TIMEOUT, SET, "1"), 40, "between 45000 and 60000"),
        (GROUP, "g", (SESSION_TIMEOUT, SET, "60001"), 40, "between 45000 and 60000"),
        (GROUP, "g", (SESSION_TIMEOUT, SET, "x"), 40, "Not a number of type INT"),
        (GROUP, "g", (SESSION_TIMEOUT, APPEND, "1"), 40, "append is not allowed"),
        (GROUP, "g", (HEARTBEAT_INTERVAL, SET, "15001"), 40, "between 5000 and 15000"),
        (GROUP, "g", ("share.auto.offset.reset", SET, "latest"), 40, "Unknown group config"),
        (LOGGER, "", ("root", SET, "INFO"), 42, "must not be empty"),
        (LOGGER, "1", ("root", SET, "INFO"), 42, "Unexpected broker id"),
        (LOGGER, "0", ("root", SET, "LOUD"), 40, "valid log levels are DEBUG, ERROR"),
        (LOGGER, "0", ("root", SET, "info"), 40, "valid log levels"),
        (LOGGER, "0", ("root", SET, None), 42, "Null value"),
        (LOGGER, "0", ("root", DELETE, None), 42, "root logger"),
        (LOGGER, "0", ("root", APPEND, "INFO"), 42, "not allowed"),
        (LOGGER, "0", ("root", 9, "INFO"), 42, "not allowed"),
        (LOGGER, "0", ("no.such", SET, "INFO"), 40, "Logger no.such does not exist!"),
        (LOGGER, "0", ("no.such", DELETE, None), 40, "Logger no.such does not exist!"),
        (METRICS, "", ("interval.ms", SET, "100"), 42, "name can't be empty"),
        (METRICS, "m", ("interval.ms", SET, "99"), 42, "must be between 100 and 3600000"),
        (METRICS, "m", ("interval.ms", SET, "3600001"), 42, "must be between 100 and 3600000"),
        (METRICS, "m", ("interval.ms", SET, "x"), 40, "Not a number of type INT"),
        (METRICS, "m", ("no.such", SET, "x"), 42, "Unknown client metrics configuration: no.such"),
        (METRICS, "m", ("match", SET, "client_id"), 40, "Illegal client matching pattern"),
        (METRICS, "m", ("match", SET, "client_id="), 40, "Illegal client matching pattern"),
        (METRICS, "m", ("match", SET, "a=b"), 40, "client_software_name"),
        (METRICS, "m", ("match", SET, "client_id=("), 40, "Illegal client matching pattern"),
        (METRICS, "m", ("match", SET, "client_id=(a+)+"), 40, "it may take too long"),
        (0, "x", ("a", SET, "1"), 42, ": 0."),
    ],
)
def test_a_bad_change_is_refused_with_code_and_reason(
    resource_type: int,
    name: str,
    change: tuple[str, int, str | None],
    code: int,
    message: str,
    tmp_path: Path,
) -> None:
    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        await broker.create_topic("t")
        got_code, got_message = await increment(broker, resource_type, name, change)
        assert got_code == code
        assert message in (got_message or "")
        await broker.close()

    story()


@pytest.mark.parametrize("group_id", ["g", "a/b", "..", "é %", "<default>"])
@in_loop
async def test_a_groups_overrides_are_set_shown_and_kept(group_id: str, tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    described = rows(await describe(broker, GROUP, group_id, synonyms=True))
    before = described[SESSION_TIMEOUT]
    assert (before.value, before.config_source, before.read_only) == ("45000", 5, False)
    assert [synonym.name for synonym in before.synonyms] == ["group.consumer.session.timeout.ms"]
    assert await increment(broker, GROUP, group_id, (SESSION_TIMEOUT, SET, "50000")) == (0, None)
    after = rows(await describe(broker, GROUP, group_id, synonyms=True))[SESSION_TIMEOUT]
    assert (after.value, after.config_source) == ("50000", Source.DYNAMIC_GROUP)
    assert [synonym.name for synonym in after.synonyms] == [
        SESSION_TIMEOUT,
        "group.consumer.session.timeout.ms",
    ]
    loaded = DynamicConfig(BrokerConfig({}), broker.store, 0)
    loaded.load()
    assert loaded.group_config_or_none(group_id) == GroupConfig(5_000, 50_000)
    assert await increment(broker, GROUP, group_id, (SESSION_TIMEOUT, DELETE, None)) == (0, None)
    assert broker.dynamic_config.group_config_or_none(group_id) is None
    await broker.close()


@in_loop
async def test_a_group_must_beat_more_often_than_its_session_lasts(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path, {"group.consumer.min.session.timeout.ms": "6000"})
    assert await increment(broker, GROUP, "g", (SESSION_TIMEOUT, SET, "8000")) == (0, None)
    code, message = await increment(broker, GROUP, "g", (HEARTBEAT_INTERVAL, SET, "8000"))
    assert (code, message) == (
        ErrorCode.INVALID_CONFIG,
        f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}",
    )
    assert broker.dynamic_config.group_config_or_none("g") == GroupConfig(5_000, 8_000)
    await broker.close()


@in_loop
async def test_overrides_of_a_group_that_do_not_fit_here_are_left_out(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    path = znodes.config_path("groups", "g")
    await broker.store.create(path, znodes.encode_config({SESSION_TIMEOUT: "1"}), make_parents=True)
    broker.dynamic_config.load()
    assert broker.dynamic_config.group_config_or_none("g") is None
    await broker.close()


@pytest.fixture
def chatty() -> Iterator[logging.Logger]:
    made = logging.getLogger("tests.chatty")
    yield made
    made.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("level", "enabled"),
    [
        ("FATAL", logging.CRITICAL),
        ("ERROR", logging.ERROR),
        ("WARN", logging.WARNING),
        ("INFO", logging.INFO),
        ("DEBUG", logging.DEBUG),
        ("TRACE", 5),
    ],
)
@in_loop
async def test_the_level_of_a_logger_is_changed_for_real(
    chatty: logging.Logger, level: str, enabled: int, tmp_path: Path
) -> None:
    broker = ConfigBroker(tmp_path)
    assert await increment(broker, LOGGER, "0", (chatty.name, SET, level)) == (0, None)
    assert (chatty.isEnabledFor(enabled), chatty.isEnabledFor(enabled - 1)) == (True, False)
    row = rows(await describe(broker, LOGGER, "0", [chatty.name]))[chatty.name]
    assert (row.value, row.config_source, row.read_only) == (level, 6, False)
    assert row.documentation == ""
    await broker.close()


@in_loop
async def test_a_logger_without_a_level_follows_those_above_it(
    chatty: logging.Logger, tmp_path: Path
) -> None:
    broker = ConfigBroker(tmp_path)
    chatty.setLevel(logging.ERROR)
    checked = await increment(broker, LOGGER, "0", (chatty.name, SET, "DEBUG"), validate_only=True)
    assert (checked, chatty.level) == ((0, None), logging.ERROR)
    assert await increment(broker, LOGGER, "0", (chatty.name, DELETE, None)) == (0, None)
    assert chatty.level == logging.NOTSET
    described = rows(await describe(broker, LOGGER, "0"))
    assert described[chatty.name].value == described["root"].value
    await broker.close()


@in_loop
async def test_one_bad_level_keeps_the_others_as_they_were(
    chatty: logging.Logger, tmp_path: Path
) -> None:
    broker = ConfigBroker(tmp_path)
    code, _ = await increment(
        broker, LOGGER, "0", (chatty.name, SET, "DEBUG"), ("no.such", SET, "DEBUG")
    )
    assert (code, chatty.level) == (ErrorCode.INVALID_CONFIG, logging.NOTSET)
    await broker.close()


@in_loop
async def test_loggers_cannot_be_replaced_as_a_whole(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    ((code, _),) = await alter(broker, [(LOGGER, "0", {"root": "INFO"})])
    assert code == ErrorCode.INVALID_REQUEST
    await broker.close()


@in_loop
async def test_a_subscription_to_client_metrics_has_the_defaults(tmp_path: Path) -> None:
    described = rows(await describe(ConfigBroker(tmp_path), METRICS, "any"))
    values = {name: (row.value, row.config_type) for name, row in described.items()}
    assert values == {
        "interval.ms": ("300000", ConfigType.INT),
        "match": ("", ConfigType.LIST),
        "metrics": ("", ConfigType.LIST),
    }
    assert {row.config_source for row in described.values()} == {Source.DEFAULT}
    assert {row.documentation for row in described.values()} == {None}


@pytest.mark.parametrize("name", ["all", "a/b", ".."])
@in_loop
async def test_a_subscription_is_set_shown_kept_and_removed(name: str, tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    changes = (("metrics", APPEND, "a.,b."), ("interval.ms", SET, "500"))
    assert (await increment(broker, METRICS, name, *changes))[0] == 0
    described = rows(await describe(broker, METRICS, name))
    values = {key: (row.value, row.config_source) for key, row in described.items()}
    assert values == {
        "interval.ms": ("500", Source.DYNAMIC_CLIENT_METRICS),
        "match": ("", Source.DEFAULT),
        "metrics": ("a.,b.", Source.DYNAMIC_CLIENT_METRICS),
    }
    await broker.close()
    broker = ConfigBroker(tmp_path)
    kept = broker.dynamic_config.subscriptions
    assert [(key, each.metrics, each.interval_ms) for key, each in kept.items()] == [
        (name, ("a.", "b."), 500)
    ]
    gone = (("metrics", DELETE, None), ("interval.ms", DELETE, None))
    assert (await increment(broker, METRICS, name, *gone))[0] == 0
    assert broker.dynamic_config.subscriptions == {}
    await broker.close()


@in_loop
async def test_a_key_named_twice_is_refused(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    code, message = await increment(
        broker, TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)
    )
    assert (code, message) == (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    await broker.close()
