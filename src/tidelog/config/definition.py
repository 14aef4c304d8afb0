"""What a configuration key is, and how a table of keys parses text into typed values.

A `Key` is one row: name, type, default, allowed values, importance, whether it may change while
the broker runs, what comes of it here (`Effect`), and its documentation. The row is the validator,
the answer to DescribeConfigs and the line in docs/config.md at once; rows hold no logic.

Values are parsed as Kafka's ConfigDef does: blanks around a value are dropped, `true`/`false` in
any case, integers within their width, lists split at commas. A class is kept as its name. Every
refusal is a `ConfigError` that names key, value and rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

from tidelog.errors import StartupError

Value = bool | int | float | str | tuple[str, ...] | None

# What Java's String.trim() takes away: everything up to and including the space.
BLANKS: Final = "".join(map(chr, range(33)))

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_MAX: Final = 1.7976931348623157e308


class ConfigError(StartupError):
    """A refused key or value: it ends the start, or answers a request with INVALID_CONFIG."""


class UnknownKey(ConfigError):
    """A key that no row has."""

    def __init__(self, name: str, nearest: str | None) -> None:
        hint = f"; did you mean {nearest}?" if nearest else ""
        super().__init__(f"unknown configuration key {name}{hint}")
        self.name = name
        self.nearest = nearest


class InvalidValue(ConfigError):
    def __init__(self, name: str, value: object, rule: str) -> None:
        super().__init__(f"Invalid value {value} for configuration {name}: {rule}")
        self.name = name
        self.rule = rule


class ConfigType(IntEnum):
    """The types of a value, with the numbers DescribeConfigs gives them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
SHORT: Final = ConfigType.SHORT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
LIST: Final = ConfigType.LIST
CLASS: Final = ConfigType.CLASS
PASSWORD: Final = ConfigType.PASSWORD

HIGH: Final = "high"
MEDIUM: Final = "medium"
LOW: Final = "low"

# How a broker key may change: only with a restart, for all brokers at once, or for one broker.
READ_ONLY: Final = "read-only"
CLUSTER_WIDE: Final = "cluster-wide"
PER_BROKER: Final = "per-broker"


class EffectKind(Enum):
    """What comes of a key that is set."""

    WIRED = "wired"  # the code acts on it
    CHECKED = "checked"  # only compared with other keys, at the start and at each change
    REFUSED = "refused"  # any value but the default ends the start
    HARMLESS = "harmless"  # accepted with a warning; nothing acts on it and nobody is hurt


class Effect(NamedTuple):
    kind: EffectKind
    reason: str  # why a key is not wired; of a refused one also what to do instead
    accepted: tuple[str, ...] = ()  # values that a refused key may have


WIRED: Final = Effect(EffectKind.WIRED, "")


def checked(reason: str) -> Effect:
    return Effect(EffectKind.CHECKED, reason)


def refused(reason: str, *accepted: str) -> Effect:
    """But for the values that are `accepted`."""
    return Effect(EffectKind.REFUSED, reason, accepted)


def harmless(reason: str) -> Effect:
    return Effect(EffectKind.HARMLESS, reason)


BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


class Rule(Protocol):
    """What a parsed value must satisfy; its text is the "valid" column of the documentation."""

    def check(self, name: str, value: Value) -> None: ...


class Range:
    __slots__ = ("high", "low")

    def __init__(self, low: float | None, high: float | None) -> None:
        self.low = low
        self.high = high

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, int | float), value
        if self.low is not None and not value >= self.low:
            raise InvalidValue(name, value, f"Value must be at least {self.low}")
        if self.high is not None and not value <= self.high:
            raise InvalidValue(name, value, f"Value must be no more than {self.high}")

    def __str__(self) -> str:
        return f"[{self.low},...]" if self.high is None else f"[{self.low},...,{self.high}]"


class RangeOr:
    """A range and one more value outside it that has a meaning of its own."""

    __slots__ = ("exception", "range")

    def __init__(self, low: int, high: int, exception: int) -> None:
        self.range = Range(low, high)
        self.exception = exception

    def check(self, name: str, value: Value) -> None:
        try:
            self.range.check(name, value)
        except InvalidValue:
            if value != self.exception:
                raise InvalidValue(name, value, f"Value must be in {self}") from None

    def __str__(self) -> str:
        return f"{self.range} or {self.exception}"


class OneOf:
    __slots__ = ("ignore_case", "values")

    def __init__(self, *values: str, ignore_case: bool = False) -> None:
        self.values = values
        self.ignore_case = ignore_case

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, str), value
        wanted = value.upper() if self.ignore_case else value
        if wanted not in self.values:
            raise InvalidValue(name, value, f"String must be one of: {', '.join(self.values)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.values)}]"


class EachOf:
    """A list whose items are all among the given ones."""

    __slots__ = ("item",)

    def __init__(self, *values: str) -> None:
        self.item = OneOf(*values)

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple), value
        for item in value:
            self.item.check(name, item)

    def __str__(self) -> str:
        return str(self.item)


class NonEmpty:
    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        if value == "":
            raise InvalidValue(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


class ReplicaList:
    """`*` for all replicas, or a list of partition:broker pairs."""

    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple), value
        if value != ("*",) and not all(map(self._is_replica, value)):
            raise InvalidValue(name, ",".join(value), f"Value must be * or a list of {self}")

    def _is_replica(self, item: str) -> bool:
        partition, colon, broker = item.partition(":")
        return not item or (bool(colon) and is_digits(partition) and is_digits(broker))

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class KafkaVersion:
    """A release such as 3.9 or 0.10.2, a patch of it (3.9.1), or a step of it (3.9-IV0)."""

    __slots__ = ()

    # Release, and how many steps (-IV0, -IV1, ...) it has; none for those older than the steps.
    STEPS: Final = {
        **dict.fromkeys(("0.8.0", "0.8.1", "0.8.2", "0.9.0"), 0),
        **{"0.10.0": 2, "0.10.1": 3, "0.10.2": 1, "0.11.0": 3, "1.0": 1, "1.1": 1},
        **{"2.0": 2, "2.1": 3, "2.2": 2, "2.3": 2, "2.4": 2, "2.5": 1, "2.6": 1, "2.7": 3},
        **{"2.8": 2, "3.0": 2, "3.1": 1, "3.2": 1, "3.3": 4, "3.4": 1, "3.5": 3, "3.6": 3},
        **{"3.7": 5, "3.8": 1, "3.9": 1, "4.0": 2},
    }

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, str), value
        release, _, step = value.partition("-IV")
        segments = release.split(".")
        wanted = 3 if segments[0] == "0" else 2
        steps = self.STEPS.get(".".join(segments[:wanted]), -1)
        if steps < 0 or not all(map(is_digits, segments)):
            raise InvalidValue(name, value, f"Version {value} is not a valid version")
        if "-" in value and not (len(segments) == wanted and is_digits(step) and int(step) < steps):
            raise InvalidValue(name, value, f"Version {value} is not a valid version")

    def __str__(self) -> str:
        return f"a Kafka version, {next(iter(self.STEPS))} to {next(reversed(self.STEPS))}"


def at_least(low: float) -> Range:
    return Range(low, None)


def between(low: float, high: float) -> Range:
    return Range(low, high)


class Key:
    """One row of a table. `default` is the typed value, None where the key has none.

    `effect`: what comes of it here, and why if nothing does.
    `internal`: accepted and documented, but described only where it is set, as in Kafka.
    `synonyms`: of a topic key, the broker keys that give its default, best first, each with the
    factor that turns its unit into this key's.
    """

    __slots__ = (
        "default",
        "doc",
        "dynamic",
        "effect",
        "importance",
        "internal",
        "name",
        "synonyms",
        "type",
        "valid",
    )

    def __init__(
        self,
        name: str,
        type: ConfigType,
        default: Value,
        doc: str,
        *,
        valid: Rule | None = None,
        importance: str = MEDIUM,
        dynamic: str = READ_ONLY,
        effect: Effect = WIRED,
        internal: bool = False,
        synonyms: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.doc = doc
        self.valid = valid
        self.importance = importance
        self.dynamic = dynamic
        self.effect = effect
        self.internal = internal
        self.synonyms = synonyms

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def is_harmless(self) -> bool:
        return self.effect.kind is EffectKind.HARMLESS

    @property
    def is_fixed(self) -> bool:
        """Whether it cannot change while the broker runs, or a change would come to nothing."""
        return self.dynamic == READ_ONLY or self.effect.kind is not EffectKind.WIRED

    def refuses(self, value: Value) -> bool:
        """Whether the broker must not run with this value: nothing here would honour it."""
        harmless_values = (self.default, "", (), None, *self.effect.accepted)
        return self.effect.kind is EffectKind.REFUSED and value not in harmless_values

    def parse(self, text: str) -> Value:
        value = parse_value(self.name, self.type, text)
        if self.valid is not None:
            self.valid.check(self.name, value)
        return value

    def __repr__(self) -> str:
        return f"Key({self.name})"


class ConfigTable:
    """All keys of one kind (broker or topic), by name."""

    __slots__ = ("keys",)

    def __init__(self, keys: Iterable[Key]) -> None:
        self.keys: dict[str, Key] = {}
        for key in keys:
            assert key.name not in self.keys, key
            self.keys[key.name] = key

    def __getitem__(self, name: str) -> Key:
        return self.keys[name]

    def __contains__(self, name: object) -> bool:
        return name in self.keys

    def __iter__(self) -> Iterator[Key]:
        return iter(self.keys.values())

    def __len__(self) -> int:
        return len(self.keys)

    def get(self, name: str) -> Key | None:
        return self.keys.get(name)

    def must_get(self, name: str) -> Key:
        key = self.keys.get(name)
        if key is None:
            raise UnknownKey(name, self.nearest(name))
        return key

    def nearest(self, name: str) -> str | None:
        """The known key that looks most like the given one, or None if none comes close."""
        from difflib import get_close_matches

        matches = get_close_matches(name, self.keys, n=1, cutoff=0.6)
        return matches[0] if matches else None

    def parse(self, texts: Mapping[str, str]) -> dict[str, Value]:
        """Typed values of exactly the keys given; raises UnknownKey or InvalidValue."""
        return {name: self.must_get(name).parse(text) for name, text in texts.items()}

    def defaults(self) -> dict[str, Value]:
        return {key.name: key.default for key in self.keys.values()}


def is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def parse_value(name: str, type: ConfigType, text: str) -> Value:
    """The typed value of a text, as Kafka's ConfigDef.parseType reads it."""
    trimmed = text.strip(BLANKS)
    if type in BITS:
        return parse_integer(name, type, text, trimmed)
    if type is ConfigType.BOOLEAN:
        return parse_boolean(name, text, trimmed)
    if type is ConfigType.DOUBLE:
        return parse_double(name, text, trimmed)
    if type is ConfigType.LIST:
        return tuple(item.strip(BLANKS) for item in trimmed.split(",")) if trimmed else ()
    return trimmed


def parse_integer(name: str, type: ConfigType, text: str, trimmed: str) -> int:
    digits = trimmed[1:] if trimmed[:1] in ("+", "-") else trimmed
    limit = 1 << (BITS[type] - 1)
    if not is_digits(digits) or len(digits.lstrip("0")) > 19 or not -limit <= int(trimmed) < limit:
        raise InvalidValue(name, text, f"Not a number of type {type.name}")
    return int(trimmed)


def parse_boolean(name: str, text: str, trimmed: str) -> bool:
    lowered = trimmed.lower()
    if lowered not in ("true", "false"):
        raise InvalidValue(name, text, "Expected value to be either true or false")
    return lowered == "true"


def parse_double(name: str, text: str, trimmed: str) -> float:
    number = trimmed[:-1] if trimmed[-1:] in ("d", "D", "f", "F") else trimmed
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if value != value or not number.isascii() or "_" in number or "i" in number.lower():
        raise InvalidValue(name, text, "Not a number of type DOUBLE")
    return value


def to_text(value: Value) -> str | None:
    """The text Kafka shows for a typed value; parsing it gives the value back."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return double_text(value)
    return str(value)


def double_text(value: float) -> str:
    """Java's Double.toString: plain between 1e-3 and 1e7, else with an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{value!r}"
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    for precision in range(1, 18):
        shorter = f"{value:.{precision}e}"
        if float(shorter) == value:
            mantissa, _, exponent = shorter.partition("e")
            break
    return f"{mantissa}E{int(exponent)}"
