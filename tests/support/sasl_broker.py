"""A broker with a PLAINTEXT listener beside one with SASL, and the ways to log in there.

With an authority it has a third listener, where SASL goes over TLS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tidelog.client import Admin, ScramMechanism, ScramUpsertion
from tidelog.config.jaas import MODULES

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", "alice's, =secret\\"
QUOTED = PASSWORD.replace("\\", "\\\\")
PLAIN_USERS = f'{MODULES["PLAIN"]} required user_{USER}="{QUOTED}" user_bob="bob-secret";'
OVERRIDES = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
}


def overrides_with_tls(authority: Authority) -> dict[str, str]:
    return {
        **OVERRIDES,
        "listeners": f"{OVERRIDES['listeners']},SASL_SSL://127.0.0.1:0",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
        **authority.broker_keys(),
    }


def jaas(mechanism: str, user: str = USER, password: str = PASSWORD) -> str:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{MODULES[mechanism]} required username="{user}" password="{quoted}";'


class SaslBroker(NamedTuple):
    """Seen through its listener with SASL; with an authority, through the one with TLS as well."""

    process: BrokerProcess
    authority: Authority | None = None

    @property
    def plain_bootstrap(self) -> str:
        return self.process.bootstrap

    @property
    def protocol(self) -> str:
        return "SASL_PLAINTEXT" if self.authority is None else "SASL_SSL"

    @property
    def bootstrap(self) -> str:
        """Of the listener with SASL."""
        found = re.search(rf"{self.protocol}://([^,\s]+)", self.process.stdout_path.read_text())
        assert found is not None
        return found[1]

    def connection_keys(self) -> dict[str, str]:
        """How tidelog's own clients, and Kafka's, get as far as the login."""
        trust = {} if self.authority is None else self.authority.client_keys()
        return {
            **trust,
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
        }

    def config(
        self, mechanism: str, user: str = USER, password: str = PASSWORD, **more: Any
    ) -> dict[str, Any]:
        """Of tidelog's own clients, and of Kafka's."""
        return {
            **self.connection_keys(),
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
    start: Callable[..., BrokerProcess],
    overrides: Mapping[str, str] | None = None,
    *,
    authority: Authority | None = None,
) -> SaslBroker:
    base = OVERRIDES if authority is None else overrides_with_tls(authority)
    broker = SaslBroker(start({**base, **(overrides or {})}), authority)
    broker.add_user()
    return broker


@contextmanager
def running_sasl_broker(
    directory: Path,
    overrides: Mapping[str, str] | None = None,
    *,
    authority: Authority | None = None,
) -> Iterator[SaslBroker]:
    """Of a module or a test; it is killed in the end, and may not have held its loop."""
    started: list[BrokerProcess] = []

    def start(given: dict[str, str]) -> BrokerProcess:
        started.append(BrokerProcess(directory, given))
        return started[0].start()

    try:
        yield start_sasl_broker(start, overrides, authority=authority)
    finally:
        for process in started:
            process.kill()
    assert not started[0].long_stalls()
