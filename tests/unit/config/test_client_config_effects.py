"""A wired key of a client is read by the client, by Spark's connector or by the tools."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tidelog.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from tidelog.config.definition import EffectKind, Key

SOURCE = Path(__file__).parents[3] / "src" / "tidelog"
READERS = ("client", "spark", "tools", "sasl", "tls")
# What turns keys into attributes of a configuration, and the attributes that readers know.
CONFIG_FILES = ("client.py", "oauth.py", "sasl.py")
ATTRIBUTES = {
    "enable.idempotence": "is_idempotent",
    "group.protocol": "uses_consumer_protocol",
    "max.in.flight.requests.per.connection": "in_flight_max",
    "metadata.recovery.strategy": "rebootstraps",
    "partitioner.class": "partitioner",
}
OF_A_LOGIN = ("sasl.login.", "sasl.oauthbearer.", "tidelog.oauthbearer.")
WIRED = {
    key.name: key
    for table in (ProducerConfig.TABLE, ConsumerConfig.TABLE, AdminConfig.TABLE)
    for key in table
    if key.effect.kind is EffectKind.WIRED
}


@cache
def source_of_readers() -> str:
    paths = (path for package in READERS for path in (SOURCE / package).rglob("*.py"))
    return "\n".join(path.read_text() for path in sorted(paths))


@cache
def source_of_config() -> str:
    return "".join((SOURCE / "config" / name).read_text() for name in CONFIG_FILES)


def is_end_of_a_backoff(name: str) -> bool:
    """`Backoff.of` makes its name of that of the first wait."""
    first = name.replace(".max.ms", ".ms")
    return name != first and f'"{first}"' in source_of_readers()


@pytest.mark.parametrize("key", WIRED.values(), ids=lambda key: key.name)
def test_a_wired_key_of_a_client_is_read(key: Key) -> None:
    if f'"{key.name}"' in source_of_readers() or is_end_of_a_backoff(key.name):
        return
    assert f'"{key.name}"' in source_of_config(), "nothing reads it"
    attribute = "login" if key.name.startswith(OF_A_LOGIN) else ATTRIBUTES[key.name]
    assert f".{attribute}" in source_of_readers(), f"nothing reads {attribute}"
