"""Fetch v0-v18: read batches from partitions this broker leads or, from v11 on, follows.

Behaviour
- Parks until min_bytes are readable or max_wait_ms passes; a read error answers at once.
- Consumers see what lies below the high watermark, read_committed ones what lies below the last
  stable offset together with the aborted transactions. An offset at the end is empty, beyond it
  OFFSET_OUT_OF_RANGE. Errors carry -1 offsets.
- max_bytes (and fetch.max.bytes) bounds the whole answer, partition_max_bytes each partition; the
  first non-empty partition returns at least one whole batch (v3+). The last batch of a partition
  may be cut short, its only one may not (v3+): such a partition is empty, and comes to the front of
  its session as others are read.
  A limit below 0 is UNKNOWN_SERVER_ERROR where there is something to read.
- An isolation level that is not known is UNKNOWN_SERVER_ERROR for the whole request.
- Partitions that are not known come last in the answer, with an empty list of aborted
  transactions. Where a known partition cannot be read, that list is null.
- A partition that goes away while the fetch waits wakes it, and is answered at once.
- A consumer that names its rack is told of a follower there (replica.selector.class, KIP-392).
- Followers (replica id 0 and above) are served by `broker.follower_fetch`.
- A client over its quota gets an answer without partitions, and the time it has to wait. An answer
  is bounded by what its quota allows for a whole window.
- Records leave as slices of the segment file (sendfile); only v0-v3 convert them down, in a thread,
  about 1 MiB an answer.
Unlike Kafka
- A v0-v2 client that leaves no room for the first batch gets a message that says so. Kafka's
  answer is empty, and the client asks for ever.
- The topic id of all zeros is unknown like any other. Kafka 3.9 fails on it in a session, and the
  session is of no use from then on.
- Converted records are not padded to the size of the batches they were made of. Those before a zstd
  batch are all sent; Kafka sends the first batch alone. gzip is compressed at level 1, so that
  fewer batches may fit.
Checks, in order: session, topic id known (100), READ on the topic (29), for followers instead of
both CLUSTER_ACTION (29), partition hosted, leader epoch, replica, last fetched epoch, offset in
range.
Versions: v3 max_bytes, v4 isolation level and record batches, v7 sessions (KIP-227), v9 leader
epoch (KIP-320), v10 zstd, v12 last fetched epoch and flexible, v13 topic ids, v15 replica state,
v11 racks, v16 the leader where this broker is not it (KIP-951), v17 directory ids, v18 high
watermark of followers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.authorized_operations import CLUSTER_ACTION, READ, TOPIC
from tidelog.broker.context import RequestContext
from tidelog.broker.fetch_sessions import FetchedPartition, FetchedRow, FetchPlan
from tidelog.broker.metadata_cache import current_leader, leader_endpoints
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.segment.segment_walk import WalkDue
from tidelog.pending import Pending
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.fetch_metadata import FIRST_FETCH_WITH_TOPIC_IDS
from tidelog.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from tidelog.record.file_records import FileRecords
from tidelog.replication.delayed_fetch import DelayedFetch
from tidelog.replication.partition import Partition

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.log.segment.segment_walk import Walk

FETCH: Final = int(ApiKey.FETCH)
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = (READ_UNCOMMITTED, READ_COMMITTED)
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LAST_VERSION_OF_MAGIC_0: Final = 1
LAST_VERSION_OF_MAGIC_1: Final = 3
LAST_VERSION_WITHOUT_STORAGE_ERROR: Final = 5
FIRST_VERSION_WITH_MAX_BYTES: Final = 3
FIRST_VERSION_WITH_ZSTD: Final = 10
CONVERTED_BYTES_MAX: Final = 1 << 20  # in one answer, beyond the first batch of each partition
FIRST_VERSION_FROM_FOLLOWERS: Final = 11
FIRST_VERSION_WITH_LEADERS: Final = 16
_LEADER_HAS_MOVED: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}
)


def handle(
    context: RequestContext, request: FetchRequest
) -> FetchResponse | Pending[FetchResponse]:
    broker = context.broker
    if broker.cluster is not None:
        replica_id = _replica_id(request)
        if replica_id >= 0 and context.may_on_cluster(CLUSTER_ACTION):
            from tidelog.broker import follower_fetch  # not needed by a lone broker

            if context.charge is not None:
                context.charge.is_exempt = True
            return follower_fetch.handle(context, request, replica_id, broker.cluster)
    plan = broker.fetch_sessions.resolve(request, context.api_version, broker.clock.time_ms())
    fetch = _Fetch(context, request, plan)
    rows = fetch.read_all()
    if fetch.partitions and request.isolation_level not in ISOLATION_LEVELS:
        return _refuse(request, context.api_version)
    if not fetch.walks and fetch.is_satisfied():
        return fetch.finish(rows)
    return _WaitingFetch(fetch).answer


def _refuse(request: FetchRequest, version: int) -> FetchResponse:
    """As Kafka answers what it did not expect: v13+ without rows."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse(error_code=code, session_id=request.session_id)
    if version < FIRST_FETCH_WITH_TOPIC_IDS:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=row.partition,
                        error_code=code,
                        high_watermark=-1,
                        last_stable_offset=-1,
                        log_start_offset=-1,
                        records=None,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


def _replica_id(request: FetchRequest) -> int:
    state = request.replica_state
    return request.replica_id if state is None else state.replica_id


class _Fetch:
    """One request's reads; may be read again when more has arrived."""

    __slots__ = (
        "_by_id",
        "_context",
        "_diverges",
        "_is_authorized",
        "_leader_ids",
        "_outgoing",
        "_reads_committed",
        "_replica_id",
        "_selects_replicas",
        "broker",
        "bytes_read",
        "bytes_withheld",
        "failed",
        "hosted",
        "partitions",
        "plan",
        "request",
        "version",
        "walks",
    )

    def __init__(self, context: RequestContext, request: FetchRequest, plan: FetchPlan) -> None:
        self._context = context
        self.broker: Broker = context.broker
        self.request = request
        self.version = version = context.api_version
        self.plan = plan
        self._by_id = version >= FIRST_FETCH_WITH_TOPIC_IDS
        self._replica_id = _replica_id(request)
        self._is_authorized = context.broker.authorizer is None
        self._reads_committed = request.isolation_level == READ_COMMITTED
        self._selects_replicas = (
            self.broker.cluster is not None
            and request.rack_id != ""
            and self.broker.config["replica.selector.class"] == RACK_AWARE_SELECTOR
        )
        self._leader_ids: set[int] = set()  # of partitions that are not to be read here
        self._outgoing: list[tuple[Partition, int]] = []  # what is read of which partition
        self.bytes_read = 0
        self.bytes_withheld = 0  # pieces of batches for which there is no room
        self._diverges = False  # a reader must hear that its log parts from the leader's
        self.failed = False  # a partition that is hosted here could not be read
        self.partitions: list[Partition] = []  # those that were read, and may be waited for
        self.walks: list[Walk] = []  # to be made before all can be read
        self.hosted = -1  # how many they were at first; -1 before the first read

    def read_all(self) -> list[FetchedRow]:
        self.bytes_read = self.bytes_withheld = 0
        self.failed = self._diverges = False
        self.partitions = []
        self.walks = []
        self._outgoing = []
        budget = self._budget()
        rows: list[FetchedRow] = []
        unknown: list[FetchedRow] = []
        by_id, find = self._by_id, self.broker.replicas.get
        for wanted in self.plan.partitions:
            topic = self._topic_of(wanted) if by_id else wanted.topic
            if not self._is_authorized and not self._may_read(topic):
                unknown.append((wanted, self._denied(topic, wanted.index)))
                continue
            partition = None if topic is None else find(topic, wanted.index)
            if topic is None or partition is None:
                unknown.append((wanted, self._absent(topic, wanted.index)))
                continue
            row = self._read(topic, partition, wanted, budget)
            size_bytes = len(row.records)
            if size_bytes or budget < 0:
                self.bytes_read += size_bytes
                self._outgoing.append((partition, size_bytes))
                budget = max(budget - size_bytes, 0)
            rows.append((wanted, row))
        if self.hosted < 0:
            self.hosted = len(self.partitions)
        return rows + unknown if unknown else rows

    def _budget(self) -> int:
        budget = min(self.request.max_bytes, self.broker.config.fetch_max_bytes)
        charge = self._context.charge
        return budget if charge is None else int(min(budget, charge.fetch_bytes_max()))

    @property
    def bytes_missing(self) -> int:
        """Until the fetch may be answered; what cannot be sent is not waited for."""
        arrived = self.bytes_read + self.bytes_withheld
        return min(self.request.min_bytes, self._budget()) - arrived

    def is_satisfied(self) -> bool:
        return (
            self.bytes_missing <= 0
            or self.failed
            or len(self.partitions) < self.hosted
            or self.request.max_wait_ms <= 0
            or not self.partitions
            or self._diverges
        )

    def _topic_of(self, wanted: FetchedPartition) -> str | None:
        image = self.broker.topics.by_id.get(wanted.topic_id)
        return None if image is None else image.name

    def _may_read(self, topic: str | None) -> bool:
        if self._replica_id >= 0:
            return self._context.may_on_cluster(CLUSTER_ACTION)
        return topic is not None and self._context.may(READ, TOPIC, topic)

    def _denied(self, topic: str | None, index: int) -> PartitionData:
        if topic is None and self._replica_id < 0:
            return _failed(index, ErrorCode.UNKNOWN_TOPIC_ID)
        return _failed(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _absent(self, topic: str | None, index: int) -> PartitionData:
        if topic is None:
            return _failed(index, ErrorCode.UNKNOWN_TOPIC_ID)
        code = self.broker.replicas.absent_error(topic, index)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return _failed(index, code)
        return self._unreadable(topic, index, code)

    def _read(
        self, topic: str, partition: Partition, wanted: FetchedPartition, budget: int
    ) -> PartitionData:
        version = self.version
        if not partition.is_leader and version < FIRST_VERSION_FROM_FOLLOWERS:
            self.failed = True
            return self._unreadable(topic, wanted.index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.partitions.append(partition)
        strict = version < FIRST_VERSION_WITH_MAX_BYTES
        try:
            if self._selects_replicas and partition.is_leader:
                elsewhere = self._nearer_replica(partition, wanted)
                if elsewhere is not None:
                    return elsewhere
            read = partition.read(
                wanted.fetch_offset,
                wanted.max_bytes if wanted.max_bytes < budget else budget,
                min_one_batch=not strict and self.bytes_read == 0,
                read_committed=self._reads_committed,
                replica_id=self._replica_id,
                current_leader_epoch=wanted.current_leader_epoch,
                last_fetched_epoch=wanted.last_fetched_epoch,
            )
        except KafkaError as error:
            self.failed = True
            partition.traffic.failed_reads += 1
            return self._unreadable(topic, wanted.index, error.code)
        except WalkDue as due:
            self.walks.append(due.walk)
            return _failed(wanted.index, ErrorCode.NONE)
        records = read.records
        if not strict and isinstance(records, FileRecords) and records.is_piece:
            self.bytes_withheld += len(records)
            records = b""
        if version < FIRST_VERSION_WITH_ZSTD and records:
            try:
                self._require_readable(partition)
            except KafkaError as error:
                self.failed = True
                return self._not_here(topic, wanted.index, error.code)
        row = PartitionData(
            partition_index=wanted.index,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=None,
            records=records,
        )
        if read.diverging_epoch is not None:
            self._diverges = True
            row.diverging_epoch = EpochEndOffset(
                epoch=read.diverging_epoch.epoch, end_offset=read.diverging_epoch.end_offset
            )
        if read.aborted_transactions is not None:
            row.aborted_transactions = [
                AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
                for entry in read.aborted_transactions
            ]
        return row

    def _unreadable(self, topic: str, index: int, code: ErrorCode) -> PartitionData:
        row = self._not_here(topic, index, code)
        row.aborted_transactions = None
        return row

    def _not_here(self, topic: str, index: int, code: ErrorCode) -> PartitionData:
        row = _failed(index, self._in_version(code))
        if self.version >= FIRST_VERSION_WITH_LEADERS and code in _LEADER_HAS_MOVED:
            leader = current_leader(self.broker, topic, index)
            if leader is not None:
                row.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
                )
                self._leader_ids.add(leader.leader_id)
        return row

    def finish(self, rows: list[FetchedRow]) -> FetchResponse | Pending[FetchResponse]:
        charge = self._context.charge
        if charge is not None and charge.withholds(self.bytes_read):
            return self.plan.throttled()
        if self.version > LAST_VERSION_OF_MAGIC_1 or not self.bytes_read:
            return self.answer(rows)
        threads = self.broker.record_threads
        held_bytes = min(self.bytes_read, CONVERTED_BYTES_MAX)
        if not threads.may_hold(held_bytes):
            self._convert(rows)
            return self.answer(rows)
        converted = threads.run(held_bytes, lambda: self._convert(rows))
        return converted.map(lambda _: self.answer(rows))

    def answer(self, rows: list[FetchedRow]) -> FetchResponse:
        for partition, size_bytes in self._outgoing:
            partition.traffic.bytes_out += size_bytes
        if self.failed or len(rows) > len(self.partitions):
            self._count_errors(rows)
        response = self.plan.answer(rows)
        if self._leader_ids:
            response.node_endpoints = [
                NodeEndpoint(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
                for node in leader_endpoints(
                    self.broker, self._leader_ids, self._context.session.listener_name
                )
            ]
        return response

    def _count_errors(self, rows: list[FetchedRow]) -> None:
        metrics = self.broker.request_metrics.of(FETCH)
        for _, row in rows:
            if row.error_code:
                metrics.failed(row.error_code)

    def _nearer_replica(
        self, partition: Partition, wanted: FetchedPartition
    ) -> PartitionData | None:
        """An answer that sends the consumer to a replica in its rack, if there is one."""
        from tidelog.replication.replica_selector import NO_REPLICA, preferred_read_replica

        partition.require_leader_epoch(wanted.current_leader_epoch)
        listener_name = self._context.session.listener_name
        racks = {node.broker_id: node.rack for node in self.broker.metadata.nodes(listener_name)}
        replica_id = preferred_read_replica(
            partition, wanted.fetch_offset, self.request.rack_id, racks
        )
        if replica_id == NO_REPLICA:
            return None
        self.failed = True  # nothing to wait for
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.log.high_watermark,
            last_stable_offset=partition.log.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            preferred_read_replica=replica_id,
            records=b"",
        )

    def _require_readable(self, partition: Partition) -> None:
        """Old clients read only what their version of the message format can say."""
        config = partition.log.config
        if config.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if self.version <= LAST_VERSION_OF_MAGIC_1 and not config.message_downconversion_enable:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def _convert(self, rows: list[FetchedRow]) -> None:
        """In a thread: it reads, inflates and compresses."""
        from tidelog.record.conversion import down_convert_file

        converted_bytes = 0
        for place, (wanted, row) in enumerate(rows):
            if not isinstance(row.records, FileRecords):
                continue
            try:
                row.records = down_convert_file(
                    row.records,
                    0 if self.version <= LAST_VERSION_OF_MAGIC_0 else 1,
                    wanted.fetch_offset,
                    max(CONVERTED_BYTES_MAX - converted_bytes, 0),
                    cut_overflows=self.version < FIRST_VERSION_WITH_MAX_BYTES,
                )
            except KafkaError as error:
                rows[place] = wanted, _failed(wanted.index, self._in_version(error.code))
            else:
                converted_bytes += len(row.records)

    def _in_version(self, code: ErrorCode) -> ErrorCode:
        if (
            code is ErrorCode.KAFKA_STORAGE_ERROR
            and self.version <= LAST_VERSION_WITHOUT_STORAGE_ERROR
        ):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return code


class _WaitingFetch:
    """A fetch that waits: it looks again when woken, and answers at its deadline at the latest."""

    __slots__ = ("_deadline", "_delayed", "_fetch", "_is_given_up", "answer")

    def __init__(self, fetch: _Fetch) -> None:
        self._fetch = fetch
        self._deadline = fetch.broker.clock.monotonic() + fetch.request.max_wait_ms / 1000
        self.answer: Pending[FetchResponse] = Pending(self._give_up, self._hurry)
        self._delayed: DelayedFetch | None = None  # None while a thread walks over segments
        self._is_given_up = False
        self._wait()

    def _wait(self) -> None:
        if self._fetch.walks:
            self._walk()
        else:
            self._delayed = self._park()

    def _walk(self) -> None:
        """Old segments are looked over before their records are shown; that may take seconds."""
        walks = self._fetch.walks
        self._delayed = None

        def run() -> None:
            for walk in walks:
                walk.run()

        def walked(_: None) -> None:
            for walk in walks:
                walk.note_result()
            if not self._is_given_up:
                self._look()

        self._fetch.broker.record_threads.run(0, run).then(walked, self.answer.fail)

    def _park(self) -> DelayedFetch:
        fetch = self._fetch
        delayed = DelayedFetch(
            fetch.partitions,
            fetch.bytes_missing,
            fetch.broker.timer,
            self._look_again,
        )
        delayed.park((self._deadline - fetch.broker.clock.monotonic()) * 1000)
        return delayed

    def _give_up(self) -> None:
        self._is_given_up = True
        if self._delayed is not None:
            self._delayed.cancel()

    def _hurry(self) -> None:
        self._deadline = 0.0
        if self._delayed is not None:
            self._delayed.wake_soon()

    def _look_again(self) -> None:
        self.answer.guard(self._look)

    def _look(self) -> None:
        fetch = self._fetch
        rows = fetch.read_all()
        late = fetch.broker.clock.monotonic() >= self._deadline
        if not fetch.walks and (late or fetch.is_satisfied()):
            self.answer.resolve(fetch.finish(rows))
        else:
            self._wait()


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records=b"",
    )
