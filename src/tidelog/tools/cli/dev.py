"""`tidelog dev`: a cluster on this machine in one command.

Starts ZooKeeper and n brokers, prints one line when all of them serve, and shows what they log on
standard error, each line under its broker's name. Ctrl-C (or SIGTERM, SIGHUP) stops all of it,
brokers first: exit code 0. A broker that ends by itself is reported and not started again; exit
code 1 when none is left. Data stays in --data and is there at the next start.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from tidelog.errors import StartupError
from tidelog.stop_signals import end_at_the_next, stop_signals
from tidelog.tools.cli.frame import Command, KeyValue
from tidelog.tools.cli.logging_setup import LEVELS

if TYPE_CHECKING:
    from tidelog.tools.dev_cluster import DevCluster

POLL_S = 0.2


@click.command("dev", cls=Command)
@click.option(
    "-n",
    "--brokers",
    type=click.IntRange(min=1),
    default=3,
    metavar="N",
    show_default=True,
    help="How many brokers.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path(".data/dev"),
    metavar="DIR",
    show_default=True,
    help="Everything goes here.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=9092,
    metavar="PORT",
    show_default=True,
    help="Of the first broker, the others follow; 0: any free ones.",
)
@click.option(
    "--override",
    type=KeyValue(),
    multiple=True,
    metavar="KEY=VALUE",
    help="A key to set for all brokers; may be given often.",
)
@click.option("--log-level", type=click.Choice(LEVELS), default="warning", show_default=True)
def command(
    brokers: int, data: Path, port: int, override: tuple[tuple[str, str], ...], log_level: str
) -> int:
    """Run a cluster on this machine: ZooKeeper and some brokers."""
    from tidelog.tools.dev_cluster import DevCluster

    data.mkdir(parents=True, exist_ok=True)
    cluster = DevCluster(data.resolve(), brokers, port, dict(override))
    interrupted = _watch_signals()
    try:
        cluster.start(sys.stderr, log_level)
    except KeyboardInterrupt:
        return 0
    urls = ",".join(cluster.metrics_urls)
    metrics = f" metrics={urls}" if urls else ""
    print(
        f"tidelog dev ready brokers={brokers} "
        f"bootstrap.servers={cluster.bootstrap_servers} "
        f"zookeeper.connect={cluster.zookeeper.address}{metrics}",
        flush=True,
    )
    try:
        return _watch(cluster, interrupted)
    finally:
        cluster.stop()


def _watch_signals() -> threading.Event:
    """The first signal asks for the end; while starting it interrupts. A second one is obeyed at
    once, and the kernel ends the children.
    """
    interrupted = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        end_at_the_next()
        interrupted.set()
        raise KeyboardInterrupt

    for number in stop_signals():
        signal.signal(number, on_signal)
    return interrupted


def _watch(cluster: DevCluster, interrupted: threading.Event) -> int:
    """Until a signal comes, or no broker is left."""
    running = list(cluster.brokers)
    try:
        while running:
            for broker in [each for each in running if each.exit_code() is not None]:
                running.remove(broker)
                print(
                    f"{broker.name} ended with exit code {broker.exit_code()}",
                    file=sys.stderr,
                    flush=True,
                )
            interrupted.wait(POLL_S)
    except KeyboardInterrupt:
        return 0
    raise StartupError("no broker is left")
