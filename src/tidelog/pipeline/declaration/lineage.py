"""What a source or view is made of, told from the declaration alone: its sources, its views, and a
digest.

A digest stands for all that the state of a query depends on: SQL, schemas, watermarks and Python
files. Names are not part of it: in SQL the names of sources and views are replaced by their
digests, so renaming changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.pipeline.declaration.parts import Pipeline, View


def upstream_sources(pipeline: Pipeline, part: str) -> list[str]:
    """Sources that a source or view is made of, in the order of the file."""
    found: set[str] = set()
    open_parts = [part]
    views = {view.name: view for view in pipeline.views}
    while open_parts:
        name = open_parts.pop()
        if name in views:
            open_parts += inputs_of(pipeline, views[name])
        else:
            found.add(name)
    return [source.name for source in pipeline.sources if source.name in found]


def upstream_views(pipeline: Pipeline, part: str) -> set[str]:
    """Views that a view is made of, itself among them."""
    views = {view.name: view for view in pipeline.views}
    if part not in views:
        return set()
    inputs = inputs_of(pipeline, views[part])
    return {part}.union(*(upstream_views(pipeline, name) for name in inputs))


def inputs_of(pipeline: Pipeline, view: View) -> list[str]:
    """The sources and views above it that a view names."""
    if view.python_file is not None:
        return list(view.inputs)
    above = [source.name for source in pipeline.sources]
    for other in pipeline.views:
        if other.name == view.name:
            break
        above.append(other.name)
    return [name for name in above if _names(name, view.sql)]


def digests(pipeline: Pipeline) -> dict[str, str]:
    """Of every source and view."""
    found: dict[str, str] = {}
    for source in pipeline.sources:
        found[source.name] = _digest(
            source.format.kind,
            " ".join(str(source.format.schema).split()),
            sorted(source.format.options.items()),
            source.format.message,
            source.format.is_confluent,
            _content(source.format.schema_file),
            repr(source.watermark),
            source.tombstones,
            _expected(pipeline, source.name),
        )
    for view in pipeline.views:
        inputs = {name: found[name] for name in inputs_of(pipeline, view)}
        if view.python_file is not None:
            text = _content(view.python_file) + view.function
            parts: list[Any] = [text, list(inputs.values())]
        else:
            parts = [_nameless(view.sql, inputs)]
        found[view.name] = _digest(*parts, repr(view.watermark), _expected(pipeline, view.name))
    return found


def _expected(pipeline: Pipeline, part: str) -> list[tuple[str, str]]:
    rows = pipeline.expectations_of(part)
    return [(" ".join(row.sql.split()), row.on_fail) for row in rows]


def _nameless(sql: str, inputs: Mapping[str, str]) -> str:
    """The SQL with digests for names; how its lines are indented makes no difference."""
    text = "\n".join(line.strip() for line in sql.splitlines() if line.strip())
    for name, digest in inputs.items():
        text = re.sub(_word(name), digest, text, flags=re.IGNORECASE)
    return text


def _names(name: str, sql: str) -> bool:
    return re.search(_word(name), sql, re.IGNORECASE) is not None


def _word(name: str) -> str:
    return rf"(?<!\w){re.escape(name)}(?!\w)"


def _content(file: Path | None) -> str:
    return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
