"""A broker's configuration as its operator wrote it: server.properties and single overrides.

As in Kafka, a key that no row has (it may be a plug-in's) and a key that is set twice do not keep
the broker from starting: all of them are named in the configuration's warnings, each with its line
and the nearest known key. A strict start refuses them instead, all at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tidelog.config.broker import BROKER_TABLE, BrokerConfig, find_key
from tidelog.config.definition import ConfigError
from tidelog.config.properties import Property, load_properties


def load_broker_config(
    path: Path | None, overrides: Iterable[tuple[str, str]] = (), *, strict: bool = False
) -> BrokerConfig:
    """Overrides win over the file. Raises ConfigError."""
    in_file = load_properties(path) if path is not None else []
    given = [Property(0, key, value) for key, value in overrides]
    doubts = [*doubts_about(in_file), *doubts_about(given)]
    if strict and doubts:
        raise ConfigError(f"refused by --strict: {'; '.join(doubts)}")
    config = BrokerConfig({item.key: item.value for item in (*in_file, *given)})
    config.warnings = (*doubts, *config.warnings)
    return config


def doubts_about(items: Iterable[Property]) -> Iterator[str]:
    """Keys that are unknown or set twice. Values may be secret and are not shown."""
    first_places: dict[str, str] = {}
    for item in items:
        place = f"line {item.line}" if item.line else "--override"
        if item.key in first_places:
            yield f"{place}: {item.key} is set again ({first_places[item.key]}); the last one holds"
            continue
        first_places[item.key] = place
        if find_key(item.key) is None:
            nearest = BROKER_TABLE.nearest(item.key)
            hint = f"; did you mean {nearest}?" if nearest else ""
            yield f"{place}: unknown configuration key {item.key}{hint}"
