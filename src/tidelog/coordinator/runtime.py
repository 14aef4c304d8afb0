"""What coordinators run on: decide, append, replay.

A request is decided against a shard, the state of one partition of the coordinator's topic: that
gives an answer and records, and touches nothing that records stand for. `write` appends
the records to the partition and replays them; replaying alone changes that state, live and on
load alike, so that what is in memory is always what a restart would read. The answer leaves once
the records are committed (the high watermark has passed them, which waits for other replicas, and
for a flush where flush.messages says so), or after `write_timeout_ms`.

A hosted partition is in one of these states:

    LOADING  its records are being read               COORDINATOR_LOAD_IN_PROGRESS
    ACTIVE   it serves
    FAILED   its records cannot be read or kept       NOT_COORDINATOR
    (absent) another broker leads it, or no topic yet NOT_COORDINATOR

Loading is done in slices, one a turn of the loop, one partition after another. One that cannot be
loaded, for whatever reason, holds up no other: it is FAILED, and loaded anew into a fresh shard
after a pause that grows from 1 second to 1 minute. Touched only on the broker loop.

An append that fails changes nothing. A flush that fails leaves it open whether a restart finds the
records: the answer is an error, and the partition is FAILED from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.errors import DecodeError, EncodeError
from tidelog.protocol.java_hash import java_hash
from tidelog.record import kernel
from tidelog.record.batch import HEADER_SIZE, NO_SEQUENCE, TRANSACTIONAL_BIT, Codec
from tidelog.record.builder import finish_batch
from tidelog.replication.delayed_answer import await_commit
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer
    from tidelog.coordinator.loading import PartitionLoading, Replayable
    from tidelog.coordinator.stored_record import CoordinatorRecord, RecordTypes
    from tidelog.replication.flusher import LogFlusher
    from tidelog.replication.partition import Partition

logger = logging.getLogger(__name__)

SLICE_BYTES_MAX: Final = 64 * 1024
WRITE_TIMEOUT_MS: Final = 5_000
LOAD_PAUSE_S: Final = 1.0
LOAD_PAUSE_MAX_S: Final = 60.0
_INT_MIN: Final = -(2**31)

S = TypeVar("S", bound="Replayable")

# What a client is told when the records of its request could not be written.
_WRITE_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def write_error(code: ErrorCode) -> ErrorCode:
    return _WRITE_ERRORS.get(code, code)


def unwritable(error: EncodeError) -> KafkaError:
    """Flexible requests have longer strings than records."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


class Hosted(Generic[S]):
    """A partition of the topic that this broker leads, and its shard."""

    __slots__ = ("load_pause_s", "partition", "shard", "state")

    def __init__(self, partition: Partition, shard: S) -> None:
        self.partition = partition
        self.shard = shard
        self.state = ShardState.LOADING
        self.load_pause_s = LOAD_PAUSE_S  # before the next try, if this one fails


class CoordinatorRuntime(Generic[S]):
    def __init__(
        self,
        topic: str,
        types: RecordTypes,
        new_shard: Callable[[int], S],
        *,
        clock: Clock,
        timer: Timer,
        flusher: LogFlusher,
        load_slice_bytes: int = SLICE_BYTES_MAX,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
        on_loaded: Callable[[S], object] = lambda shard: None,
        on_unloaded: Callable[[S], object] = lambda shard: None,
    ) -> None:
        self.topic = topic
        self.partition_count = 0  # of the topic; 0 while there is none
        self.codec = Codec.NONE  # of what is appended from now on
        self.write_timeout_ms = write_timeout_ms
        self._types = types
        self._new_shard = new_shard
        self._clock = clock
        self._timer = timer
        self._flusher = flusher
        self._load_slice_bytes = min(load_slice_bytes, SLICE_BYTES_MAX)
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded
        self._hosted: dict[int, Hosted[S]] = {}
        self._to_load: deque[tuple[Hosted[S], PartitionLoading]] = deque()
        self._wait_for_loads: list[asyncio.Future[None]] = []

    # Leadership

    def lead(self, partition: Partition) -> None:
        """This broker leads the partition: load it, and serve."""
        index = partition.topic_partition.partition
        if index in self._hosted:
            return
        self._hosted[index] = hosted = Hosted(partition, self._new_shard(index))
        self._load(hosted)

    def _load(self, hosted: Hosted[S]) -> None:
        log = hosted.partition.log
        if log.log_start_offset == log.log_end_offset:
            self._activate(hosted)
            return
        from tidelog.coordinator.loading import PartitionLoading  # not needed by an empty broker

        loading = PartitionLoading(log, hosted.shard, self._types, self._load_slice_bytes)
        self._to_load.append((hosted, loading))
        if len(self._to_load) == 1:
            self._timer.call_later(0.0, self._load_slice)

    def resign(self, index: int) -> None:
        """The partition is gone, or another broker's."""
        hosted = self._hosted.pop(index, None)
        if hosted is not None and hosted.state is ShardState.ACTIVE:
            self._on_unloaded(hosted.shard)

    def host(self, partitions: Sequence[Partition], partition_count: int) -> None:
        """This broker leads these partitions of the topic, which has so many."""
        self.count_partitions(partition_count)
        for partition in partitions:
            self.lead(partition)

    def count_partitions(self, partition_count: int) -> None:
        """The first count holds until a restart, as in Kafka: with another one, keys would be
        looked for where they are not.
        """
        self.partition_count = self.partition_count or partition_count

    def resign_all(self) -> None:
        """The topic is gone, or the broker stops: all who wait are sent away."""
        self.partition_count = 0
        for index in tuple(self._hosted):
            self.resign(index)

    def _is_hosted(self, hosted: Hosted[S]) -> bool:
        return self._hosted.get(hosted.partition.topic_partition.partition) is hosted

    def _load_slice(self) -> None:
        hosted, loading = self._to_load[0]
        is_done = True
        try:
            is_done = not self._is_hosted(hosted) or self._step(hosted, loading)
        finally:  # what was not expected passes on to the loop, which logs it
            if is_done:
                self._to_load.popleft()
            if self._to_load:
                self._timer.call_later(0.0, self._load_slice)
            else:
                self._all_loaded()
            if is_done and hosted.state is ShardState.LOADING:
                self._load_failed(hosted)

    def _all_loaded(self) -> None:
        waiting, self._wait_for_loads = self._wait_for_loads, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def loads_over(self) -> None:
        """Nothing is being loaded: what could be is ACTIVE."""
        while self._to_load:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._wait_for_loads.append(future)
            await future

    def _step(self, hosted: Hosted[S], loading: PartitionLoading) -> bool:
        """Whether there is nothing left to load; the partition is ACTIVE then, or cannot be."""
        try:
            if not loading.step():
                return False
        except (KafkaError, DecodeError, OSError) as error:
            logger.error(
                "cannot load a coordinator's partition",
                extra={
                    "partition": str(hosted.partition.topic_partition),
                    "offset": loading.next_offset,
                    "error": str(error),
                },
            )
            return True
        logger.info(
            "loaded a coordinator's partition",
            extra={
                "partition": str(hosted.partition.topic_partition),
                "records": loading.record_count,
            },
        )
        self._activate(hosted)
        return True

    def _activate(self, hosted: Hosted[S]) -> None:
        hosted.state = ShardState.ACTIVE
        is_good = False
        try:
            self._on_loaded(hosted.shard)
            is_good = True
        finally:
            if not is_good:
                self._load_failed(hosted)

    def _load_failed(self, hosted: Hosted[S]) -> None:
        was_active = hosted.state is ShardState.ACTIVE
        hosted.state = ShardState.FAILED
        if not self._is_hosted(hosted):
            return
        pause_s = hosted.load_pause_s
        hosted.load_pause_s = min(2 * pause_s, LOAD_PAUSE_MAX_S)
        self._timer.call_later(pause_s, partial(self._load_again, hosted))
        logger.warning(
            "a coordinator's partition is not served; it will be loaded again",
            extra={"partition": str(hosted.partition.topic_partition), "pause_s": pause_s},
        )
        if was_active:
            self._on_unloaded(hosted.shard)

    def _load_again(self, hosted: Hosted[S]) -> None:
        if self._is_hosted(hosted):
            hosted.shard = self._new_shard(hosted.partition.topic_partition.partition)
            hosted.state = ShardState.LOADING
            self._load(hosted)

    # Finding shards

    @property
    def is_loading(self) -> bool:
        return bool(self._to_load)

    def hosted_ends(self) -> Iterator[tuple[int, int]]:
        """Where the log of each partition ends that this broker leads, whatever state it is in."""
        for index, hosted in self._hosted.items():
            yield index, hosted.partition.log.log_end_offset

    def active_shards(self) -> Iterator[S]:
        for hosted in tuple(self._hosted.values()):
            if hosted.state is ShardState.ACTIVE:
                yield hosted.shard

    def shard_for(self, key: str) -> S:
        """The shard that looks after a group or transactional id; KafkaError if it cannot now."""
        if not self.partition_count:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return self._serving(partition_for(key, self.partition_count)).shard

    def _serving(self, index: int) -> Hosted[S]:
        hosted = self._hosted.get(index)
        if hosted is None or hosted.state is ShardState.FAILED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if hosted.state is ShardState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return hosted

    def is_serving(self, index: int, shard: S) -> bool:
        """Whether requests are decided by this shard: after another term it is another one."""
        hosted = self._hosted.get(index)
        return hosted is not None and hosted.shard is shard and hosted.state is ShardState.ACTIVE

    def leader_epoch(self, index: int) -> int:
        """Of a partition that this broker serves."""
        return self._serving(index).partition.leader_epoch

    # Writing

    def write_marker(
        self, index: int, marker: memoryview, producer_id: int, *, committed: bool
    ) -> Pending[ErrorCode] | None:
        """Ends the producer's transaction in partition `index`; the outcome is as of `write`."""
        hosted = self._serving(index)
        end_offset = hosted.partition.append_marker(marker).last_offset + 1
        hosted.shard.replay_marker(producer_id, committed=committed)
        return self._committed(hosted, end_offset)

    def write(self, index: int, records: Sequence[CoordinatorRecord]) -> Pending[ErrorCode] | None:
        """Appends one batch to partition `index` and replays it. None: it is committed; else the
        outcome comes later. KafkaError: it was not appended and nothing has changed.
        """
        if not records:
            return None
        now_ms = self._clock.time_ms()
        try:
            encoded = [(*record.encoded(), (), now_ms) for record in records]
        except EncodeError as error:
            raise unwritable(error) from error
        payload, _, _ = kernel.encode_records(encoded, HEADER_SIZE)

        def replay(shard: S, offset: int) -> None:
            for record in records:
                shard.replay(record, offset, NO_PRODUCER_ID)
                offset += 1

        return self.write_payload(index, payload, len(records), now_ms, replay)

    def write_payload(
        self,
        index: int,
        payload: bytearray,
        records_count: int,
        now_ms: int,
        replay: Callable[[S, int], object],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
    ) -> Pending[ErrorCode] | None:
        """As `write`. The payload is so many encoded records, all of `now_ms`, behind the spare
        bytes of the header. `replay` is given the shard and the offset of the first record, and
        must do what loading does with the same bytes.
        """
        hosted = self._serving(index)
        batch = finish_batch(
            payload,
            codec=self.codec,
            level=None,
            base_offset=0,
            leader_epoch=NO_LEADER_EPOCH,
            attributes=0 if producer_id == NO_PRODUCER_ID else TRANSACTIONAL_BIT,
            last_offset_delta=records_count - 1,
            base_timestamp=now_ms,
            max_timestamp=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            records_count=records_count,
        )
        info = hosted.partition.append_as_coordinator(memoryview(batch))
        replay(hosted.shard, info.base_offset)
        return self._committed(hosted, info.last_offset + 1)

    def end_offset(self, index: int) -> int:
        return self._serving(index).partition.log.log_end_offset

    def high_watermark(self, index: int) -> int:
        return self._serving(index).partition.log.high_watermark

    def _committed(self, hosted: Hosted[S], end_offset: int) -> Pending[ErrorCode] | None:
        outcome = await_commit(
            hosted.partition, end_offset, self._flusher, self._timer, self.write_timeout_ms
        )
        if outcome is None:
            return None

        def keep_or_fail(code: ErrorCode) -> None:
            if code is ErrorCode.KAFKA_STORAGE_ERROR and hosted.state is ShardState.ACTIVE:
                hosted.state = ShardState.FAILED
                self._on_unloaded(hosted.shard)

        return outcome.followed_by(keep_or_fail)


def partition_for(key: str, partition_count: int) -> int:
    """Which partition of an internal topic looks after a group or a transactional id.

    Java's String.hashCode over UTF-16 units, its absolute value as Kafka takes it (the smallest int
    counts as 0), modulo the number of partitions. Every client and broker must agree on it.
    """
    value = java_hash(key)
    return 0 if value == _INT_MIN else abs(value) % partition_count
