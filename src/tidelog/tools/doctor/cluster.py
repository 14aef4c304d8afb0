"""Mistakes that a running cluster shows to a client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import ClientError
from tidelog.config.broker import BrokerConfig
from tidelog.errors import StartupError
from tidelog.log.directory.meta_properties import read_meta_properties
from tidelog.tools.doctor.configuration import FACTORS, WILDCARDS
from tidelog.tools.doctor.finding import Finding, error, unchecked, warning
from tidelog.tools.doctor.machine import Machine

if TYPE_CHECKING:
    from tidelog.client.admin.brokers import ClusterDescription
    from tidelog.client.admin.topics import TopicDescription
    from tidelog.client.blocking.admin import Admin

INTERNAL_REPLICAS: Final = 3
SHOWN_MAX: Final = 5


def check_cluster(
    admin: Admin, servers: str, config: BrokerConfig | None, machine: Machine
) -> Iterator[Finding]:
    """`config` is that of a broker of the cluster, if there is one to compare."""
    try:
        found = admin.describe_cluster()
        yield from check_nodes(found, machine)
        yield from check_health(admin)
        yield from check_topics(found, topics_of(admin), _min_isr(admin))
        yield from check_versions(admin, found)
        if config is not None:
            yield from check_membership(found, config)
    except ClientError as problem:
        yield unchecked(
            "cluster",
            servers,
            f"it does not answer: {str(problem).rstrip('.')}",
            "start the broker, correct --bootstrap, or give credentials with -X",
        )


def topics_of(admin: Admin) -> list[TopicDescription]:
    names = [each.name for each in admin.list_topics(include_internal=True)]
    return [each.get() for each in admin.describe_topics(names).values() if each.error is None]


def _min_isr(admin: Admin) -> Mapping[str, int]:
    from tidelog.tools.cli.cluster import min_insync_replicas

    return min_insync_replicas(admin, [each.name for each in admin.list_topics()])


def check_nodes(found: ClusterDescription, machine: Machine) -> Iterator[Finding]:
    """What clients are told to connect to, tried from here."""
    for node in found.nodes:
        subject = f"broker {node.id} at {node.host}:{node.port}"
        cure = f"set advertised.listeners of broker {node.id} to"
        if node.host in WILDCARDS:
            yield error(
                "advertised-wildcard",
                subject,
                "clients are told to connect to all interfaces, which is no address",
                f"{cure} a name that clients can reach",
            )
        elif not machine.resolves(node.host):
            yield error(
                "advertised-unresolvable",
                subject,
                f"the name {node.host} cannot be resolved here",
                f"{cure} a name that DNS or /etc/hosts knows",
            )
        elif why := machine.why_not_reachable(node.host, node.port):
            yield error(
                "port-closed",
                subject,
                f"nobody answers there: {why}",
                f"open the port in the firewall, start the broker, or {cure} where it listens",
            )
    by_address = defaultdict(list)
    for node in found.nodes:
        by_address[node.host, node.port].append(node.id)
    for (host, port), ids in by_address.items():
        if len(ids) > 1:
            yield error(
                "shared-address",
                f"{host}:{port}",
                f"the brokers {ids} tell clients the same address",
                "give each broker listeners and advertised.listeners of its own",
            )


def check_health(admin: Admin) -> Iterator[Finding]:
    from tidelog.tools.cli.cluster import health_report

    report = health_report(admin)
    if report["controller"] is None:
        yield error(
            "no-controller",
            "the cluster",
            "no broker is the controller: nothing can be changed, no leader elected",
            "tidelog doctor --config FILE on a broker's machine looks at its ZooKeeper",
        )
    for name, check, problem, cure in (
        ("brokers_gone", "broker-gone", "these brokers hold replicas and are not there", "start"),
        (
            "leaderless_partitions",
            "offline-partitions",
            "they have no leader and take no reads or writes",
            "start the brokers that hold them; tidelog elect --all --unclean loses records",
        ),
        (
            "under_replicated_partitions",
            "under-replicated-partitions",
            "replicas are not in sync",
            "start the brokers that hold them, and wait: tidelog cluster health --watch",
        ),
        (
            "offline_log_dirs",
            "offline-log-dirs",
            "a disk has failed",
            "repair or replace the disk, then restart the broker",
        ),
    ):
        if report[name]:
            cure = f"start broker {report[name][0]}" if cure == "start" else cure
            yield error(check, _some(report[name]), problem, cure)


def check_topics(
    found: ClusterDescription, topics: list[TopicDescription], min_isr: Mapping[str, int]
) -> Iterator[Finding]:
    for topic in topics:
        factor = min((len(row.replicas) for row in topic.partitions), default=0)
        wanted = min_isr.get(topic.name, 1)
        if wanted > factor > 0:
            yield error(
                "min-insync-replicas",
                topic.name,
                f"min.insync.replicas={wanted} is above its {factor} replicas: it takes no writes "
                "with acks=all",
                f"tidelog topic alter {topic.name} -c min.insync.replicas={max(1, factor - 1)}",
            )
        if topic.is_internal and factor == 1 and len(found.nodes) >= INTERNAL_REPLICAS:
            yield error(
                "internal-topic-replicas",
                topic.name,
                f"it has one replica in a cluster of {len(found.nodes)}: if its broker is gone, "
                "groups and transactions stand still",
                f"tidelog reassign plan {topic.name} --replicas {INTERNAL_REPLICAS} > moves.json; "
                "tidelog reassign execute moves.json",
            )


def check_versions(admin: Admin, found: ClusterDescription) -> Iterator[Finding]:
    """Brokers of one release support the same features and have agreed on the same levels."""
    told = defaultdict(list)
    for node in found.nodes:
        try:
            features = admin.describe_features(broker_id=node.id)
        except ClientError as problem:
            yield unchecked(
                "versions", f"broker {node.id}", str(problem), f"start or restart broker {node.id}"
            )
            continue
        told[_spelled(features.supported), _spelled(features.finalized)].append(node.id)
    if len(told) > 1:
        groups = ["brokers " + ",".join(map(str, ids)) for ids in told.values()]
        yield warning(
            "mixed-versions",
            "; ".join(groups),
            "they support different features, or have agreed on different levels: "
            + "; ".join(f"{ids}: {supported}" for (supported, _), ids in told.items()),
            "finish the upgrade: restart the older brokers with the newer release, one by one",
        )


def check_membership(found: ClusterDescription, config: BrokerConfig) -> Iterator[Finding]:
    """Whether the broker of this configuration can be a member of that cluster."""
    for path in config.log_dirs:
        try:
            stored = read_meta_properties(str(path))
        except StartupError:
            continue  # the directories' own check says so
        if stored is not None and found.cluster_id not in (None, stored.cluster_id):
            yield error(
                "other-cluster",
                path,
                f"it is of the cluster {stored.cluster_id}, and the brokers are of "
                f"{found.cluster_id}",
                "correct log.dirs, zookeeper.connect or --bootstrap",
            )
    own = config.advertised_listeners
    for node in found.nodes:
        is_this_one = any(
            each.host in ("", node.host) and each.port in (0, node.port) for each in own
        )
        if config.broker_id_is_set and node.id == config.broker_id and not is_this_one:
            yield error(
                "broker-id-taken",
                f"broker.id={node.id}",
                f"a broker at {node.host}:{node.port} has this number, and this configuration "
                f"advertises {', '.join(map(str, own))}",
                "give this broker another broker.id, and a directory of its own",
            )
    for factor in FACTORS:
        if config[factor] > len(found.nodes) and factor in config.originals:
            yield error(
                "replication-factor",
                factor,
                f"{factor}={config[factor]}, and there are {len(found.nodes)} brokers: topics "
                "cannot be made",
                f"set {factor}={len(found.nodes)}, or start more brokers",
            )


def _some(names: list[object]) -> str:
    shown = ", ".join(map(str, names[:SHOWN_MAX]))
    return shown if len(names) <= SHOWN_MAX else f"{shown} and {len(names) - SHOWN_MAX} more"


def _spelled(features: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={level}" for name, level in sorted(features.items()))
