"""JSON documents as filters see them, and text that is safe to show.

A document is what `json.loads` gives; MISSING stands for none, since null is a value. `parse` takes
JSON as the standard has it: no NaN, no infinity. Text that is shown has its control characters,
changes of direction and lone surrogates written as escapes, so that it is seen for what it is, can
be encoded, and moves nothing around it.
"""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

Path = tuple[str | int, ...]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)


def parse(text: str) -> object:
    """Raises ValueError, also for what is nested too deeply."""
    try:
        found: object = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found


def parse_or_missing(data: bytes) -> object:
    try:
        return parse(data.decode())
    except ValueError:
        return MISSING


def at_path(document: object, path: Path) -> object:
    """MISSING where the path leads nowhere."""
    for step in path:
        if isinstance(step, str):
            if not isinstance(document, dict):
                return MISSING
            document = document.get(step, MISSING)
        elif isinstance(document, list) and step < len(document):
            document = document[step]
        else:
            return MISSING
    return document


def compact(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def indented(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2)


def visible(text: str) -> str:
    return _HIDDEN.sub(_escape, text)


def visible_json(text: str) -> str:
    """JSON of the same meaning."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
