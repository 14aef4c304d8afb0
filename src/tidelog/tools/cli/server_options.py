"""Options of the commands that run servers: where they listen, keep their data and what they log.

`serve`, `dev`, `demo`, `zookeeper` and `console` have them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from tidelog.tools.cli.frame import Function
from tidelog.tools.cli.logging_setup import FORMATS, LEVELS

CONSOLE_ADDRESS: Final = "http://127.0.0.1:8080"


def port_option(help: str, default: int | None = None) -> Callable[[Function], Function]:
    return click.option(
        "--port",
        type=click.IntRange(0, 65_535),
        default=default,
        metavar="PORT",
        show_default=default is not None,
        help=help,
    )


def data_option(help: str, default: str | None = None) -> Callable[[Function], Function]:
    return click.option(
        "--data",
        type=click.Path(path_type=Path),
        default=default,
        metavar="DIR",
        show_default=default is not None,
        help=help,
    )


def log_level_option(default: str) -> Callable[[Function], Function]:
    return click.option(
        "--log-level", type=click.Choice(LEVELS), default=default, show_default=True
    )


log_format_option = click.option(
    "--log-format", type=click.Choice(FORMATS), default="logfmt", show_default=True
)
no_console_option = click.option(
    "--no-console",
    is_flag=True,
    help="Serve no web console; there is one where the extra `console` is installed.",
)
console_write_option = click.option(
    "--console-write", is_flag=True, help="Pages of the console may change things."
)
