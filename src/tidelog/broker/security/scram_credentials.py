"""The SCRAM credentials of all users, in memory: a login reads no store.

`DynamicConfig` reads them at the start, and hands over what changes afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidelog.sasl.scram_credential import SCRAM_MECHANISMS, ScramCredential, ScramMechanism

logger = logging.getLogger(__name__)


class ScramCredentials:
    """Touched only on the broker loop."""

    def __init__(self) -> None:
        self._by_user: dict[ScramMechanism, dict[str, ScramCredential]] = {
            mechanism: {} for mechanism in SCRAM_MECHANISMS
        }

    def get(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self._by_user[mechanism].get(user)

    def users(self) -> set[str]:
        return {user for credentials in self._by_user.values() for user in credentials}

    def take_over(self, user: str, texts: Mapping[str, str]) -> None:
        """All that is stored of a user; what is not there any more is no longer good."""
        for mechanism, credentials in self._by_user.items():
            credentials.pop(user, None)
            text = texts.get(mechanism.mechanism_name)
            if text is None:
                continue
            try:
                credentials[user] = ScramCredential.parse(text)
            except ValueError:
                logger.warning(
                    "a %s credential is left out: not readable",
                    mechanism.mechanism_name,
                    extra={"user": user},
                )
