"""How many connections may be open, in all, per listener and per client address, and how fast they
may come.

As Kafka: above the limit of one address a connection is closed as soon as it is accepted; above
the limit of the broker or of the listener nothing is accepted until a connection closes. The
inter-broker listener, where it is not the only one, is exempt from the broker's limit. If it goes
above that limit, the broker closes the connection of another listener that was idle longest.

max.connection.creation.rate holds for the broker (the inter-broker listener is exempt as above) and
for single listeners. As many connections as one second brings may come at once; after that nothing
is accepted until another is due.

connection_creation_rate is a quota of single addresses (KIP-612): an average over the window of
client quotas. A connection over it is accepted, held for as long as the address has to wait, one
sample at most, and closed. It does not count.

A limit for a host holds for the addresses that its name has when the limit is set. Touched on the
broker loop only.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tidelog.clock import Clock
from tidelog.network.settings import UNLIMITED, NetworkSettings
from tidelog.rate import QuotaRate, RateLimiter, Sensors

BURST_S: Final = 1.0
PAUSE_S_MAX: Final = 1.0  # a rate of 0 would pause for ever, and rates change


class ConnectionQuotas:
    def __init__(
        self, settings: NetworkSettings, listener_names: Iterable[str], clock: Clock
    ) -> None:
        self._clock = clock
        self._addresses = {  # of host names; blocks, but nobody is served yet
            host: look_up(host) for host in settings.max_connections_per_ip_overrides
        }
        self._limiters: dict[str | None, RateLimiter] = {}  # by listener; None: the broker's
        self._per_listener = dict.fromkeys(listener_names, 0)
        self._per_ip: dict[str, int] = {}
        self._total = 0
        self._ip_rates: Mapping[str | None, float] = {}  # by address or host; None: all others
        self._rates_of_addresses: dict[str, float] = {}
        self._sample_s = settings.quota_window_size_seconds
        self._ip_sensors = Sensors(self._new_ip_rate, clock)
        self.configure(settings)

    def configure(self, settings: NetworkSettings) -> None:
        self._settings = settings
        self._ip_overrides = {
            address: limit
            for host, limit in settings.max_connections_per_ip_overrides.items()
            for address in self._addresses_of(host)
        }
        rates: dict[str | None, int] = {None: settings.max_connection_creation_rate}
        rates.update(settings.max_connection_creation_rate_per_listener.items())
        self._limiters = {
            name: self._limiter(name, rate) for name, rate in rates.items() if rate < UNLIMITED
        }

    def configure_ip_rates(self, rates: Mapping[str | None, float]) -> None:
        """connection_creation_rate by address or host name; None has the default."""
        self._ip_rates = rates
        self._rates_of_addresses = {
            address: rate
            for host, rate in rates.items()
            if host is not None
            for address in self._addresses_of(host)
        }

    def hosts_to_look_up(self) -> list[str]:
        """Hosts with a limit of their own whose addresses are not known."""
        hosts = [*self._settings.max_connections_per_ip_overrides]
        hosts += [host for host in self._ip_rates if host is not None]
        return [host for host in hosts if not self._addresses_of(host)]

    def learn(self, host: str, addresses: frozenset[str]) -> None:
        self._addresses[host] = addresses
        self.configure(self._settings)
        self.configure_ip_rates(self._ip_rates)

    def _new_ip_rate(self) -> QuotaRate:
        return QuotaRate(
            self._clock, sample_count=self._settings.quota_window_num, sample_s=self._sample_s
        )

    def ip_throttle_s(self, address: str) -> float:
        """How long a new connection of the address is held before it is closed.

        0.0 if it is served, and it counts then.
        """
        if not self._ip_rates:
            return 0.0
        rate = self._rates_of_addresses.get(address, self._ip_rates.get(None))
        if rate is None:
            return 0.0
        sensor = self._ip_sensors.get(address)
        sensor.rate = rate
        sensor.spend(1)
        throttle_s = min(sensor.debt_s(), self._sample_s)
        if throttle_s > 0:
            sensor.spend(-1)
        return throttle_s

    def _addresses_of(self, host: str) -> frozenset[str]:
        if host not in self._addresses and is_address(host):
            self._addresses[host] = look_up(host)
        return self._addresses.get(host, frozenset())

    def _limiter(self, name: str | None, rate: int) -> RateLimiter:
        """The limiter in use goes on as long as its rate does not change."""
        known = self._limiters.get(name)
        if known is not None and known.rate == rate:
            return known
        return RateLimiter(rate, self._clock, burst_s=BURST_S, credit_s=BURST_S)

    def creation_pause_s(self, listener_name: str) -> float:
        """How long this listener must not accept a connection; 0.0 if it may now."""
        if not self._limiters:
            return 0.0
        waits = [each.wait_s(1) for each in self._counting(listener_name)]
        return min(max(waits, default=0.0), PAUSE_S_MAX)

    def created(self, listener_name: str) -> None:
        """A connection has been accepted, whatever becomes of it."""
        for limiter in self._counting(listener_name):
            limiter.spend(1)

    def _counting(self, listener_name: str) -> Iterator[RateLimiter]:
        names = (listener_name,) if self.is_protected(listener_name) else (listener_name, None)
        for name in names:
            limiter = self._limiters.get(name)
            if limiter is not None:
                yield limiter

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


def look_up(host: str) -> frozenset[str]:
    """The addresses of a host name, which may take its time; an address stands for itself."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return frozenset(str(row[4][0]) for row in found)


def is_address(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except OSError:
        return False
    return True
