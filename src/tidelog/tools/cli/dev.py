"""`tidelog dev`: a cluster on this machine in one command.

Starts ZooKeeper and n brokers, prints one line when all of them serve, and shows what they log on
standard error, each line under its broker's name. Ctrl-C (or SIGTERM, SIGHUP) stops all of it,
brokers first: exit code 0. A broker that ends by itself is reported and not started again; exit
code 1 when none is left. Data stays in --data and is there at the next start.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tidelog.errors import StartupError
from tidelog.stop_signals import end_at_the_next, stop_signals
from tidelog.tools.cli.logging_setup import LEVELS
from tidelog.tools.cli.serve import override

if TYPE_CHECKING:
    from tidelog.tools.dev_cluster import DevCluster

POLL_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--brokers", type=_broker_count, default=3, metavar="N", help="how many; default 3"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(".data/dev"),
        metavar="DIR",
        help="everything goes here; default .data/dev",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=9092,
        help="of the first broker, the others follow (default 9092); 0: any free ones",
    )
    parser.add_argument(
        "--override",
        type=override,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key to set for all brokers; may be given often",
    )
    parser.add_argument("--log-level", choices=LEVELS, default="warning")


def _broker_count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("a cluster has at least one broker")
    return count


def run(arguments: argparse.Namespace) -> int:
    from tidelog.tools.dev_cluster import DevCluster

    arguments.data.mkdir(parents=True, exist_ok=True)
    cluster = DevCluster(
        arguments.data.resolve(), arguments.brokers, arguments.port, dict(arguments.override)
    )
    interrupted = _watch_signals()
    try:
        cluster.start(sys.stderr, arguments.log_level)
    except KeyboardInterrupt:
        return 0
    print(
        f"tidelog dev ready brokers={arguments.brokers} "
        f"bootstrap.servers={cluster.bootstrap_servers} "
        f"zookeeper.connect={cluster.zookeeper.address}",
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
