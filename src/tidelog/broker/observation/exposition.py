"""The text format of Prometheus (0.0.4): families of samples, and how a label is written.

    # HELP kafka_brokers Brokers that live.
    # TYPE kafka_brokers gauge
    kafka_brokers 3

All samples of a family stand together, whoever adds them and when.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
GAUGE: Final = "gauge"
COUNTER: Final = "counter"
SUMMARY: Final = "summary"


class Page:
    """One scrape. A family without samples is left out."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[str, list[str]]] = {}

    def family(self, name: str, kind: str, help_text: str) -> list[str]:
        """The lines of its samples, to be added to."""
        head = f"# HELP {name} {help_text}\n# TYPE {name} {kind}"
        return self._families.setdefault(name, (head, []))[1]

    def gauge(self, name: str, help_text: str, value: float) -> None:
        self.family(name, GAUGE, help_text).append(f"{name} {value}")

    def counter(self, name: str, help_text: str, value: float) -> None:
        self.family(name, COUNTER, help_text).append(f"{name} {value}")

    def names(self) -> list[str]:
        return [name for name, (_, lines) in self._families.items() if lines]

    def pieces(self) -> Iterator[str]:
        """The text, a family at a time."""
        for head, lines in self._families.values():
            if lines:
                yield "\n".join((head, *lines, ""))


def labels(values: Mapping[str, object]) -> str:
    return "{" + ",".join(f'{name}="{escaped(str(value))}"' for name, value in values.items()) + "}"


def escaped(text: str) -> str:
    """A name that clients choose may hold anything, also what is no character at all."""
    if text.isalnum() and text.isascii():
        return text
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text.encode("utf-8", "replace").decode()
