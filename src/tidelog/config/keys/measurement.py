"""Metrics, telemetry, stalls of the event loop and the windows of quotas."""

from __future__ import annotations

from typing import Final

from tidelog.config.definition import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    LOW,
    STRING,
    Key,
    at_least,
    between,
    harmless,
    refused,
)

NO_REPORTERS: Final = harmless("Java classes cannot be loaded here: no reporter runs.")
NO_METRICS: Final = harmless(
    "Metrics are counters since the start and quantiles of the last minutes; see observability.md."
)

KEYS: Final = (
    Key(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        11,
        "Windows kept for the quota of moves between directories.",
        valid=at_least(1),
        importance=LOW,
        effect=harmless("A move is paced piece by piece, not by samples."),
    ),
    Key(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        1,
        "Length of such a window.",
        valid=at_least(1),
        importance=LOW,
        effect=harmless("A move is paced piece by piece, not by samples."),
    ),
    Key(
        "auto.include.jmx.reporter",
        BOOLEAN,
        True,
        "Deprecated. Whether the JMX reporter is always there.",
        importance=LOW,
        effect=NO_REPORTERS,
    ),
    Key(
        "client.quota.callback.class",
        CLASS,
        None,
        "Class that decides the quota of a client.",
        importance=LOW,
        effect=refused(
            "no class is loaded here; quotas are decided by Kafka's default rules; remove the key"
        ),
    ),
    Key(
        "controller.quota.window.num",
        INT,
        11,
        "Windows kept for the quota of metadata changes.",
        valid=at_least(1),
        importance=LOW,
    ),
    Key(
        "controller.quota.window.size.seconds",
        INT,
        1,
        "Length of such a window.",
        valid=at_least(1),
        importance=LOW,
    ),
    Key(
        "kafka.metrics.polling.interval.secs",
        INT,
        10,
        "How often Kafka's older reporters are polled.",
        valid=at_least(1),
        importance=LOW,
        effect=NO_REPORTERS,
    ),
    Key(
        "kafka.metrics.reporters",
        LIST,
        (),
        "Classes of Kafka's older reporters.",
        importance=LOW,
        effect=NO_REPORTERS,
    ),
    Key(
        "metric.reporters",
        LIST,
        (),
        "Classes that report metrics.",
        importance=LOW,
        dynamic=CLUSTER_WIDE,
        effect=NO_REPORTERS,
    ),
    Key(
        "metrics.num.samples",
        INT,
        2,
        "Samples kept for a metric.",
        valid=at_least(1),
        importance=LOW,
        effect=NO_METRICS,
    ),
    Key(
        "metrics.recording.level",
        STRING,
        "INFO",
        "Level of detail of the metrics.",
        importance=LOW,
        effect=NO_METRICS,
    ),
    Key(
        "metrics.sample.window.ms",
        LONG,
        30_000,
        "Length of a sample of a metric.",
        valid=at_least(1),
        importance=LOW,
        effect=NO_METRICS,
    ),
    Key(
        "quota.window.num",
        INT,
        11,
        "Windows kept for client quotas.",
        valid=at_least(1),
        importance=LOW,
    ),
    Key(
        "quota.window.size.seconds",
        INT,
        1,
        "Length of such a window.",
        valid=at_least(1),
        importance=LOW,
    ),
    Key(
        "replication.quota.window.num",
        INT,
        11,
        "Windows kept for replication quotas.",
        valid=at_least(1),
        importance=LOW,
    ),
    Key(
        "replication.quota.window.size.seconds",
        INT,
        1,
        "Length of such a window.",
        valid=at_least(1),
        importance=LOW,
    ),
    Key(
        "telemetry.max.bytes",
        INT,
        1_048_576,
        "Largest telemetry a client may push, as it is sent. What inflates to 16 times as much is "
        "refused too.",
        valid=at_least(1),
        importance=LOW,
    ),
    Key(
        "tidelog.client.metrics.series.max",
        INT,
        20_000,
        "How many series of metrics that clients push the broker keeps, for all clients together; "
        "1,000 for each. More are counted in tidelog_client_metrics_left_out_total.",
        valid=at_least(0),
        importance=LOW,
        internal=True,
    ),
    Key(
        "tidelog.events.kept",
        INT,
        1_000,
        "How many events of each kind the broker keeps in memory and tells at /events of "
        "tidelog.metrics.listener; 0 keeps none.",
        valid=between(0, 100_000),
        importance=LOW,
        internal=True,
    ),
    Key(
        "tidelog.health.loop.stall.ms",
        INT,
        30_000,
        "/healthz fails once the broker's event loop has not turned for this long.",
        valid=at_least(1_000),
        importance=LOW,
        internal=True,
    ),
    Key(
        "tidelog.loop.stall.warn.ms",
        INT,
        0,
        "Log a warning, with the code that was running, whenever something holds the broker's "
        "event loop for this long; 0 watches nothing.",
        valid=at_least(0),
        importance=LOW,
        internal=True,
    ),
    Key(
        "tidelog.metrics.listener",
        STRING,
        "",
        "Where /metrics, /events, /healthz and /readyz are served, for instance "
        "http://127.0.0.1:9308. Port 0 takes any free one. Everybody who reaches it may read it. "
        "Empty serves none of them.",
        internal=True,
    ),
    Key(
        "tidelog.metrics.series.max",
        INT,
        100_000,
        "How many series of topics, partitions and groups a scrape may have. What is left out is "
        "counted in tidelog_metrics_left_out.",
        valid=at_least(0),
        importance=LOW,
        internal=True,
    ),
    Key(
        "tidelog.slow.request.log.ms",
        INT,
        5_000,
        "Log a request that took this long, other than Fetch, JoinGroup and SyncGroup, which wait "
        "because the client asks for it; 0 logs none.",
        valid=at_least(0),
        importance=LOW,
        internal=True,
    ),
)
