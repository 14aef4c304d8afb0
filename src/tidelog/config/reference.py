"""Writes docs/config.md from the rows: `python -m tidelog.config.reference`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tidelog.config.broker import SUBJECTS
from tidelog.config.definition import ConfigType, Key, to_text
from tidelog.config.keys import topic

REFERENCE_PATH: Final = Path("docs/config.md")

INTRODUCTION: Final = """\
# Configuration

Written by `python -m tidelog.config.reference` from the rows in `src/tidelog/config/keys`.

`tidelog serve --config server.properties --override key=value` takes every key of Kafka 3.9's
`server.properties`, with Kafka's meaning and default. Where it differs:

- `listeners` is `PLAINTEXT://127.0.0.1:9092`: nobody but this machine connects unless you say so.
- `num.network.threads` is 1.
- `socket.receive.buffer.bytes` is -1 (the system's choice), `socket.send.buffer.bytes` 262144.
- `listeners`, `advertised.listeners`, `listener.security.protocol.map` and `num.network.threads`
  cannot change while the broker runs, and only `PLAINTEXT` is served.
- An unknown key is an error that names the nearest known one; Kafka ignores it.
- Keys that begin with `tidelog.` are tidelog's own.
- Keys marked *inert* are known and checked, but nothing acts on them: setting one gives a warning.

*Change* says how a broker key may be changed while brokers run, with IncrementalAlterConfigs or
AlterConfigs: not at all (read-only), for all brokers at once or one of them (cluster-wide), or for
one broker only (per-broker).
"""


def reference() -> str:
    lines = [INTRODUCTION]
    for title, module in SUBJECTS:
        lines += [f"## {title}\n", f"{module.__doc__}\n", *broker_rows(module.KEYS), ""]
    lines += [
        "## Topic\n",
        f"{topic.__doc__}\n",
        "The broker keys are listed best first: the first that is set gives the default.\n",
        *topic_rows(topic.KEYS),
    ]
    return "\n".join(lines) + "\n"


def broker_rows(keys: Iterable[Key]) -> Iterator[str]:
    yield "| key | type | default | valid | change | what it does |"
    yield "|---|---|---|---|---|---|"
    for key in keys:
        if not key.internal:
            yield row(key, key.dynamic)


def topic_rows(keys: Iterable[Key]) -> Iterator[str]:
    yield "| key | type | default | valid | broker key | what it does |"
    yield "|---|---|---|---|---|---|"
    for key in keys:
        yield row(key, ", ".join(f"`{name}`" for name, _ in key.synonyms))


def row(key: Key, fifth: str) -> str:
    default = to_text(key.default)
    shown = "" if default is None else f"`{default}`" if default else "empty"
    valid = str(key.valid) if key.valid is not None else ""
    doc = f"*Inert.* {key.doc}" if key.inert else key.doc
    cells = (f"`{key.name}`", ConfigType(key.type).name.lower(), shown, valid, fifth, doc)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


if __name__ == "__main__":
    REFERENCE_PATH.parent.mkdir(exist_ok=True)
    REFERENCE_PATH.write_text(reference())
