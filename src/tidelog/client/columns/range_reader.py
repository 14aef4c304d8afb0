"""Reading ranges of offsets as Arrow record batches.

    with BlockingCluster(config) as cluster:
        for batch in RangeReader(cluster).fetch_columns(TopicPartition("orders", 0), 0, 1_000_000):
            ...

The end of a range is known, so nothing ever waits at it. The ranges of one leader share requests,
and all leaders are asked at once. The batch headers of an answer are read, the next request goes
out, and only then is the answer decoded, with one call of the kernel for about `rows_max` rows over
all partitions, and handed to the caller. So the broker works, and the operating system receives,
while the caller consumes; there are no threads.

What can happen to a partition in an answer
    records                      taken; the range advances over whole batches
    nothing, more is readable    asked for again
    nothing, at the log's end    asked for again (the broker waits fetch.max.wait.ms each time) and
                                 after default.api.timeout.ms OffsetOutOfRange: the range reaches
                                 beyond the log
    a cut batch only             asked for again with its size
    a diverging epoch            LogTruncation: records that were read are gone from the log
    OFFSET_OUT_OF_RANGE          OffsetOutOfRange, saying what the log holds
    unknown topic or id          metadata is asked again for some seconds, then UnknownTopic; at
                                 once if a new topic has the name
    another error that may pass  metadata is refreshed, asked for again, at most
                                 default.api.timeout.ms without progress
A lost connection is treated as the last of these; what was read stays read, nothing comes twice.

How many bytes to ask for is guessed from a range's own records, so that a short range does not
bring megabytes from beyond its end. Unless max.partition.fetch.bytes is set, it is 8 MiB at most:
rows come a column at a time, and small answers would cost more in calls than in work.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from tidelog.client.columns.arrow import BatchAssembler, Run
from tidelog.client.columns.batch_selection import (
    Part,
    Selection,
    parts_of,
    select_batches,
    unreadable,
)
from tidelog.client.errors import (
    ClientError,
    CorruptRecordsFetched,
    LogTruncation,
    OffsetOutOfRange,
    UnknownTopic,
    refused,
)
from tidelog.client.network.backoff import may_pass
from tidelog.client.network.cluster import must_be_led
from tidelog.client.network.versions import LAST_BY_NAME
from tidelog.config.client import READ_COMMITTED
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.types import NO_LEADER_EPOCH, ZERO_UUID, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator

    from tidelog.client.blocking.cluster import BlockingCluster
    from tidelog.client.network.backoff import Patience
    from tidelog.client.network.connection import Connection
    from tidelog.client.network.versions import BrokerVersions
    from tidelog.protocol.message import Message
    from tidelog.record.kernel import RecordsPart

ROWS_MAX: Final = 50_000
BYTES_MAX: Final = 8 * 1024 * 1024
PARTITION_BYTES_MAX: Final = 8 * 1024 * 1024
FIRST_GUESS_BYTES_PER_OFFSET: Final = 1024
REQUEST_BYTES_MIN: Final = 64 * 1024

# After so long the loop gets a turn: there may be time limits that have passed.
TURN_S: Final = 0.1
# How long a topic that was there may be missing from metadata, as it may be after a restart.
MISSING_TOPIC_PATIENCE_S: Final = 3.0

T = TypeVar("T")

_LEADER_EPOCH_VERSION: Final = 9
_LAST_EPOCH_VERSION: Final = 12
_UNKNOWN_TOPIC_CODES: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)


class FetchRange(NamedTuple):
    """start_offset <= offset < end_offset"""

    partition: TopicPartition
    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        return f"{self.partition} [{self.start_offset}, {self.end_offset})"


class RangeProgress:
    """How far the reading of one range has come, and how much to ask for next.

    start_offset <= position; all offsets below position are dealt with. It moves over whole
    batches, so over the gaps that compaction, control batches and aborted transactions leave, and
    the range is done when it reaches the end, wherever the last record lies.
    """

    __slots__ = (
        "_bytes_read",
        "_offsets_read",
        "end_offset",
        "last_epoch",
        "partition",
        "position",
        "size_min",
    )

    def __init__(self, wanted: FetchRange) -> None:
        self.partition = wanted.partition
        self.position = wanted.start_offset
        self.end_offset = wanted.end_offset
        self.last_epoch = NO_LEADER_EPOCH  # of the last batch below position
        # What the broker must be allowed to send for its next batch to be whole.
        self.size_min = 0
        self._bytes_read = 0
        self._offsets_read = 0

    @property
    def is_done(self) -> bool:
        return self.position >= self.end_offset

    def request_bytes(self, limit_bytes: int) -> int:
        """What to ask for: a little more than the rest of the range is expected to take."""
        left = self.end_offset - self.position
        if self._offsets_read:
            expected = left * self._bytes_read // self._offsets_read * 9 // 8
        else:
            expected = left * FIRST_GUESS_BYTES_PER_OFFSET
        return max(self.size_min, min(limit_bytes, max(expected, REQUEST_BYTES_MIN)))

    def advance(self, position: int, bytes_read: int, last_epoch: int = NO_LEADER_EPOCH) -> None:
        """All offsets below `position` came, or are known not to be there."""
        assert position > self.position, (position, self.position)
        self._offsets_read += position - self.position
        self._bytes_read += bytes_read
        self.position = position
        self.last_epoch = last_epoch
        self.size_min = 0


class RangeReader:
    """Reads ranges; the options hold for all of them. For one thread, as the cluster is.

    rows_max, bytes_max: about how large a record batch gets (a batch of records is never split
    for bytes_max).
    assembler: one whose buffers may be used, made if none is given.
    """

    def __init__(
        self,
        cluster: BlockingCluster,
        *,
        with_headers: bool = False,
        rows_max: int = ROWS_MAX,
        bytes_max: int = BYTES_MAX,
        assembler: BatchAssembler | None = None,
    ) -> None:
        self.cluster = cluster
        self.rows_max = rows_max
        self.bytes_max = bytes_max
        self.assembler = assembler or BatchAssembler(with_headers=with_headers)

    @property
    def schema(self) -> pa.Schema:
        return self.assembler.schema

    def fetch_columns(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> Iterator[pa.RecordBatch]:
        """The records of `partition` with start_offset <= offset < end_offset, in order."""
        return self.fetch_ranges([FetchRange(partition, start_offset, end_offset)])

    def fetch_ranges(self, ranges: Iterable[FetchRange]) -> Iterator[pa.RecordBatch]:
        """Several ranges at once: in order within each, mixed in the batches among them."""
        return _RangesRead(self, ranges).read()

    def record_batches(
        self, answered: list[tuple[RangeProgress, int, Selection]]
    ) -> Iterator[pa.RecordBatch]:
        """Decodes what one answer brought: (range, its position before, batches)."""
        group = _Group(self)
        check_crcs = self.cluster.config.flag("check.crcs")
        for progress, position, selection in answered:
            for part in parts_of(progress.partition, selection, check_crcs=check_crcs):
                if not group.has_room_for(part):
                    yield from group.flush()
                group.add(progress, position, part)
        yield from group.flush()


class _Group:
    """Parts collected for one call of the kernel."""

    __slots__ = ("_parts", "_reader", "_runs", "bytes", "rows")

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self._parts: list[RecordsPart] = []
        self._runs: list[Run] = []
        self.rows = 0
        self.bytes = 0

    def has_room_for(self, part: Part) -> bool:
        rows = self.rows + part.records[1]
        return rows <= self._reader.rows_max and self.bytes < self._reader.bytes_max

    def add(self, progress: RangeProgress, position: int, part: Part) -> None:
        rows = part.records[1]
        self._parts.append(part.records)
        self.rows += rows
        self.bytes += len(memoryview(part.records[0]))
        last = self._runs[-1] if self._runs else None
        if last and last[:2] == (progress.partition, part.timestamp_type):
            self._runs[-1] = last._replace(rows=last.rows + rows)
        else:
            self._runs.append(
                Run(progress.partition, part.timestamp_type, rows, position, progress.end_offset)
            )

    def flush(self) -> Iterator[pa.RecordBatch]:
        if not self._parts:
            return
        parts, runs = self._parts, self._runs
        self._parts, self._runs, self.rows, self.bytes = [], [], 0, 0
        assembler = self._reader.assembler
        try:
            columns = assembler.decode(parts)
            batches = list(assembler.assemble(columns, runs, self._reader.rows_max))
        except (ValueError, pa.ArrowInvalid) as problem:
            raise unreadable(runs[0].partition, parts[0][2], problem) from problem
        yield from batches


class _LeaderFetch:
    """One request in flight to one leader."""

    __slots__ = ("answer", "asked", "leader_id", "topic_names")

    def __init__(self, leader_id: int, asked: list[RangeProgress]) -> None:
        self.leader_id = leader_id
        self.asked = {progress.partition: progress for progress in asked}
        self.topic_names: dict[Uuid, str] = {}
        self.answer: asyncio.Future[Message]


class _RangesRead:
    """The state of one call of fetch_ranges.

    Every unfinished range is either in `_idle` or in exactly one request of `_fetches`.
    """

    def __init__(self, reader: RangeReader, ranges: Iterable[FetchRange]) -> None:
        self._reader = reader
        self._cluster = reader.cluster
        self._network = reader.cluster.network
        config = reader.cluster.config
        self._max_wait_ms = config.integer("fetch.max.wait.ms")
        self._bytes_max = max(config.integer("fetch.max.bytes"), 1)
        self._partition_bytes_max = PARTITION_BYTES_MAX
        if "max.partition.fetch.bytes" in config.given:
            self._partition_bytes_max = config.integer("max.partition.fetch.bytes")
        self._isolation_level = config.isolation_level
        self._wanted = [row for row in ranges if row.start_offset < row.end_offset]
        self._idle = [RangeProgress(row) for row in self._wanted]
        self._fetches: dict[int, _LeaderFetch] = {}
        self._topic_ids: dict[str, Uuid] = {}
        self._missing_since: dict[str, float] = {}
        self._connection: Connection | None = None  # the one that is received from here
        self._given_patience: Patience | None = None

    @property
    def _patience(self) -> Patience:
        if self._given_patience is None:
            what = f"fetch of {_ranges_text(self._wanted)}"
            self._given_patience = self._network.patience(what)
        return self._given_patience

    def read(self) -> Iterator[pa.RecordBatch]:
        try:
            while self._idle or self._fetches:
                answered = self._cluster.run(self._next_answer())
                if answered:
                    self._leave_to_loop()  # the caller may ask something else of the cluster
                    yield from self._reader.record_batches(answered)
                    # However long the caller took, it was not for want of an answer.
                    self._patience.progressed()
                    answered.clear()
        finally:
            self._leave_to_loop()
            for fetch in self._fetches.values():
                fetch.answer.cancel()

    async def _next_answer(self) -> list[tuple[RangeProgress, int, Selection]]:
        """What an answer brought, once the next request is on its way; nothing after a failure."""
        await self._send_idle()
        if not self._fetches:
            return []
        fetch = await self._first_answered()
        del self._fetches[fetch.leader_id]
        try:
            response = fetch.answer.result()
        except ClientError as failed:
            ranges = list(fetch.asked.values())
            self._idle += ranges
            self._forget(ranges)
            await self._apart(self._patience.wait_after(self._must_pass(failed, ranges[0])))
            return []
        assert isinstance(response, FetchResponse), response
        if response.error_code:
            await self._note_refusal(fetch, response.error_code)
            return []
        answered, problem = await self._advance(fetch, response)
        self._idle += [progress for progress in fetch.asked.values() if not progress.is_done]
        if answered:
            self._patience.progressed()
        elif problem is not None:
            await self._apart(self._patience.wait_after(problem))
        await self._send_idle()
        return answered

    async def _first_answered(self) -> _LeaderFetch:
        """The loop does not receive while an answer is decoded: the next one would need memory of
        its own, instead of that which the last one gives back."""
        fetches = list(self._fetches.values())
        if len(fetches) == 1:
            connection = self._network.connection_or_none(fetches[0].leader_id)
            if connection is not self._connection:
                self._leave_to_loop()
                self._connection = connection
            if connection is not None:
                connection.receive_here(fetches[0].answer, TURN_S)
        while True:
            for fetch in fetches:
                if fetch.answer.done():
                    return fetch
            self._leave_to_loop()
            await asyncio.wait(
                [fetch.answer for fetch in fetches], return_when=asyncio.FIRST_COMPLETED
            )

    async def _apart(self, work: Coroutine[Any, Any, T]) -> T:
        """Any wait but that for the one answer. It may need the connection that is received from
        here, and an answer to another request comes through the loop alone."""
        self._leave_to_loop()
        return await work

    def _leave_to_loop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.receive_in_loop()

    # Asking

    async def _send_idle(self) -> None:
        """Requests for all ranges that are in none; those that cannot be asked for stay idle."""
        if not self._idle:
            return
        by_leader: dict[int, list[RangeProgress]] = {}
        idle, self._idle = self._idle, []
        problem: ClientError | None = None
        asked: set[TopicPartition] = set()
        for progress in idle:
            if progress.partition in asked:
                # A request names a partition once; another range of it has to wait.
                self._idle.append(progress)
                continue
            asked.add(progress.partition)
            try:
                leader_id = await self._leader_of(progress.partition)
                by_leader.setdefault(leader_id, []).append(progress)
            except ClientError as failed:
                problem = self._must_pass(failed, progress)
                self._idle.append(progress)
        for leader_id, ranges in by_leader.items():
            if leader_id in self._fetches:
                self._idle += ranges
            else:
                self._fetches[leader_id] = self._begin(leader_id, ranges)
        if problem is not None and not self._fetches:
            await self._apart(self._patience.wait_after(problem))

    async def _leader_of(self, partition: TopicPartition) -> int:
        name = partition.topic
        view = self._network.metadata.topic_or_none(name)
        if view is None:
            view = await self._apart(self._network.topic(name))
        leader_id = must_be_led(view, partition)
        if self._topic_ids.setdefault(name, view.topic_id) != view.topic_id:
            raise UnknownTopic(
                f"topic {name} was deleted and made anew while it was read",
                ErrorCode.INCONSISTENT_TOPIC_ID,
            )
        self._missing_since.pop(name, None)
        return leader_id

    def _must_pass(self, problem: ClientError, progress: RangeProgress) -> ClientError:
        """The problem, if the fetch may go on in spite of it; else raises it."""
        topic = progress.partition.topic
        if isinstance(problem, UnknownTopic):
            now = self._network.clock.monotonic()
            missing_since = self._missing_since.setdefault(topic, now)
            is_known = topic in self._topic_ids
            is_replaced = problem.code == ErrorCode.INCONSISTENT_TOPIC_ID
            waited_s = now - missing_since
            if not is_known or is_replaced or waited_s > MISSING_TOPIC_PATIENCE_S:
                raise problem
        elif not may_pass(problem):
            raise problem
        self._forget([progress])
        return problem

    def _forget(self, ranges: Iterable[RangeProgress]) -> None:
        self._cluster.forget({progress.partition.topic for progress in ranges})

    def _begin(self, leader_id: int, ranges: list[RangeProgress]) -> _LeaderFetch:
        """On its way at once where there is a connection; otherwise once there is one."""
        fetch = _LeaderFetch(leader_id, ranges)
        connection = self._network.connection_or_none(leader_id)
        if connection is not None:
            fetch.answer = self._send(fetch, connection.versions)
        else:
            fetch.answer = asyncio.get_running_loop().create_task(self._connect_and_send(fetch))
        return fetch

    async def _connect_and_send(self, fetch: _LeaderFetch) -> Message:
        return await self._send(fetch, await self._network.versions(fetch.leader_id))

    def _send(self, fetch: _LeaderFetch, versions: BrokerVersions) -> asyncio.Future[Message]:
        fetch.topic_names = {self._topic_ids[row.topic]: row.topic for row in fetch.asked}
        at_most = LAST_BY_NAME[ApiKey.FETCH] if ZERO_UUID in fetch.topic_names else None
        version = versions.version(ApiKey.FETCH, at_most)
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._bytes_max,
            isolation_level=self._isolation_level,
            topics=self._topics(fetch, version),
        )
        return self._network.send(fetch.leader_id, request, at_most=version)

    def _topics(self, fetch: _LeaderFetch, version: int) -> list[FetchTopic]:
        topics: dict[str, FetchTopic] = {}
        for partition, progress in fetch.asked.items():
            name = partition.topic
            topic = topics.get(name)
            if topic is None:
                topic = FetchTopic(topic=name, topic_id=self._topic_ids[name], partitions=[])
                topics[name] = topic
            row = FetchPartition(
                partition=partition.partition,
                fetch_offset=progress.position,
                partition_max_bytes=progress.request_bytes(self._partition_bytes_max),
            )
            leader = self._network.metadata.leader_or_none(partition)
            if version >= _LEADER_EPOCH_VERSION and leader is not None:
                row.current_leader_epoch = leader.leader_epoch
            if version >= _LAST_EPOCH_VERSION:
                row.last_fetched_epoch = progress.last_epoch
            topic.partitions.append(row)
        return list(topics.values())

    # Answers

    async def _note_refusal(self, fetch: _LeaderFetch, error_code: int) -> None:
        """An error of the whole request."""
        ranges = list(fetch.asked.values())
        self._idle += ranges
        problem = refused(f"fetch of {ranges[0].partition} and others", error_code)
        await self._apart(self._patience.wait_after(self._must_pass(problem, ranges[0])))

    async def _advance(
        self, fetch: _LeaderFetch, response: FetchResponse
    ) -> tuple[list[tuple[RangeProgress, int, Selection]], ClientError | None]:
        """Moves the ranges on; what they got, and an error that may pass if there was one."""
        answered: list[tuple[RangeProgress, int, Selection]] = []
        problem: ClientError | None = None
        for topic in response.responses:
            name = topic.topic or fetch.topic_names.get(topic.topic_id, "")
            for row in topic.partitions:
                progress = fetch.asked.get(TopicPartition(name, row.partition_index))
                if progress is None:
                    continue
                if row.error_code:
                    refusal = await self._refusal(progress, row.error_code)
                    problem = self._must_pass(refusal, progress)
                    continue
                _refuse_truncation(progress, row)
                position = progress.position
                selection = self._select(progress, row)
                if selection is None:
                    problem = self._at_log_end(progress, row) or problem
                else:
                    answered.append((progress, position, selection))
                    # Next time those that got nothing now come first.
                    fetch.asked[progress.partition] = fetch.asked.pop(progress.partition)
        return answered, problem

    def _select(self, progress: RangeProgress, row: PartitionData) -> Selection | None:
        """The batches that came; None when there was no whole one."""
        if not row.records:
            return None
        aborted = None
        if self._isolation_level == READ_COMMITTED:
            aborted = row.aborted_transactions or ()
        selection = select_batches(
            progress.partition, row.records, progress.position, progress.end_offset, aborted
        )
        if selection.next_offset is None:
            progress.size_min = max(selection.size_needed, 2 * progress.size_min)
            return None
        if selection.next_offset <= progress.position:
            raise CorruptRecordsFetched(
                f"partition {progress.partition}: a fetch from offset {progress.position} brought "
                f"only batches that end before it"
            )
        progress.advance(selection.next_offset, len(row.records), selection.last_epoch)
        return selection

    def _at_log_end(self, progress: RangeProgress, row: PartitionData) -> ClientError | None:
        """The problem of a range that reaches beyond what can be read now, if that is so."""
        readable_end = row.high_watermark
        if self._isolation_level == READ_COMMITTED and row.last_stable_offset >= 0:
            readable_end = row.last_stable_offset
        if row.records or progress.position < readable_end:
            return None
        return OffsetOutOfRange(
            f"partition {progress.partition} cannot be read beyond offset {readable_end}, but was "
            f"asked for up to {progress.end_offset}",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )

    async def _refusal(self, progress: RangeProgress, error_code: int) -> ClientError:
        partition = progress.partition
        if error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            if error_code in _UNKNOWN_TOPIC_CODES:
                # Whether the topic is gone or another has its name, fresh metadata will tell.
                error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return refused(f"fetch of partition {partition}", error_code)
        earliest, latest = await self._apart(self._cluster.bounds_of(partition))
        return refused(
            f"fetch of partition {partition} from offset {progress.position}",
            error_code,
            f"The log holds offsets {earliest} to {latest}.",
        )


def _refuse_truncation(progress: RangeProgress, row: PartitionData) -> None:
    if row.diverging_epoch is not None and row.diverging_epoch.end_offset >= 0:
        raise LogTruncation(
            f"partition {progress.partition} was read up to offset {progress.position}, but its "
            f"log was truncated to offset {row.diverging_epoch.end_offset} meanwhile"
        )


def _ranges_text(ranges: list[FetchRange]) -> str:
    more = f" and {len(ranges) - 3} more" if len(ranges) > 3 else ""
    return ", ".join(map(str, ranges[:3])) + more
