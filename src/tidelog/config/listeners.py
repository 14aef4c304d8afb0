"""Listener lists such as PLAINTEXT://127.0.0.1:9092,EXTERNAL://:9093, and their protocols.

A security protocol is a transport (plain, or TLS) with or without SASL on top of it:

                 no SASL      SASL
    plain        PLAINTEXT    SASL_PLAINTEXT
    TLS          SSL          SASL_SSL
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.config.definition import BLANKS, InvalidValue

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
HOST_CHARACTERS: Final = frozenset(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-%._:"
)


class Endpoint(NamedTuple):
    """Where a listener is bound, or what it advertises and registers for clients to connect to.

    Only one to bind may have the host "" (all interfaces) and the port 0 (any free one).
    """

    listener_name: str  # upper case
    host: str
    port: int
    security_protocol: str

    @property
    def is_encrypted(self) -> bool:
        return is_encrypted(self.security_protocol)

    @property
    def is_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or (self.host.startswith("127.") and is_ip(self))

    @property
    def needs_sasl(self) -> bool:
        return needs_sasl(self.security_protocol)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


def is_encrypted(security_protocol: str) -> bool:
    return security_protocol in ("SSL", "SASL_SSL")


def needs_sasl(security_protocol: str) -> bool:
    return security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def parse_protocol_map(key: str, text: str) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for item in split_list(text):
        name, colon, protocol = (part.strip(BLANKS) for part in item.rpartition(":"))
        if not colon or not name:
            raise InvalidValue(key, text, f"{item} is not of the form NAME:PROTOCOL")
        if protocol not in SECURITY_PROTOCOLS:
            allowed = ", ".join(SECURITY_PROTOCOLS)
            raise InvalidValue(key, text, f"{protocol} is not a security protocol ({allowed})")
        protocols[name.upper()] = protocol
    return protocols


def parse_endpoints(key: str, text: str, protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    endpoints = tuple(parse_endpoint(key, item, protocols) for item in split_list(text))
    names = [endpoint.listener_name for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise InvalidValue(key, text, "each listener must have a different name")
    return endpoints


def parse_endpoint(key: str, item: str, protocols: Mapping[str, str]) -> Endpoint:
    name, separator, address = item.partition("://")
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    well_formed = separator and colon and set(host) <= HOST_CHARACTERS
    if not well_formed or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidValue(key, item, "a listener has the form NAME://host:port")
    protocol = protocols.get(name.upper())
    if protocol is None:
        raise InvalidValue(
            key, item, f"listener.security.protocol.map has no protocol for {name.upper()}"
        )
    return Endpoint(name.upper(), host, int(port), protocol)


def require_distinct_ports(key: str, endpoints: Sequence[Endpoint]) -> None:
    """Two listeners share a port only if one has an IPv4 and the other an IPv6 address."""
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        families = {":" in endpoint.host for endpoint in sharing}
        if len(sharing) > 1 and (len(families) < len(sharing) or not all(map(is_ip, sharing))):
            texts = ",".join(map(str, sharing))
            raise InvalidValue(key, texts, f"each listener must have a different port, not {port}")


def is_ip(endpoint: Endpoint) -> bool:
    return ":" in endpoint.host or endpoint.host.replace(".", "").isdigit()


def advertise(
    endpoints: Sequence[Endpoint], bound_ports: Mapping[str, int], local_host: str
) -> tuple[Endpoint, ...]:
    """What clients are told: port 0 becomes the bound port, an empty host this machine's name."""
    return tuple(
        endpoint._replace(
            host=endpoint.host or local_host,
            port=endpoint.port or bound_ports[endpoint.listener_name],
        )
        for endpoint in endpoints
    )


def split_list(text: str) -> list[str]:
    return [item for item in (part.strip(BLANKS) for part in text.split(",")) if item]
