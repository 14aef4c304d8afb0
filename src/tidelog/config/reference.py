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
`server.properties`, with Kafka's meaning and default. The differences:

- `listeners` is `PLAINTEXT://127.0.0.1:9092`, so only this machine can connect by default.
- `max.connections` is 50000 and `max.connections.per.ip` is 10000; Kafka has no such limits by
  default.
- `num.network.threads` is 1.
- `socket.receive.buffer.bytes` is -1 (the system's choice), `socket.send.buffer.bytes` is 262144.
- `listeners`, `advertised.listeners`, `listener.security.protocol.map` and `num.network.threads`
  cannot change while the broker runs. [security.md](security.md) is about TLS and SASL.
- Keys that begin with `tidelog.` exist only in tidelog.
- Keys may also come from the environment ([operations.md](operations.md)).
- With `process.roles=broker,controller`, and `controller.quorum.voters` or
  `controller.quorum.bootstrap.servers` that name this node alone, the broker starts with its
  embedded store and does not open the controller's listener. It refuses any other KRaft
  configuration.
- `listener.name.<name>.<key>` works for `max.connections`, `max.connection.creation.rate`, the keys
  of TLS (`ssl.*`) and, with SASL, for the keys that [security.md](security.md) names. The broker
  refuses other keys of TLS and SASL there, and warns about others.
- `sasl.jaas.config` without a prefix holds for every listener and mechanism that has none of its
  own. Kafka passes over it.

As in Kafka, the broker warns about a key that is unknown or set twice. The warning names the line
and the nearest known key. With `--strict`, the broker does not start.

*Effect* says what the broker does with a key that you set:

- wired: the broker acts on it.
- checked: the broker only compares it with other keys, at the start and at each change.
- refused: the broker does not start with any value but the default, and says why. Ignoring the key
  could expose data, lose data, or break up a cluster.
- harmless: the broker accepts it, does nothing with it, and logs a warning that says so. It cannot
  be changed while the broker runs.

DescribeConfigs describes an *internal* key only if it is set.

*Change* says how you can change a broker key while brokers run, with IncrementalAlterConfigs or
AlterConfigs: not at all (read-only), for all brokers at once or one of them (cluster-wide), or for
one broker only (per-broker).
"""


REFUSED: Final = """\
## Refused keys

The broker does not start if one of these has another value than its default. The sections below
give the reasons.
"""


def reference() -> str:
    lines = [INTRODUCTION, REFUSED, *refused_rows(), ""]
    for title, module in SUBJECTS:
        keys = module.KEYS + (DYNAMIC_ONLY_KEYS if module is replication else ())
        lines += [f"## {title}\n", f"{module.__doc__}\n", *broker_rows(keys), ""]
    lines += [
        "## Topic\n",
        f"{topic.__doc__}\n",
        "The first broker key that is set gives the default.\n",
        *topic_rows(topic.KEYS),
        "",
        "## Consumer group\n",
        "Keys of one group of the consumer protocol (KIP-848). Set them with "
        "IncrementalAlterConfigs or AlterConfigs. The broker key gives the default. A change "
        "applies from each member's next heartbeat on.\n",
        *topic_rows(group.GROUP_TABLE),
    ]
    return "\n".join(lines) + "\n"


def refused_rows() -> Iterator[str]:
    for title, module in SUBJECTS:
        names = [f"`{key.name}`" for key in module.KEYS if key.effect.kind is EffectKind.REFUSED]
        if names:
            yield f"- {title}: {', '.join(names)}"


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
    *cells, doc, effect = cells_of(key)
    return f"| {' | '.join([*cells, fifth, doc, effect])} |"


def cells_of(key: Key) -> list[str]:
    """Name, type, default, valid values, what it does, effect."""
    default = to_text(key.default)
    shown = "" if default is None else f"`{default}`" if default else "empty"
    valid = str(key.valid) if key.valid is not None else ""
    name = f"`{key.name}`" + (" (internal)" if key.internal else "")
    kind, reason, _ = key.effect
    effect = kind.value if kind is EffectKind.WIRED else f"*{kind.value}*: {reason}"
    cells = (name, ConfigType(key.type).name.lower(), shown, valid, key.doc, effect)
    return [cell.replace("|", "/") for cell in cells]


if __name__ == "__main__":
    REFERENCE_PATH.parent.mkdir(exist_ok=True)
    REFERENCE_PATH.write_text(reference())
