"""Which version of an API to speak with a broker (KIP-35).

A broker's ApiVersions answer gives a range for each API; this table gives the range this client
can speak, and the highest version both know is used. ApiVersions itself is asked for at version 3
first. A broker too old for that (below 2.4) answers 35 in the form of version 0 and lists its
ranges all the same; one that lists nothing is asked again at version 0.

    api               versions  lowest is of
    Produce              3-13   0.11, the v2 record format
    Fetch                4-18   0.11, isolation level and the v2 format
    ListOffsets          1-10   0.10.1 (2 from 0.11: isolation level; 7 from 3.0: max timestamp)
    Metadata             4-13   0.11, a look-up that creates no topic
    OffsetCommit         2-9    0.9 (10 names topics by id only)
    FindCoordinator      0-6    0.9 (4 from 3.0: several groups at once)
    InitProducerId       0-5    0.11
    CreateTopics         4-7    2.4, a replication factor left to the broker
    DeleteTopics         1-5    0.11 (6 names topics otherwise)
    OffsetFetch          2-9    0.10.2, everything a group has (10 names topics by id only)
    ListGroups           0-5    0.9 (4 from 2.6: states; 5 from 3.8: types)
    DescribeGroups       0-6    0.9
    ConsumerGroupDescribe 0-1   3.8
    DeleteGroups         0-2    1.1
    OffsetDelete         0      2.4
    WriteTxnMarkers      0-1    0.11 (2 is for coordinators)
    DescribeProducers    0      2.8
    DescribeTransactions 0      3.0
    ListTransactions     0-2    3.0 (1 from 3.8: duration; 2 from 4.1: pattern)

Produce 13 and Fetch 13 and later name topics by id; without an id the versions before are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from tidelog.client.errors import UnsupportedByBroker
from tidelog.protocol.api_keys import ApiKey

SPOKEN: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 10),
    ApiKey.METADATA: (4, 13),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.CREATE_TOPICS: (4, 7),
    ApiKey.DELETE_TOPICS: (1, 5),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.OFFSET_FETCH: (2, 9),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.WRITE_TXN_MARKERS: (0, 1),
}

LAST_BY_NAME: Final[Mapping[ApiKey, int]] = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12}


class _Range(Protocol):
    api_key: int
    min_version: int
    max_version: int


class BrokerVersions:
    """What one broker offers; `broker` is its name in errors."""

    __slots__ = ("broker", "ranges")

    def __init__(
        self,
        broker: str,
        ranges: Mapping[int, tuple[int, int]] | Mapping[ApiKey, tuple[int, int]],
    ) -> None:
        self.broker = broker
        self.ranges: dict[int, tuple[int, int]] = {int(key): row for key, row in ranges.items()}

    @classmethod
    def of_answer(cls, broker: str, rows: Iterable[_Range]) -> BrokerVersions:
        return cls(broker, {row.api_key: (row.min_version, row.max_version) for row in rows})

    def offers(self, api_key: ApiKey) -> bool:
        return api_key in self.ranges

    def version_or_none(self, api_key: ApiKey, at_most: int | None = None) -> int | None:
        """The highest version that both sides know, not above `at_most`."""
        low, high = SPOKEN[api_key]
        offered_low, offered_high = self.ranges.get(api_key, (1, 0))
        version = min(high, offered_high, high if at_most is None else at_most)
        return version if version >= max(low, offered_low) else None

    def version(self, api_key: ApiKey, at_most: int | None = None) -> int:
        version = self.version_or_none(api_key, at_most)
        if version is None:
            raise UnsupportedByBroker(self._why_not(api_key, at_most))
        return version

    def _why_not(self, api_key: ApiKey, at_most: int | None) -> str:
        name = api_key.name
        low, high = SPOKEN[api_key]
        high = high if at_most is None else min(high, at_most)
        if api_key not in self.ranges:
            return f"broker {self.broker} does not offer {name}"
        offered_low, offered_high = self.ranges[api_key]
        return (
            f"broker {self.broker} offers {name} in versions {offered_low} to {offered_high}, "
            f"this client needs one of {low} to {high}"
        )
