"""Writes docs/client-config.md from the rows: `python -m tidelog.config.client_reference`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tidelog.config.definition import Key
from tidelog.config.keys.client import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS, SHARED_KEYS
from tidelog.config.reference import cells_of

REFERENCE_PATH: Final = Path("docs/client-config.md")

INTRODUCTION: Final = """\
# Settings of the clients

Written by `python -m tidelog.config.client_reference` from the rows in
`src/tidelog/config/keys/client.py`.

The keys, defaults and meanings are those of Kafka's clients. [client.md](client.md) shows how to
set them, and [security.md](security.md) how to log in. The command line takes them with `-X` and
`--config`, and Spark with the prefix `kafka.` ([spark.md](spark.md)).

*Effect* says what a client does with a key that you set:

- wired: it acts on it.
- refused: it does not start with any value but the default, and says why.
- harmless: it does nothing with it. `config.warnings` of the client says so.
"""


def reference() -> str:
    shared = {key.name: key for key in SHARED_KEYS}
    lines = [INTRODUCTION]
    for title, keys in (
        ("All clients", SHARED_KEYS),
        ("Producer", PRODUCER_KEYS),
        ("Consumer", CONSUMER_KEYS),
        ("Admin", ADMIN_KEYS),
    ):
        own = [key for key in keys if keys is SHARED_KEYS or shared.get(key.name) is not key]
        lines += [f"## {title}\n", *rows(own), ""]
    return "\n".join(lines).rstrip() + "\n"


def rows(keys: Iterable[Key]) -> Iterator[str]:
    yield "| key | type | default | valid | what it does | effect |"
    yield "|---|---|---|---|---|---|"
    for key in keys:
        yield f"| {' | '.join(cells_of(key))} |"


if __name__ == "__main__":
    REFERENCE_PATH.write_text(reference())
