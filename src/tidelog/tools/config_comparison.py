"""Settings of brokers side by side: of files and of brokers that run.

Two texts of one value are equal (010 and 10, TRUE and true). A key that is not set has its
default. Values that may be secret are hidden: of a file it is told whether they differ, of a broker
nobody can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.config.broker import BROKER_TABLE, ID_KEYS, find_key
from tidelog.config.definition import ConfigError, to_text
from tidelog.config.server_properties import load_properties

if TYPE_CHECKING:
    from tidelog.client.admin.configs import ConfigEntry

HIDDEN: Final = "(hidden)"
UNSEEN: Final = object()  # set, but the broker does not tell to what
NOT_SET: Final = "(not set)"
TO_BE_FOUND: Final = "-1"  # the broker found its number in meta.properties, or was given one


class Side(NamedTuple):
    name: str
    texts: Mapping[str, object]  # of the keys that are set; UNSEEN, or a text
    runs: bool = False  # a broker, not a file


def side_of_file(path: Path) -> Side:
    return Side(str(path), {item.key: item.value for item in load_properties(path)})


def side_of_broker(name: str, entries: Mapping[str, ConfigEntry]) -> Side:
    texts = {
        key: UNSEEN if entry.is_sensitive else entry.value
        for key, entry in entries.items()
        if entry.value is not None or (entry.is_sensitive and not entry.is_default)
    }
    return Side(name, texts, runs=True)


def differences(left: Side, right: Side) -> list[dict[str, object]]:
    """A row for each key that differs, or cannot be compared."""
    rows = []
    runs = left.runs or right.runs
    for name in sorted({*left.texts, *right.texts}):
        ours, theirs = _value(left, name), _value(right, name)
        if UNSEEN in (ours, theirs):
            if ours is theirs or NOT_SET in (ours, theirs):
                if ours is theirs:
                    continue
                note = "differs"
            else:
                note = "cannot be compared"
        elif ours == theirs or (name in ID_KEYS and runs and TO_BE_FOUND in (ours, theirs)):
            continue
        else:
            note = "differs"
        rows.append(
            {
                "key": name,
                "left": _shown(name, ours),
                "right": _shown(name, theirs),
                "comparison": note,
            }
        )
    return rows


def _value(side: Side, name: str) -> object:
    key = find_key(name)
    names = (name, *ID_KEYS) if name in ID_KEYS else (name,)  # each of the two stands for both
    text = next((side.texts[each] for each in names if each in side.texts), None)
    if text is UNSEEN:
        return text
    if text is None:
        default = to_text(BROKER_TABLE[name].default) if name in BROKER_TABLE else None
        return NOT_SET if default is None else default
    assert isinstance(text, str)
    if key is None:
        return text
    try:
        return to_text(key.parse(text))
    except ConfigError:
        return text


def _shown(name: str, value: object) -> object:
    """A key that no row has may be secret too."""
    key = find_key(name)
    if value == NOT_SET:
        return NOT_SET
    return HIDDEN if value is UNSEEN or key is None or key.sensitive else value
