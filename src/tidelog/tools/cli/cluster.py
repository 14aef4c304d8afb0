"""`tidelog cluster info|brokers|health|log-dirs|features|client-metrics`.

info       the cluster's id, its controller and how much there is in it
brokers    who is there, what each one leads and holds
health     what is wrong; exit code 1 if something is
log-dirs   sizes of log directories, or of replicas with --replicas
features   what the brokers support and have agreed on
client-metrics  clients that push metrics, or what one of them pushes
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from tidelog.tools.cli.frame import CommandFailed
from tidelog.tools.cli.output import (
    Column,
    cell,
    columns,
    failures,
    human_bytes,
    show_data,
    show_rows,
    styled,
)
from tidelog.tools.cli.session import ClusterGroup, Session, pass_session
from tidelog.tools.cli.watch import watch_options, watched
from tidelog.types import NO_LEADER

if TYPE_CHECKING:
    from tidelog.client.admin.topics import TopicDescription
    from tidelog.client.blocking.admin import Admin


@click.group("cluster", cls=ClusterGroup)
def command() -> None:
    """Show brokers, health, log directories and features."""


def _all_topics(admin: Admin) -> list[TopicDescription]:
    names = [each.name for each in admin.list_topics(include_internal=True)]
    results = admin.describe_topics(names).values()
    return [result.get() for result in results if result.error is None]


@command.command("info")
@pass_session
def info(session: Session) -> int:
    """Show the cluster's id, its controller and how much there is in it."""
    with session.admin() as admin:
        found = admin.describe_cluster()
        topics = _all_topics(admin)
        groups = admin.list_groups()
    controller = found.controller
    facts = {
        "cluster_id": found.cluster_id,
        "controller": None if controller is None else controller.id,
        "brokers": len(found.nodes),
        "topics": sum(not topic.is_internal for topic in topics),
        "internal_topics": sum(topic.is_internal for topic in topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "groups": len(groups),
    }
    if session.output_format in (None, "table"):
        for name, value in facts.items():
            print(f"{name.replace('_', ' ') + ':':<17}{cell(value)}")
    else:
        show_data(session.output_format, facts)
    return 0


@command.command("brokers")
@pass_session
def brokers(session: Session) -> int:
    """List the brokers, and what each leads and holds."""
    with session.admin() as admin:
        found = admin.describe_cluster()
        topics = _all_topics(admin)
    leads: Counter[int] = Counter()
    holds: Counter[int] = Counter()
    for topic in topics:
        for partition in topic.partitions:
            leads[partition.leader_id] += 1
            holds.update(partition.replicas)
    controller = found.controller
    rows = [
        {
            "id": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "controller": controller is not None and controller.id == node.id,
            "leaders": leads[node.id],
            "replicas": holds[node.id],
        }
        for node in found.nodes
    ]
    show_rows(
        session.output_format,
        rows,
        columns("id>", "host", "port>", "rack", "controller", "leaders>", "replicas>"),
    )
    return 0


# health


@command.command("health")
@watch_options
@pass_session
def health(session: Session, watch: bool, interval: float) -> int:
    """Say what is wrong with the cluster; exit code 1 if something is."""
    with session.admin() as admin:
        return watched(watch, interval, lambda: _show_health(admin, session))


def _show_health(admin: Admin, session: Session) -> int:
    report = health_report(admin)
    if session.output_format not in (None, "table"):
        show_data(session.output_format, report)
        return 0 if report["healthy"] else 1
    good, bad = styled("healthy", "good"), styled("NOT healthy", "bad")
    print(f"The cluster is {good if report['healthy'] else bad}.")
    for name in (
        "controller",
        "brokers",
        "brokers_gone",
        "leaderless_partitions",
        "under_replicated_partitions",
        "under_min_isr_partitions",
        "offline_log_dirs",
    ):
        value = report[name]
        text = cell(value)
        is_bad = name not in ("controller", "brokers") and bool(value)
        shown = styled(text, "bad") if is_bad or (name == "controller" and value is None) else text
        print(f"  {name.replace('_', ' ') + ':':<30}{shown}")
    return 0 if report["healthy"] else 1


def health_report(admin: Admin) -> dict[str, Any]:
    """Facts, and under `healthy` whether none of them is bad."""
    found = admin.describe_cluster()
    topics = _all_topics(admin)
    live = {node.id for node in found.nodes}
    named = {each for topic in topics for row in topic.partitions for each in row.replicas}
    min_isr = min_insync_replicas(admin, [topic.name for topic in topics])
    leaderless, behind, below = [], [], []
    for topic in topics:
        for row in topic.partitions:
            name = f"{topic.name}-{row.partition}"
            if row.leader_id == NO_LEADER or row.leader_id not in live:
                leaderless.append(name)
            if len(row.isr) < len(row.replicas):
                behind.append(name)
            if len(row.isr) < min_isr.get(topic.name, 1):
                below.append(name)
    offline = [
        f"{broker_id}:{path}"
        for broker_id, result in admin.describe_log_dirs().items()
        if result.error is None
        for path, directory in result.get().items()
        if directory.error is not None
    ]
    report: dict[str, Any] = {
        "controller": None if found.controller is None else found.controller.id,
        "brokers": sorted(live),
        "brokers_gone": sorted(named - live),
        "leaderless_partitions": leaderless,
        "under_replicated_partitions": behind,
        "under_min_isr_partitions": below,
        "offline_log_dirs": offline,
    }
    problems = [report[name] for name in report if name not in ("controller", "brokers")]
    return {"healthy": found.controller is not None and not any(problems), **report}


def min_insync_replicas(admin: Admin, names: list[str]) -> dict[str, int]:
    from tidelog.client.admin.configs import ConfigResource, ConfigResourceType

    key = "min.insync.replicas"
    resources = {ConfigResource(ConfigResourceType.TOPIC, name): [key] for name in names}
    return {
        resource.name: int(entry.value)
        for resource, result in admin.describe_configs(resources).items()
        if result.error is None and (entry := result.get().get(key)) and entry.value
    }


# log-dirs


@command.command("log-dirs")
@click.option("--broker", "only", type=int, multiple=True, metavar="ID", help="Only this one.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only its replicas.")
@click.option("--replicas", is_flag=True, help="Each replica on a line of its own.")
@pass_session
def log_dirs(
    session: Session, only: tuple[int, ...], topics: tuple[str, ...], replicas: bool
) -> int:
    """Show sizes of log directories."""
    with session.admin() as admin:
        there = {node.id for node in admin.describe_cluster().nodes}
        for broker_id in only:
            if broker_id not in there:
                raise CommandFailed(
                    f"there is no broker {broker_id}. `tidelog cluster brokers` shows them."
                )
        results = admin.describe_log_dirs(only or None)
    problems = [str(result.error) for result in results.values() if result.error is not None]
    rows: list[dict[str, object]] = []
    for broker_id, result in sorted(results.items()):
        for path, directory in sorted((result.get() if result.error is None else {}).items()):
            rows += _dir_rows(broker_id, path, directory, topics, each_replica=replicas)
    table = session.output_format in (None, "table")
    if replicas:
        shown = columns("broker>", "path", "topic", "partition>", "size>", "lag>", "future")
    else:
        shown = [
            *columns("broker>", "path", "replicas>", "size>", "free>", "total>"),
            Column("ERROR", "error", style=lambda value: "bad" if value else ""),
        ]
    if table:
        for row in rows:
            for name in ("size", "free", "total"):
                if isinstance(row.get(name), int):
                    row[name] = human_bytes(int(str(row[name])))
    show_rows(session.output_format, rows, shown)
    return failures(problems)


def _dir_rows(
    broker_id: int, path: str, directory: Any, topics: tuple[str, ...], *, each_replica: bool
) -> list[dict[str, object]]:
    held = {
        place: replica
        for place, replica in sorted(directory.replicas.items())
        if not topics or place.topic in topics
    }
    if each_replica:
        return [
            {
                "broker": broker_id,
                "path": path,
                "topic": place.topic,
                "partition": place.partition,
                "size": replica.size_bytes,
                "lag": replica.offset_lag,
                "future": replica.is_future,
            }
            for place, replica in held.items()
        ]
    return [
        {
            "broker": broker_id,
            "path": path,
            "replicas": len(held),
            "size": sum(replica.size_bytes for replica in held.values()),
            "free": directory.usable_bytes,
            "total": directory.total_bytes,
            "error": None if directory.error is None else directory.error.code.name,
        }
    ]


@command.command("features")
@click.option("--broker", "broker_id", type=int, metavar="ID", help="Ask this one.")
@pass_session
def features(session: Session, broker_id: int | None) -> int:
    """Show what brokers support, and what the cluster has agreed on."""
    with session.admin() as admin:
        found = admin.describe_features(broker_id=broker_id)
    rows = []
    for name in sorted({*found.supported, *found.finalized}):
        supported, agreed = found.supported.get(name), found.finalized.get(name)
        rows.append(
            {
                "feature": name,
                "min_supported": None if supported is None else supported.min_version,
                "max_supported": None if supported is None else supported.max_version,
                "level": None if agreed is None else agreed.max_version,
                "epoch": found.finalized_epoch,
            }
        )
    show_rows(
        session.output_format,
        rows,
        columns("feature", "min_supported>", "max_supported>", "level>"),
        empty="The brokers tell of no features.",
    )
    return 0


# client-metrics


@command.command("client-metrics")
@click.option(
    "--metrics",
    "urls",
    multiple=True,
    required=True,
    metavar="URL",
    help="A broker's metrics; may be given often.",
)
@click.option("--client", metavar="ID", help="What this client pushes: a client or instance id.")
@pass_session
def client_metrics(session: Session, urls: tuple[str, ...], client: str | None) -> int:
    """List the clients that push metrics, or the metrics of one.

    \b
    tidelog cluster client-metrics --metrics http://127.0.0.1:9308/metrics
    """
    from tidelog.tools.pushing_clients import clients, metrics, read_page

    pages = []
    for url in urls:
        try:
            pages.append(read_page(url))
        except (OSError, ValueError) as error:
            raise CommandFailed(
                f"{url} gives no metrics: {error}. Set tidelog.metrics.listener on the broker, and "
                "name the address that its ready line prints."
            ) from error
    if client is None:
        named = ("client_id", "instance_id", "software", "version", "address", "metrics>")
        show_rows(session.output_format, clients(pages), columns(*named))
        return 0
    rows = metrics(pages, client)
    if not rows:
        raise CommandFailed(
            f"no client {client} has pushed metrics. A client pushes if a subscription matches it, "
            "which `tidelog config get client-metrics NAME` shows."
        )
    show_rows(session.output_format, rows, columns("metric", "labels", "value>"))
    return 0
