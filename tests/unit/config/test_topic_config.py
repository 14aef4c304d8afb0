from __future__ import annotations

import pytest

from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import LONG_MAX, ConfigError
from tidelog.config.topic import (
    TOPIC_TABLE,
    LogConfig,
    log_config,
    topic_values,
    validate_overrides,
)


def test_without_any_setting_the_log_config_is_the_plain_default() -> None:
    assert log_config(BrokerConfig(), {}) == LogConfig()


def test_every_field_is_a_topic_key_that_the_log_reads() -> None:
    fields = set(LogConfig.__dataclass_fields__)
    keys = {key.name.replace(".", "_") for key in TOPIC_TABLE}
    assert fields - {"compact", "delete"} <= keys
    assert keys - fields == {
        "cleanup_policy",
        "local_retention_bytes",
        "local_retention_ms",
        "message_format_version",
        "message_timestamp_difference_max_ms",
        "remote_log_copy_disable",
        "remote_log_delete_on_disable",
        "remote_storage_enable",
        "unclean_leader_election_enable",
    }


def test_broker_keys_give_the_defaults_of_topic_keys() -> None:
    broker = BrokerConfig(
        {
            "log.segment.bytes": "1000",
            "log.roll.hours": "1",
            "log.retention.minutes": "2",
            "log.flush.scheduler.interval.ms": "77",
            "log.index.size.max.bytes": "64",
            "log.segment.delete.delay.ms": "5",
            "message.max.bytes": "2000",
            "log.cleanup.policy": "compact",
            "log.cleaner.min.cleanable.ratio": "0.1",
            "compression.type": "lz4",
            "min.insync.replicas": "2",
            "log.message.timestamp.type": "LogAppendTime",
        }
    )
    config = log_config(broker, {})
    assert config.segment_bytes == 1000
    assert config.segment_ms == 3_600_000
    assert config.retention_ms == 120_000
    assert config.flush_ms == 77
    assert config.segment_index_bytes == 64
    assert config.file_delete_delay_ms == 5
    assert config.max_message_bytes == 2000
    assert (config.compact, config.delete) == (True, False)
    assert config.min_cleanable_dirty_ratio == 0.1
    assert config.compression_type == "lz4"
    assert config.min_insync_replicas == 2
    assert config.message_timestamp_type == "LogAppendTime"


def test_overrides_win_over_the_broker() -> None:
    broker = BrokerConfig({"log.segment.bytes": "1000", "log.retention.ms": "5"})
    config = log_config(broker, {"segment.bytes": " 5000 ", "retention.ms": "-1"})
    assert (config.segment_bytes, config.retention_ms) == (5000, -1)


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact, delete", True, True),
        ("", False, False),
    ],
)
def test_cleanup_policies(policy: str, compact: bool, delete: bool) -> None:
    config = log_config(BrokerConfig(), {"cleanup.policy": policy})
    assert (config.compact, config.delete) == (compact, delete)


def test_the_old_timestamp_bound_holds_where_the_new_ones_are_not_set() -> None:
    config = log_config(
        BrokerConfig(),
        {"message.timestamp.difference.max.ms": "10", "message.timestamp.after.max.ms": "3"},
    )
    assert config.message_timestamp_before_max_ms == 10
    assert config.message_timestamp_after_max_ms == 3
    assert LogConfig().message_timestamp_before_max_ms == LONG_MAX


def test_a_compacted_segment_rolls_in_time_for_compaction() -> None:
    overrides = {"segment.ms": "1000", "max.compaction.lag.ms": "10"}
    assert log_config(BrokerConfig(), overrides).max_segment_ms == 1000
    overrides["cleanup.policy"] = "compact"
    assert log_config(BrokerConfig(), overrides).max_segment_ms == 10


def test_topic_values_are_typed_and_complete() -> None:
    values = topic_values(BrokerConfig(), {"leader.replication.throttled.replicas": "0:1,1:2"})
    assert set(values) == {key.name for key in TOPIC_TABLE}
    assert values["leader.replication.throttled.replicas"] == ("0:1", "1:2")


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ({"segment.byte": "1"}, "Unknown topic config name: segment.byte; did you mean"),
        ({"log.segment.bytes": "1000"}, "Unknown topic config name"),
        ({"segment.bytes": None}, "Null value not supported for topic configs: segment.bytes"),
        ({"segment.bytes": ""}, "Not a number of type INT"),
        ({"segment.bytes": "13"}, "Value must be at least 14"),
        ({"segment.bytes": "2147483648"}, "Not a number of type INT"),
        ({"retention.ms": "-2"}, "Value must be at least -1"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "Value must be no more than 1"),
        ({"cleanup.policy": "compact,gone"}, "must be one of: compact, delete"),
        ({"compression.type": ""}, "must be one of"),
        ({"compression.gzip.level": "0"}, "Value must be in [1,...,9] or -1"),
        ({"message.format.version": "5.0"}, "not a valid version"),
        ({"preallocate": "maybe"}, "true or false"),
        ({"leader.replication.throttled.replicas": "x"}, "[partitionId]:[brokerId]"),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "min.compaction.lag.ms (10) must not be above max.compaction.lag.ms (5)",
        ),
        ({"remote.storage.enable": "true"}, "no tiered storage"),
    ],
)
def test_bad_overrides_are_refused_with_the_reason(
    overrides: dict[str, str | None], complaint: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        validate_overrides(overrides)
    assert complaint in str(raised.value)


def test_good_overrides_pass() -> None:
    validate_overrides({"segment.bytes": " 5000 ", "cleanup.policy": "", "retention.ms": "-1"})


def test_overrides_are_checked_against_the_brokers_own_values() -> None:
    broker = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "5"})
    validate_overrides({"min.compaction.lag.ms": "10"})
    with pytest.raises(ConfigError, match="must not be above"):
        validate_overrides({"min.compaction.lag.ms": "10"}, broker)
