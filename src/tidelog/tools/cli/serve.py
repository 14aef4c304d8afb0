"""`tidelog serve`: one broker in the foreground, configured as Kafka's server.properties says.

Prints nothing but errors and the warning of a listener that is open to everybody; the broker
itself prints the ready line. Logs go to standard error.
--port and --data are short for `listeners` and `log.dirs`; an --override of the same key wins. A
broker without --config is one for development: its groups do not wait for further members before
their first generation (group.initial.rebalance.delay.ms=0).

With --console the web console serves beside the broker (`tools/console_beside.py`).

With --brokers N the process supervises N brokers of one cluster (`tools/broker_fleet.py`).

TIDELOG_* variables of the environment set keys over the file, and so do KAFKA_* with --kafka-env.
The broker names those it took, never their values.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.tools.cli.frame import Command, KeyValue
from tidelog.tools.cli.logging_setup import set_up_logging
from tidelog.tools.cli.server_options import (
    CONSOLE_ADDRESS,
    console_write_option,
    data_option,
    log_format_option,
    log_level_option,
    port_option,
)

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.tools.broker_fleet import BrokerFleet
    from tidelog.tools.console_beside import ConsoleBeside

POLL_S = 0.2
INITIAL_DELAY = "group.initial.rebalance.delay.ms"


@click.command("serve", cls=Command)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="server.properties; without it, defaults for development.",
)
@click.option(
    "--override",
    type=KeyValue(),
    multiple=True,
    metavar="KEY=VALUE",
    help="A key to set over the file; may be given often.",
)
@port_option("Listen here on 127.0.0.1; 0: any free port.")
@data_option("The broker's data goes here.")
@click.option(
    "--brokers",
    type=click.IntRange(min=1, max=64),
    metavar="N",
    help="Run so many brokers of one cluster, with ports in a row.",
)
@click.option(
    "--console",
    is_flag=False,
    flag_value=CONSOLE_ADDRESS,
    metavar="[URL]",
    help=f"Serve the web console beside the broker, at {CONSOLE_ADDRESS} or another address.",
)
@console_write_option
@click.option(
    "--kafka-env",
    is_flag=True,
    help="Set keys over the file from KAFKA_* variables, as the images of Apache Kafka do.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Do not start if a key is unknown or set twice; without it, there is a warning.",
)
@log_level_option("info")
@log_format_option
def command(
    config: Path | None,
    override: tuple[tuple[str, str], ...],
    port: int | None,
    data: Path | None,
    brokers: int | None,
    console: str | None,
    console_write: bool,
    kafka_env: bool,
    strict: bool,
    log_level: str,
    log_format: str,
) -> int:
    """Run a broker in the foreground."""
    from tidelog.config.environment import variables
    from tidelog.config.server_properties import load_broker_config

    environment = variables(os.environ, with_kafka=kafka_env)
    settings: dict[str, str] = {}
    if config is None and INITIAL_DELAY not in {variable.key for variable in environment}:
        settings[INITIAL_DELAY] = "0"
    if port is not None:
        settings["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    if data is not None:
        settings["log.dirs"] = str(data)
    said = {key for key, _ in override}
    short = [(key, value) for key, value in settings.items() if key not in said]
    loaded = load_broker_config(config, [*short, *override], environment=environment, strict=strict)
    set_up_logging(log_format, log_level)
    if environment:
        names = ", ".join(variable.name for variable in environment)
        logging.getLogger(__name__).info("settings from the environment: %s", names)
    for endpoint in loaded.open_to_everybody():
        _warn(
            f"{endpoint} is not on the loopback interface and does not ask who its clients are: "
            "whoever can reach it can read, write and delete everything. See docs/security.md"
        )
    metrics = loaded.metrics_listener
    if metrics is not None and not metrics.is_loopback:
        _warn(
            f"tidelog.metrics.listener {metrics} is not on the loopback interface: whoever can "
            "reach it can read the names and rates of all topics and groups"
        )

    if console_write and console is None:
        raise click.UsageError("--console-write is of --console")
    beside: ConsoleBeside | None = None
    if console is not None:
        from tidelog.tools.console_beside import ConsoleBeside

        beside = ConsoleBeside(loaded, console, can_write=console_write)
    if brokers is not None:
        options = ["--kafka-env"] * kafka_env + ["--strict"] * strict
        options += [] if config is None else ["--config", str(config)]
        fleet = _fleet(loaded, brokers, dict([*short, *override]), options, log_level, log_format)
        return _supervise(fleet, loaded, beside)

    from tidelog.broker.process import run as run_broker

    if beside is None:
        return run_broker(loaded)
    try:
        return run_broker(loaded, lambda line: beside.start(line, loaded.log_dirs, sys.stderr))
    finally:
        beside.stop()


def _warn(text: str) -> None:
    print(f"tidelog: WARNING: {text}", file=sys.stderr, flush=True)


def _fleet(
    config: BrokerConfig,
    count: int,
    settings: dict[str, str],
    options: list[str],
    log_level: str,
    log_format: str,
) -> BrokerFleet:
    from tidelog.tools.broker_fleet import BrokerFleet, plan_brokers

    return BrokerFleet(
        plan_brokers(config, count),
        settings,
        options,
        sys.stderr,
        of_logs=["--log-level", log_level, "--log-format", log_format],
        is_json=log_format == "json",
    )


def _supervise(fleet: BrokerFleet, config: BrokerConfig, beside: ConsoleBeside | None) -> int:
    """Until a signal; 0 if all brokers stopped cleanly."""
    from tidelog.service_notification import ServiceNotification
    from tidelog.stop_signals import interrupt_once

    service = ServiceNotification(os.environ)
    request = interrupt_once()
    try:
        line = fleet.start(time.monotonic())
        print(line, flush=True)
        service.ready(line)
        if beside is not None:
            beside.start(line, config.log_dirs, sys.stderr)
        next_s = time.monotonic()
        while not request.has_come:
            time.sleep(POLL_S)
            fleet.look_after(time.monotonic())
            if service.watchdog_pause_s is not None and time.monotonic() >= next_s:
                service.alive()
                next_s = time.monotonic() + service.watchdog_pause_s
    except KeyboardInterrupt:
        pass
    finally:
        service.stopping()
        if beside is not None:
            beside.stop()
    return 1 if any(fleet.stop()) else 0
