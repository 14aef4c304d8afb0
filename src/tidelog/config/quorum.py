"""KRaft keys that name the nodes of a quorum.

No KRaft quorum runs here. A configuration of one node that is broker and controller at once means
the same as the embedded store, so it is accepted. Any other one would start a cluster of its own
beside the one its operator means, so it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.config.definition import ConfigError, InvalidValue, is_digits
from tidelog.config.listeners import Endpoint

ROLES: Final = "process.roles"
VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
LOOPBACK: Final = frozenset(("", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"))
ADVICE: Final = (
    "no KRaft quorum runs here; remove the KRaft keys, and set zookeeper.connect for a cluster of "
    "several brokers"
)


def require_known_roles(roles: Sequence[str], node_id: int | None, zookeeper: str | None) -> None:
    """`node_id` is None where it is not set."""
    if not roles:
        return
    if zookeeper:
        raise ConfigError(
            f"{ROLES} and zookeeper.connect are both set, but metadata is in one place only; "
            f"remove {ROLES} to use ZooKeeper"
        )
    if set(roles) != {"broker", "controller"}:
        raise ConfigError(f"{ROLES}={','.join(roles)}: {ADVICE}")
    if node_id is None:
        raise ConfigError(f"{ROLES} is set, so node.id must be set as well")


def require_own_vote(voters: Iterable[str], node_id: int | None) -> None:
    for voter in voters:
        number, at, address = voter.partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and host and colon and is_digits(number) and is_digits(port)):
            raise InvalidValue(VOTERS, voter, "a voter has the form id@host:port")
        if int(number) != node_id:
            raise ConfigError(f"{VOTERS} names another node, {voter}: {ADVICE}")


def require_own_controller(
    servers: Iterable[str], controllers: Iterable[Endpoint], own_hosts: Iterable[str]
) -> None:
    """Each server must be a controller listener of this node, under one of its names."""
    ports = {endpoint.port for endpoint in controllers}
    hosts = LOOPBACK.union(own_hosts)
    for server in servers:
        host, colon, port = server.rpartition(":")
        if not (host and colon and is_digits(port)):
            raise InvalidValue(BOOTSTRAP_SERVERS, server, "a server has the form host:port")
        if host.removeprefix("[").removesuffix("]") not in hosts or int(port) not in ports:
            raise ConfigError(f"{BOOTSTRAP_SERVERS} names another node, {server}: {ADVICE}")
