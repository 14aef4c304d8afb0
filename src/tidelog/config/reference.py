"""Writes docs/config.md from the rows: `python -m tidelog.config.reference`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tidelog.config import group
from tidelog.config.broker import SUBJECTS
from tidelog.config.definition import READ_ONLY, ConfigType, EffectKind, Key, to_text
from tidelog.config.keys import replication, topic
from tidelog.config.keys.replication import DYNAMIC_ONLY_KEYS

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
- Keys that begin with `tidelog.` are tidelog's own.
- `process.roles=broker,controller` whose `controller.quorum.voters` or
  `controller.quorum.bootstrap.servers` name this node alone starts with the embedded store; the
  controller's listener is not opened. Any other KRaft configuration is refused.
- `listener.name.<name>.<key>` works for `max.connections` and `max.connection.creation.rate`. Those
  of TLS and SASL are refused; others give a warning.

As in Kafka, a key that is unknown or set twice gives a warning, with its line and the nearest known
key. With `--strict` the broker does not start then.

*Effect* says what comes of a key that is set:

- wired: the broker acts on it.
- checked: it is only compared with other keys, at the start and at each change.
- refused: the broker does not start with any value but the default, and says why. Without its
  effect data would be open to others, or be lost, or a cluster would fall apart.
- harmless: it is accepted, nothing acts on it, and a warning says so. It cannot be changed while
  the broker runs.

An *internal* key is described by DescribeConfigs only where it is set.

*Change* says how a broker key may be changed while brokers run, with IncrementalAlterConfigs or
AlterConfigs: not at all (read-only), for all brokers at once or one of them (cluster-wide), or for
one broker only (per-broker).
"""


def reference() -> str:
    lines = [INTRODUCTION]
    for title, module in SUBJECTS:
        keys = module.KEYS + (DYNAMIC_ONLY_KEYS if module is replication else ())
        lines += [f"## {title}\n", f"{module.__doc__}\n", *broker_rows(keys), ""]
    lines += [
        "## Topic\n",
        f"{topic.__doc__}\n",
        "The broker keys are listed best first: the first that is set gives the default.\n",
        *topic_rows(topic.KEYS),
        "",
        "## Consumer group\n",
        "Of one group of the consumer protocol (KIP-848), set with IncrementalAlterConfigs or "
        "AlterConfigs; the broker key gives the default. It holds from each member's next "
        "heartbeat on.\n",
        *topic_rows(group.GROUP_TABLE),
    ]
    return "\n".join(lines) + "\n"


def broker_rows(keys: Iterable[Key]) -> Iterator[str]:
    yield "| key | type | default | valid | change | what it does | effect |"
    yield "|---|---|---|---|---|---|---|"
    for key in keys:
        yield row(key, READ_ONLY if key.is_fixed else key.dynamic)


def topic_rows(keys: Iterable[Key]) -> Iterator[str]:
    yield "| key | type | default | valid | broker key | what it does | effect |"
    yield "|---|---|---|---|---|---|---|"
    for key in keys:
        yield row(key, ", ".join(f"`{name}`" for name, _ in key.synonyms))


def row(key: Key, fifth: str) -> str:
    default = to_text(key.default)
    shown = "" if default is None else f"`{default}`" if default else "empty"
    valid = str(key.valid) if key.valid is not None else ""
    name = f"`{key.name}`" + (" (internal)" if key.internal else "")
    kind, reason = key.effect
    effect = kind.value if kind is EffectKind.WIRED else f"*{kind.value}*: {reason}"
    cells = (name, ConfigType(key.type).name.lower(), shown, valid, fifth, key.doc, effect)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


if __name__ == "__main__":
    REFERENCE_PATH.parent.mkdir(exist_ok=True)
    REFERENCE_PATH.write_text(reference())
