"""Kafka's own client pushes its metrics to tidelog, asked by Kafka's own tool."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from tests.integration.test_metrics import LISTENER, get, url_of
from tests.interop.apache_kafka import kafka_or_skip, run_tool
from tests.support.broker_process import BrokerProcess


@pytest.mark.parametrize("version", [KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def test_the_java_producer_pushes_what_kafka_client_metrics_asks_for(
    version: str, tmp_path: Path
) -> None:
    kafka = kafka_or_skip(version)
    with BrokerProcess(tmp_path, LISTENER) as broker:
        bootstrap = ("--bootstrap-server", broker.bootstrap)
        command = (kafka, "org.apache.kafka.tools.ClientMetricsCommand", *bootstrap)
        subscription = ("--name", "producers", "--metrics", "org.apache.kafka.producer.")
        match = ("--interval", "200", "--match", "client_software_name=apache-kafka-java")
        run_tool(*command, "--alter", *subscription, *match)
        assert "producers" in run_tool(*command, "--list")
        described = run_tool(*command, "--describe", "--name", "producers")
        assert "interval.ms=200" in described
        assert "metrics=org.apache.kafka.producer." in described

        run_tool(
            kafka,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "orders", "--num-records", "2000", "--record-size", "10"),
            *("--throughput", "500", "--producer-props"),
            *(f"bootstrap.servers={broker.bootstrap}", "client.id=java-producer"),
        )
        page = get(url_of(broker) + "/metrics")  # the series stay for a minute
        label = r'\{.*client_id="java-producer".*\}'
        (info,) = re.findall(rf"^kafka_client_info{label} 1$", page, re.MULTILINE)
        assert 'client_software_name="apache-kafka-java"' in info
        sent = rf"^kafka_client_producer_record_send_total{label} (\S+)$"
        (total,) = re.findall(sent, page, re.MULTILINE)
        assert 0 < float(total) <= 2000
        assert "kafka_server_client_metrics_plugin_error_count 0" in page

        run_tool(*command, "--delete", "--name", "producers")
        assert "producers" not in run_tool(*command, "--list")
