"""How the controller reaches brokers; the network has it done, tests have a fake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tidelog.controller.znodes import Endpoint


class PeerDirectory(Protocol):
    def update(self, brokers: Mapping[int, Endpoint]) -> None:
        """These are the brokers now, each with its endpoint of the inter-broker listener."""

    async def call(
        self, broker_id: int, request: Any, *, version: int | None = None, timeout_s: float
    ) -> Any:
        """The response; ConnectionError or TimeoutError if there is none."""
