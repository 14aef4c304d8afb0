"""Random lives of a log against a model: what was appended, less what was deleted or truncated.

After every kill (files as they are, nothing closed) and every clean restart the log must hold
exactly the model's records, and its indexes, epochs and producers must agree with its batches.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.support import raw_batch
from tests.support.log_builder import LogWorkshop, produce, read_all
from tidelog.config.topic import LogConfig
from tidelog.log.partition_log import PartitionLog

PRODUCERS = (7, 8, 9)


class LogLife:
    def __init__(self, root: Path, seed: int) -> None:
        self.random = Random(seed)
        self.workshop = LogWorkshop(root)
        self.config = LogConfig(
            segment_bytes=self.random.choice([400, 1500, 100_000]),
            index_interval_bytes=self.random.choice([1, 200, 4096]),
            segment_index_bytes=self.random.choice([48, 10 << 20]),
            segment_ms=self.random.choice([50, 604_800_000]),
            retention_ms=-1,
            retention_bytes=self.random.choice([-1, 2000]),
        )
        self.log = self.workshop.create(self.config)
        self.records: dict[int, bytes] = {}
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.epoch = 0
        self.timestamp = 1_700_000_000_000

    def step(self) -> None:
        weights = {
            self.append: 40,
            self.append_idempotent: 20,
            self.flush: 4,
            self.roll: 2,
            self.retain: 2,
            self.restart: 2,
            self.kill: 2,
            self.tear: 2,
            self.truncate: 1,
            self.delete_records: 1,
        }
        self.random.choices(list(weights), list(weights.values()))[0]()

    def values(self) -> list[bytes]:
        count = self.random.randint(1, 4)
        return [self.random.randbytes(self.random.randint(0, 60)) for _ in range(count)]

    def append(self) -> None:
        values = self.values()
        self.timestamp += self.random.randint(-20, 30)
        self.epoch += self.random.random() < 0.05
        info = produce(self.log, *values, timestamp=self.timestamp, leader_epoch=self.epoch)
        self.remember(info.base_offset, values)

    def append_idempotent(self) -> None:
        producer_id = self.random.choice(PRODUCERS)
        values = self.values()
        sequence = self.sequences[producer_id]

        def send() -> tuple[int, bool]:
            info = produce(
                self.log,
                *values,
                timestamp=self.timestamp,
                leader_epoch=self.epoch,
                producer_id=producer_id,
                producer_epoch=0,
                sequence=sequence,
            )
            return info.base_offset, info.is_duplicate

        base_offset, duplicate = send()
        assert not duplicate
        if self.random.random() < 0.3:
            assert send() == (base_offset, True)
        self.sequences[producer_id] += len(values)
        self.remember(base_offset, values)

    def remember(self, base_offset: int, values: list[bytes]) -> None:
        self.records.update(enumerate(values, start=base_offset))

    def restart(self) -> None:
        self.log.flush()
        self.log.close()
        self.load(clean=True)

    def kill(self) -> None:
        self.load(clean=False)

    def load(self, *, clean: bool) -> None:
        self.log = self.workshop.load(
            self.config,
            clean=clean,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.log.log_start_offset,
            high_watermark=self.log.high_watermark,
        )
        self.check()

    def tear(self) -> None:
        """A power cut: part of what was not synced is missing from the last segment."""
        segment = self.log.active_segment
        path = Path(segment.file.path)
        synced = segment.find_batch(self.log.recovery_point)
        low = synced.position if synced else segment.size
        if self.log.recovery_point < segment.base_offset or low == segment.size:
            return
        path.write_bytes(path.read_bytes()[: self.random.randint(low, segment.size)])
        self.load_torn()

    def load_torn(self) -> None:
        old_end = self.log.log_end_offset
        self.log = self.workshop.load(
            self.config,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.log.log_start_offset,
        )
        assert self.log.log_end_offset <= old_end
        assert self.log.log_end_offset >= self.log.recovery_point
        self.forget_from(self.log.log_end_offset)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.check()

    def forget_from(self, offset: int) -> None:
        self.records = {at: value for at, value in self.records.items() if at < offset}
        for producer_id in PRODUCERS:
            entry = self.log.producers.producers.get(producer_id)
            self.sequences[producer_id] = entry.last_sequence + 1 if entry else 0

    def flush(self) -> None:
        self.log.flush()
        assert self.log.unflushed_messages == 0

    def roll(self) -> None:
        self.log.roll()

    def truncate(self) -> None:
        bases = [batch.base_offset for batch in read_all(self.log)]
        if bases:
            offset = self.random.choice(bases)
            self.log.truncate_to(offset)
            self.log.update_high_watermark(self.log.log_end_offset)
            self.forget_from(offset)
            self.check()

    def retain(self) -> None:
        self.log.delete_old_segments()
        for paths, _ in self.workshop.deletions:
            for path in paths:
                Path(path).unlink(missing_ok=True)
        self.workshop.deletions.clear()
        self.forget_below(self.log.log_start_offset)

    def delete_records(self) -> None:
        offset = self.random.randint(self.log.log_start_offset, self.log.high_watermark)
        self.log.maybe_increment_log_start_offset(offset)
        self.forget_below(offset)

    def forget_below(self, offset: int) -> None:
        self.records = {at: value for at, value in self.records.items() if at >= offset}

    def check(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        found = {
            record.offset: record.value
            for batch in read_all(self.log, max_bytes=self.random.choice([1, 300, 1 << 20]))
            for record in batch.records()
            if record.offset >= self.log.log_start_offset
        }
        assert found == self.records
        check_indexes(self.workshop, self.log)
        for batch in read_all(self.log):
            assert self.log.epoch_at(max(batch.base_offset, self.log.log_start_offset)) == (
                batch.leader_epoch
            )


def check_indexes(workshop: LogWorkshop, log: PartitionLog) -> None:
    """Every entry must name a batch and what is in it."""
    for segment in log.segments:
        batches = {
            batch.position: batch
            for batch in raw_batch.read_batches(workshop.log_bytes(segment.base_offset))
        }
        if not batches:
            continue
        for number in range(segment.offset_index.entries):
            offset, position = segment.offset_index.entry(number)
            assert batches[position].last_offset == offset
        by_last_offset = {batch.last_offset: batch for batch in batches.values()}
        for number in range(segment.time_index.entries):
            timestamp, offset = segment.time_index.entry(number)
            assert by_last_offset[offset].max_timestamp == timestamp
            assert timestamp == max(
                batch.max_timestamp for batch in batches.values() if batch.last_offset <= offset
            )


@pytest.mark.parametrize("seed", range(30))
def test_a_log_holds_what_was_appended_through_any_life(tmp_path: Path, seed: int) -> None:
    life = LogLife(tmp_path, seed)
    for _ in range(120):
        life.step()
    life.kill()
    life.restart()
