"""TxnOffsetCommit v0-v5: offsets that are committed with a transaction, or not at all.

Behaviour
- Written to __consumer_offsets under the producer's id, as one batch; they wait there for the
  transaction's marker. Until then OffsetFetch with require_stable answers UNSTABLE_OFFSET_COMMIT.
  Before that, thousands of rows are looked at in slices.
- The partition of __consumer_offsets must have been added to the transaction (AddOffsetsToTxn);
  from v5 on it is added here.
- A producer that names the member it consumes as (v3+, KIP-447) is refused if that member is gone
  or its generation is over.
- A topic without partitions is left out of the answer.
- Topics are looked at again when the transaction's coordinator has answered: offsets of one that
  was deleted meanwhile are refused (3).
Checks, in order: WRITE on the transactional id (53), READ on the group (30) and the topic (29),
topic and partition exist (3), group id not empty (24), the transaction (see
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

from collections.abc import Iterator
from typing import Final

from tidelog.broker.authorized_operations import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from tidelog.broker.bulky_answers import EncodedAnswer
from tidelog.broker.context import RequestContext
from tidelog.broker.offset_rows import OffsetRows
from tidelog.broker.transactions import admit_wherever
from tidelog.coordinator.group.results import commit_error
from tidelog.coordinator.txn.admission import Admission
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_VERSION_WITH_ABORTABLE: Final = 4
FIRST_VERSION_WITH_LOADING: Final = 2

Answer = TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]

# What a client is told where the transaction could not be looked at, or is being ended.
_ADMISSION_ERRORS: Final = {
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def handle(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> Answer | Pending[EncodedAnswer]:
    if not context.may(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return _refused(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(READ, GROUP, request.group_id):
        return _refused(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return _Commit(context, request).answer(request.topics)


def _refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=[_refused_topic(topic, code) for topic in request.topics])


def _refused_topic(
    topic: TxnOffsetCommitRequestTopic, code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)
            for row in topic.partitions
        ],
    )


class _Commit(OffsetRows[TxnOffsetCommitResponsePartition, TxnOffsetCommitResponse]):
    __slots__ = ("_request", "_response")

    def __init__(self, context: RequestContext, request: TxnOffsetCommitRequest) -> None:
        super().__init__(context, request.group_id)
        self._request = request
        self._response = TxnOffsetCommitResponse()

    def look(self) -> Iterator[None]:
        answers = self._response.topics = []
        in_slices = self.records is not None
        for topic in self._request.topics:
            if not self.context.may(READ, TOPIC, topic.name):
                answers.append(_refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif topic.partitions:
                answer = TxnOffsetCommitResponseTopic(name=topic.name)
                answers.append(answer)
                image = self.context.broker.topics.topics.get(topic.name)
                rows = answer.partitions
                self.begin_topic(image)
                for row in topic.partitions:
                    rows.append(self._row(row))
                    if in_slices:
                        yield
            if in_slices:
                yield

    def _row(self, row: TxnOffsetCommitRequestPartition) -> TxnOffsetCommitResponsePartition:
        index = row.partition_index
        answer = TxnOffsetCommitResponsePartition(partition_index=index)
        if self.exists(index):
            self.add(
                answer,
                index,
                row.committed_offset,
                row.committed_leader_epoch,
                row.committed_metadata,
            )
        else:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer

    def write(self) -> Answer:
        context, request = self.context, self._request
        if not self.known:
            return self._response
        if not request.group_id:
            return self._failed(ErrorCode.INVALID_GROUP_ID)
        try:
            partition = context.broker.groups.offsets_partition(request.group_id)
        except KafkaError as error:
            return self._failed(error.code)
        refused, written = admit_wherever(
            context.broker,
            Admission.of(context.api_version, FIRST_VERSION_WITH_ABORTABLE),
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [partition],
        )

        def go_on() -> Answer:
            if refused:
                code = refused[partition]
                return self._failed(_ADMISSION_ERRORS.get(code, code))
            return self._append()

        def go_on_later(code: ErrorCode) -> Answer:
            if code is not ErrorCode.NONE:
                return self._failed(code)
            self.look_again()
            return go_on() if self.known else self._response

        return go_on() if written is None else written.and_then(go_on_later)

    def _append(self) -> Answer:
        request = self._request
        try:
            written = self.context.broker.groups.commit_transactional_offsets(
                request.group_id,
                self.offsets,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                records=self.records,
            )
        except KafkaError as error:
            return self._failed(error.code)
        return self._response if written is None else written.map(self._answer)

    def _answer(self, code: ErrorCode) -> TxnOffsetCommitResponse:
        return self._response if code is ErrorCode.NONE else self._failed(commit_error(code))

    def _failed(self, code: ErrorCode) -> TxnOffsetCommitResponse:
        if (
            code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            and self.context.api_version < FIRST_VERSION_WITH_LOADING
        ):
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.fail(code)
        return self._response
