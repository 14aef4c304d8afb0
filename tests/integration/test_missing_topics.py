"""Topics that a Spark job needs, made where they are not there; no Spark needed."""

from __future__ import annotations

import pytest

from tidelog.client import Admin
from tidelog.spark.topics import create_missing_topics

pytestmark = pytest.mark.integration


def test_missing_topics_are_made_once_and_others_stay(
    bootstrap: str, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_BROKERS", bootstrap)
    options = {"kafka.bootstrap.servers": "${env:SHOP_BROKERS}", "kafka.linger.ms": "5"}
    orders, revenue = f"{topic_name}.orders", f"{topic_name}.revenue"
    assert create_missing_topics(options, {orders: 3}) == [orders]
    made = create_missing_topics(
        options, {orders: 5, revenue: 1}, replication_factor=1, configs={"retention.ms": "1000"}
    )
    assert made == [revenue]
    assert create_missing_topics(options, {orders: 5, revenue: 1}) == []
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        found = admin.describe_topics([orders, revenue])
    assert [len(found[name].get().partitions) for name in (orders, revenue)] == [3, 1]
