"""What other programs need to watch brokers: a dashboard for Grafana, a scrape configuration.

Both name only metrics that a broker tells (`broker/observation/collector.py`); a test compares them
with a scrape. PANELS is the dashboard: rows of panels, each with its queries in PromQL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

PANEL_WIDTH: Final = 8
PANEL_HEIGHT: Final = 8
COLUMNS: Final = 24
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
RATE: Final = "[$__rate_interval]"
TRAFFIC: Final = "kafka_server_brokertopicmetrics_"
REQUESTS: Final = "kafka_network_requestmetrics_"
GROUP: Final = "kafka_consumergroup_"


class Query(NamedTuple):
    expression: str
    legend: str


class Panel(NamedTuple):
    title: str
    unit: str  # as Grafana names it
    queries: Sequence[Query]
    kind: str = "timeseries"


def _by_topic(name: str) -> Query:
    return Query(f'sum by (topic) (rate({TRAFFIC}{name}{{topic!=""}}{RATE}))', "{{topic}}")


def _quantile(part: str) -> Query:
    expression = f'max by (request) ({REQUESTS}{part}timems{{quantile="0.99",request=~"$request"}})'
    return Query(expression, "{{request}}")


PANELS: Final[dict[str, Sequence[Panel]]] = {
    "Cluster": (
        Panel("Brokers", "short", [Query("max(kafka_brokers)", "brokers")], "stat"),
        Panel(
            "Active controllers",
            "short",
            [Query("sum(kafka_controller_kafkacontroller_activecontrollercount)", "controllers")],
            "stat",
        ),
        Panel(
            "Partitions without a leader",
            "short",
            [Query("max(kafka_controller_kafkacontroller_offlinepartitionscount)", "offline")],
            "stat",
        ),
        Panel(
            "Under-replicated partitions",
            "short",
            [
                Query("sum(kafka_server_replicamanager_underreplicatedpartitions)", "under"),
                Query("sum(kafka_server_replicamanager_underminisrpartitioncount)", "under min"),
            ],
        ),
        Panel(
            "Changes of in-sync sets",
            "ops",
            [
                Query(f"sum(rate(kafka_server_replicamanager_isrshrinks_total{RATE}))", "shrink"),
                Query(f"sum(rate(kafka_server_replicamanager_isrexpands_total{RATE}))", "expand"),
            ],
        ),
        Panel(
            "Log directories offline",
            "short",
            [Query("kafka_log_logmanager_offlinelogdirectorycount", "{{instance}}")],
        ),
    ),
    "Topics": (
        Panel("Records in", "ops", [_by_topic("messagesin_total")]),
        Panel("Bytes in", "Bps", [_by_topic("bytesin_total")]),
        Panel("Bytes out", "Bps", [_by_topic("bytesout_total")]),
        Panel("Failed produce", "ops", [_by_topic("failedproducerequests_total")]),
        Panel(
            "Replication",
            "Bps",
            [
                Query(f"sum(rate({TRAFFIC}replicationbytesin_total{RATE}))", "in"),
                Query(f"sum(rate({TRAFFIC}replicationbytesout_total{RATE}))", "out"),
            ],
        ),
        Panel("Size on disk", "bytes", [Query("sum by (topic) (kafka_log_log_size)", "{{topic}}")]),
    ),
    "Requests": (
        Panel(
            "Requests",
            "reqps",
            [Query(f"sum by (request) (rate({REQUESTS}requests_total{RATE}))", "{{request}}")],
        ),
        Panel(
            "Errors",
            "ops",
            [
                Query(
                    f"sum by (request, error) (rate({REQUESTS}errors_total{RATE}))",
                    "{{request}} {{error}}",
                )
            ],
        ),
        Panel("Total time, 99th percentile", "ms", [_quantile("total")]),
        Panel("Queue time, 99th percentile", "ms", [_quantile("requestqueue")]),
        Panel("Handler time, 99th percentile", "ms", [_quantile("local")]),
        Panel("Waiting time, 99th percentile", "ms", [_quantile("remote")]),
        Panel("Sending time, 99th percentile", "ms", [_quantile("responsesend")]),
    ),
    "Groups": (
        Panel(
            "Lag",
            "short",
            [
                Query(
                    f"sum by (consumergroup, topic) ({GROUP}lag_sum)", "{{consumergroup}} {{topic}}"
                )
            ],
        ),
        Panel(
            "Lag in time",
            "s",
            [Query(f"max by (consumergroup) ({GROUP}lag_seconds)", "{{consumergroup}}")],
        ),
        Panel(
            "Members",
            "short",
            [Query(f"sum by (consumergroup) ({GROUP}members)", "{{consumergroup}}")],
        ),
    ),
    "Processes": (
        Panel(
            "Processor",
            "percentunit",
            [Query(f"rate(process_cpu_seconds_total{RATE})", "{{instance}}")],
        ),
        Panel("Memory", "bytes", [Query("process_resident_memory_bytes", "{{instance}}")]),
        Panel(
            "Connections",
            "short",
            [Query("kafka_network_socketserver_connections", "{{instance}}")],
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in PANELS.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
                "panels": [],
            }
        )
        y += 1
        for place, panel in enumerate(row):
            x = place * PANEL_WIDTH % COLUMNS
            if place and x == 0:
                y += PANEL_HEIGHT
            panels.append(_panel(panel, len(panels) + 1, x, y))
        y += PANEL_HEIGHT
    return {
        "title": "tidelog",
        "uid": "tidelog",
        "tags": ["kafka", "tidelog"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource_variable(), _request_variable()]},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": PANEL_WIDTH, "h": PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": DATASOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for place, query in enumerate(panel.queries)
        ],
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}


def _request_variable() -> dict[str, Any]:
    return {
        "name": "request",
        "label": "Request",
        "type": "query",
        "datasource": DATASOURCE,
        "query": f"label_values({REQUESTS}requests_total, request)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def scrape_config(targets: Sequence[str], interval_s: int) -> str:
    """YAML for prometheus.yml. A string of JSON is one of YAML."""
    listed = "\n".join(f"          - {json.dumps(target)}" for target in targets)
    return (
        "scrape_configs:\n"
        "  - job_name: tidelog\n"
        f"    scrape_interval: {interval_s}s\n"
        "    metrics_path: /metrics\n"
        "    static_configs:\n"
        "      - targets:\n"
        f"{listed}\n"
    )
