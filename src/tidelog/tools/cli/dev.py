"""`tidelog dev`: a cluster on this machine in one command.

Starts n brokers, and `tidelog zookeeper` for them where there are several, prints one line when all
of them serve, and shows what they log on standard error, each line under its process's name. Ctrl-C
(or SIGTERM, SIGHUP) stops all of it, brokers first: exit code 0. A broker that ends by itself is
reported and not started again; exit code 1 when none is left. Data stays in --data and is there at
the next start.

`tidelog dev kill 2` in another terminal does something to a broker of the running cluster
(`dev_commands.py`).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.errors import StartupError
from tidelog.stop_signals import StopRequest, interrupt_once
from tidelog.tools.cli.frame import Command, KeyValue
from tidelog.tools.cli.server_options import (
    console_write_option,
    data_option,
    log_level_option,
    no_console_option,
    port_option,
)

if TYPE_CHECKING:
    from tidelog.tools.child_server import ChildServer
    from tidelog.tools.dev_cluster import DevCluster
    from tidelog.tools.dev_commands import DevCommands

ACTIONS = ("kill", "restart", "pause", "resume", "status")

POLL_S = 0.2


@click.command("dev", cls=Command)
@click.argument("action", type=click.Choice(ACTIONS), required=False)
@click.argument("broker", type=int, required=False)
@click.option(
    "-n",
    "--brokers",
    type=click.IntRange(min=1),
    default=3,
    metavar="N",
    show_default=True,
    help="How many brokers.",
)
@data_option("Everything goes here.", ".data/dev")
@port_option("Of the first broker, the others follow; 0: any free ones.", 9092)
@click.option(
    "--zookeeper",
    default="",
    metavar="HOST:PORT",
    help="Use this ZooKeeper, which runs already; the brokers start none.",
)
@click.option(
    "--override",
    type=KeyValue(),
    multiple=True,
    metavar="KEY=VALUE",
    help="A key to set for all brokers; may be given often.",
)
@no_console_option
@console_write_option
@log_level_option("warning")
def command(
    action: str | None,
    broker: int | None,
    brokers: int,
    data: Path,
    port: int,
    zookeeper: str,
    override: tuple[tuple[str, str], ...],
    no_console: bool,
    console_write: bool,
    log_level: str,
) -> int:
    """Run a cluster on this machine; or kill, restart, pause or resume a broker of the one that
    runs on --data, or show their processes.
    """
    if action is not None:
        return _ask(data, action, broker)
    from tidelog.broker_process import ConsoleProcess
    from tidelog.tools.dev_cluster import DevCluster
    from tidelog.tools.dev_commands import DevCommands

    data.mkdir(parents=True, exist_ok=True)
    options = None if no_console or ConsoleProcess.missing() else ["--write"] * console_write
    cluster = DevCluster(
        data.resolve(), brokers, port, dict(override), log_level, zookeeper, options
    )
    commands = DevCommands(data, cluster)
    request = interrupt_once()
    try:
        cluster.start(sys.stderr)
        print(_ready_line(cluster), flush=True)
        return _watch(cluster, commands, request)
    except KeyboardInterrupt:
        return 0
    finally:
        cluster.stop()
        commands.close()


def _ask(data: Path, action: str, broker: int | None) -> int:
    from tidelog.tools.dev_commands import ask

    if (broker is None) != (action == "status"):
        raise click.UsageError(
            "status is of all brokers" if action == "status" else f"which broker: {action} N"
        )
    print(ask(data, action, broker))
    return 0


def _ready_line(cluster: DevCluster) -> str:
    connect, metrics = cluster.zookeeper_connect, ",".join(cluster.metrics_urls)
    pids = ",".join(f"{each.name.replace(' ', '-')}:{each.pid}" for each in cluster.servers)
    return (
        f"tidelog dev ready brokers={len(cluster.brokers)} "
        f"bootstrap.servers={cluster.bootstrap_servers} "
        + (f"zookeeper.connect={connect} " if connect else "")
        + (f"metrics={metrics} " if metrics else "")
        + (f"console={cluster.console.address} " if cluster.console else "")
        + f"pids={pids}"
    )


def _watch(cluster: DevCluster, commands: DevCommands, request: StopRequest) -> int:
    """Until a signal comes, or no broker is left."""
    reported: set[ChildServer] = set()
    while not request.has_come:
        for line in commands.serve():
            _report(line)
        for server in cluster.servers:
            if server.pid is not None:
                reported.discard(server)
            elif server not in reported:
                reported.add(server)
                if server not in commands.asked_to_end:
                    _report(f"{server.name} ended with exit code {server.exit_code()}")
        if all(each.pid is None for each in cluster.brokers) and not commands.asked_to_end:
            raise StartupError("no broker is left")
        time.sleep(POLL_S)
    return 0


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
