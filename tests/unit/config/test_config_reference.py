from __future__ import annotations

from pathlib import Path

from tidelog.config import client_reference
from tidelog.config.broker import BROKER_TABLE
from tidelog.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from tidelog.config.definition import EffectKind
from tidelog.config.reference import REFERENCE_PATH, reference
from tidelog.config.topic import TOPIC_TABLE

ROOT = Path(__file__).parents[3]


def test_the_committed_reference_is_what_the_rows_say() -> None:
    written = (ROOT / REFERENCE_PATH).read_text()
    assert written == reference(), "run: python -m tidelog.config.reference"


def test_the_committed_reference_of_clients_is_what_the_rows_say() -> None:
    written = (ROOT / client_reference.REFERENCE_PATH).read_text()
    assert written == client_reference.reference(), "run: make generate"


def test_the_reference_of_clients_lists_every_key() -> None:
    lines = client_reference.reference().splitlines()
    for table in (ProducerConfig.TABLE, ConsumerConfig.TABLE, AdminConfig.TABLE):
        for key in table:
            assert any(line.startswith(f"| `{key.name}`") and key.doc in line for line in lines)


def test_the_reference_lists_every_key_with_its_effect() -> None:
    lines = reference().splitlines()
    for key in (*BROKER_TABLE, *TOPIC_TABLE):
        shown = f"| `{key.name}` (internal) |" if key.internal else f"| `{key.name}` |"
        assert any(
            line.startswith(shown) and key.effect.kind.value in line and key.effect.reason in line
            for line in lines
        ), key


def test_the_reference_lists_the_refused_keys_first() -> None:
    _, _, below = reference().partition("## Refused keys\n")
    listed, _, _ = below.partition("\n## ")
    refused = [key.name for key in BROKER_TABLE if key.effect.kind is EffectKind.REFUSED]
    assert refused
    assert not [name for name in refused if f"`{name}`" not in listed]
