"""What DescribeConfigs says of a configuration: value, source and synonyms of every key.

A broker's configuration has four layers. The first that has a key gives its value:

    DYNAMIC_BROKER          set for this broker while it ran
    DYNAMIC_DEFAULT_BROKER  set for all brokers while they ran
    STATIC_BROKER           server.properties and --override
    DEFAULT                 the row's default

A topic's overrides lie above them (DYNAMIC_TOPIC), and so do a group's (DYNAMIC_GROUP). A
subscription to metrics of clients has its own values (DYNAMIC_CLIENT_METRICS) over defaults.

The synonyms of a key are its values in all layers, best first, and those of other keys for the same
setting (log.roll.ms and log.roll.hours). As in Kafka the list begins at the key's own name: a
retention.ms that comes from log.retention.hours has no synonyms and the source DEFAULT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import Final, NamedTuple

from tidelog.config.broker import BROKER_TABLE, LISTENER_PREFIX, BrokerConfig, find_key
from tidelog.config.client_metrics import CLIENT_METRICS_TABLE
from tidelog.config.definition import ConfigType, Key, Value, to_text
from tidelog.config.group import GROUP_TABLE
from tidelog.config.topic import TOPIC_TABLE, topic_values


class Source(IntEnum):
    """Where a value comes from, with DescribeConfigs' numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str | None  # None where it is sensitive
    source: Source


class Entry(NamedTuple):
    name: str
    value: str | None  # None where it is not set, or sensitive
    source: Source
    read_only: bool
    sensitive: bool
    type: ConfigType
    doc: str | None
    synonyms: tuple[Synonym, ...]


# Keys that stand for the same setting, best first. The scheduler's interval is a fallback only.
SAME_SETTING: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
FLUSH_SETTING: Final = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")


class BrokerLayers:
    """The layers of one broker's configuration and the one that results; never changes."""

    __slots__ = ("dynamic_broker", "dynamic_default", "effective", "static")

    def __init__(
        self,
        static: BrokerConfig,
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
    ) -> None:
        """Raises ConfigError if the layers do not make a valid configuration."""
        self.static = static
        self.dynamic_default = dict(dynamic_default or {})
        self.dynamic_broker = dict(dynamic_broker or {})
        dynamic = {**self.dynamic_default, **self.dynamic_broker}
        self.effective = static.with_overrides(dynamic) if dynamic else static

    def synonyms(self, name: str) -> list[Synonym]:
        key = find_key(name)
        sensitive = key is None or key.sensitive
        names = same_setting(name)
        found = [
            Synonym(other, None if sensitive else layer[other], source)
            for layer, source in (
                (self.dynamic_broker, Source.DYNAMIC_BROKER),
                (self.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
                (self.static.originals, Source.STATIC_BROKER),
                (default_texts(names), Source.DEFAULT),
            )
            for other in names
            if other in layer
        ]
        return list(dropwhile(lambda synonym: synonym.name != name, found))

    def describe_topic(self, overrides: Mapping[str, str]) -> list[Entry]:
        values = topic_values(self.effective, overrides)
        return [self._topic_entry(key, values[key.name], overrides) for key in TOPIC_TABLE]

    def _topic_entry(self, key: Key, value: Value, overrides: Mapping[str, str]) -> Entry:
        text = to_text(value)
        synonyms = self.synonyms(key.synonyms[0][0]) if key.synonyms else []
        if key.name in overrides:
            synonyms.insert(0, Synonym(key.name, text, Source.DYNAMIC_TOPIC))
        return make_entry(key.name, key, text, synonyms, read_only=False)

    def describe_group(self, overrides: Mapping[str, str]) -> list[Entry]:
        entries = []
        for key in GROUP_TABLE:
            broker_name, _ = key.synonyms[0]
            is_set = key.name in overrides
            text = overrides[key.name] if is_set else to_text(self.effective[broker_name])
            synonyms = self.synonyms(broker_name)
            if is_set:
                synonyms.insert(0, Synonym(key.name, text, Source.DYNAMIC_GROUP))
            entries.append(make_entry(key.name, key, text, synonyms, read_only=False))
        return entries

    def describe_broker(self) -> list[Entry]:
        """All keys but the internal ones that are not set."""
        values: dict[str, Value] = {**self.effective.originals}
        values.update((k.name, self.effective[k.name]) for k in BROKER_TABLE if not k.internal)
        return [
            self._broker_entry(name, to_text(values[name]), self.synonyms(name))
            for name in sorted(values)
        ]

    def describe_broker_defaults(self) -> list[Entry]:
        """Only what was set for all brokers while they ran."""
        return [
            self._broker_entry(
                name,
                text,
                [s for s in self.synonyms(name) if s.source is Source.DYNAMIC_DEFAULT_BROKER],
            )
            for name, text in sorted(self.dynamic_default.items())
        ]

    def _broker_entry(self, name: str, text: str | None, synonyms: list[Synonym]) -> Entry:
        key = BROKER_TABLE.get(name)
        read_only = key is None or key.is_fixed
        return make_entry(name, find_key(name), text, synonyms, read_only=read_only)


def describe_subscription(overrides: Mapping[str, str]) -> list[Entry]:
    """A subscription to metrics of clients; nothing of the broker's lies below it."""
    entries = []
    for key in CLIENT_METRICS_TABLE:
        text = overrides.get(key.name, to_text(key.default))
        synonyms = [Synonym(key.name, to_text(key.default), Source.DEFAULT)]
        if key.name in overrides:
            synonyms.insert(0, Synonym(key.name, text, Source.DYNAMIC_CLIENT_METRICS))
        entries.append(make_entry(key.name, key, text, synonyms, read_only=False))
    return entries


def make_entry(
    name: str, key: Key | None, text: str | None, synonyms: list[Synonym], *, read_only: bool
) -> Entry:
    sensitive = key is None or key.sensitive
    return Entry(
        name,
        None if sensitive else text,
        synonyms[0].source if synonyms else Source.DEFAULT,
        read_only,
        sensitive,
        key.type if key is not None else ConfigType.UNKNOWN,
        key.doc if key is not None else None,
        tuple(synonyms),
    )


def same_setting(name: str) -> tuple[str, ...]:
    if name == FLUSH_SETTING[0]:
        return FLUSH_SETTING
    for names in SAME_SETTING:
        if name in names:
            return names
    key = find_key(name)
    if name.startswith(LISTENER_PREFIX) and key is not None:
        return (name, key.name)
    return (name,)


def default_texts(names: Iterable[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name in names:
        key = BROKER_TABLE.get(name)
        text = to_text(key.default) if key is not None else None
        if text is not None:
            texts[name] = text
    return texts
