"""References of a `pipeline.toml`, `${env:NAME}` and `${file:PATH}`, before its values are checked.

    [kafka], and kafka.* in options    stay references; the Kafka clients look them up, in every
                                       Python process on its own, so Spark never has the values
    [spark], and other options         become values; Spark hides settings of these names
    everything else                    becomes values, which plans may show

Paths begin at the folder of the file. A reference without a value, or of an unknown kind outside
SQL, is a problem with its line. Nothing here shows a value.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tidelog.pipeline.declaration.parts import Place, Problem
from tidelog.pipeline.declaration.toml_table import KeyPath, TomlLines
from tidelog.spark.references import FILE, KINDS, MissingReference, references_in, resolved

_KAFKA: Final = "kafka"
# Spark has `${...}` of its own there.
_SQL_KEYS: Final = ("sql", "key")


class DeclaredReferences:
    """Those of one file. `tables` is the file without references, but for those that stay."""

    def __init__(self, file: Path, tables: dict[str, Any], lines: TomlLines) -> None:
        self.file = file
        self._lines = lines
        self.problems: list[Problem] = []
        self.found: list[str] = []
        self.hidden_settings: list[str] = []
        self.tables: dict[str, Any] = self._looked_up((), tables)

    def _looked_up(self, path: KeyPath, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._looked_up((*path, key), inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._looked_up(path, inner) for inner in value]
        return self._text(path, value) if isinstance(value, str) else value

    def _text(self, path: KeyPath, text: str) -> str:
        references = references_in(text)
        known = [reference for reference in references if reference.kind in KINDS]
        if len(known) < len(references) and path[-1] not in _SQL_KEYS:
            other = next(str(each) for each in references if each.kind not in KINDS)
            self._problem(path, f"{other} is no reference; there is ${{env:NAME}}, ${{file:PATH}}")
        if not known:
            return text
        for reference in known:
            if reference.kind == FILE:
                located = reference._replace(name=self._located(reference.name))
                text = text.replace(str(reference), str(located))
                reference = located
            self.found.append(str(reference))
        try:
            value = resolved(text)
        except MissingReference as problem:
            self._problem(path, str(problem))
            return text
        if _is_for_clients(path):
            return text
        if path[0] == "spark" or "options" in path:
            self.hidden_settings.append(path[-1])
        return value

    def _located(self, name: str) -> str:
        return str(self.file.parent.absolute() / name)

    def _problem(self, path: KeyPath, message: str) -> None:
        place = Place(self.file, self._lines.line(*path))
        self.problems.append(Problem(place, f"[{'.'.join(path[:-1])}] {path[-1]}: {message}"))


def _is_for_clients(path: KeyPath) -> bool:
    return path[0] == _KAFKA or (
        path[:1] in (("source",), ("sink",))
        and path[2:3] == ("options",)
        and path[-1].lower().startswith(f"{_KAFKA}.")
    )
