"""Asks an identity provider over HTTP, or reads a file in its place. Blocking: called in threads.

Nothing is followed elsewhere: a redirect is an error, for the answer decides who gets in, and the
question may have a secret in it. An answer of more than 1 MiB is refused. What was tried in vain is
tried again after pauses that double, as long as the configuration says, unless the answer says that
it would be in vain again.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tidelog import __version__
from tidelog.config.oauth import Endpoint
from tidelog.tls.contexts import client_context
from tidelog.tls.settings import TlsConfigError, TlsSettings

ANSWER_BYTES_MAX: Final = 1 << 20
_PIECE_BYTES: Final = 64 * 1024
_WORDS_MAX: Final = 300
_OK: Final = (http.client.OK, http.client.CREATED)
# Others than these may be different the next time.
_FINAL: Final = frozenset(
    (400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415)
)


class EndpointFailed(Exception):
    """`is_final`: it would fail again."""

    def __init__(self, endpoint: Endpoint, problem: str, *, is_final: bool = False) -> None:
        super().__init__(f"{endpoint.key}={endpoint.url}: {problem}")
        self.is_final = is_final


class EndpointClient:
    """Used by one thread at a time."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """EndpointFailed, or TlsConfigError, if it cannot be called as its settings say."""
        self._endpoint = endpoint
        self._sleep = sleep
        self._monotonic = monotonic
        self._parts = urlsplit(endpoint.url)
        self._tls = self._context() if self._parts.scheme == "https" else None

    def _context(self) -> ssl.SSLContext:
        endpoint = self._endpoint
        values = {"ssl.endpoint.identification.algorithm": "https", **endpoint.tls}
        try:
            return client_context(TlsSettings.of(values, endpoint.key))
        except TlsConfigError as problem:
            raise EndpointFailed(endpoint, str(problem), is_final=True) from problem

    def get(self) -> bytes:
        """Without a second try."""
        path = self._endpoint.path_or_none
        if path is None:
            return self._ask("GET", None, {"Accept": "application/json"})
        try:
            with Path(path).open("rb") as file:
                return file.read(ANSWER_BYTES_MAX + 1)
        except (OSError, ValueError) as problem:
            raise EndpointFailed(self._endpoint, f"cannot be read: {problem}") from problem

    def get_patiently(self) -> bytes:
        return self._patiently(self.get)

    def post_patiently(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        return self._patiently(lambda: self._ask("POST", body, headers))

    def _patiently(self, ask: Callable[[], bytes]) -> bytes:
        endpoint = self._endpoint
        until = self._monotonic() + endpoint.retry_backoff_max_ms / 1000
        pause_s = endpoint.retry_backoff_ms / 1000
        while True:
            try:
                return ask()
            except EndpointFailed as problem:
                if problem.is_final or self._monotonic() + pause_s > until:
                    raise
            self._sleep(pause_s)
            pause_s = max(2 * pause_s, 0.001)

    def _ask(self, method: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        connection = self._connect()
        try:
            return self._answer(connection, method, body, headers)
        except (OSError, http.client.HTTPException) as problem:
            raise EndpointFailed(self._endpoint, f"no answer: {problem!r}") from problem
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        parts, timeout_s = self._parts, self._endpoint.connect_timeout_ms / 1000
        assert parts.hostname is not None
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
        else:
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=timeout_s, context=self._tls
            )
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as problem:
            raise EndpointFailed(self._endpoint, f"cannot be reached: {problem}") from problem
        return connection

    def _answer(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> bytes:
        endpoint, parts = self._endpoint, self._parts
        read_timeout_s = endpoint.read_timeout_ms / 1000
        connection.sock.settimeout(read_timeout_s)
        target = parts.path or "/"
        if parts.query:
            target += f"?{parts.query}"
        own = {"User-Agent": f"tidelog/{__version__}", "Cache-Control": "no-cache"}
        connection.request(method, target, body, {**own, **headers})
        text = bytearray()
        until = self._monotonic() + read_timeout_s
        with connection.getresponse() as answer:
            while piece := answer.read1(_PIECE_BYTES):
                text += piece
                if len(text) > ANSWER_BYTES_MAX:
                    raise EndpointFailed(endpoint, "the answer has more than 1 MiB", is_final=True)
                if self._monotonic() > until:
                    raise TimeoutError("the answer takes too long")
        if answer.status not in _OK:
            where = answer.getheader("Location")
            redirect = f" (to {where}, which is not followed)" if where else ""
            words = bytes(text[:_WORDS_MAX]).decode(errors="replace")
            raise EndpointFailed(
                endpoint,
                f"status {answer.status}{redirect}: {words}",
                is_final=answer.status in _FINAL or bool(where),
            )
        return bytes(text)
