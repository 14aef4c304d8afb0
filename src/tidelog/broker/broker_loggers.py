"""The loggers of this process as DescribeConfigs and IncrementalAlterConfigs know them (KIP-412).

Each has the level that is in force, in Kafka's words. A change counts at once and until the broker
stops; nothing is stored, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.config.definition import ConfigError, ConfigType
from tidelog.config.description import Entry, Source

ROOT: Final = "root"
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


class LevelChange(NamedTuple):
    logger: str
    level: str | None  # None: that of the loggers above it


def describe_loggers() -> list[Entry]:
    names = [name for name in logging.root.manager.loggerDict if _exists(name)]
    return [
        Entry(
            name,
            _level_in_force(name),
            Source.DYNAMIC_BROKER_LOGGER,
            read_only=False,
            sensitive=False,
            type=ConfigType.UNKNOWN,
            doc="",
            synonyms=(),
        )
        for name in (ROOT, *sorted(names))
    ]


def require_levels(changes: Iterable[LevelChange]) -> None:
    """Raises ConfigError where there is no such logger or level."""
    for name, level in changes:
        if name != ROOT and not _exists(name):
            raise ConfigError(f"Logger {name} does not exist!")
        if level is not None and level not in LEVELS:
            raise ConfigError(
                f"Cannot set the log level of {name} to {level}: "
                f"valid log levels are {', '.join(sorted(LEVELS))}"
            )


def set_levels(changes: Iterable[LevelChange]) -> None:
    for name, level in changes:
        logging.getLogger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _exists(name: str) -> bool:
    return isinstance(logging.root.manager.loggerDict.get(name), logging.Logger)


def _level_in_force(name: str) -> str:
    level = logging.getLogger(name).getEffectiveLevel()
    words = [word for word, value in LEVELS.items() if value <= level]
    return words[-1] if words else "TRACE"
