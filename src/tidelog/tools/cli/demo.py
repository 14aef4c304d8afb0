"""`tidelog demo`: a broker, a shop's events, a Spark pipeline and a check, in one command.

Prints the broker's ready line as soon as it serves, then tells the story. Without Java or pyspark
it says what is missing and serves the broker alone. Exit codes: 0 stopped, or with --once all
right; 1 the check failed or, with --once, could not be made.
"""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.tools.cli.frame import Command
from tidelog.tools.cli.server_options import data_option, no_console_option, port_option


@click.command("demo", cls=Command)
@click.option("--once", is_flag=True, help="End after the check.")
@data_option("Everything goes here.", ".data")
@port_option("Of the broker; 0: any free one.", 9092)
@click.option(
    "--orders",
    type=click.IntRange(min=1),
    default=40_000,
    metavar="N",
    show_default=True,
    help="How many orders are made.",
)
@click.option(
    "--minutes",
    type=click.IntRange(min=1),
    default=120,
    metavar="N",
    show_default=True,
    help="How long the shop's morning is.",
)
@click.option(
    "--tick",
    type=float,
    default=0.3,
    metavar="SECONDS",
    show_default=True,
    help="How long its minutes take.",
)
@no_console_option
def command(
    once: bool, data: Path, port: int, orders: int, minutes: int, tick: float, no_console: bool
) -> int:
    """See it all work: a broker, a shop's events, a pipeline, a check."""
    from tidelog.broker_process import ConsoleProcess
    from tidelog.demo.story import DemoSettings, run_demo
    from tidelog.tools.dev_cluster import CONSOLE_PORT, METRICS_PORT
    from tidelog.tools.free_ports import free_ports

    def free(first: int) -> int:
        """The broker takes its port later."""
        return next(each for each in free_ports(first if port else 0, 3) if each not in taken)

    taken = {port}
    metrics_port = console_port = None
    if not once:
        metrics_port = free(METRICS_PORT)
        taken.add(metrics_port)
        if not no_console and not ConsoleProcess.missing():
            console_port = free(CONSOLE_PORT)

    return run_demo(
        DemoSettings(
            directory=data,
            port=port,
            once=once,
            orders=orders,
            minutes=minutes,
            tick_s=tick,
            console_port=console_port,
            metrics_port=metrics_port,
        )
    )
