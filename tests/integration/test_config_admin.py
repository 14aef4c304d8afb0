"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, corner by corner."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import AlterConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from tests.support.broker_process import unlike_apache_kafka
from tests.support.eventually import eventually
from tests.support.raw_admin import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    Changes,
    describe,
    incremental,
    value_of,
)
from tests.support.raw_batch import batch
from tests.support.raw_client import RawClient, produce

UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC_EXCEPTION = 17
INVALID_CONFIG = 40
INVALID_REQUEST = 42

SOURCE_TOPIC, SOURCE_BROKER, SOURCE_STATIC, SOURCE_DEFAULT = 1, 2, 4, 5
SOURCE_LOGGER, SOURCE_GROUP = 6, 8


def broker_id(client: RawClient) -> str:
    answer = client.call(MetadataRequest(version=1, topics=[]))
    return str(answer.brokers[0].node_id)


def alter_request(name: str, configs: dict[str, str | None], repeat: int = 1) -> Any:
    resource = AlterConfigsRequest.AlterConfigsResource
    rows = [resource.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    return AlterConfigsRequest(
        version=1,
        resources=[resource(resource_type=TOPIC, resource_name=name, configs=rows)] * repeat,
        validate_only=False,
    )


def alter(client: RawClient, name: str, configs: dict[str, str | None]) -> int:
    return int(client.call(alter_request(name, configs)).responses[0].error_code)


TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.downconversion.enable": "true",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_a_fresh_topic_shows_kafkas_defaults(client: RawClient, topic: str) -> None:
    error, rows = describe(client, TOPIC, topic)
    assert error == 0
    assert {key: rows[key].value for key in TOPIC_DEFAULTS} == TOPIC_DEFAULTS
    assert {rows[key].config_source for key in TOPIC_DEFAULTS} == {SOURCE_DEFAULT}
    assert not any(row.read_only or row.is_sensitive for row in rows.values())


def test_config_rows_carry_type_synonyms_and_documentation(client: RawClient, topic: str) -> None:
    row = describe(client, TOPIC, topic, ["segment.bytes"])[1]["segment.bytes"]
    assert row.config_type == 3
    synonyms = [(s.name, s.value, s.source) for s in row.synonyms]
    assert synonyms == [("log.segment.bytes", "1073741824", SOURCE_DEFAULT)]
    assert row.documentation


def test_asking_for_an_unknown_key_gives_no_row_and_no_error(client: RawClient, topic: str) -> None:
    assert describe(client, TOPIC, topic, ["no.such.key"]) == (0, {})


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no-such-topic", UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", INVALID_TOPIC_EXCEPTION),
        (99, "x", INVALID_REQUEST),
        (BROKER, "7", INVALID_REQUEST),
        (BROKER, "seven", INVALID_REQUEST),
    ],
)
def test_unknown_resources_are_refused(client: RawClient, kind: int, name: str, code: int) -> None:
    assert describe(client, kind, name) == (code, {})


def test_a_broker_shows_its_configs(client: RawClient) -> None:
    error, rows = describe(client, BROKER, "0")
    assert error == 0
    assert (rows["log.retention.hours"].value, rows["log.retention.hours"].read_only) == (
        "168",
        True,
    )
    assert (rows["log.retention.ms"].value, rows["log.retention.ms"].read_only) == (None, False)
    assert rows["log.dirs"].config_source == SOURCE_STATIC
    assert rows["message.max.bytes"].value == "1048588"


def test_incremental_set_append_subtract_and_delete(client: RawClient, topic: str) -> None:
    assert incremental(client, TOPIC, topic, [("retention.ms", SET, "7000")]) == 0
    eventually(lambda: value_of(client, topic, "retention.ms") == "7000")
    assert incremental(client, TOPIC, topic, [("cleanup.policy", APPEND, "compact")]) == 0
    eventually(lambda: value_of(client, topic, "cleanup.policy") == "delete,compact")
    row = describe(client, TOPIC, topic, ["cleanup.policy"])[1]["cleanup.policy"]
    assert [(s.name, s.source) for s in row.synonyms] == [
        ("cleanup.policy", SOURCE_TOPIC),
        ("log.cleanup.policy", SOURCE_DEFAULT),
    ]
    assert incremental(client, TOPIC, topic, [("cleanup.policy", SUBTRACT, "delete")]) == 0
    eventually(lambda: value_of(client, topic, "cleanup.policy") == "compact")
    assert incremental(client, TOPIC, topic, [("retention.ms", DELETE, None)]) == 0
    eventually(lambda: value_of(client, topic, "retention.ms") == "604800000")
    assert value_of(client, topic, "cleanup.policy") == "compact", "others stay"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "abc")], INVALID_CONFIG),
        ([("no.such.key", SET, "1")], INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], INVALID_CONFIG),
        ([("retention.ms", SET, None)], INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], INVALID_REQUEST),
        ([("segment.ms", SET, "1000"), ("retention.ms", SET, "x")], INVALID_CONFIG),
    ],
)
def test_bad_incremental_changes_are_refused_as_a_whole(
    client: RawClient, topic: str, changes: Changes, code: int
) -> None:
    assert incremental(client, TOPIC, topic, changes) == code
    overridden = [
        row.name
        for row in describe(client, TOPIC, topic)[1].values()
        if row.config_source == SOURCE_TOPIC
    ]
    assert overridden == []


@unlike_apache_kafka
def test_an_unknown_operation_is_refused_at_once(client: RawClient, topic: str) -> None:
    """Apache Kafka answers -1 and is slow for seconds."""
    assert incremental(client, TOPIC, topic, [("retention.ms", 9, "1")]) == INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no-such-topic", UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", INVALID_REQUEST),
        (BROKER, "9", INVALID_REQUEST),
        (99, "x", INVALID_REQUEST),
    ],
)
def test_changes_to_unknown_resources_are_refused(
    client: RawClient, kind: int, name: str, code: int
) -> None:
    assert incremental(client, kind, name, [("retention.ms", SET, "1")]) == code


def test_validate_only_changes_nothing(client: RawClient, topic: str) -> None:
    change = [("retention.ms", SET, "7000")]
    assert incremental(client, TOPIC, topic, change, validate_only=True) == 0
    assert value_of(client, topic, "retention.ms") == "604800000"


def test_alter_configs_replaces_all_overrides(client: RawClient, topic: str) -> None:
    assert alter(client, topic, {"segment.ms": "1000"}) == 0
    eventually(lambda: value_of(client, topic, "segment.ms") == "1000")
    assert alter(client, topic, {"retention.ms": "2000"}) == 0
    eventually(lambda: value_of(client, topic, "retention.ms") == "2000")
    assert value_of(client, topic, "segment.ms") == "604800000"
    assert alter(client, topic, {"segment.ms": None}) == INVALID_REQUEST
    assert alter(client, topic, {"segment.ms": "x"}) == INVALID_CONFIG
    assert alter(client, "no-such-topic", {}) == UNKNOWN_TOPIC_OR_PARTITION


@unlike_apache_kafka
def test_alter_configs_of_one_resource_twice_is_answered(bootstrap: str, topic: str) -> None:
    """Apache Kafka never answers this one."""
    with RawClient(bootstrap) as client:
        response = client.call(alter_request(topic, {"retention.ms": "1"}, repeat=2))
        assert {row.error_code for row in response.responses} == {INVALID_REQUEST}


def test_a_changed_limit_holds_for_the_next_produce(client: RawClient, topic: str) -> None:
    large = batch(b"x" * 5000)
    assert produce(client, topic, large).error_code == 0
    assert incremental(client, TOPIC, topic, [("max.message.bytes", SET, "1000")]) == 0
    eventually(lambda: produce(client, topic, large).error_code == MESSAGE_TOO_LARGE)
    assert incremental(client, TOPIC, topic, [("max.message.bytes", DELETE, None)]) == 0
    eventually(lambda: produce(client, topic, large).error_code == 0)


@pytest.mark.parametrize("change", [("log.retention.ms", "abc"), ("num.io.threads", "0")])
def test_bad_values_of_broker_keys_are_invalid_requests(
    client: RawClient, change: tuple[str, str]
) -> None:
    key, value = change
    assert incremental(client, BROKER, broker_id(client), [(key, SET, value)]) == INVALID_REQUEST


@unlike_apache_kafka
def test_unknown_broker_keys_are_refused(client: RawClient) -> None:
    """Apache Kafka keeps them for plug-ins."""
    change = [("no.such.key", SET, "1")]
    assert incremental(client, BROKER, broker_id(client), change) == INVALID_REQUEST


def test_the_level_of_a_logger_is_changed_and_shown(client: RawClient) -> None:
    node = broker_id(client)
    before = describe(client, LOGGER, node)[1]["root"].value
    assert incremental(client, LOGGER, node, [("root", SET, "ERROR")]) == 0
    row = describe(client, LOGGER, node, ["root"])[1]["root"]
    assert (row.value, row.config_source) == ("ERROR", SOURCE_LOGGER)
    assert incremental(client, LOGGER, node, [("root", SET, before)]) == 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("root", SET, "LOUD"), INVALID_CONFIG),
        (("root", SET, "error"), INVALID_CONFIG),
        (("no.such.logger", SET, "INFO"), INVALID_CONFIG),
        (("no.such.logger", DELETE, None), INVALID_CONFIG),
        (("root", DELETE, None), INVALID_REQUEST),
        (("root", APPEND, "INFO"), INVALID_REQUEST),
        (("root", SET, None), INVALID_REQUEST),
    ],
)
def test_bad_levels_and_unknown_loggers_are_refused(
    client: RawClient, change: tuple[str, int, str | None], code: int
) -> None:
    assert incremental(client, LOGGER, broker_id(client), [change]) == code


@pytest.mark.parametrize("name", ["", "99", "x"])
def test_loggers_of_other_brokers_are_neither_described_nor_changed(
    client: RawClient, name: str
) -> None:
    assert describe(client, LOGGER, name)[0] == INVALID_REQUEST
    assert incremental(client, LOGGER, name, [("root", SET, "INFO")]) == INVALID_REQUEST


def test_a_groups_configuration_is_set_shown_and_taken_back(client: RawClient, topic: str) -> None:
    """Of Kafka 4; 3.9 knows groups only with the feature switched on."""
    group = f"group-of-{topic}"
    if describe(client, GROUP, group)[0]:
        pytest.skip("this Kafka has no configuration of groups")
    key = "consumer.session.timeout.ms"
    assert incremental(client, GROUP, group, [(key, SET, "50000")]) == 0
    eventually(lambda: describe(client, GROUP, group, [key])[1][key].value == "50000")
    row = describe(client, GROUP, group, [key])[1][key]
    assert (row.config_source, row.read_only) == (SOURCE_GROUP, False)
    assert incremental(client, GROUP, group, [(key, DELETE, None)]) == 0
    eventually(lambda: describe(client, GROUP, group, [key])[1][key].value == "45000")
    assert incremental(client, GROUP, group, [(key, SET, "1")]) == INVALID_CONFIG
    assert incremental(client, GROUP, group, [("no.such", SET, "1")]) == INVALID_CONFIG
    assert incremental(client, GROUP, "", [(key, SET, "50000")]) == INVALID_REQUEST


def test_an_unknown_subscription_to_client_metrics_has_nothing_of_its_own(
    client: RawClient,
) -> None:
    """Kafka 4.3 lists the defaults, 3.9 nothing."""
    error, rows = describe(client, METRICS, "no-such-subscription")
    assert error == 0
    assert set(rows) in ({"interval.ms", "match", "metrics"}, set())
    assert {row.config_source for row in rows.values()} <= {SOURCE_DEFAULT}
    assert describe(client, METRICS, "") == (INVALID_REQUEST, {})


@pytest.mark.parametrize("key", ["broker.id", "log.dirs"])
def test_read_only_broker_keys_are_refused(client: RawClient, key: str) -> None:
    assert incremental(client, BROKER, "0", [(key, SET, "5")]) == INVALID_REQUEST


def test_a_broker_key_is_changed_and_reset(client: RawClient) -> None:
    key = "log.cleaner.threads"
    assert incremental(client, BROKER, "0", [(key, SET, "2")]) == 0
    eventually(lambda: describe(client, BROKER, "0", [key])[1][key].value == "2")
    row = describe(client, BROKER, "0", [key])[1][key]
    assert row.config_source == SOURCE_BROKER
    assert [s.source for s in row.synonyms] == [SOURCE_BROKER, SOURCE_DEFAULT]
    assert incremental(client, BROKER, "0", [(key, DELETE, None)]) == 0
    eventually(lambda: describe(client, BROKER, "0", [key])[1][key].value == "1")
