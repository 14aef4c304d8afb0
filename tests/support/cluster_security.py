"""A cluster with SASL over TLS on every listener, and what its clients need to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.certificates import Authority
from tests.support.cluster import ClusterProcess
from tidelog.config.jaas import MODULES

MECHANISM = "PLAIN"
USER, SECRET = "broker", "hush"


def secure(cluster: ClusterProcess, listeners: Iterable[str], directory: Path) -> None:
    """Before its brokers start. All that talk to it are the same user."""
    authority = Authority(directory)
    names = list(listeners)
    for number, broker in cluster.brokers.items():
        broker.overrides |= {
            "listener.security.protocol.map": ",".join(f"{name}:SASL_SSL" for name in names),
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            **authority.broker_keys(key=authority.issue(f"broker-{number}")),
        }
        for name in names:
            broker.overrides[f"listener.name.{name.lower()}.plain.sasl.jaas.config"] = (
                f'{MODULES[MECHANISM]} required username="{USER}" password="{SECRET}" '
                f'user_{USER}="{SECRET}";'
            )
    cluster.security = librdkafka_keys(authority)


def librdkafka_keys(authority: Authority) -> Mapping[str, str]:
    return {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(authority.path),
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": SECRET,
    }
