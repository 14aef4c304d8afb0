"""What commands that ask a cluster have in common: options, a client, tables.

`--bootstrap-server HOST:PORT[,...]` and `--timeout MS` stand before a command's verb or after it.
Without them: where a broker listens by default, and 5 seconds, as Kafka's own tools wait. A command
that has to wait says what for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.errors import ClientError

DEFAULT: Final = "127.0.0.1:9092"
DEFAULT_TIMEOUT_MS: Final = 5_000


def add_bootstrap_server(parser: argparse.ArgumentParser) -> None:
    _add(parser, DEFAULT, DEFAULT_TIMEOUT_MS)


def add_bootstrap_server_of_verb(parser: argparse.ArgumentParser) -> None:
    """Where it is not given again, what stands before the verb holds."""
    _add(parser, argparse.SUPPRESS, argparse.SUPPRESS)


def _add(parser: argparse.ArgumentParser, server: Any, timeout_ms: Any) -> None:
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT",
        default=server,
        help=f"brokers to ask first (default {DEFAULT})",
    )
    parser.add_argument(
        "--timeout",
        type=_milliseconds,
        metavar="MS",
        default=timeout_ms,
        help=f"how long to wait for a broker (default {DEFAULT_TIMEOUT_MS})",
    )


def _milliseconds(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of milliseconds above 0")
    return value


def with_cluster(arguments: argparse.Namespace, do: Callable[[Cluster], int]) -> int:
    """The exit code of `do`; what a broker refuses, or that there is none, is one line and 1."""
    from tidelog.client import ClientConfig, ClientError, Cluster
    from tidelog.config.definition import ConfigError

    config = {
        "bootstrap.servers": arguments.bootstrap_server,
        "default.api.timeout.ms": arguments.timeout,
        "request.timeout.ms": arguments.timeout,
        "socket.connection.setup.timeout.ms": arguments.timeout,
    }
    try:
        with Cluster(ClientConfig(config), on_wait=_Waiting(arguments.timeout)) as cluster:
            return do(cluster)
    except (ClientError, ConfigError) as error:
        return fail(str(error))


def fail(message: str) -> int:
    print(f"tidelog: error: {message}", file=sys.stderr)
    return 1


class _Waiting:
    """Says once, on standard error, what the command waits for."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._said = False

    def __call__(self, what: str, problem: ClientError) -> None:
        if not self._said:
            self._said = True
            print(
                f"tidelog: waiting up to {self._timeout_ms} ms for {what}: {problem}",
                file=sys.stderr,
                flush=True,
            )


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """As Kafka's own tools print them: columns padded to the widest cell, a tab after each."""
    cells = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "".join(cell.ljust(width) + "\t" for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
