"""A third coordinator, which tidelog does not have: nothing but its topic and its shards."""

from __future__ import annotations

from tidelog.broker.broker import Broker
from tidelog.config.broker import BrokerConfig
from tidelog.coordinator.runtime import CoordinatorRuntime
from tidelog.coordinator.stored_record import CoordinatorRecord, RecordTypes

SHARE_GROUP_STATE = "__share_group_state"


class ShareShard:
    def __init__(self, index: int) -> None:
        self.index = index

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None: ...

    def replay_marker(self, producer_id: int, *, committed: bool) -> None: ...


class ShareCoordinator:
    def __init__(self, broker: Broker) -> None:
        self.unloaded: list[int] = []
        self.configs: list[BrokerConfig] = []
        self.runtime = CoordinatorRuntime(
            SHARE_GROUP_STATE,
            RecordTypes({}),
            ShareShard,
            clock=broker.clock,
            timer=broker.timer,
            flusher=broker.flusher,
            on_unloaded=lambda shard: self.unloaded.append(shard.index),
        )

    def configure(self, config: BrokerConfig) -> None:
        self.configs.append(config)

    @property
    def led(self) -> list[int]:
        return sorted(shard.index for shard in self.runtime.active_shards())
