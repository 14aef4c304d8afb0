"""The version spoken with brokers of each age."""

from __future__ import annotations

import pytest

from tidelog.client.errors import UnsupportedByBroker
from tidelog.client.network.versions import SPOKEN, BrokerVersions
from tidelog.protocol.api_keys import VERSIONS, ApiKey

# Ranges as the releases advertise them.
RELEASES: dict[str, dict[ApiKey, tuple[int, int]]] = {
    "0.10": {
        ApiKey.PRODUCE: (0, 2),
        ApiKey.FETCH: (0, 2),
        ApiKey.LIST_OFFSETS: (0, 0),
        ApiKey.METADATA: (0, 1),
        ApiKey.OFFSET_COMMIT: (0, 2),
        ApiKey.FIND_COORDINATOR: (0, 0),
    },
    "0.11": {
        ApiKey.PRODUCE: (0, 3),
        ApiKey.FETCH: (0, 5),
        ApiKey.LIST_OFFSETS: (0, 2),
        ApiKey.METADATA: (0, 4),
        ApiKey.OFFSET_COMMIT: (0, 3),
        ApiKey.FIND_COORDINATOR: (0, 1),
        ApiKey.INIT_PRODUCER_ID: (0, 0),
    },
    "2.0": {
        ApiKey.PRODUCE: (0, 6),
        ApiKey.FETCH: (0, 8),
        ApiKey.LIST_OFFSETS: (0, 3),
        ApiKey.METADATA: (0, 6),
        ApiKey.OFFSET_COMMIT: (0, 4),
        ApiKey.FIND_COORDINATOR: (0, 2),
        ApiKey.INIT_PRODUCER_ID: (0, 1),
    },
    "3.9": {
        ApiKey.PRODUCE: (0, 11),
        ApiKey.FETCH: (0, 17),
        ApiKey.LIST_OFFSETS: (0, 9),
        ApiKey.METADATA: (0, 12),
        ApiKey.OFFSET_COMMIT: (0, 9),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.INIT_PRODUCER_ID: (0, 5),
    },
    "4.3": {
        ApiKey.PRODUCE: (0, 13),
        ApiKey.FETCH: (4, 18),
        ApiKey.LIST_OFFSETS: (1, 11),
        ApiKey.METADATA: (0, 13),
        ApiKey.OFFSET_COMMIT: (2, 10),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.INIT_PRODUCER_ID: (0, 6),
    },
}
CHOSEN = {
    "0.10": (2, 2, 0, 1, 2, 0),
    "0.11": (3, 5, 2, 4, 3, 1, 0),
    "2.0": (6, 8, 3, 6, 4, 2, 1),
    "3.9": (11, 17, 9, 12, 9, 6, 5),
    "4.3": (13, 18, 11, 13, 10, 6, 5),
}


@pytest.mark.parametrize("release", RELEASES)
def test_the_highest_version_both_sides_know_is_spoken(release: str) -> None:
    versions = BrokerVersions("b:1", RELEASES[release])
    assert tuple(versions.version(key) for key in RELEASES[release]) == CHOSEN[release]


def test_without_topic_ids_fetch_and_produce_stay_at_versions_that_name_topics() -> None:
    versions = BrokerVersions("b:1", RELEASES["4.3"])
    assert versions.version(ApiKey.FETCH, at_most=12) == 12
    assert versions.version(ApiKey.PRODUCE, at_most=12) == 12


def test_a_broker_too_old_for_what_is_asked_is_refused_and_named() -> None:
    versions = BrokerVersions("old:9092", {ApiKey.FETCH: (0, 3)})
    assert versions.version(ApiKey.FETCH) == 3
    with pytest.raises(
        UnsupportedByBroker, match=r"old:9092 offers FETCH in versions 0 to 3.*4 to"
    ):
        versions.version(ApiKey.FETCH, at_least=4)


def test_a_broker_too_new_is_refused() -> None:
    versions = BrokerVersions("new:9092", {ApiKey.PRODUCE: (20, 25)})
    with pytest.raises(UnsupportedByBroker, match="PRODUCE in versions 20 to 25"):
        versions.version(ApiKey.PRODUCE)


def test_an_api_that_is_not_offered_is_refused() -> None:
    versions = BrokerVersions("b:1", {})
    assert not versions.offers(ApiKey.FIND_COORDINATOR)
    with pytest.raises(UnsupportedByBroker, match="does not offer FIND_COORDINATOR"):
        versions.version(ApiKey.FIND_COORDINATOR)


def test_every_version_spoken_has_a_codec() -> None:
    for key, (low, high) in SPOKEN.items():
        assert VERSIONS[key].min_version <= low <= high <= VERSIONS[key].max_version
