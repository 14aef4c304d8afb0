"""A broker's metrics and health over HTTP, while clients use it."""

from __future__ import annotations

import re
import urllib.request
from urllib.error import HTTPError

import pytest

from tests.conftest import StartBroker
from tests.support.broker_process import READY_LINE, BrokerProcess
from tests.support.eventually import eventually
from tidelog.client import Consumer, Producer
from tidelog.tools.monitoring import dashboard

LISTENER = {"tidelog.metrics.listener": "http://127.0.0.1:0"}


def url_of(broker: BrokerProcess) -> str:
    ready = READY_LINE.search(broker.stdout_path.read_text())
    assert ready is not None
    return ready["metrics"].removesuffix("/metrics")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def value(page: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


@pytest.fixture
def served(start_broker: StartBroker) -> BrokerProcess:
    return start_broker({**LISTENER, "group.initial.rebalance.delay.ms": "0"})


def test_what_clients_do_is_seen_in_a_scrape(served: BrokerProcess) -> None:
    url = url_of(served)
    servers = {"bootstrap.servers": served.bootstrap}
    with Producer({**servers, "linger.ms": 0}) as producer:
        for number in range(10):
            producer.send("orders", value=b"order %d" % number)
        producer.flush()
    reading = {"group.id": "billing", "auto.offset.reset": "earliest"}
    with Consumer({**servers, **reading, "enable.auto.commit": False}) as consumer:
        consumer.subscribe(["orders"])
        read: list[object] = []

        def has_read_all() -> bool:
            read.extend(consumer.poll(1.0))
            return len(read) >= 10

        eventually(has_read_all)
        consumer.commit()
        page = get(f"{url}/metrics")
        assert value(page, 'kafka_consumergroup_members{consumergroup="billing"}') == 1
    with Producer(servers) as producer:
        producer.send("orders", value=b"unread")
        producer.flush()
    page = get(f"{url}/metrics")
    traffic = "kafka_server_brokertopicmetrics_"
    assert value(page, traffic + 'messagesin_total{topic="orders"}') == 11
    assert value(page, traffic + 'bytesin_total{topic="orders"}') > 100
    assert value(page, traffic + 'bytesout_total{topic="orders"}') > 100
    place = '{consumergroup="billing",topic="orders",partition="0"}'
    assert value(page, f"kafka_consumergroup_current_offset{place}") == 10
    assert value(page, f"kafka_consumergroup_lag{place}") == 1
    assert 0 <= value(page, f"kafka_consumergroup_lag_seconds{place}") < 600
    assert value(page, 'kafka_consumergroup_lag_sum{consumergroup="billing",topic="orders"}') == 1
    times = "kafka_network_requestmetrics_totaltimems"
    assert value(page, f'{times}_count{{request="Produce"}}') >= 2
    assert value(page, f'{times}{{request="Produce",quantile="0.99"}}') > 0
    sent = "kafka_network_requestmetrics_responsesendtimems"
    assert value(page, f'{sent}_count{{request="Produce"}}') >= 1
    assert value(page, f'{sent}{{request="Produce",quantile="0.99"}}') >= 0
    assert value(page, "kafka_network_socketserver_connections_accepted_total") > 2
    assert value(page, "process_resident_memory_bytes") > 10_000_000


def test_refusals_are_counted_by_api_and_error(served: BrokerProcess) -> None:
    from tests.support.raw_client import RawClient
    from tidelog.protocol.messages.fetch import (
        FetchPartition,
        FetchRequest,
        FetchResponse,
        FetchTopic,
    )

    with RawClient(served.bootstrap) as client:
        topic = FetchTopic(topic="nowhere", partitions=[FetchPartition(partition=0)])
        client.ask(FetchRequest(topics=[topic], max_bytes=1000), 11, FetchResponse)
    page = get(f"{url_of(served)}/metrics")
    error = '{request="Fetch",error="UNKNOWN_TOPIC_OR_PARTITION"}'
    assert value(page, f"kafka_network_requestmetrics_errors_total{error}") == 1


def test_a_broker_that_serves_is_live_and_ready(served: BrokerProcess) -> None:
    url = url_of(served)
    assert get(f"{url}/healthz") == "live\n"
    assert get(f"{url}/readyz") == "ready\n"
    with pytest.raises(HTTPError) as refused:
        get(f"{url}/config")
    assert refused.value.code == 404
    refused.value.close()


def test_events_tell_who_did_what(served: BrokerProcess) -> None:
    from tidelog.client import Admin, NewTopic

    with Admin({"bootstrap.servers": served.bootstrap, "client.id": "ops"}) as admin:
        admin.create_topics([NewTopic("invoices", 2)])
        admin.delete_topics(["invoices"])
    with urllib.request.urlopen(f"{url_of(served)}/readyz", timeout=60):
        pass
    lines = served.log_text().splitlines()
    made = next(line for line in lines if "event=topic-created" in line)
    assert "topic=invoices partitions=2 replication_factor=1" in made
    assert "principal=User:ANONYMOUS client_id=ops client=127.0.0.1:" in made
    assert any("event=topic-deleted topic=invoices" in line for line in lines)
    started = next(line for line in lines if "event=broker-started" in line)
    assert f"data={served.data_directory}" in started
    assert re.search(r"kernel=(c|python) modules=(compiled|interpreted)", started)


def test_every_metric_of_the_dashboard_is_told(served: BrokerProcess) -> None:
    test_what_clients_do_is_seen_in_a_scrape(served)
    test_refusals_are_counted_by_api_and_error(served)
    page = get(f"{url_of(served)}/metrics")
    told = set(re.findall(r"^([a-z_]+)", page, re.MULTILINE))
    expressions = [
        target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())
    ]
    named = {
        name
        for expression in expressions
        for name in re.findall(r"\b(?:kafka|process|python|tidelog)_[a-z_]+", expression)
    }
    assert len(named) > 20
    assert named <= told


def test_metrics_that_everybody_can_reach_are_warned_of(
    served: BrokerProcess, start_broker: StartBroker
) -> None:
    assert "WARNING" not in served.log_text()
    loud = start_broker({"tidelog.metrics.listener": "http://0.0.0.0:0"}, name="loud")
    assert "whoever can reach it can read the names and rates" in loud.log_text()
