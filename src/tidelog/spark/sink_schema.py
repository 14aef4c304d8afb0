"""Which columns of a DataFrame the sink writes, and of which types. No pyspark.

    value       string or binary, required
    key         string or binary
    headers     array<struct<key:string,value:binary>>
    topic       string; required when the option `topic` is not set, unused when it is
    partition   int; null leaves it to the partitioner

Names are case-sensitive. Other columns, `timestamp` among them, are not written: the broker or the
time of writing decides. All of this is as in Spark's kafka sink.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

TYPES: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


class InvalidSinkSchema(ValueError):
    """Names the column at fault and what it may be."""


def written_columns(columns: Iterable[tuple[str, str]], topic: str | None) -> list[str]:
    """Of (name, Spark's simple type name) those to write, in the order above."""
    given: dict[str, str] = {}
    for name, type_name in columns:
        given.setdefault(name, type_name)
    if "value" not in given:
        raise InvalidSinkSchema(
            f"the required column 'value' is not there; the columns are {', '.join(given)}"
        )
    if topic is None and "topic" not in given:
        raise InvalidSinkSchema(
            "no topic to write to: set the option 'topic', or have a column 'topic'"
        )
    written = [name for name in TYPES if name in given and not (name == "topic" and topic)]
    for name in written:
        if given[name] not in TYPES[name]:
            raise InvalidSinkSchema(
                f"column '{name}' of type {given[name]} cannot be written; it must be "
                f"{' or '.join(TYPES[name])}"
            )
    return written
