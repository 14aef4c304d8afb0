"""A data directory to be damaged, the truth about it, and a reader that notices every lie.

The directory is made by a LogManager: plain batches of all codecs, transactions of two producers,
a compacted log with gaps; several segments, leader epochs and a moved log start. `Truth` is what
was written. `read_everything` opens a copy as a broker does and reads it as clients do; it fails
when anything is given out as good that was not written so, and says whether all of it came.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tests.support import raw_batch
from tests.support.clock import FakeClock
from tests.support.log_broker import close_abruptly
from tests.support.log_builder import ABORT, COMMIT, end_txn
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import LogConfig
from tidelog.errors import KafkaError
from tidelog.log.directory.checkpoints import CHECKPOINT_FILES, CLEANER_FILE, encode_offsets
from tidelog.log.log_manager import LogManager
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.record.batch import Codec
from tidelog.record.builder import batch_of
from tidelog.types import TopicPartition, Uuid

NOW_MS = 1_700_000_000_000
PLAIN = TopicPartition("plain", 0)
ORDERS = TopicPartition("orders", 0)
ACCOUNTS = TopicPartition("accounts", 0)
SMALL = LogConfig(segment_bytes=2400, index_interval_bytes=250, segment_index_bytes=4096)
CONFIGS = {
    "plain": SMALL,
    "orders": SMALL,
    "accounts": replace(SMALL, compact=True, delete=False),
}
EPOCH = slice(12, 16)  # outside of the checksum, and no part of what a reader is told


@dataclass
class LogTruth:
    log_start_offset: int = 0
    end_offset: int = 0
    batches: dict[int, bytes] = field(default_factory=dict)  # by base offset
    hidden: set[int] = field(default_factory=set)  # base offsets of aborted and control batches
    next_base: dict[int, int] = field(default_factory=dict)

    def finish(self) -> None:
        bases = sorted(self.batches)
        self.next_base = dict(zip(bases, [*bases[1:], self.end_offset], strict=True))

    def base_at(self, offset: int) -> int:
        """Of the first batch that reaches `offset`."""
        return min(
            (base for base, data in self.batches.items() if last_offset(data, base) >= offset),
            default=self.end_offset,
        )

    def first_at_or_after(self, timestamp: int, log_start_offset: int) -> int | None:
        found = None
        for base, data in self.batches.items():
            header = raw_batch.read_batches(data)[0]
            start = max(base, log_start_offset)
            if header.max_timestamp >= timestamp and header.last_offset >= start:
                found = base if found is None else min(found, base)
        return found


def last_offset(data: bytes, base: int) -> int:
    return base + int.from_bytes(data[23:27], "big")


class DamageStage:
    """The undamaged directory; `copy` it, damage the copy, `read_everything` from it."""

    def __init__(self, root: Path) -> None:
        self.pristine = root / "pristine"
        self.stale = root / "stale"  # its checkpoint files as they were halfway
        self.truths: dict[TopicPartition, LogTruth] = {}
        self._build()

    def _build(self) -> None:
        manager = open_manager(self.pristine)
        logs = {
            key: manager.get_or_create(key, Uuid(bytes([number] * 16)), CONFIGS[key.topic])
            for number, key in enumerate((PLAIN, ORDERS, ACCOUNTS), 1)
        }
        write_plain(logs[PLAIN], 0)
        write_orders(logs[ORDERS], 0)
        write_accounts(logs[ACCOUNTS], 0)
        for log in logs.values():
            log.flush()
        for write in manager.pending_checkpoints():
            write.run()
        self._keep_stale_checkpoints()
        logs[PLAIN].maybe_increment_log_start_offset(logs[PLAIN].segments[0].base_offset + 7)
        write_plain(logs[PLAIN], 1)
        write_orders(logs[ORDERS], 1)
        write_accounts(logs[ACCOUNTS], 1)
        for key, log in logs.items():
            self.truths[key] = truth_of(log)
        manager.shutdown()
        (self.pristine / CLEANER_FILE).write_bytes(encode_offsets({ACCOUNTS: 20}))

    def _keep_stale_checkpoints(self) -> None:
        self.stale.mkdir()
        for name in CHECKPOINT_FILES:
            shutil.copy(self.pristine / name, self.stale)
        for key in (PLAIN, ORDERS):
            shutil.copy(
                self.pristine / str(key) / "leader-epoch-checkpoint", self.stale / f"{key}.epochs"
            )

    def copy(self, target: Path) -> Path:
        shutil.copytree(self.pristine, target)
        return target

    def read_everything(
        self, directory: Path, *, clean: bool, after_repair: bool = False
    ) -> Outcome:
        """After a repair offsets that are lost may be passed over."""
        if not clean:
            (directory / ".kafka_cleanshutdown").unlink(missing_ok=True)
        outcome = Outcome(gaps_allowed=after_repair)
        logger = logging.getLogger("tidelog")
        logger.addHandler(outcome.listener)
        try:
            manager = open_manager(directory)
            try:
                for key, truth in self.truths.items():
                    log = manager.get(key)
                    if log is None:
                        outcome.errors.append(f"{key} is offline")
                    else:
                        check_log(log, truth, outcome)
            finally:
                close_abruptly(manager)
        finally:
            logger.removeHandler(outcome.listener)
        return outcome

    def good_batches(self, directory: Path, key: TopicPartition) -> set[int]:
        """Base offsets of the batches that the damage has spared, wherever in the log they are."""
        contents = [path.read_bytes() for path in sorted((directory / str(key)).glob("*.log"))]
        return {
            base
            for base, data in self.truths[key].batches.items()
            if any(data in content for content in contents)
        }

    def read_salvaged(
        self, directory: Path, good: dict[TopicPartition, set[int]]
    ) -> tuple[Outcome, list[str]]:
        """What comes of a salvaged directory, and which good batches do not come.

        Transactions are those that the batches left tell of: a marker may be lost.
        """
        outcome = Outcome(gaps_allowed=False)
        logger = logging.getLogger("tidelog")
        logger.addHandler(outcome.listener)
        lost: list[str] = []
        manager = open_manager(directory)
        try:
            for key, truth in self.truths.items():
                log = manager.get(key)
                assert log is not None
                left = {base: truth.batches.get(base, b"") for base in bases_in(log)}
                if b"" in left.values():
                    outcome.lies.append(f"{key} holds a batch that nobody wrote")
                    continue
                lost += [
                    f"{key} at {base}"
                    for base in sorted(good[key] - left.keys())
                    if last_offset(truth.batches[base], base) >= truth.log_start_offset
                ]
                remains = replace(truth, batches=left, hidden=hidden_batches(left))
                remains.finish()
                check_log(log, remains, outcome)
        finally:
            close_abruptly(manager)
            logger.removeHandler(outcome.listener)
        return outcome, lost


class Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Outcome:
    """Lies are failures, also such as a client could see through; errors and lines in the log are
    how damage shows, and what a reader does not get the log must explain.
    """

    def __init__(self, *, gaps_allowed: bool) -> None:
        self.gaps_allowed = gaps_allowed
        self.lies: list[str] = []
        self.errors: list[str] = []
        self.missing: list[str] = []
        self.listener = Listener()

    @property
    def log_lines(self) -> list[str]:
        return self.listener.lines

    @property
    def is_explained(self) -> bool:
        return bool(self.log_lines) or not (self.errors or self.missing)


def open_manager(directory: Path) -> LogManager:
    manager = LogManager(
        [directory],
        broker_config=BrokerConfig(),
        default_log_config=SMALL,
        clock=FakeClock(NOW_MS + 1_000_000),
        random=Random(5),
    )
    manager.start(lambda topic: CONFIGS[topic])
    return manager


# Writing


def write_plain(log: PartitionLog, half: int) -> None:
    for number in range(40):
        codec = Codec(number % 5)
        step = 40 * half + number
        records = [
            (b"key %d" % row, b"plain value %d-%d " % (step, row) * 6, (), NOW_MS + 10 * step + row)
            for row in range(1 + number % 4)
        ]
        batch = batch_of(records, codec=codec)
        log.append_as_leader(memoryview(batch), 2 * half + number // 20)
        log.update_high_watermark(log.log_end_offset)


def write_orders(log: PartitionLog, half: int) -> None:
    sequences = {7: 32 * half, 8: 32 * half}
    for number in range(16):
        step = 16 * half + number
        for producer_id in (7, 8):
            records = [
                (None, b"order %d-%d " % (step, row) * 8, (), NOW_MS + 20 * step + row)
                for row in range(2)
            ]
            batch = batch_of(
                records,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                is_transactional=True,
                codec=Codec.LZ4 if number % 3 else Codec.NONE,
            )
            sequences[producer_id] += 2
            log.append_as_leader(memoryview(batch), half)
        if number % 2:
            end_txn(
                log,
                ABORT if number % 3 else COMMIT,
                producer_id=7,
                timestamp=NOW_MS + 20 * step + 5,
                leader_epoch=half,
            )
        if number % 5 == 4 or number == 15:
            end_txn(
                log,
                COMMIT if number % 2 else ABORT,
                producer_id=8,
                timestamp=NOW_MS + 20 * step + 6,
                leader_epoch=half,
            )
    log.update_high_watermark(log.log_end_offset)


def write_accounts(log: PartitionLog, half: int) -> None:
    """As a follower of a leader whose log has been compacted."""
    for number in range(24):
        step = 24 * half + number
        base = log.log_end_offset + (step * 7 % 4)
        records = [(b"account %d" % (step % 9), b"balance %d " % step * 9, (), NOW_MS + 30 * step)]
        batch = batch_of(records, base_offset=base, leader_epoch=half)
        log.append_as_follower(memoryview(batch))
    log.update_high_watermark(log.log_end_offset)


def truth_of(log: PartitionLog) -> LogTruth:
    truth = LogTruth(log.log_start_offset, log.log_end_offset)
    for segment in log.segments:
        for batch in raw_batch.read_batches(segment.file.read_at(0, segment.size)):
            data = segment.file.read_at(batch.position, batch.size_bytes)
            truth.batches[batch.base_offset] = data
    truth.hidden = hidden_batches(truth.batches)
    truth.finish()
    return truth


def hidden_batches(batches: dict[int, bytes]) -> set[int]:
    hidden: set[int] = set()
    open_batches: dict[int, list[int]] = {}
    for base in sorted(batches):
        batch = raw_batch.read_batches(batches[base])[0]
        if batch.attributes & 0x20:
            hidden.add(base)
            begun = open_batches.pop(batch.producer_id, [])
            key = next(batch.records()).key or b""
            if key[2:4] == b"\0\0":
                hidden.update(begun)
        elif batch.attributes & 0x10:
            open_batches.setdefault(batch.producer_id, []).append(base)
    return hidden


# Reading


def bases_in(log: PartitionLog) -> list[int]:
    return [
        batch.base_offset
        for segment in log.segments
        for batch in raw_batch.read_batches(segment.file.read_at(0, segment.size))
    ]


def check_log(log: PartitionLog, truth: LogTruth, outcome: Outcome) -> None:
    name = str(log.topic_partition)
    log.update_high_watermark(log.log_end_offset)
    if log.log_end_offset > truth.end_offset:
        outcome.lies.append(f"{name} ends at {log.log_end_offset}, not {truth.end_offset}")
    if log.log_end_offset < truth.end_offset:
        outcome.missing.append(f"{name} from {log.log_end_offset}")
    for max_bytes in (700, 1 << 20):
        read_from(log, truth, log.log_start_offset, max_bytes, outcome, committed=False)
    read_from(log, truth, log.log_start_offset, 900, outcome, committed=True)
    middle = (truth.log_start_offset + truth.end_offset) // 2
    for offset in (middle, middle + 1, truth.end_offset - 1):
        if log.log_start_offset <= offset < log.log_end_offset:
            read_from(log, truth, offset, 500, outcome, committed=False, batches_max=3)
    for timestamp in range(NOW_MS, NOW_MS + 1400, 173):
        check_timestamp(log, truth, timestamp, outcome)


def read_from(
    log: PartitionLog,
    truth: LogTruth,
    offset: int,
    max_bytes: int,
    outcome: Outcome,
    *,
    committed: bool,
    batches_max: int = 1 << 30,
) -> None:
    """As a consumer does: from its position on, batch after batch, with its own checksum check."""
    name = str(log.topic_partition)
    up_to_offset = log.last_stable_offset if committed else log.high_watermark
    while offset < up_to_offset and batches_max > 0:
        try:
            result = log.read(offset, max_bytes, up_to_offset=up_to_offset, min_one_batch=True)
            aborted = log.aborted_transactions(offset, result) if committed else []
        except KafkaError as error:
            outcome.errors.append(f"{name} at {offset}: {error.code.name} {error.message}")
            return
        if result.records is None and truth.base_at(offset) >= up_to_offset:
            return  # what is left is a gap
        if result.records is None:
            outcome.lies.append(f"{name} has nothing at {offset}, below its high watermark")
            return
        try:
            batches = raw_batch.read_batches(result.records.read())
        except raw_batch.DamagedBatch as problem:
            outcome.lies.append(f"{name} at {offset}: the client finds {problem}")
            return
        wanted = [batch for batch in batches if batch.last_offset >= offset]
        if not wanted:
            outcome.lies.append(f"{name} at {offset}: no whole batch comes")
            return
        for batch in wanted:
            check_batch(name, batch, result.records.read(), offset, truth, outcome)
            offset = batch.last_offset + 1
            batches_max -= 1
        if committed:
            check_visibility(name, wanted, aborted, truth, outcome)
        if outcome.lies:
            return


def check_batch(
    name: str,
    batch: raw_batch.ReadBatch,
    content: bytes,
    offset: int,
    truth: LogTruth,
    outcome: Outcome,
) -> None:
    expected_base = truth.base_at(offset)
    is_later = batch.base_offset > expected_base and batch.base_offset in truth.batches
    if batch.base_offset != expected_base and not (outcome.gaps_allowed and is_later):
        outcome.lies.append(f"{name} gives {batch.base_offset} for {offset}, not {expected_base}")
        return
    data = bytearray(content[batch.position : batch.position + batch.size_bytes])
    expected = bytearray(truth.batches[batch.base_offset])
    data[EPOCH] = expected[EPOCH] = bytes(4)
    if data != expected:
        outcome.lies.append(f"{name} gives other bytes at {batch.base_offset}")


def check_visibility(
    name: str,
    batches: list[raw_batch.ReadBatch],
    aborted: list[AbortedTxn],
    truth: LogTruth,
    outcome: Outcome,
) -> None:
    """What a read_committed consumer passes on to its application."""
    waiting = sorted((entry.first_offset, entry.producer_id) for entry in aborted)
    active: set[int] = set()
    for batch in batches:
        while waiting and waiting[0][0] <= batch.last_offset:
            active.add(waiting.pop(0)[1])
        if batch.attributes & 0x20:
            if (next(batch.records()).key or b"")[2:4] == b"\0\0":
                active.discard(batch.producer_id)
            continue
        is_hidden = bool(batch.attributes & 0x10) and batch.producer_id in active
        if is_hidden != (batch.base_offset in truth.hidden):
            what = "hides" if is_hidden else "shows"
            outcome.lies.append(f"{name} {what} the batch at {batch.base_offset}")


def check_timestamp(log: PartitionLog, truth: LogTruth, timestamp: int, outcome: Outcome) -> None:
    name = str(log.topic_partition)
    try:
        found = log.offset_for_timestamp(timestamp)
    except KafkaError as error:
        outcome.errors.append(f"{name} at time {timestamp}: {error.code.name}")
        return
    expected = truth.first_at_or_after(timestamp, log.log_start_offset)
    is_empty = log.log_start_offset == log.log_end_offset
    if expected is not None and (expected >= log.log_end_offset or is_empty):
        expected = None  # it was cut off, which the log has said
    base = None if found is None else truth.base_at(found.offset)
    if base != expected and not outcome.gaps_allowed:
        outcome.lies.append(f"{name} finds {base} for time {timestamp}, not {expected}")
