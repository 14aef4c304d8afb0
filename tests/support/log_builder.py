"""Logs to test with: made in a temporary folder, filled, torn, loaded again."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.support import raw_batch
from tests.support.clock import FakeClock
from tidelog.config.topic import LogConfig
from tidelog.log.log_environment import LogEnvironment
from tidelog.log.log_loader import LogLoader, create_log
from tidelog.log.log_validator import AppendOrigin
from tidelog.log.partition_log import LogAppendInfo, PartitionLog
from tidelog.types import TopicPartition, Uuid

TOPIC_PARTITION = TopicPartition("events", 0)
TOPIC_ID = Uuid(bytes(range(16)))
ABORT, COMMIT = 0, 1


@dataclass
class LogWorkshop:
    """Makes and loads the log in one folder, and remembers what the log asked of its host."""

    root: Path
    clock: FakeClock = field(default_factory=FakeClock)
    deletions: list[tuple[list[str], int]] = field(default_factory=list)
    rolled: list[PartitionLog] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.environment = LogEnvironment(
            self.clock,
            random=Random(7),
            delete_later=lambda paths, delay_ms: self.deletions.append((list(paths), delay_ms)),
            rolled=self.rolled.append,
        )

    @property
    def folder(self) -> Path:
        return self.root / str(TOPIC_PARTITION)

    def create(self, config: LogConfig | None = None, start_offset: int = 0) -> PartitionLog:
        return create_log(
            str(self.folder),
            TOPIC_PARTITION,
            TOPIC_ID,
            config or LogConfig(),
            self.environment,
            start_offset,
        )

    def load(
        self,
        config: LogConfig | None = None,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        clean_end: int | None = None,
    ) -> PartitionLog:
        return LogLoader(
            str(self.folder),
            TOPIC_PARTITION,
            config or LogConfig(),
            self.environment,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            clean_end=clean_end,
        ).load()

    def reopen_cleanly(self, log: PartitionLog) -> PartitionLog:
        """A clean stop and start."""
        log.flush()
        log.close()
        return self.load(
            log.config,
            clean=True,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
        )

    def files(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in sorted(self.folder.iterdir())}

    def log_bytes(self, base_offset: int = 0) -> bytes:
        return (self.folder / f"{base_offset:020d}.log").read_bytes()


def produce(
    log: PartitionLog,
    *values: bytes,
    timestamp: int = 1_700_000_000_000,
    leader_epoch: int = 0,
    committed: bool = True,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> LogAppendInfo:
    """Append one batch as a client's; visible at once unless `committed` is False."""
    data = raw_batch.batch(
        *(values or (b"value",)),
        base_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        attributes=0x10 if transactional else 0,
    )
    info = log.append_as_leader(memoryview(bytearray(data)), leader_epoch)
    if committed:
        log.update_high_watermark(log.log_end_offset)
    return info


def end_txn(
    log: PartitionLog,
    control_type: int,
    *,
    producer_id: int,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = 1_700_000_000_000,
    leader_epoch: int = 0,
    committed: bool = True,
) -> LogAppendInfo:
    """Append a transaction marker as a coordinator does."""
    record = raw_batch.encode_record(
        struct.pack(">hi", 0, coordinator_epoch), struct.pack(">hh", 0, control_type)
    )
    data = raw_batch.batch(
        records=record,
        count=1,
        base_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=0x30,
    )
    info = log.append_as_leader(
        memoryview(bytearray(data)), leader_epoch, origin=AppendOrigin.COORDINATOR
    )
    if committed:
        log.update_high_watermark(log.log_end_offset)
    return info


def read_all(log: PartitionLog, *, max_bytes: int = 1 << 20) -> list[raw_batch.ReadBatch]:
    """Every batch a consumer sees, fetch after fetch, from log start to high watermark."""
    found: list[raw_batch.ReadBatch] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        result = log.read(offset, max_bytes, up_to_offset=log.high_watermark, min_one_batch=True)
        assert result.records is not None, offset
        batches = raw_batch.read_batches(result.records.read())
        assert batches, offset
        found += [batch for batch in batches if batch.last_offset >= offset]
        offset = batches[-1].last_offset + 1
    return found


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for batch in read_all(log) for record in batch.records()]


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for batch in read_all(log) for record in batch.records()]


def fill(
    log: PartitionLog, count: int, make: Callable[[int], Sequence[bytes]] | None = None
) -> None:
    """`count` batches, timestamps one millisecond apart."""
    for number in range(count):
        contents = make(number) if make else (b"value %d" % number,)
        produce(log, *contents, timestamp=1_700_000_000_000 + number)
