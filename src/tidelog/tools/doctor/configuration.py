"""Mistakes that a broker's configuration alone shows, with a look at names, keys and ports."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import ConfigError
from tidelog.config.listeners import Endpoint
from tidelog.errors import StartupError
from tidelog.tools.doctor.finding import Finding, error, unchecked, warning
from tidelog.tools.doctor.machine import Machine

EXPIRES_SOON_DAYS: Final = 30
WILDCARDS: Final = ("0.0.0.0", "::")
FACTORS: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
MINIMA: Final = (
    ("min.insync.replicas", "default.replication.factor"),
    ("transaction.state.log.min.isr", "transaction.state.log.replication.factor"),
)


def check_configuration(config: BrokerConfig, machine: Machine) -> Iterator[Finding]:
    yield from check_advertised(config, machine)
    for endpoint in config.open_to_everybody():
        yield error(
            "open-listener",
            endpoint,
            "whoever can reach it can read, write and delete everything",
            "give the listener the protocol SASL_SSL, or SSL with ssl.client.auth=required "
            "(docs/security.md); or bind it to 127.0.0.1 in listeners",
        )
    for endpoint in config.listeners:
        if endpoint.is_encrypted:
            yield from check_certificate(config, endpoint, machine)
    yield from check_replication(config)
    if config["zookeeper.connect"]:
        yield from check_zookeeper(config["zookeeper.connect"], machine)


def check_advertised(config: BrokerConfig, machine: Machine) -> Iterator[Finding]:
    bound = {endpoint.listener_name: endpoint for endpoint in config.listeners}
    for endpoint in config.advertised_listeners:
        cure = f"set advertised.listeners={endpoint.listener_name}://NAME:{endpoint.port}, with a"
        if endpoint.host in WILDCARDS:
            yield error(
                "advertised-wildcard",
                endpoint,
                "clients are told to connect to all interfaces, which is no address",
                f"{cure} name that clients can reach",
            )
        elif endpoint.is_loopback and not bound[endpoint.listener_name].is_loopback:
            yield error(
                "advertised-loopback",
                endpoint,
                "the listener takes clients of other machines and tells them to connect to "
                "themselves",
                f"{cure} name that other machines can reach",
            )
        elif endpoint.host and not machine.resolves(endpoint.host):
            yield error(
                "advertised-unresolvable",
                endpoint,
                f"the name {endpoint.host} cannot be resolved here, and clients use it",
                f"{cure} name that DNS or /etc/hosts knows",
            )


def check_replication(config: BrokerConfig) -> Iterator[Finding]:
    for minimum, factor in MINIMA:
        if config[minimum] > config[factor] and (minimum in config.originals):
            yield error(
                "min-insync-replicas",
                minimum,
                f"{minimum}={config[minimum]} is above {factor}={config[factor]}: new topics take "
                "no writes with acks=all",
                f"set {factor} to {config[minimum] + 1}, or {minimum} to "
                f"{max(1, config[factor] - 1)}",
            )
    if config["zookeeper.connect"]:
        return
    for factor in FACTORS:
        if config[factor] > 1 and factor in config.originals:
            yield warning(
                "replication-factor",
                factor,
                f"{factor}={config[factor]}, and this broker is alone: zookeeper.connect is not "
                "set",
                f"set {factor}=1, or make a cluster (docs/cluster.md)",
            )


def check_certificate(
    config: BrokerConfig, endpoint: Endpoint, machine: Machine
) -> Iterator[Finding]:
    from tidelog.tls.certificate import first_certificate
    from tidelog.tls.contexts import server_contexts
    from tidelog.tls.settings import TlsSettings
    from tidelog.tls.stores import read_key_store

    now = datetime.fromtimestamp(machine.now_s(), UTC)
    cure = "get a new certificate, and set ssl.keystore.location to it; a running broker takes it"
    try:
        settings = TlsSettings.of_listener(config, endpoint)
        store = read_key_store(settings.key_store)
        if store is not None:
            certificate = first_certificate(store.certificates)
            left = certificate.not_after - now
            if certificate.not_after < now:
                yield error(
                    "certificate-expired",
                    endpoint,
                    f"the certificate of {certificate.subject} ended on "
                    f"{certificate.not_after:%Y-%m-%d}",
                    cure,
                )
            elif left.days < EXPIRES_SOON_DAYS:
                yield warning(
                    "certificate-expires-soon",
                    endpoint,
                    f"the certificate of {certificate.subject} ends in {left.days} days",
                    cure,
                )
            elif certificate.not_before > now:
                yield error(
                    "certificate-not-yet-valid",
                    endpoint,
                    f"the certificate begins on {certificate.not_before:%Y-%m-%d}",
                    "correct the clock of this machine, or get another certificate",
                )
        server_contexts(settings)
    except (ConfigError, ValueError) as problem:
        yield error(
            "tls",
            endpoint,
            str(problem),
            "put the private key and its own certificate into ssl.keystore.location, and its "
            "password into ssl.key.password (docs/security.md)",
        )


def check_zookeeper(text: str, machine: Machine) -> Iterator[Finding]:
    from tidelog.controller.zookeeper.connect_string import parse_connect_string

    try:
        servers = parse_connect_string(text).hosts
    except StartupError as problem:
        yield unchecked(
            "zookeeper", text, str(problem), "write zookeeper.connect=host:port,host:port/path"
        )
        return
    refused = {
        f"{host}:{port}": why
        for host, port in servers
        if (why := machine.why_not_reachable(host, port)) is not None
    }
    if not refused:
        return
    made = error if len(refused) == len(servers) else warning
    yield made(
        "zookeeper-unreachable",
        ", ".join(refused),
        "; ".join(f"{server}: {why}" for server, why in refused.items()),
        "start ZooKeeper there, open its port in the firewall, or correct zookeeper.connect",
    )
