"""Recording rules for Prometheus: other dashboards' names for what a broker tells under its own.

A broker tells each thing once. Kafka Lag Exporter has other names than kafka_exporter for the lag
of groups, and dashboards for Kafka ask for the memory, the threads and the garbage collections of a
Java process. Whoever has such dashboards gives Prometheus these rules. Each copies a family, with
labels renamed or with the largest sample of a group.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

GROUP_LABEL: Final = ("group", "consumergroup")


class Rule(NamedTuple):
    record: str
    source: str  # a family that brokers tell
    renamed: tuple[str, str] | None = None  # a label's new name and its old one
    largest_by: str = ""  # the label that is left, of those it has then

    def expression(self) -> str:
        expression = self.source
        if self.renamed is not None:
            new, old = self.renamed
            expression = f'label_replace({expression}, "{new}", "$1", "{old}", "(.*)")'
        return f"max by ({self.largest_by}) ({expression})" if self.largest_by else expression


RULES: Final = (
    Rule("jvm_memory_used_bytes", "process_resident_memory_bytes"),
    Rule("jvm_threads_current", "python_threads"),
    Rule("jvm_gc_collection_seconds_sum", "python_gc_seconds_total"),
    Rule("jvm_gc_collection_seconds_count", "python_gc_collections_total"),
    Rule("kafka_partition_latest_offset", "kafka_topic_partition_current_offset"),
    Rule("kafka_partition_earliest_offset", "kafka_topic_partition_oldest_offset"),
    Rule("kafka_consumergroup_group_offset", "kafka_consumergroup_current_offset", GROUP_LABEL),
    Rule("kafka_consumergroup_group_lag", "kafka_consumergroup_lag", GROUP_LABEL),
    Rule("kafka_consumergroup_group_lag_seconds", "kafka_consumergroup_lag_seconds", GROUP_LABEL),
    Rule("kafka_consumergroup_group_max_lag", "kafka_consumergroup_lag", GROUP_LABEL, "group"),
    Rule(
        "kafka_consumergroup_group_max_lag_seconds",
        "kafka_consumergroup_lag_seconds",
        GROUP_LABEL,
        "group",
    ),
)


def rule_file(cluster: str) -> str:
    """YAML for `rule_files`. A string of JSON is one of YAML."""
    lines = ["groups:", "  - name: tidelog", "    rules:"]
    for rule in RULES:
        lines += [
            f"      - record: {rule.record}",
            f"        expr: {json.dumps(rule.expression())}",
            f"        labels: {{cluster_name: {json.dumps(cluster)}}}",
        ]
    return "\n".join(lines) + "\n"
