"""Replication between brokers, leader election and the purgatories."""

from __future__ import annotations

from typing import Final

from tidelog.config.definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LONG_MAX,
    STRING,
    KafkaVersion,
    Key,
    OneOf,
    at_least,
    harmless,
)

KEYS: Final = (
    Key(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        True,
        "Whether leadership goes back to preferred replicas by itself.",
        importance=HIGH,
    ),
    Key(
        "controller.socket.timeout.ms",
        INT,
        30_000,
        "How long the controller waits for a broker's answer.",
    ),
    Key(
        "delete.records.purgatory.purge.interval.requests",
        INT,
        1,
        "Finished DeleteRecords requests after which the purgatory is swept.",
        effect=harmless("An answered request leaves the waiting lists at once."),
    ),
    Key(
        "fetch.purgatory.purge.interval.requests",
        INT,
        1_000,
        "Finished Fetch requests after which the purgatory is swept.",
        effect=harmless("An answered request leaves the waiting lists at once."),
    ),
    Key(
        "inter.broker.protocol.version",
        STRING,
        "3.9-IV0",
        "Kafka version whose protocol brokers speak among themselves.",
        valid=KafkaVersion(),
        effect=harmless("Brokers always speak the versions of Kafka 3.9 among themselves."),
    ),
    Key(
        "leader.imbalance.check.interval.seconds",
        LONG,
        300,
        "How often the balance of leaderships is checked.",
        valid=at_least(1),
        importance=HIGH,
    ),
    Key(
        "leader.imbalance.per.broker.percentage",
        INT,
        10,
        "Share of partitions a broker may lack as preferred leader before leadership is moved.",
        importance=HIGH,
    ),
    Key(
        "num.replica.fetchers",
        INT,
        1,
        "Fetchers towards each other broker.",
        valid=at_least(1),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "producer.purgatory.purge.interval.requests",
        INT,
        1_000,
        "Finished Produce requests after which the purgatory is swept.",
        effect=harmless("An answered request leaves the waiting lists at once."),
    ),
    Key(
        "replica.fetch.backoff.ms",
        INT,
        1_000,
        "Pause of a fetcher after an error.",
        valid=at_least(0),
    ),
    Key(
        "replica.fetch.max.bytes",
        INT,
        1_048_576,
        "Bytes of one partition in a fetch between brokers.",
        valid=at_least(0),
    ),
    Key(
        "replica.fetch.min.bytes",
        INT,
        1,
        "Bytes a leader waits for before it answers a follower.",
        importance=HIGH,
    ),
    Key(
        "replica.fetch.response.max.bytes",
        INT,
        10_485_760,
        "Bytes of one whole answer to a follower.",
        valid=at_least(0),
    ),
    Key(
        "replica.fetch.wait.max.ms",
        INT,
        500,
        "Longest time a leader lets a follower wait for new records.",
        importance=HIGH,
    ),
    Key(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        5_000,
        "How often the high watermarks are written.",
        importance=HIGH,
    ),
    Key(
        "replica.lag.time.max.ms",
        LONG,
        30_000,
        "How long a follower may lag behind before it leaves the in-sync set.",
        importance=HIGH,
    ),
    Key(
        "replica.selector.class",
        STRING,
        None,
        "Class that chooses the replica a consumer reads from, one of Kafka's own: the leader, or "
        "one in the consumer's rack.",
        valid=OneOf(
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    ),
    Key(
        "replica.socket.receive.buffer.bytes",
        INT,
        65_536,
        "SO_RCVBUF of the connections between brokers.",
        importance=HIGH,
    ),
    Key(
        "replica.socket.timeout.ms",
        INT,
        30_000,
        "How long a follower waits for its leader's answer.",
        importance=HIGH,
    ),
    Key(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "Whether a replica outside the in-sync set may lead when no other is left, at the "
        "price of lost records.",
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "unclean.leader.election.interval.ms",
        LONG,
        300_000,
        "How often partitions without a leader are looked at for an unclean election.",
        valid=at_least(1),
        effect=harmless("The controller elects at once when a replica returns."),
        internal=True,
    ),
)

# In Kafka settable only while the broker runs; shown only once set.
DYNAMIC_ONLY_KEYS: Final = (
    Key(
        "follower.replication.throttled.rate",
        LONG,
        LONG_MAX,
        "Bytes a second that throttled replicas fetch from their leaders.",
        valid=at_least(0),
        dynamic=CLUSTER_WIDE,
        internal=True,
    ),
    Key(
        "leader.replication.throttled.rate",
        LONG,
        LONG_MAX,
        "Bytes a second that leaders send to throttled replicas.",
        valid=at_least(0),
        dynamic=CLUSTER_WIDE,
        internal=True,
    ),
    Key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        LONG_MAX,
        "Bytes a second that moves between log directories copy.",
        valid=at_least(0),
        dynamic=CLUSTER_WIDE,
        internal=True,
    ),
)
