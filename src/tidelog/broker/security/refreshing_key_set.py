"""The keys that one listener's OAUTHBEARER tokens are checked with, read again and again.

A key set is read before the broker listens: without keys nobody is let in, so a start without them
fails. From then on it is read again every sasl.oauthbearer.jwks.endpoint.refresh.ms, and soon after
a token that no known key can have signed, at most once in EXPEDITED_S: whoever sends such tokens
does not make the broker ask more often. Files are read again likewise. Reading is done in a thread.
If it fails the old keys stay, and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Final

from tidelog.errors import StartupError
from tidelog.sasl.oauth.endpoint_client import EndpointClient, EndpointFailed
from tidelog.supervisor import report

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer, TimerHandle
    from tidelog.config.oauth import SignedTokens
    from tidelog.sasl.oauth.verification_keys import VerificationKeys

logger = logging.getLogger(__name__)

EXPEDITED_S: Final = 10.0


class RefreshingKeySet:
    """Kafka's RefreshingHttpsJwks. Touched only on the broker loop, but for `_read`."""

    def __init__(self, rules: SignedTokens, *, clock: Clock, timer: Timer) -> None:
        self._endpoint = rules.jwks
        self._refresh_s = rules.refresh_ms / 1000
        self._clock = clock
        self._timer = timer
        self._keys: VerificationKeys | None = None
        self._client: EndpointClient | None = None
        self._expedited_at: float | None = None
        self._handle: TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self._closed = threading.Event()

    def current(self) -> VerificationKeys:
        assert self._keys is not None, "nobody is served before `load`"
        return self._keys

    def load(self) -> None:
        try:
            from tidelog.sasl.oauth.verification_keys import InvalidKeySet, VerificationKeys
        except ImportError as error:
            raise StartupError(
                f"OAUTHBEARER needs a library that is not here ({error}); install it with "
                "`pip install 'tidelog[oauth]'`"
            ) from error
        if self._endpoint.is_in_the_clear:
            logger.warning(
                "%s=%s is not encrypted: whoever can answer in its place decides who gets in",
                self._endpoint.key,
                self._endpoint.url,
            )
        try:
            self._client = EndpointClient(self._endpoint, sleep=self._sleep)
            self._keys = VerificationKeys.parse(self._client.get())
        except EndpointFailed as problem:
            raise StartupError(f"there are no keys to check tokens with: {problem}") from problem
        except InvalidKeySet as problem:
            raise StartupError(
                f"{self._endpoint.key}={self._endpoint.url} has no key set: {problem}"
            ) from problem
        logger.info("key set read", extra={"url": self._endpoint.url, "keys": len(self._keys)})

    def start(self) -> None:
        self._handle = self._timer.call_later(self._refresh_s, self._due)

    def close(self) -> None:
        self._closed.set()
        if self._handle is not None:
            self._handle.cancel()

    def _due(self) -> None:
        if not self._closed.is_set():
            self.start()
            self._refresh()

    def expedite(self) -> None:
        """Soon: somebody has a token of a key that is not known."""
        now = self._clock.monotonic()
        if self._expedited_at is None or now - self._expedited_at >= EXPEDITED_S:
            self._expedited_at = now
            self._refresh()

    def _refresh(self) -> None:
        if self._closed.is_set() or (self._reading is not None and not self._reading.done()):
            return
        self._reading = asyncio.get_running_loop().create_task(self._read_anew())
        report(f"reading the key set {self._endpoint.url}", self._reading)

    async def _read_anew(self) -> None:
        from tidelog.sasl.oauth.verification_keys import InvalidKeySet

        try:
            keys = await asyncio.get_running_loop().run_in_executor(None, self._read)
        except (EndpointFailed, InvalidKeySet) as problem:
            logger.warning("the key set is not read anew, the old keys stay: %s", problem)
            return
        self._keys = keys
        logger.info("key set read", extra={"url": self._endpoint.url, "keys": len(keys)})

    def _read(self) -> VerificationKeys:
        """In a thread."""
        from tidelog.sasl.oauth.verification_keys import VerificationKeys

        assert self._client is not None
        return VerificationKeys.parse(self._client.get_patiently())

    def _sleep(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise EndpointFailed(self._endpoint, "the broker stops", is_final=True)
