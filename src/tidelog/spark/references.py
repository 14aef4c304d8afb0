"""`${env:NAME}` and `${file:PATH}` in the text of a setting: where a value is, not the value.

Spark shows settings and options in plans, logs and its event log, so a secret must not be among
them. The kafka.* options of the source and the sink may hold references. Spark carries them as they
stand, and every Python process that opens a client looks the values up in its own environment and
files. Line ends at the end of a file are no part of its value.

Errors name the reference and never the value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ENV, FILE = "env", "file"
KINDS: Final = (ENV, FILE)

_REFERENCE = re.compile(r"\$\{(\w+):([^{}]*)\}")


class MissingReference(ValueError):
    """There is no value where the reference points to."""


class Reference(NamedTuple):
    kind: str  # env or file; another word is no reference of ours
    name: str

    def __str__(self) -> str:
        return f"${{{self.kind}:{self.name}}}"

    def value(self) -> str:
        """Raises MissingReference."""
        if self.kind == ENV:
            if self.name not in os.environ:
                raise MissingReference(f"{self}: the environment has no variable {self.name}")
            return os.environ[self.name]
        try:
            return Path(self.name).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as problem:
            raise MissingReference(f"{self}: {problem.strerror or 'cannot be read'}") from None
        except UnicodeDecodeError:
            raise MissingReference(f"{self}: the file is not UTF-8 text") from None


def references_in(text: str) -> list[Reference]:
    """Of every kind, also of kinds that are not known here."""
    return [Reference(*found) for found in _REFERENCE.findall(text)]


def resolved(text: str) -> str:
    """The text with values in place of its references; raises MissingReference. Another `${...}`
    stays."""

    def value(found: re.Match[str]) -> str:
        return Reference(found[1], found[2]).value() if found[1] in KINDS else found[0]

    return _REFERENCE.sub(value, text)


def resolved_values(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: resolved(text) for name, text in settings.items()}


def without_values(told: str, texts: Iterable[str]) -> str:
    """A message, with the references of `texts` wherever it has their values as whole words."""
    for reference in (each for text in texts for each in references_in(text)):
        if reference.kind in KINDS and (value := reference.value()):
            told = str(reference).join(re.split(rf"(?<!\w){re.escape(value)}(?!\w)", told))
    return told
