"""Topic keys of Kafka 3.9: each may be set per topic and takes its default from a broker key."""

from __future__ import annotations

from typing import Final

from tidelog.config.definition import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    STRING,
    EachOf,
    KafkaVersion,
    Key,
    OneOf,
    RangeOr,
    ReplicaList,
    at_least,
    between,
    harmless,
    refused,
)

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

NO_TIERED_STORAGE: Final = harmless(
    "Only tiered topics use it, and remote.storage.enable is refused."
)

KEYS: Final = (
    Key(
        "cleanup.policy",
        LIST,
        ("delete",),
        "What happens to old records: delete drops whole segments that are past retention.ms or "
        "retention.bytes, compact keeps the last record of every key. Both may be given.",
        valid=EachOf("compact", "delete"),
        synonyms=(("log.cleanup.policy", 1),),
    ),
    Key(
        "compression.gzip.level",
        INT,
        -1,
        "Level used when compression.type is gzip; -1 is the library's default.",
        valid=RangeOr(1, 9, -1),
        synonyms=(("compression.gzip.level", 1),),
    ),
    Key(
        "compression.lz4.level",
        INT,
        9,
        "Level used when compression.type is lz4.",
        valid=between(1, 17),
        synonyms=(("compression.lz4.level", 1),),
    ),
    Key(
        "compression.type",
        STRING,
        "producer",
        "Codec in which batches are stored. producer keeps each batch as it was sent; any other "
        "value makes the broker rewrite batches that arrive in a different codec.",
        valid=OneOf(*COMPRESSION_TYPES),
        synonyms=(("compression.type", 1),),
    ),
    Key(
        "compression.zstd.level",
        INT,
        3,
        "Level used when compression.type is zstd.",
        valid=between(-131072, 22),
        synonyms=(("compression.zstd.level", 1),),
    ),
    Key(
        "delete.retention.ms",
        LONG,
        86_400_000,
        "How long a tombstone stays readable in a compacted topic before compaction may drop it.",
        valid=at_least(0),
        synonyms=(("log.cleaner.delete.retention.ms", 1),),
    ),
    Key(
        "file.delete.delay.ms",
        LONG,
        60_000,
        "How long a file stays on disk after it was taken out of the log.",
        valid=at_least(0),
        synonyms=(("log.segment.delete.delay.ms", 1),),
    ),
    Key(
        "flush.messages",
        LONG,
        LONG_MAX,
        "Records that may pile up in a partition before the log is forced to disk; 1 means every "
        "append is on disk before it is acknowledged.",
        valid=at_least(1),
        synonyms=(("log.flush.interval.messages", 1),),
    ),
    Key(
        "flush.ms",
        LONG,
        LONG_MAX,
        "How long a record may lie in memory before the log is forced to disk.",
        valid=at_least(0),
        synonyms=(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    ),
    Key(
        "follower.replication.throttled.replicas",
        LIST,
        (),
        "Replicas whose replication is throttled where they follow; * means all of the topic.",
        valid=ReplicaList(),
    ),
    Key(
        "index.interval.bytes",
        INT,
        4096,
        "Bytes of log between two entries of the offset and time index.",
        valid=at_least(0),
        synonyms=(("log.index.interval.bytes", 1),),
    ),
    Key(
        "leader.replication.throttled.replicas",
        LIST,
        (),
        "Replicas whose replication is throttled where they lead; * means all of the topic.",
        valid=ReplicaList(),
    ),
    Key(
        "local.retention.bytes",
        LONG,
        -2,
        "Size up to which a partition of a tiered topic stays on local disk; -2 means "
        "retention.bytes. There is no tiered storage here.",
        valid=at_least(-2),
        effect=NO_TIERED_STORAGE,
        synonyms=(("log.local.retention.bytes", 1),),
    ),
    Key(
        "local.retention.ms",
        LONG,
        -2,
        "Age up to which records of a tiered topic stay on local disk; -2 means retention.ms. "
        "There is no tiered storage here.",
        valid=at_least(-2),
        effect=NO_TIERED_STORAGE,
        synonyms=(("log.local.retention.ms", 1),),
    ),
    Key(
        "max.compaction.lag.ms",
        LONG,
        LONG_MAX,
        "Longest time a record stays out of reach of compaction; also bounds the age of the active "
        "segment of a compacted topic.",
        valid=at_least(1),
        synonyms=(("log.cleaner.max.compaction.lag.ms", 1),),
    ),
    Key(
        "max.message.bytes",
        INT,
        1_048_588,
        "Largest record batch the topic takes, after compression.",
        valid=at_least(0),
        synonyms=(("message.max.bytes", 1),),
    ),
    Key(
        "message.downconversion.enable",
        BOOLEAN,
        True,
        "Whether old consumers get records rewritten into the format they know; when false their "
        "fetches are refused with UNSUPPORTED_VERSION.",
        importance=LOW,
        synonyms=(("log.message.downconversion.enable", 1),),
    ),
    Key(
        "message.format.version",
        STRING,
        "3.0-IV1",
        "Deprecated. Format in which records were once stored; records are always stored in "
        "format v2 now and the value has no effect.",
        valid=KafkaVersion(),
        effect=harmless("Records are always stored in format v2, as by Kafka since 3.0."),
        synonyms=(("log.message.format.version", 1),),
    ),
    Key(
        "message.timestamp.after.max.ms",
        LONG,
        LONG_MAX,
        "How far a record's create time may lie ahead of the broker's clock.",
        valid=at_least(0),
        synonyms=(("log.message.timestamp.after.max.ms", 1),),
    ),
    Key(
        "message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        "How far a record's create time may lie behind the broker's clock.",
        valid=at_least(0),
        synonyms=(("log.message.timestamp.before.max.ms", 1),),
    ),
    Key(
        "message.timestamp.difference.max.ms",
        LONG,
        LONG_MAX,
        "Deprecated. Bound for both message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms where these are left at their default.",
        valid=at_least(0),
        synonyms=(("log.message.timestamp.difference.max.ms", 1),),
    ),
    Key(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        "Whether a record keeps the time its producer gave it or gets the time of the append.",
        valid=OneOf("CreateTime", "LogAppendTime"),
        synonyms=(("log.message.timestamp.type", 1),),
    ),
    Key(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        0.5,
        "Share of a compacted log that must be uncompacted before it is compacted again.",
        valid=between(0, 1),
        synonyms=(("log.cleaner.min.cleanable.ratio", 1),),
    ),
    Key(
        "min.compaction.lag.ms",
        LONG,
        0,
        "Shortest time a record stays untouched by compaction.",
        valid=at_least(0),
        synonyms=(("log.cleaner.min.compaction.lag.ms", 1),),
    ),
    Key(
        "min.insync.replicas",
        INT,
        1,
        "In-sync replicas needed for a write with acks=all; with fewer it is refused with "
        "NOT_ENOUGH_REPLICAS.",
        valid=at_least(1),
        synonyms=(("min.insync.replicas", 1),),
    ),
    Key(
        "preallocate",
        BOOLEAN,
        False,
        "Whether a new segment file gets its full size on disk at once.",
        synonyms=(("log.preallocate", 1),),
    ),
    Key(
        "remote.log.copy.disable",
        BOOLEAN,
        False,
        "Makes a tiered topic read-only in remote storage. There is no tiered storage here.",
        effect=refused("there is no tiered storage here"),
    ),
    Key(
        "remote.log.delete.on.disable",
        BOOLEAN,
        False,
        "Deletes remote data when tiering is switched off. There is no tiered storage here.",
        effect=refused("there is no tiered storage here"),
    ),
    Key(
        "remote.storage.enable",
        BOOLEAN,
        False,
        "Tiers the topic to remote storage. Cannot be true here: there is no tiered storage.",
        effect=refused("there is no tiered storage here"),
    ),
    Key(
        "retention.bytes",
        LONG,
        -1,
        "Size of a partition above which its oldest segments are deleted; -1 sets no bound.",
        synonyms=(("log.retention.bytes", 1),),
    ),
    Key(
        "retention.ms",
        LONG,
        604_800_000,
        "Age at which a segment is deleted, counted from its newest record; -1 sets no bound.",
        valid=at_least(-1),
        synonyms=(
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
        ),
    ),
    Key(
        "segment.bytes",
        INT,
        1 << 30,
        "Size at which a new segment is begun. Retention and compaction work on whole segments.",
        valid=at_least(14),
        synonyms=(("log.segment.bytes", 1),),
    ),
    Key(
        "segment.index.bytes",
        INT,
        10 << 20,
        "Largest size of an offset or time index; a full index begins a new segment.",
        valid=at_least(4),
        synonyms=(("log.index.size.max.bytes", 1),),
    ),
    Key(
        "segment.jitter.ms",
        LONG,
        0,
        "Up to this much is taken off segment.ms at random, so that segments of many partitions "
        "do not roll in the same moment.",
        valid=at_least(0),
        synonyms=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    ),
    Key(
        "segment.ms",
        LONG,
        604_800_000,
        "Age at which a new segment is begun even if the old one is not full.",
        valid=at_least(1),
        synonyms=(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    ),
    Key(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "Whether a replica outside the in-sync set may lead when no other is left, at the price of "
        "lost records.",
        synonyms=(("unclean.leader.election.enable", 1),),
    ),
)
