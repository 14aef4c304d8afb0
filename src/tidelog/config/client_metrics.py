"""A subscription to metrics of clients (KIP-714): which clients send which metrics, how often.

    metrics      prefixes of metric names; `*` means all of them, no prefix means none
    interval.ms  how often a client sends them, from 100 ms to an hour
    match        conditions SELECTOR=PATTERN, all of which a client must meet; none means all
                 clients. A pattern is a regular expression for the whole of the value

Errors are Kafka's: an unknown key and an interval out of bounds are INVALID_REQUEST, a value that
does not parse is INVALID_CONFIG.

Unlike Kafka, a pattern may not be one whose matching can take exponential time (see `pattern`), and
it is written in Python's dialect: Java's `\\p{...}` is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.config.definition import ConfigError, ConfigTable, ConfigType, Key
from tidelog.errors import ErrorCode, KafkaError

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 300_000
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000

CLIENT_INSTANCE_ID: Final = "client_instance_id"
CLIENT_ID: Final = "client_id"
CLIENT_SOFTWARE_NAME: Final = "client_software_name"
CLIENT_SOFTWARE_VERSION: Final = "client_software_version"
CLIENT_SOURCE_ADDRESS: Final = "client_source_address"
CLIENT_SOURCE_PORT: Final = "client_source_port"
SELECTORS: Final = frozenset(
    (
        CLIENT_INSTANCE_ID,
        CLIENT_ID,
        CLIENT_SOFTWARE_NAME,
        CLIENT_SOFTWARE_VERSION,
        CLIENT_SOURCE_ADDRESS,
        CLIENT_SOURCE_PORT,
    )
)

PATTERN_CHARS_MAX: Final = 1_000
VALUE_CHARS_MAX: Final = 256  # of a client; a longer value matches no pattern
# A pattern's cost is at most 2 to the number of its bits, in steps of a few nanoseconds.
REPEAT_BITS: Final = 7  # of * + and {}: as many ways as the value has characters, less in a row
BITS_MAX: Final = 3 * REPEAT_BITS
CHOICES_MAX: Final = 18  # of | and ?, one bit each

CLIENT_METRICS_TABLE: Final = ConfigTable(
    (
        Key(INTERVAL_MS, ConfigType.INT, DEFAULT_INTERVAL_MS, "How often clients send metrics."),
        Key(MATCH, ConfigType.LIST, (), "Which clients send them; empty: all."),
        Key(METRICS, ConfigType.LIST, (), "Prefixes of their names; empty: none."),
    )
)


class Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, re.Pattern[str]]  # by selector

    def matches(self, client: Mapping[str, str]) -> bool:
        return all(
            len(client.get(selector, "")) <= VALUE_CHARS_MAX
            and selector in client
            and each.fullmatch(client[selector]) is not None
            for selector, each in self.match.items()
        )


def subscription(texts: Mapping[str, str]) -> Subscription:
    """Raises KafkaError or ConfigError where the texts are not valid."""
    for name in texts:
        if name not in CLIENT_METRICS_TABLE:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}"
            )
    values = {
        key.name: key.parse(texts[key.name]) if key.name in texts else key.default
        for key in CLIENT_METRICS_TABLE
    }
    interval_ms, metrics, match = values[INTERVAL_MS], values[METRICS], values[MATCH]
    assert isinstance(interval_ms, int)
    assert isinstance(metrics, tuple)
    assert isinstance(match, tuple)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between "
            f"{INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)",
        )
    return Subscription(tuple(metrics), interval_ms, _conditions(match))


def _conditions(texts: Iterable[str]) -> dict[str, re.Pattern[str]]:
    found: dict[str, re.Pattern[str]] = {}
    for text in texts:
        selector, equals, value = text.partition("=")
        selector = selector.strip()
        if not equals or not value.strip() or "=" in value or selector not in SELECTORS:
            raise ConfigError(
                f"Illegal client matching pattern: {text}. It is SELECTOR=PATTERN, the selector "
                f"one of {', '.join(sorted(SELECTORS))}"
            )
        found[selector] = pattern(value.strip())
    return found


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression that takes milliseconds at most, on any value of VALUE_CHARS_MAX.

    Matching runs on the broker's loop, and the client chooses the value. A repeat or a choice in a
    repeated group, as in `(a+)+`, can take exponential time and is refused. Repeats and choices in
    a row multiply, so their number is limited.
    """
    if len(text) > PATTERN_CHARS_MAX:
        raise ConfigError(f"A client matching pattern has at most {PATTERN_CHARS_MAX} characters")
    try:
        compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"Illegal client matching pattern: {text}: {error}") from None
    if not _is_quick(text):
        raise ConfigError(
            f"Illegal client matching pattern: {text}: it may take too long. A pattern may have "
            f"{BITS_MAX // REPEAT_BITS} repeats such as * and +, or {CHOICES_MAX} choices such as "
            "| and ?, no look-around, no back-reference, and no repeated group that holds a repeat "
            "or a choice"
        )
    return compiled


# An escaped character, a set of characters, what begins and ends a group, a repeat, anything else.
_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P?.|\(|\{\d*,?\d*\}|.", re.DOTALL)
_PLAIN_GROUPS: Final = ("(", "(?:", "(?P<")


def _is_quick(text: str) -> bool:
    repeats = choices = 0
    groups: list[bool] = []  # of each open group: whether it holds a repeat or a choice
    closed_risky = False  # the last token closed such a group
    for token in _TOKEN.findall(text):
        if token[0] == "(":
            if token not in _PLAIN_GROUPS:
                return False
            groups.append(False)
        if token[0] == "\\" and token[1].isdigit():
            return False
        is_repeat = token in ("*", "+") or (token[0] == "{" and len(token) > 2)
        is_choice = token in ("|", "?")
        repeats += is_repeat
        choices += is_choice
        if is_repeat and closed_risky:
            return False
        if is_repeat or is_choice:
            groups = [True] * len(groups)
        closed_risky = groups.pop() if token == ")" else False
    return choices <= CHOICES_MAX and repeats * REPEAT_BITS + choices <= BITS_MAX
