"""`tidelog serve`: one broker in the foreground, configured as Kafka's server.properties says.

Prints nothing but errors; the broker itself prints the ready line. Logs go to standard error.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tidelog.config.server_properties import load_broker_config
from tidelog.tools.cli.logging_setup import FORMATS, LEVELS, set_up_logging


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="server.properties; without it, defaults"
    )
    parser.add_argument(
        "--override",
        type=override,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key to set over the file; may be given often",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="do not start if a key is unknown or set twice; without it, there is a warning",
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info")
    parser.add_argument("--log-format", choices=FORMATS, default="logfmt")


def override(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    return key.strip(), value


def run(arguments: argparse.Namespace) -> int:
    config = load_broker_config(arguments.config, arguments.override, strict=arguments.strict)
    set_up_logging(arguments.log_format, arguments.log_level)

    from tidelog.broker.server import run as run_broker

    return run_broker(config)
