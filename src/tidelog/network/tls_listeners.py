"""The TLS of the broker's listeners: their contexts, and how new stores take the place of old ones.

Contexts are made at the start, where what is wrong with them ends the start. While the broker runs,
a change of its configuration goes through `check`, which reads the stores again and refuses what
Kafka refuses, and then through `configure`; connections made from then on use the new certificate.
A file that has changed behind an unchanged name counts as changed. What cannot be used when nobody
is there to be told (another broker has changed the configuration) is logged, and the old stays.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from tidelog.tls.contexts import (
    TlsContexts,
    require_mutual_trust,
    require_replaceable,
    server_contexts,
    stamps_of,
)
from tidelog.tls.settings import TlsConfigError, TlsSettings
from tidelog.tls.transport import TlsTransport
from tidelog.transport import PlainTransport, Transport

if TYPE_CHECKING:
    from tidelog.config.listeners import Endpoint
    from tidelog.network.settings import NetworkSettings

logger = logging.getLogger(__name__)


class TlsListeners:
    """Touched on the broker loop, but for `check`."""

    def __init__(self, settings: NetworkSettings, *, in_cluster: bool = False) -> None:
        """Raises TlsConfigError."""
        self._among_brokers = settings.inter_broker_listener_name if in_cluster else None
        self._contexts = {name: self._first(name, tls) for name, tls in settings.tls.items()}
        self._checked: dict[str, TlsContexts] = {}  # not in use yet

    def transport_of(self, endpoint: Endpoint, sock: socket.socket) -> Transport:
        """For a client that was accepted there."""
        if not endpoint.is_encrypted:
            return PlainTransport(sock)
        contexts = self._contexts[endpoint.listener_name]
        return TlsTransport(sock, contexts.server, server_side=True, name_of=contexts.name_of)

    def transport_to(self, host: str, sock: socket.socket) -> Transport:
        """To another broker, by the listener that brokers call each other by."""
        contexts = self._contexts.get(self._among_brokers or "")
        if contexts is None:
            return PlainTransport(sock)
        assert contexts.client is not None, self._among_brokers
        return TlsTransport(sock, contexts.client, server_side=False, server_hostname=host)

    def check(self, settings: NetworkSettings) -> None:
        """Raises TlsConfigError if the listeners could not go on with these. Reads files."""
        self._checked = {
            name: self._next(self._contexts[name], tls)
            for name, tls in settings.tls.items()
            if self._has_changed(name, tls)
        }

    def configure(self, settings: NetworkSettings) -> None:
        for name, tls in settings.tls.items():
            if self._has_changed(name, tls):
                self._replace(name, tls)
        self._checked = {}

    def _replace(self, name: str, tls: TlsSettings) -> None:
        checked = self._checked.get(name)
        try:
            if checked is None or checked.settings != tls or checked.stamps != stamps_of(tls):
                checked = self._next(self._contexts[name], tls)
        except TlsConfigError as error:
            logger.error("the listener keeps its certificate and what it trusts: %s", error)
            return
        self._contexts[name] = checked
        logger.info(
            "new certificates on listener %s: %s, valid until %s",
            name,
            checked.certificate.subject,
            checked.certificate.not_after.isoformat(),
        )

    def _has_changed(self, name: str, tls: TlsSettings) -> bool:
        contexts = self._contexts[name]
        return tls != contexts.settings or stamps_of(tls) != contexts.stamps

    def _first(self, name: str, tls: TlsSettings) -> TlsContexts:
        contexts = server_contexts(tls, among_brokers=name == self._among_brokers)
        if contexts.client is not None:
            require_mutual_trust(contexts, contexts)
        return contexts

    def _next(self, old: TlsContexts, tls: TlsSettings) -> TlsContexts:
        contexts = server_contexts(tls, among_brokers=old.client is not None)
        require_replaceable(contexts, old)
        if contexts.client is not None:
            require_mutual_trust(contexts, old)
        return contexts
