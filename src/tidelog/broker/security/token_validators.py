"""What judges the tokens of OAUTHBEARER, for each listener that takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.oauth import SignedTokens

if TYPE_CHECKING:
    from tidelog.broker.security.refreshing_key_set import RefreshingKeySet
    from tidelog.clock import Clock, Timer
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.oauth import UnsecuredTokens
    from tidelog.sasl.oauth.token_validator import TokenValidator


class TokenValidators:
    """Touched only on the broker loop."""

    def __init__(self, config: BrokerConfig, *, clock: Clock, timer: Timer) -> None:
        self._by_listener: dict[str, TokenValidator] = {}
        self._key_sets: list[RefreshingKeySet] = []
        for name, listener in config.sasl_listeners.items():
            if listener.token_rules is not None:
                self._by_listener[name] = self._validator(listener.token_rules, clock, timer)

    def _validator(
        self, rules: SignedTokens | UnsecuredTokens, clock: Clock, timer: Timer
    ) -> TokenValidator:
        # Imported here, so that other brokers start without them, and without a client of HTTP.
        from tidelog.sasl.oauth.token_validator import SignedTokenValidator, UnsecuredTokenValidator

        if not isinstance(rules, SignedTokens):
            return UnsecuredTokenValidator(rules, clock)
        from tidelog.broker.security.refreshing_key_set import RefreshingKeySet

        keys = RefreshingKeySet(rules, clock=clock, timer=timer)
        self._key_sets.append(keys)
        return SignedTokenValidator(rules, keys.current, keys.expedite, clock)

    def __getitem__(self, listener_name: str) -> TokenValidator:
        return self._by_listener[listener_name]

    def load(self) -> None:
        """Reads all key sets, blocking; StartupError if one cannot be had."""
        for keys in self._key_sets:
            keys.load()

    def start(self) -> None:
        for keys in self._key_sets:
            keys.start()

    def close(self) -> None:
        for keys in self._key_sets:
            keys.close()
