"""Answers that say an error where their API has a place for it: with every row, or once for all.

`error_answer` builds one from the request alone, for a request that had no effect. `with_error`
changes the answer to a request that only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.message import Message, Struct
from tidelog.protocol.registry import response_class

# Handled, and then changed: they have no effect, or one that does not matter.
READING: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.DESCRIBE_LOG_DIRS,
    }
)
ERROR_FIELDS: Final = ("error_code", "partition_error_code")


def has_place_for_error(api: ApiKey) -> bool:
    return api in READING or api in ROWS or hasattr(response_class(api)(), "error_code")


def error_answer(api: ApiKey, request: Message, code: ErrorCode, why: str | None = None) -> Message:
    """`why` is said where the API has a place for words."""
    if api not in ROWS:
        return response_class(api)(error_code=int(code))  # type: ignore[call-arg]
    answer = ROWS[api](request, int(code))
    for node in nodes(answer):
        if hasattr(node, "error_message"):
            node.error_message = why
    return answer


def with_error(answer: Message, code: ErrorCode) -> Message:
    """The same answer, with the error in each row, or in the whole if it has no rows."""
    rows = [node for node in nodes(answer) if node is not answer]
    places = [(node, name) for node in rows for name in ERROR_FIELDS if hasattr(node, name)] or [
        (answer, "error_code")
    ]
    for node, name in places:
        setattr(node, name, int(code))
        if hasattr(node, "records"):
            node.records = None
    return answer


# Messages as trees of named fields


def fields(node: Struct) -> Iterator[tuple[str, Any]]:
    for name in node.field_names():
        yield name, getattr(node, name)


def nodes(node: Struct) -> Iterator[Any]:
    """The node, and all structs below it."""
    yield node
    for _, value in fields(node):
        rows = value if isinstance(value, list) else [value]
        for row in rows:
            if isinstance(row, Struct):
                yield from nodes(row)


# Rows of error for the rows of a request


def _produce(request: Any, code: int) -> Message:
    from tidelog.protocol.messages import produce

    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    produce.PartitionProduceResponse(
                        index=each.index, error_code=code, base_offset=-1
                    )
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _offset_commit(request: Any, code: int) -> Message:
    from tidelog.protocol.messages import offset_commit as messages

    return messages.OffsetCommitResponse(
        topics=[
            messages.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    messages.OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _txn_offset_commit(request: Any, code: int) -> Message:
    from tidelog.protocol.messages import txn_offset_commit as messages

    return messages.TxnOffsetCommitResponse(
        topics=[
            messages.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    messages.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _add_partitions_to_txn(request: Any, code: int) -> Message:
    from tidelog.protocol.messages import add_partitions_to_txn as messages

    def rows(topics: Any) -> list[messages.AddPartitionsToTxnTopicResult]:
        return [
            messages.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    messages.AddPartitionsToTxnPartitionResult(
                        partition_index=each, partition_error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ]

    return messages.AddPartitionsToTxnResponse(
        results_by_transaction=[
            messages.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=rows(each.topics)
            )
            for each in request.transactions
        ],
        results_by_topic_v3_and_below=rows(request.v3_and_below_topics),
    )


def _create_topics(request: Any, code: int) -> Message:
    from tidelog.protocol.messages import create_topics as messages

    return messages.CreateTopicsResponse(
        topics=[
            messages.CreatableTopicResult(name=topic.name, error_code=code)
            for topic in request.topics
        ]
    )


def _delete_topics(request: Any, code: int) -> Message:
    from tidelog.protocol.messages import delete_topics as messages

    named = [(topic.name, topic.topic_id) for topic in request.topics]
    rows = [
        messages.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code)
        for name, topic_id in named
    ]
    rows += [
        messages.DeletableTopicResult(name=name, error_code=code) for name in request.topic_names
    ]
    return messages.DeleteTopicsResponse(responses=rows)


def _create_partitions(request: Any, code: int) -> Message:
    from tidelog.protocol.messages import create_partitions as messages

    return messages.CreatePartitionsResponse(
        results=[
            messages.CreatePartitionsTopicResult(name=topic.name, error_code=code)
            for topic in request.topics
        ]
    )


def _delete_records(request: Any, code: int) -> Message:
    from tidelog.protocol.messages import delete_records as messages

    return messages.DeleteRecordsResponse(
        topics=[
            messages.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    messages.DeleteRecordsPartitionResult(
                        partition_index=each.partition_index, low_watermark=-1, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


ROWS: Final[dict[ApiKey, Callable[[Any, int], Message]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
}
