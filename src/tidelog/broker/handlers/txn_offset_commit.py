"""TxnOffsetCommit v0-v5: offsets that are committed with a transaction, or not at all.

Behaviour
- Written to __consumer_offsets under the producer's id; they wait there for the transaction's
  marker. Until then OffsetFetch with require_stable answers UNSTABLE_OFFSET_COMMIT.
- The partition of __consumer_offsets must have been added to the transaction (AddOffsetsToTxn);
  from v5 on it is added here.
- A producer that names the member it consumes as (v3+, KIP-447) is refused if that member is gone
  or its generation is over.
- A topic without partitions is left out of the answer.
- Topics are looked at again when the transaction's coordinator has answered: offsets of one that
  was deleted meanwhile are refused (3).
Checks, in order: topic and partition exist (3), group id not empty (24), the transaction (see
`coordinator.txn.admission`), metadata at most offset.metadata.max.bytes (12), coordinator (14, 16),
group known (22), member (25), instance id (82), generation (22).
Versions: v2 leader epoch, v3 flexible and member, v4 TRANSACTION_ABORTABLE (before:
INVALID_TXN_STATE), v5 adds the partition (transaction.version 2). v0-v1 answer 15 for 14, which
their clients could not bear.
Unlike Kafka
- The transactional id is always looked at (42, 49). Kafka takes any once the producer has written
  offsets in a transaction that is still open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.broker.context import RequestContext
from tidelog.broker.transaction_admission import admit_wherever
from tidelog.broker.transactional import when_written
from tidelog.coordinator.group.coordinator import NewOffset, commit_error
from tidelog.coordinator.group.offsets import CommittedOffset
from tidelog.coordinator.txn.admission import Admission
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.replication.pending import Pending

FIRST_VERSION_WITH_ABORTABLE: Final = 4
FIRST_VERSION_WITH_LOADING: Final = 2

Answer = TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]

# What a client is told where the transaction could not be looked at, or is being ended.
_ADMISSION_ERRORS: Final = {
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> Answer:
    commit = _Commit(context, request)
    if not commit.known:
        return commit.response
    if not request.group_id:
        return commit.failed(ErrorCode.INVALID_GROUP_ID)
    try:
        partition = context.broker.groups.offsets_partition(request.group_id)
    except KafkaError as error:
        return commit.failed(error.code)
    refused, written = admit_wherever(
        context.broker,
        Admission.of(context.api_version, FIRST_VERSION_WITH_ABORTABLE),
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
    )

    def go_on(commit: _Commit) -> Answer:
        if refused:
            code = refused[partition]
            return commit.failed(_ADMISSION_ERRORS.get(code, code))
        return commit.write()

    def go_on_later() -> Answer:
        # A topic may have been deleted meanwhile, and its offsets with it.
        now = _Commit(context, request)
        return go_on(now) if now.known else now.response

    return go_on(commit) if written is None else _after(written, go_on_later, commit.failed)


def _after(
    written: Pending[ErrorCode],
    go_on: Callable[[], Answer],
    failed: Callable[[ErrorCode], TxnOffsetCommitResponse],
) -> Pending[TxnOffsetCommitResponse]:
    pending: Pending[TxnOffsetCommitResponse] = Pending()

    def finished(code: ErrorCode) -> None:
        answer = go_on() if code is ErrorCode.NONE else failed(code)
        if isinstance(answer, Pending):
            answer.then(pending.complete, pending.fail)
        else:
            pending.complete(answer)

    written.then(finished, pending.fail)
    return pending


class _Commit:
    """One request's rows, and those of them that are to be written."""

    def __init__(self, context: RequestContext, request: TxnOffsetCommitRequest) -> None:
        self._context = context
        self._request = request
        self._topics = context.broker.topics.topics
        self._now_ms = context.broker.clock.time_ms()
        self._metadata_max = context.broker.groups.settings.offset_metadata_max_bytes
        self.known: list[TxnOffsetCommitResponsePartition] = []  # of partitions that exist
        self._offsets: list[NewOffset] = []
        self.response = TxnOffsetCommitResponse(
            topics=[self._topic(topic) for topic in request.topics if topic.partitions]
        )

    def _topic(self, topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
        image = self._topics.get(topic.name)
        count = 0 if image is None else len(image.partitions)
        return TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[self._partition(topic.name, count, row) for row in topic.partitions],
        )

    def _partition(
        self, topic: str, partition_count: int, row: TxnOffsetCommitRequestPartition
    ) -> TxnOffsetCommitResponsePartition:
        index = row.partition_index
        answer = TxnOffsetCommitResponsePartition(partition_index=index)
        if not 0 <= index < partition_count:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return answer
        self.known.append(answer)
        metadata = row.committed_metadata or ""
        if len(metadata) > self._metadata_max:
            answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            return answer
        committed = CommittedOffset(
            row.committed_offset, row.committed_leader_epoch, metadata, self._now_ms
        )
        self._offsets.append((topic, index, committed))
        return answer

    def write(self) -> Answer:
        request = self._request
        try:
            written = self._context.broker.groups.commit_transactional_offsets(
                request.group_id,
                self._offsets,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
            )
        except KafkaError as error:
            return self.failed(error.code)
        return when_written(written, self._answer)

    def _answer(self, code: ErrorCode) -> TxnOffsetCommitResponse:
        return self.response if code is ErrorCode.NONE else self.failed(commit_error(code))

    def failed(self, code: ErrorCode) -> TxnOffsetCommitResponse:
        if (
            code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            and self._context.api_version < FIRST_VERSION_WITH_LOADING
        ):
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for answer in self.known:
            answer.error_code = code
        return self.response
