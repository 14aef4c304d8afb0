"""What the panels of dashboards ask for that people use for Kafka, and who tells it.

Each table says what the panels of one dashboard are for and which families and labels they ask
for, `|` between families. A family may come from brokers or from `tidelog generate rules`. Panels
that ask Kubernetes are told by Kubernetes. docs/observability.md has the sums.
"""

from __future__ import annotations

import re
import urllib.request
from typing import NamedTuple

from tidelog.tools.recording_rules import RULES

SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? \S+$")
LABEL = re.compile(r'([a-z_]+)="')
OF_KUBERNETES = ("container_", "kubelet_")

STRIMZI_KAFKA = {
    "brokers that live": "kafka_server_replicamanager_leadercount",
    "active controllers": "kafka_controller_kafkacontroller_activecontrollercount",
    "unclean elections": "kafka_controller_controllerstats_uncleanleaderelections_total",
    "replicas": "kafka_server_replicamanager_partitioncount",
    "under-replicated": "kafka_server_replicamanager_underreplicatedpartitions",
    "at the minimum in sync": "kafka_cluster_partition_atminisr topic partition",
    "below the minimum in sync": "kafka_cluster_partition_underminisr topic partition",
    "without a leader": "kafka_controller_kafkacontroller_offlinepartitionscount",
    "memory of the container": "container_memory_usage_bytes",
    "processor time of the container": "container_cpu_usage_seconds_total",
    "free space of the volume": "kubelet_volume_stats_available_bytes",
    "descriptors": "process_open_fds",
    "memory of the process": "jvm_memory_used_bytes",
    "time in garbage collections": "jvm_gc_collection_seconds_sum",
    "garbage collections": "jvm_gc_collection_seconds_count",
    "threads": "jvm_threads_current",
    "bytes in, one number": "kafka_server_brokertopicmetrics_bytesin_total topic",
    "bytes out, one number": "kafka_server_brokertopicmetrics_bytesout_total topic",
    "records in, one number": "kafka_server_brokertopicmetrics_messagesin_total topic",
    "produce, one number": "kafka_server_brokertopicmetrics_totalproducerequests_total topic",
    "bytes in and out": "kafka_server_brokertopicmetrics_bytesin_total topic"
    " | kafka_server_brokertopicmetrics_bytesout_total topic",
    "records in": "kafka_server_brokertopicmetrics_messagesin_total topic",
    "produce and its failures": "kafka_server_brokertopicmetrics_totalproducerequests_total topic"
    " | kafka_server_brokertopicmetrics_failedproducerequests_total topic",
    "fetch and its failures": "kafka_server_brokertopicmetrics_totalfetchrequests_total topic"
    " | kafka_server_brokertopicmetrics_failedfetchrequests_total topic",
    "idle network threads": "kafka_network_socketserver_networkprocessoravgidle_percent",
    "idle handlers": "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "bytes written": "kafka_server_kafkaserver_linux_disk_write_bytes",
    "bytes read": "kafka_server_kafkaserver_linux_disk_read_bytes",
    "connections": "kafka_server_socket_server_metrics_connection_count listener",
    "size of logs": "kafka_log_log_size topic partition",
}
STRIMZI_KAFKA_VARIABLES = (
    "kafka_cluster_partition_replicascount topic | kafka_log_log_size topic partition"
)

STRIMZI_KAFKA_EXPORTER = {
    "topics": "kafka_topic_partitions topic",
    "partitions": "kafka_topic_partitions topic",
    "replicas": "kafka_topic_partition_replicas topic",
    "replicas in sync": "kafka_topic_partition_in_sync_replica topic",
    "under-replicated": "kafka_topic_partition_under_replicated_partition topic",
    "at the minimum in sync": "kafka_cluster_partition_atminisr topic",
    "below the minimum in sync": "kafka_cluster_partition_underminisr topic",
    "not led by the preferred replica": "kafka_topic_partition_leader_is_preferred topic",
    "records in": "kafka_topic_partition_current_offset topic",
    "records consumed": "kafka_consumergroup_current_offset consumergroup topic",
    "lag over time": "kafka_consumergroup_lag consumergroup topic",
    "committed offsets": "kafka_consumergroup_current_offset consumergroup topic partition",
    "lag now": "kafka_consumergroup_lag consumergroup topic partition",
    "partitions of topics": "kafka_topic_partitions topic",
    "ends": "kafka_topic_partition_current_offset topic partition",
    "beginnings": "kafka_topic_partition_oldest_offset topic partition",
}
STRIMZI_KAFKA_EXPORTER_VARIABLES = (
    "kafka_broker_info | kafka_consumergroup_current_offset consumergroup"
    " | kafka_topic_partition_current_offset topic"
)

_GROUP = "kafka_consumergroup_group_"
KAFKA_LAG_EXPORTER = {
    "most seconds of a group": f"{_GROUP}max_lag_seconds cluster_name group",
    "seconds of partitions": f"{_GROUP}lag_seconds cluster_name group topic partition",
    "most records of a group": f"{_GROUP}max_lag cluster_name group",
    "records of partitions": f"{_GROUP}lag cluster_name group topic partition",
    "one group": f"{_GROUP}max_lag_seconds cluster_name group | {_GROUP}max_lag cluster_name group",
    "one group and its topics": f"{_GROUP}lag_seconds cluster_name group"
    f" | {_GROUP}offset cluster_name group topic partition"
    " | kafka_partition_latest_offset cluster_name topic partition",
    "memory": "jvm_memory_used_bytes",
    "time in garbage collections": "jvm_gc_collection_seconds_sum",
    "garbage collections": "jvm_gc_collection_seconds_count",
}
KAFKA_LAG_EXPORTER_VARIABLES = f"{_GROUP}lag cluster_name group"

Told = dict[str, set[str]]  # the labels of families


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def told_by(pages: list[str]) -> Told:
    """The labels of each family that any of its samples has: totals stand beside topics."""
    told: Told = {}
    for page in pages:
        for line in page.splitlines():
            sample = SAMPLE.match(line)
            if sample is not None:
                told.setdefault(sample[1], set()).update(LABEL.findall(sample[2] or ""))
    return told


def recorded_from(told: Told) -> Told:
    """What the recording rules make of it."""
    recorded: Told = {}
    for rule in RULES:
        if rule.source in told:
            names = set(told[rule.source])
            if rule.renamed is not None:
                new, old = rule.renamed
                names |= {new} if old in names else set()
            if rule.largest_by:
                names &= {rule.largest_by}
            recorded[rule.record] = {*names, "cluster_name"}
    return recorded


def fills(told: Told, asked: str) -> bool:
    for each in asked.split(" | "):
        family, *names = each.split()
        if family not in told or not told[family].issuperset(names):
            return False
    return True


class Filled(NamedTuple):
    """The panels of a dashboard by who tells what they ask for."""

    by_brokers: set[str]
    by_rules: set[str]
    by_kubernetes: set[str]
    by_nobody: set[str]


class Dashboard(NamedTuple):
    name: str
    panels: dict[str, str]
    variables: str

    def filled(self, told: Told) -> Filled:
        of_kubernetes = {what for what, asked in self.panels.items() if _asks_kubernetes(asked)}
        of_brokers = {what for what, asked in self.panels.items() if fills(told, asked)}
        of_rules = {
            what for what, asked in self.panels.items() if fills(with_rules(told), asked)
        } - of_brokers
        rest = self.panels.keys() - of_kubernetes - of_brokers - of_rules
        return Filled(of_brokers, of_rules, of_kubernetes, rest)


def _asks_kubernetes(asked: str) -> bool:
    return asked.startswith(OF_KUBERNETES)


def with_rules(told: Told) -> Told:
    return {**recorded_from(told), **told}


DASHBOARDS = (
    Dashboard("Strimzi Kafka", STRIMZI_KAFKA, STRIMZI_KAFKA_VARIABLES),
    Dashboard("Strimzi Kafka Exporter", STRIMZI_KAFKA_EXPORTER, STRIMZI_KAFKA_EXPORTER_VARIABLES),
    Dashboard("Kafka Lag Exporter", KAFKA_LAG_EXPORTER, KAFKA_LAG_EXPORTER_VARIABLES),
)
