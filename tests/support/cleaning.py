"""Compaction without threads: whole rounds at once, over logs of a workshop."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tests.support import raw_batch
from tests.support.clock import FakeClock
from tidelog.log.cleaner.cleaner import Cleaner, CleanerConfig, CleanerStats
from tidelog.log.cleaner.log_cleaner_manager import LogCleanerManager
from tidelog.log.cleaner.segment_pass import IoThrottle
from tidelog.log.directory.log_dir_failures import LogDirFailures
from tidelog.log.log_errors import CleaningAborted
from tidelog.log.partition_log import PartitionLog
from tidelog.record.batch import BatchHeader
from tidelog.record.builder import batch_of
from tidelog.record.compression import codec_of, decompress
from tidelog.types import TopicPartition

Pair = tuple[bytes | None, bytes | None]
START_MS = 1_700_000_000_000
SETTINGS = CleanerConfig(
    is_enabled=True,
    threads=1,
    map_bytes=1 << 20,
    map_load_factor=0.9,
    io_buffer_bytes=4096,
    io_bytes_per_second=float("inf"),
    backoff_ms=15_000,
)


@dataclass
class Shelf:
    """Logs by name, as LogManager has them."""

    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    failures: LogDirFailures = field(default_factory=lambda: LogDirFailures(()))

    def put(self, *logs: PartitionLog) -> Shelf:
        self.logs.update({log.topic_partition: log for log in logs})
        return self

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self.logs.get(topic_partition)

    def all_logs(self) -> Collection[PartitionLog]:
        return self.logs.values()


def clean(
    log: PartitionLog, clock: FakeClock, settings: CleanerConfig = SETTINGS
) -> CleanerStats | None:
    """One round, if the log is due."""
    return clean_dirtiest(LogCleanerManager(Shelf().put(log), clock), clock, settings)


def clean_dirtiest(
    manager: LogCleanerManager, clock: FakeClock, settings: CleanerConfig = SETTINGS
) -> CleanerStats | None:
    begun = manager.begin_dirtiest(manager.dirty_logs())
    if begun is None:
        return None

    def check() -> None:
        if not manager.is_current(begun):
            raise CleaningAborted

    throttle = IoThrottle(settings.io_bytes_per_second, clock, lambda _: None)
    cleaning = Cleaner(begun.plan, settings, throttle, clock, check)
    try:
        cleaning.build_map()
        for group in cleaning.groups:
            manager.swap(begun, group, cleaning.clean(group))
            cleaning.sync_folder()
    except BaseException:
        manager.gave_up(begun)
        raise
    manager.done(begun, cleaning.end_offset)
    return cleaning.stats


def write(log: PartitionLog, *pairs: Pair, timestamp: int = START_MS, **fields: object) -> int:
    """One batch of keyed records, visible at once; its base offset."""
    rows = [(key, value, (), timestamp + index) for index, (key, value) in enumerate(pairs)]
    data = batch_of(rows, **fields)  # type: ignore[arg-type]
    info = log.append_as_leader(memoryview(data), 0)
    log.update_high_watermark(log.log_end_offset)
    return info.base_offset


@dataclass(frozen=True, slots=True)
class StoredRecord:
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass(frozen=True, slots=True)
class StoredBatch:
    header: BatchHeader
    records: Sequence[StoredRecord]


def stored_batches(log: PartitionLog) -> list[StoredBatch]:
    """Every batch that a consumer at read_uncommitted is sent, inflated."""
    found: list[StoredBatch] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        result = log.read(offset, 1 << 20, up_to_offset=log.high_watermark, min_one_batch=True)
        if result.records is None:
            break
        batches = raw_batch.read_batches(result.records.read())
        assert batches, offset
        found += [stored(each) for each in batches if each.last_offset >= offset]
        offset = batches[-1].last_offset + 1
    return found


def stored(batch: raw_batch.ReadBatch) -> StoredBatch:
    header = BatchHeader(_packed(batch))
    codec = codec_of(batch.attributes)
    batch.payload = bytes(decompress(codec, batch.payload)) if batch.records_count else b""
    batch.attributes &= ~7
    records = [
        StoredRecord(record.offset, record.key, record.value, record.timestamp)
        for record in batch.records()
    ]
    return StoredBatch(header, records)


def _packed(batch: raw_batch.ReadBatch) -> bytes:
    return raw_batch.batch(
        records=batch.payload,
        count=batch.records_count,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        attributes=batch.attributes,
        last_offset_delta=batch.last_offset - batch.base_offset,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def stored_pairs(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every data record."""
    return [
        (record.offset, record.key, record.value)
        for batch in stored_batches(log)
        if not batch.header.is_control
        for record in batch.records
    ]
