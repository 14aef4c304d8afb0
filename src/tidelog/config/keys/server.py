"""Who this broker is, how it treats topics and requests, and how it stops."""

from __future__ import annotations

from typing import Final

from tidelog.config.definition import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LOW,
    STRING,
    Key,
    OneOf,
    RangeOr,
    at_least,
    between,
    harmless,
    refused,
)

NO_CLASSES: Final = refused(
    "the policy would not run, because Java classes cannot be loaded here; remove the key"
)

KEYS: Final = (
    Key(
        "alter.config.policy.class.name",
        CLASS,
        None,
        "Class that may veto configuration changes. Classes cannot be loaded here.",
        importance=LOW,
        effect=NO_CLASSES,
    ),
    Key(
        "alter.config.policy.kraft.compatibility.enable",
        BOOLEAN,
        False,
        "Whether the policy class also sees changes that would only be validated.",
        importance=LOW,
        effect=harmless(
            "Only a policy class uses it, and alter.config.policy.class.name is refused."
        ),
    ),
    Key(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        "Whether a Metadata request for an unknown topic may create it, with num.partitions "
        "partitions and default.replication.factor replicas.",
        importance=HIGH,
    ),
    Key(
        "background.threads",
        INT,
        10,
        "Threads for background work in Kafka; here the event loop does it.",
        valid=at_least(1),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
        effect=harmless(
            "The event loop does the background work, and a pool sized by the machine what blocks."
        ),
    ),
    Key(
        "broker.id",
        INT,
        -1,
        "Number of this broker in the cluster, the same as node.id. -1 takes the number in "
        "meta.properties, or 0 in a fresh directory (in a cluster: a new number from ZooKeeper).",
        importance=HIGH,
    ),
    Key(
        "broker.id.generation.enable",
        BOOLEAN,
        True,
        "Whether a broker without broker.id asks ZooKeeper for a number above "
        "reserved.broker.max.id.",
    ),
    Key(
        "broker.rack",
        STRING,
        None,
        "Rack of this broker, told to clients and used to spread replicas over racks.",
    ),
    Key(
        "compression.gzip.level",
        INT,
        -1,
        "Level used for topics whose compression.type is gzip; -1 is the library's default.",
        valid=RangeOr(1, 9, -1),
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "compression.lz4.level",
        INT,
        9,
        "Level used for topics whose compression.type is lz4.",
        valid=between(1, 17),
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "compression.type",
        STRING,
        "producer",
        "Codec in which batches are stored. producer keeps each batch as it was sent; any "
        "other value makes the broker rewrite batches that arrive in a different codec.",
        valid=OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "compression.zstd.level",
        INT,
        3,
        "Level used for topics whose compression.type is zstd.",
        valid=between(-131072, 22),
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "controlled.shutdown.enable",
        BOOLEAN,
        True,
        "Whether a stopping broker first hands its leaderships over.",
    ),
    Key(
        "controlled.shutdown.max.retries",
        INT,
        3,
        "How often a stopping broker tries again to hand its leaderships over.",
    ),
    Key(
        "controlled.shutdown.retry.backoff.ms",
        LONG,
        5_000,
        "Pause between two tries to hand leaderships over.",
    ),
    Key(
        "create.topic.policy.class.name",
        CLASS,
        None,
        "Class that may veto the creation of topics. Classes cannot be loaded here.",
        importance=LOW,
        effect=NO_CLASSES,
    ),
    Key(
        "default.replication.factor",
        INT,
        1,
        "Replicas of a topic that is created automatically or without a replication factor.",
    ),
    Key(
        "delete.topic.enable",
        BOOLEAN,
        True,
        "Whether DeleteTopics is served; when false it is refused with TOPIC_DELETION_DISABLED.",
        importance=HIGH,
    ),
    Key(
        "fetch.max.bytes",
        INT,
        57_671_680,
        "Most bytes one Fetch answer carries, whatever the client asks for. A first batch "
        "larger than this is still sent whole.",
        valid=at_least(1024),
    ),
    Key(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1_000,
        "Fetch sessions kept at a time; 0 keeps none.",
        valid=at_least(0),
    ),
    Key(
        "max.request.partition.size.limit",
        INT,
        2_000,
        "Most partitions one DescribeTopicPartitions answer lists.",
        valid=at_least(1),
    ),
    Key(
        "message.max.bytes",
        INT,
        1_048_588,
        "Largest record batch the broker takes, after compression; max.message.bytes sets it "
        "for one topic.",
        valid=at_least(0),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "min.insync.replicas",
        INT,
        1,
        "In-sync replicas needed for a write with acks=all; with fewer it is refused with "
        "NOT_ENOUGH_REPLICAS.",
        valid=at_least(1),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "node.id",
        INT,
        -1,
        "Number of this broker in the cluster; the KRaft name of broker.id. If both are set "
        "they must agree.",
        importance=HIGH,
    ),
    Key(
        "num.io.threads",
        INT,
        8,
        "Request handler threads in Kafka; here one event loop handles all requests.",
        valid=at_least(1),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
        effect=harmless("One event loop handles all requests."),
    ),
    Key(
        "num.partitions",
        INT,
        1,
        "Partitions of a topic that is created automatically or without a count.",
        valid=at_least(1),
    ),
    Key(
        "num.recovery.threads.per.data.dir",
        INT,
        1,
        "Threads that load the logs of one directory in Kafka; here loading is one pass.",
        valid=at_least(1),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
        effect=harmless("Logs are loaded one after another."),
    ),
    Key(
        "num.replica.alter.log.dirs.threads",
        INT,
        None,
        "Threads that move replicas between log directories; one a directory if not set.",
        importance=HIGH,
    ),
    Key(
        "request.timeout.ms",
        INT,
        30_000,
        "How long this broker waits for another broker's answer.",
        importance=HIGH,
    ),
    Key(
        "reserved.broker.max.id",
        INT,
        1_000,
        "Largest number broker.id may have while numbers above it are generated.",
        valid=at_least(0),
    ),
    Key(
        "unstable.api.versions.enable",
        BOOLEAN,
        False,
        "Whether API versions that are not released yet are advertised.",
        importance=HIGH,
        effect=harmless("Only stable versions of the APIs are served."),
        internal=True,
    ),
    Key(
        "unstable.feature.versions.enable",
        BOOLEAN,
        False,
        "Whether feature levels that are not released yet may be used.",
        importance=HIGH,
        effect=harmless("Only stable features are served."),
        internal=True,
    ),
)
