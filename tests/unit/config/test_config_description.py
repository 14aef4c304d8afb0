from __future__ import annotations

import pytest

from tidelog.config.broker import BROKER_TABLE, BrokerConfig
from tidelog.config.definition import ConfigError, ConfigType
from tidelog.config.description import BrokerLayers, Entry, Source, Synonym
from tidelog.config.topic import TOPIC_TABLE


def by_name(entries: list[Entry]) -> dict[str, Entry]:
    return {entry.name: entry for entry in entries}


def layers(
    static: dict[str, str] | None = None,
    default: dict[str, str] | None = None,
    broker: dict[str, str] | None = None,
) -> BrokerLayers:
    return BrokerLayers(BrokerConfig(static), default, broker)


def test_a_topic_shows_every_topic_key_with_type_and_documentation() -> None:
    entries = by_name(layers().describe_topic({}))
    assert set(entries) == {key.name for key in TOPIC_TABLE}
    segment = entries["segment.bytes"]
    assert (segment.value, segment.type) == ("1073741824", ConfigType.INT)
    assert (segment.source, segment.read_only, segment.sensitive) == (Source.DEFAULT, False, False)
    assert segment.doc == TOPIC_TABLE["segment.bytes"].doc
    assert segment.synonyms == (Synonym("log.segment.bytes", "1073741824", Source.DEFAULT),)


def test_the_synonyms_of_a_topic_key_go_from_topic_to_default() -> None:
    entry = by_name(
        layers(
            {"log.segment.bytes": "1000"},
            {"log.segment.bytes": "2000"},
            {"log.segment.bytes": "3000"},
        ).describe_topic({"segment.bytes": " 4000 "})
    )["segment.bytes"]
    assert (entry.value, entry.source) == ("4000", Source.DYNAMIC_TOPIC)
    assert entry.synonyms == (
        Synonym("segment.bytes", "4000", Source.DYNAMIC_TOPIC),
        Synonym("log.segment.bytes", "3000", Source.DYNAMIC_BROKER),
        Synonym("log.segment.bytes", "2000", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.segment.bytes", "1000", Source.STATIC_BROKER),
        Synonym("log.segment.bytes", "1073741824", Source.DEFAULT),
    )


def test_a_setting_in_several_units_lists_the_coarser_ones_behind() -> None:
    entry = by_name(
        layers({"log.retention.ms": "5", "log.retention.hours": "48"}).describe_topic({})
    )["retention.ms"]
    assert (entry.value, entry.source) == ("5", Source.STATIC_BROKER)
    assert entry.synonyms == (
        Synonym("log.retention.ms", "5", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "48", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )


def test_a_setting_that_comes_from_a_coarser_unit_alone_lists_nothing_as_in_kafka() -> None:
    entry = by_name(layers({"log.retention.hours": "48"}).describe_topic({}))["retention.ms"]
    assert (entry.value, entry.source, entry.synonyms) == ("172800000", Source.DEFAULT, ())


def test_a_topic_key_without_a_broker_key_has_no_synonyms() -> None:
    entry = by_name(layers().describe_topic({}))["remote.storage.enable"]
    assert (entry.value, entry.source, entry.synonyms) == ("false", Source.DEFAULT, ())


def test_a_broker_shows_every_key_that_is_not_internal() -> None:
    entries = by_name(layers().describe_broker())
    assert set(entries) == {key.name for key in BROKER_TABLE if not key.internal}
    assert all(entry.type is not ConfigType.UNKNOWN for entry in entries.values())


def test_an_internal_key_is_shown_once_it_is_set() -> None:
    entries = by_name(layers({"log.initial.task.delay.ms": "1"}).describe_broker())
    assert entries["log.initial.task.delay.ms"].source is Source.STATIC_BROKER


def test_read_only_says_whether_a_broker_key_may_change_while_it_runs() -> None:
    entries = by_name(layers().describe_broker())
    assert entries["log.dirs"].read_only
    assert entries["num.partitions"].read_only
    assert not entries["log.retention.ms"].read_only
    assert not entries["max.connections"].read_only


def test_a_key_without_a_value_is_null_and_has_no_synonyms() -> None:
    entry = by_name(layers().describe_broker())["log.retention.ms"]
    assert (entry.value, entry.source, entry.synonyms) == (None, Source.DEFAULT, ())


def test_passwords_are_never_shown() -> None:
    entries = by_name(layers({"ssl.keystore.password": "hunter2"}).describe_broker())
    entry = entries["ssl.keystore.password"]
    assert entry.sensitive
    assert (entry.value, entry.source) == (None, Source.STATIC_BROKER)
    assert [synonym.value for synonym in entry.synonyms] == [None]
    assert not any("hunter2" in str(entry) for entry in entries.values())


def test_a_listeners_own_key_lists_the_key_it_overrides() -> None:
    name = "listener.name.plaintext.max.connections"
    entry = by_name(layers({name: "5"}).describe_broker())[name]
    assert (entry.value, entry.type, entry.read_only) == ("5", ConfigType.INT, True)
    assert entry.synonyms == (
        Synonym(name, "5", Source.STATIC_BROKER),
        Synonym("max.connections", "50000", Source.DEFAULT),
    )


def test_the_value_of_a_broker_key_is_the_best_layers() -> None:
    made = layers(
        {"max.connections": "10", "message.max.bytes": "1"},
        {"max.connections": "20", "message.max.bytes": "2"},
        {"max.connections": "30"},
    )
    assert made.effective["max.connections"] == 30
    assert made.effective["message.max.bytes"] == 2
    entry = by_name(made.describe_broker())["message.max.bytes"]
    assert (entry.value, entry.source) == ("2", Source.DYNAMIC_DEFAULT_BROKER)


def test_a_dynamic_fine_unit_goes_before_a_static_coarse_one() -> None:
    made = layers({"log.retention.hours": "1"}, {"log.retention.ms": "7"})
    assert made.effective.log_retention_ms == 7


def test_the_defaults_of_all_brokers_show_only_what_was_set() -> None:
    entries = layers({"num.partitions": "2"}, {"message.max.bytes": "2"}).describe_broker_defaults()
    assert [entry.name for entry in entries] == ["message.max.bytes"]
    assert entries[0].source is Source.DYNAMIC_DEFAULT_BROKER
    assert entries[0].synonyms == (
        Synonym("message.max.bytes", "2", Source.DYNAMIC_DEFAULT_BROKER),
    )


def test_layers_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ConfigError):
        layers(
            {"log.cleaner.max.compaction.lag.ms": "5"}, {"log.cleaner.min.compaction.lag.ms": "6"}
        )


def test_what_is_advertised_is_described_only_if_it_was_set() -> None:
    unset = by_name(layers().describe_broker())["advertised.listeners"]
    assert (unset.value, unset.source, unset.synonyms) == (None, Source.DEFAULT, ())
    text = "PLAINTEXT://kafka.example:9092"
    described = layers({"advertised.listeners": text}).describe_broker()
    entry = by_name(described)["advertised.listeners"]
    assert (entry.value, entry.source) == (text, Source.STATIC_BROKER)


def test_a_key_whose_change_would_come_to_nothing_is_read_only() -> None:
    described = by_name(layers().describe_broker())
    assert described["num.io.threads"].read_only
    assert described["metric.reporters"].read_only
    assert not described["max.connection.creation.rate"].read_only


def test_an_unknown_key_is_described_without_its_value() -> None:
    described = by_name(layers({"plugin.secret": "x"}).describe_broker())
    entry = described["plugin.secret"]
    assert (entry.value, entry.sensitive, entry.source) == (None, True, Source.STATIC_BROKER)
