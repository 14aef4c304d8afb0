"""`--bootstrap-server HOST:PORT[,...]`, before a command's verb or after it, and what it names.

Without it: where a broker listens by default.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

DEFAULT: Final = "127.0.0.1:9092"
_HELP: Final = f"brokers to ask first (default {DEFAULT})"


def add_bootstrap_server(parser: argparse.ArgumentParser) -> None:
    _add(parser, DEFAULT)


def add_bootstrap_server_of_verb(parser: argparse.ArgumentParser) -> None:
    """Where it is not given again, what stands before the verb holds."""
    _add(parser, argparse.SUPPRESS)


def _add(parser: argparse.ArgumentParser, default: Any) -> None:
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", default=default, help=_HELP)


def with_cluster(arguments: argparse.Namespace, do: Callable[[Cluster], int]) -> int:
    """The exit code of `do`; what a broker refuses, or that there is none, is one line and 1."""
    from tidelog.client import ClientConfig, ClientError, Cluster
    from tidelog.config.definition import ConfigError

    try:
        with Cluster(ClientConfig({"bootstrap.servers": arguments.bootstrap_server})) as cluster:
            return do(cluster)
    except (ClientError, ConfigError) as error:
        print(f"tidelog: error: {error}", file=sys.stderr)
        return 1
