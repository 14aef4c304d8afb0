"""A broker with a PLAINTEXT listener beside one with SASL, and the ways to log in there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.support.broker_process import BrokerProcess
from tidelog.client import Admin, ScramMechanism, ScramUpsertion
from tidelog.config.jaas import MODULES

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", "alice's, =secret\\"
QUOTED = PASSWORD.replace("\\", "\\\\")
OVERRIDES = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{MODULES["PLAIN"]} required user_{USER}="{QUOTED}" user_bob="bob-secret";'
    ),
}


def jaas(mechanism: str, user: str = USER, password: str = PASSWORD) -> str:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{MODULES[mechanism]} required username="{user}" password="{quoted}";'


class SaslBroker(NamedTuple):
    process: BrokerProcess

    @property
    def plain_bootstrap(self) -> str:
        return self.process.bootstrap

    @property
    def bootstrap(self) -> str:
        """Of the listener with SASL."""
        found = re.search(r"SASL_PLAINTEXT://([^,\s]+)", self.process.stdout_path.read_text())
        assert found is not None
        return found[1]

    def config(
        self, mechanism: str, user: str = USER, password: str = PASSWORD, **more: Any
    ) -> dict[str, Any]:
        """Of tidelog's own clients, and of Kafka's."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas(mechanism, user, password),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def add_user(self, user: str = USER, password: str = PASSWORD) -> None:
        """With a credential of each SCRAM mechanism."""
        alterations = [
            ScramUpsertion(user, ScramMechanism.named(mechanism), password)
            for mechanism in MECHANISMS[1:]
        ]
        with Admin({"bootstrap.servers": self.plain_bootstrap}) as admin:
            for result in admin.alter_user_scram_credentials(alterations).values():
                result.get()

    def closing_lines(self) -> list[str]:
        return [line for line in self.process.log_text().splitlines() if "closing " in line]


def start_sasl_broker(
    start: Callable[..., BrokerProcess], overrides: Mapping[str, str] | None = None
) -> SaslBroker:
    broker = SaslBroker(start({**OVERRIDES, **(overrides or {})}))
    broker.add_user()
    return broker
