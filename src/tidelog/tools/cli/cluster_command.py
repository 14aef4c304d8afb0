"""A connection to the cluster for commands that stand on the columnar client."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.tools.cli.main import fail
from tidelog.tools.cli.session import BOOTSTRAP

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.errors import ClientError
    from tidelog.tools.cli.session import Session


def with_cluster(session: Session, do: Callable[[Cluster], int]) -> int:
    """The exit code of `do`; what a broker refuses, or that there is none, is one line and 1."""
    from tidelog.client import ClientConfig, ClientError, Cluster

    config = {
        "bootstrap.servers": session.client_properties()[BOOTSTRAP],
        "default.api.timeout.ms": session.timeout_ms,
        "request.timeout.ms": session.timeout_ms,
        "socket.connection.setup.timeout.ms": session.timeout_ms,
    }
    try:
        with Cluster(ClientConfig(config), on_wait=_Waiting(session.timeout_ms)) as cluster:
            return do(cluster)
    except ClientError as error:
        return fail(str(error))


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
