"""Metrics that clients push, as /metrics shows them: librdkafka pushes unless it is told not to."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.conftest import StartBroker
from tests.integration.test_metrics import LISTENER, get, url_of
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tidelog.client import Admin
from tidelog.client.admin.configs import AlterConfig, ConfigResource, ConfigResourceType

ALL = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all")


TIDELOG = str(Path(sys.executable).parent / "tidelog")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TIDELOG, *command], capture_output=True, text=True, timeout=120)


def subscribe(bootstrap: str, **settings: str) -> None:
    changes = [AlterConfig(name.replace("_", "."), text) for name, text in settings.items()]
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.incremental_alter_configs({ALL: changes})[ALL].get()


def scrape(broker: BrokerProcess) -> str:
    return get(url_of(broker) + "/metrics")


def test_librdkafka_pushes_and_a_scrape_shows_it(start_broker: StartBroker) -> None:
    broker = start_broker(LISTENER)
    subscribe(broker.bootstrap, metrics="*", interval_ms="200", match="client_id=pushing.*")
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0}
    producer = confluent_kafka.Producer({**settings, "client.id": "pushing-1"})
    other = confluent_kafka.Producer({**settings, "client.id": "silent"})

    def has_pushed() -> bool:
        for each in (producer, other):
            each.produce("orders", b"order")
            each.flush(60)
        pushed = re.findall(
            r'^kafka_client_producer_\w+\{.*client_id="pushing-1".*\} (\S+)$',
            scrape(broker),
            re.MULTILINE,
        )
        return any(float(number) > 0 for number in pushed)

    eventually(has_pushed)
    page = scrape(broker)
    (info,) = re.findall("^kafka_client_info.*$", page, re.MULTILINE)
    assert 'client_software_name="confluent-kafka-python"' in info
    assert 'client_id="silent"' not in page
    assert "kafka_server_client_metrics_plugin_error_count 0" in page
    url = url_of(broker) + "/metrics"
    command = ("cluster", "client-metrics", "--metrics", url, "-o", "jsonl")
    (client,) = map(json.loads, run(*command).stdout.splitlines())
    assert (client["client_id"], client["software"]) == ("pushing-1", "confluent-kafka-python")
    assert client["metrics"] > 1
    pushed = run(*command, "--client", "pushing-1").stdout
    assert '"metric":"producer_' in pushed.replace(" ", "")
    nobody = run(*command, "--client", "silent")
    assert (nobody.returncode, "no client silent" in nobody.stderr) == (1, True)
