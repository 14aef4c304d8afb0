"""Transactions as the client lists them, of brokers that do not know every filter."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog.client.cluster import Cluster
from tidelog.client.errors import UnsupportedByBroker
from tidelog.client.transactions import list_transactions
from tidelog.protocol.messages.list_transactions import ListTransactionsResponse


def cluster_of_one_broker(version: int, asked: list[int]) -> Cluster:
    def call(request: object, version: int) -> ListTransactionsResponse:
        asked.append(version)
        return ListTransactionsResponse()

    connection = SimpleNamespace(
        versions=SimpleNamespace(version=lambda key: version), broker="one", call=call
    )

    def ask_broker(node_id: int, what: str, ask: Callable[[Any], Any]) -> Any:
        return ask(connection)

    return cast(Cluster, SimpleNamespace(brokers=lambda: {1: None}, ask_broker=ask_broker))


@pytest.mark.parametrize(
    ("version", "filters"), [(0, {"duration_ms": 1}), (0, {"pattern": "a"}), (1, {"pattern": "a"})]
)
def test_a_filter_that_a_broker_does_not_know_is_an_error(
    version: int, filters: dict[str, Any]
) -> None:
    asked: list[int] = []
    with pytest.raises(UnsupportedByBroker, match="LIST_TRANSACTIONS up to version"):
        list_transactions(cluster_of_one_broker(version, asked), **filters)
    assert asked == []


def test_a_filter_that_a_broker_knows_is_sent_to_it() -> None:
    asked: list[int] = []
    assert list_transactions(cluster_of_one_broker(2, asked), pattern="a") == []
    assert asked == [2]
