"""How many connections may be open: in all, per listener and per client address.

As Kafka: above the limit of one address a connection is closed as soon as it is accepted; above
the limit of the broker or of the listener nothing is accepted until a connection closes. The
inter-broker listener, where it is not the only one, is exempt from the broker's limit; what it
takes too much is made up for by closing the connection of another listener that was idle longest.

Touched on the broker loop only. Not done: max.connection.creation.rate.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from tidelog.network.settings import UNLIMITED, NetworkSettings


class ConnectionQuotas:
    def __init__(self, settings: NetworkSettings, listener_names: Iterable[str]) -> None:
        self._per_listener = dict.fromkeys(listener_names, 0)
        self._per_ip: dict[str, int] = {}
        self._total = 0
        self.configure(settings)

    def configure(self, settings: NetworkSettings) -> None:
        self._settings = settings
        self._ip_overrides = {
            address: limit
            for host, limit in settings.max_connections_per_ip_overrides.items()
            for address in _addresses(host)
        }

    @property
    def total(self) -> int:
        return self._total

    def slot_available(self, listener_name: str) -> bool:
        """Whether this listener may accept another connection now."""
        limits = self._settings.max_connections_per_listener
        if self._per_listener[listener_name] >= limits.get(listener_name, UNLIMITED):
            return False
        return self.is_protected(listener_name) or self._total < self._settings.max_connections

    def is_protected(self, listener_name: str) -> bool:
        inter_broker = self._settings.inter_broker_listener_name
        return listener_name == inter_broker and len(self._per_listener) > 1

    def is_exceeded(self) -> bool:
        return self._total > self._settings.max_connections

    def address_available(self, address: str) -> bool:
        limit = self._ip_overrides.get(address, self._settings.max_connections_per_ip)
        return self._per_ip.get(address, 0) < limit

    def increment(self, listener_name: str, address: str) -> None:
        self._total += 1
        self._per_listener[listener_name] += 1
        self._per_ip[address] = self._per_ip.get(address, 0) + 1

    def decrement(self, listener_name: str, address: str) -> None:
        self._total -= 1
        self._per_listener[listener_name] -= 1
        count = self._per_ip[address] - 1
        if count:
            self._per_ip[address] = count
        else:
            del self._per_ip[address]


def _addresses(host: str) -> set[str]:
    """The addresses of a host name; an address stands for itself."""
    return {str(row[4][0]) for row in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
