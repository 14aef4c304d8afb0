"""Learning of configuration that was changed through another broker (/config/changes).

A broker that starts looks at all changes that are there: it has read the configuration before it
loaded its logs, which may have taken long. One that has lost its session reads everything anew: it
may have been away for longer than changes stay announced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller import znodes
from tidelog.controller.announcements import Announcements
from tidelog.controller.metadata_store import MetadataStore

if TYPE_CHECKING:
    from tidelog.broker.dynamic_config import DynamicConfig
    from tidelog.clock import Clock, Timer


def config_changes(
    store: MetadataStore, config: DynamicConfig, *, clock: Clock, timer: Timer
) -> Announcements:
    async def take_over(data: bytes) -> None:
        entity_type, _, entity = znodes.decode_config_change(data).partition("/")
        if entity_type == "topics":
            await config.topic_announced(entity)
        elif entity_type == "brokers":
            await config.broker_announced(entity)
        elif entity_type == "groups":
            await config.group_announced(entity)
        elif entity_type == "client-metrics":
            await config.subscription_announced(entity)
        elif entity_type in ("users", "clients", "ips"):
            await config.client_announced(entity_type, entity)

    return Announcements(
        store,
        znodes.CONFIG_CHANGE,
        take_over,
        clock=clock,
        timer=timer,
        reread=config.read_anew,
    )
