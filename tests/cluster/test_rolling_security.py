"""A running cluster is secured broker by broker, while clients write all the time."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.cluster import (
    CALL_TIMEOUT_S,
    ClusterProcess,
    Writer,
    read_all,
    require_nothing_lost,
)
from tests.support.eventually import eventually
from tests.support.faulty_cluster import has_full_isrs
from tests.support.sasl_broker import SaslBroker, jaas
from tests.support.zookeeper import zookeeper_client
from tidelog.client import Admin, AlterConfig, ConfigResource, ConfigResourceType
from tidelog.tools.free_ports import free_port

pytestmark = pytest.mark.integration

MECHANISM = "SCRAM-SHA-512"
USER, SECRET = "broker", "hush"
PLAIN, SECURED = "plain", "secured"  # topics, by who writes them
PARTITIONS = 3
KEYSTORE = "listener.name.sasl_ssl.ssl.keystore.location"


class RollingCluster(ClusterProcess):
    """Three brokers with two ports each: without security, and with."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        super().__init__(directory)
        self._authority = authority
        self._ports = {number: (free_port(), free_port()) for number in self.brokers}
        for number in self.brokers:
            self._configure(number, ("PLAINTEXT",), "PLAINTEXT")

    def _configure(self, number: int, protocols: tuple[str, ...], between_brokers: str) -> None:
        ports = dict(zip(("PLAINTEXT", "SASL_SSL"), self._ports[number], strict=True))
        overrides = self.brokers[number].overrides
        overrides |= {
            "listeners": ",".join(f"{each}://127.0.0.1:{ports[each]}" for each in protocols),
            "inter.broker.listener.name": between_brokers,
        }
        if "SASL_SSL" in protocols:
            overrides |= {
                "sasl.enabled.mechanisms": MECHANISM,
                "sasl.mechanism.inter.broker.protocol": MECHANISM,
                f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": jaas(
                    MECHANISM, USER, SECRET
                ),
                **self._authority.broker_keys(key=self._authority.issue(f"broker-{number}")),
            }

    def roll(self, protocols: tuple[str, ...], between_brokers: str) -> None:
        """One broker after the other, each when all replicas are in sync again."""
        for number, broker in self.brokers.items():
            broker.stop()
            self._configure(number, protocols, between_brokers)
            broker.start()
            self.wait_until_in_sync()

    def wait_until_in_sync(self) -> None:
        with zookeeper_client(self.zookeeper.address) as zookeeper:
            in_sync = partial(has_full_isrs, zookeeper)
            eventually(lambda: all(map(in_sync, (PLAIN, SECURED))), CALL_TIMEOUT_S)

    @property
    def secured_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{secured}" for _, secured in self._ports.values())

    @property
    def librdkafka_keys(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.secured_bootstrap,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self._authority.path),
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": SECRET,
        }

    @property
    def tidelog_keys(self) -> dict[str, Any]:
        return {
            **self._authority.client_keys(),
            "bootstrap.servers": self.secured_bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": jaas(MECHANISM, USER, SECRET),
        }

    def certificate_of(self, number: int) -> str:
        return ssl.get_server_certificate(("127.0.0.1", self._ports[number][1]))

    def renew_certificate(self, admin: Admin, number: int) -> None:
        before = self.certificate_of(number)
        renewed = self._authority.issue(f"broker-{number}", file=f"renewed-{number}.pem")
        resource = ConfigResource(ConfigResourceType.BROKER, str(number))
        changes = {resource: [AlterConfig(KEYSTORE, str(renewed))]}
        assert admin.incremental_alter_configs(changes)[resource].error is None
        eventually(lambda: self.certificate_of(number) != before)
        assert self.certificate_of(number) in renewed.read_text()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RollingCluster]:
    process = RollingCluster(tmp_path, Authority(tmp_path / "certificates"))
    yield process
    process.close()
    assert not [stall for each in process.brokers.values() for stall in each.long_stalls()]


@pytest.mark.timeout(600)
def test_from_plaintext_to_sasl_over_tls_and_to_new_certificates_under_load(
    cluster: RollingCluster,
) -> None:
    cluster.start()
    SaslBroker(cluster.brokers[1]).add_user(USER, SECRET)
    cluster.create_topic(PLAIN, PARTITIONS)
    cluster.create_topic(SECURED, PARTITIONS)
    plain = Writer(cluster, PLAIN, PARTITIONS).start()
    cluster.roll(("PLAINTEXT", "SASL_SSL"), "PLAINTEXT")
    secured = Writer(cluster, SECURED, PARTITIONS, **cluster.librdkafka_keys).start()
    cluster.roll(("PLAINTEXT", "SASL_SSL"), "SASL_SSL")
    plain.stop()
    cluster.roll(("SASL_SSL",), "SASL_SSL")
    with Admin(cluster.tidelog_keys) as admin:
        for number in cluster.brokers:
            cluster.renew_certificate(admin, number)
    # With the new certificates brokers still find each other.
    cluster.roll(("SASL_SSL",), "SASL_SSL")
    secured.stop()
    assert (plain.errors, secured.errors) == ([], [])
    for writer, topic in ((plain, PLAIN), (secured, SECURED)):
        found = read_all(cluster, topic, PARTITIONS, **cluster.librdkafka_keys)
        require_nothing_lost(writer.acks, found)
    for broker in cluster.brokers.values():
        assert "Traceback" not in broker.log_text()
        assert SECRET not in broker.log_text()
