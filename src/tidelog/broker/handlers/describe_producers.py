"""DescribeProducers v0: the producers a partition knows, and their open transactions.

Behaviour
- Answered by the partition's leader from memory. A transaction that is open here but not known to
  its coordinator hangs; WriteTxnMarkers ends it.
Unlike Kafka
- A partition named twice is answered once: a small request must not have a huge answer.
- Every error has a message.
Checks, in order: topic name (17), READ on the topic (29), partition hosted here (3, 6).
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.broker.authorized_operations import READ, TOPIC
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import RequestContext
from tidelog.controller.topic_names import must_be_valid
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.producer_state import ProducerStateTable
from tidelog.pending import Pending
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse | Pending[EncodedAnswer]:
    by_topic: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        by_topic.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    response = DescribeProducersResponse()

    def describe_all() -> Iterator[None]:
        for name, indexes in by_topic.items():
            described = TopicResponse(name=name)
            response.topics.append(described)
            for index in indexes:
                described.partitions.append(_partition(context, name, index))
                yield

    return answer_in_slices(context, describe_all(), lambda: response)


def _partition(context: RequestContext, topic: str, index: int) -> PartitionResponse:
    try:
        must_be_valid(topic)
        if not context.may(READ, TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = context.broker.replicas.leader(topic, index)
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message
        )
    return PartitionResponse(
        partition_index=index, active_producers=_producers(partition.log.producers)
    )


def _producers(table: ProducerStateTable) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.current_txn_first_offset,
        )
        for producer_id, entry in table.producers.items()
    ]
