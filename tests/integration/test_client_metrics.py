"""Metrics that clients push, as /metrics shows them: librdkafka pushes unless it is told not to."""

from __future__ import annotations

import re
from typing import Any

import confluent_kafka

from tests.conftest import StartBroker
from tests.integration.test_metrics import LISTENER, get, url_of, value
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tidelog.client import Admin
from tidelog.client.admin.configs import AlterConfig, ConfigResource, ConfigResourceType

ALL = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all")


def subscribe(bootstrap: str, **settings: str) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        changes = [
            AlterConfig(name.replace("_", "."), text) for name, text in settings.items()
        ]
        admin.incremental_alter_configs({ALL: changes})[ALL].get()


def test_librdkafka_pushes_and_a_scrape_shows_it(start_broker: StartBroker) -> None:
    broker = start_broker(LISTENER)
    subscribe(broker.bootstrap, metrics="*", interval_ms="200", match="client_id=pushing.*")
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0}
    producer = confluent_kafka.Producer({**settings, "client.id": "pushing-1"})
    other = confluent_kafka.Producer({**settings, "client.id": "silent"})

    def pushed() -> bool:
        for each in (producer, other):
            each.produce("orders", b"order")
            each.flush(60)
        page = get(url_of(broker) + "/metrics")
        found = re.findall(r"^kafka_client_producer_\w+\{.*$", page, re.MULTILINE)
        return any(float(line.rpartition(" ")[2]) > 0 for line in found)

    eventually(pushed)
    page = get(url_of(broker) + "/metrics")
    print(page)
    assert 'client_id="silent"' not in page
