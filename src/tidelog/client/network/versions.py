"""Which version of an API to speak with a broker (KIP-35).

A broker's ApiVersions answer gives a range for each API; this table gives the range this client
can speak, and the highest version both know is used. ApiVersions itself is asked for at version 3
first. A broker too old for that (below 2.4) answers 35 in the form of version 0, or hangs up, and
is asked again at version 0.

The lowest versions are those of Kafka 0.10. Where a row of a request means something that an old
version cannot say, whoever sends it asks for the version it needs (`at_least`).

LAST_BY_NAME: later versions name topics by id alone, so without an id these are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.client.errors import UnsupportedByBroker
from tidelog.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from tidelog.protocol.messages.api_versions import ApiVersionsResponse

SPOKEN: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.SASL_HANDSHAKE: (0, 1),  # 1 (1.0): tokens in SaslAuthenticate requests
    ApiKey.SASL_AUTHENTICATE: (0, 2),  # 1 (2.2): sessions that end
    ApiKey.METADATA: (1, 13),  # 4 (0.11): a look-up that creates no topic
    # Producer
    ApiKey.PRODUCE: (2, 13),  # 3 (0.11): the v2 format; 12 (4.0): transactions without add
    ApiKey.INIT_PRODUCER_ID: (0, 5),  # 6 is for two-phase commit
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),  # 4 is for brokers
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),  # 3 (2.5): with the group's generation
    ApiKey.END_TXN: (0, 5),
    # Consumer
    ApiKey.FETCH: (2, 18),  # 4 (0.11): isolation level and the v2 format
    ApiKey.LIST_OFFSETS: (0, 11),  # 0 (0.10.0) has offsets before a time, 1 (0.10.1) at a time
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),  # 2 (2.1): with the client's own epoch
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),  # 2 (0.10.2): everything a group has; 8 (3.0): many groups
    ApiKey.FIND_COORDINATOR: (0, 6),  # 4 (3.0): several keys at once
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    # Admin
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 2),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.CREATE_ACLS: (0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: (0, 3),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.CREATE_TOPICS: (0, 7),  # 4 (2.4): counts left to the broker
    ApiKey.DELETE_ACLS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.DELETE_TOPICS: (0, 6),
    ApiKey.DESCRIBE_ACLS: (0, 3),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_CONFIGS: (0, 4),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 3),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.DESCRIBE_LOG_DIRS: (0, 5),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.LIST_GROUPS: (0, 5),  # 4 (2.6): states; 5 (3.8): types
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),  # 1 (3.8): duration; 2 (4.1): pattern
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.WRITE_TXN_MARKERS: (0, 1),  # 2 is for coordinators
}

LAST_BY_NAME: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.DELETE_TOPICS: 5,
}


class _Range(Protocol):
    api_key: int
    min_version: int
    max_version: int


class BrokerVersions:
    """What one broker offers; `broker` is its name in errors.

    `features` are the finalized ones by name, each with its level (KIP-584): what the cluster as a
    whole has agreed on. Brokers before 2.7 have none.
    """

    __slots__ = ("broker", "features", "features_epoch", "ranges")

    def __init__(
        self,
        broker: str,
        ranges: Mapping[int, tuple[int, int]] | Mapping[ApiKey, tuple[int, int]],
        features: Mapping[str, int] | None = None,
        features_epoch: int = -1,
    ) -> None:
        self.broker = broker
        self.ranges: dict[int, tuple[int, int]] = {int(key): row for key, row in ranges.items()}
        self.features: dict[str, int] = dict(features or {})
        self.features_epoch = features_epoch

    @classmethod
    def of_answer(cls, broker: str, rows: Iterable[_Range]) -> BrokerVersions:
        return cls(broker, {row.api_key: (row.min_version, row.max_version) for row in rows})

    @classmethod
    def of_response(cls, broker: str, response: ApiVersionsResponse) -> BrokerVersions:
        return cls(
            broker,
            {row.api_key: (row.min_version, row.max_version) for row in response.api_keys},
            {row.name: row.max_version_level for row in response.finalized_features},
            response.finalized_features_epoch,
        )

    def offers(self, api_key: ApiKey) -> bool:
        return api_key in self.ranges

    def version_or_none(
        self, api_key: ApiKey, at_most: int | None = None, at_least: int = 0
    ) -> int | None:
        """The highest version that both sides know, within the bounds."""
        low, high = SPOKEN[api_key]
        offered_low, offered_high = self.ranges.get(api_key, (1, 0))
        version = min(high, offered_high, high if at_most is None else at_most)
        return version if version >= max(low, offered_low, at_least) else None

    def version(self, api_key: ApiKey, at_most: int | None = None, at_least: int = 0) -> int:
        version = self.version_or_none(api_key, at_most, at_least)
        if version is None:
            raise UnsupportedByBroker(self._why_not(api_key, at_most, at_least))
        return version

    def _why_not(self, api_key: ApiKey, at_most: int | None, at_least: int) -> str:
        name = api_key.name
        low, high = SPOKEN[api_key]
        low = max(low, at_least)
        high = high if at_most is None else min(high, at_most)
        if api_key not in self.ranges:
            return f"broker {self.broker} does not offer {name}"
        offered_low, offered_high = self.ranges[api_key]
        return (
            f"broker {self.broker} offers {name} in versions {offered_low} to {offered_high}, "
            f"this needs one of {low} to {high}"
        )
