"""`tidelog generate grafana|prometheus|rules`: files for the programs that watch brokers.

grafana      a dashboard, as JSON to import
prometheus   a configuration that scrapes the brokers
rules        recording rules for dashboards that ask for other names
"""

from __future__ import annotations

import click

from tidelog.tools.cli.frame import Group

DEFAULT_TARGET = "127.0.0.1:9308"


@click.group("generate", cls=Group)
def command() -> None:
    """Print a dashboard for Grafana, or a configuration or rules for Prometheus."""


@command.command("grafana")
def grafana() -> int:
    """Print a dashboard, as JSON to import.

    \b
    tidelog generate grafana > tidelog.json
    """
    import json

    from tidelog.tools.monitoring import dashboard

    print(json.dumps(dashboard(), indent=2))
    return 0


@command.command("prometheus")
@click.argument("targets", nargs=-1, metavar="[HOST:PORT]...")
@click.option(
    "--interval",
    type=click.IntRange(1, 3_600),
    default=15,
    metavar="SECONDS",
    show_default=True,
    help="How often to scrape.",
)
def prometheus(targets: tuple[str, ...], interval: int) -> int:
    """Print a configuration that scrapes the tidelog.metrics.listener of each broker.

    \b
    tidelog generate prometheus 127.0.0.1:9308 127.0.0.1:9309 > prometheus.yml
    """
    from tidelog.tools.monitoring import scrape_config

    print(scrape_config(targets or (DEFAULT_TARGET,), interval), end="")
    return 0


@command.command("rules")
@click.option(
    "--cluster",
    default="tidelog",
    metavar="NAME",
    show_default=True,
    help="The label cluster_name of what they record.",
)
def rules(cluster: str) -> int:
    """Print recording rules: what brokers tell, by the names of Kafka Lag Exporter and the JVM.

    \b
    tidelog generate rules > rules.yml
    """
    from tidelog.tools.recording_rules import rule_file

    print(rule_file(cluster), end="")
    return 0
