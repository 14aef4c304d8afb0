"""Producer ids, epochs, sequences and transactions as a state machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.producer_stage import ProducerStage, idempotent_manager
from tidelog.client.consumer.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
from tidelog.client.errors import (
    ClientError,
    CommitFailed,
    IllegalState,
    InvalidRow,
    MessageTooLarge,
    NotAuthorized,
    ProducerFenced,
    RequestTimedOut,
    Serialization,
    UnreadableAnswer,
    refused,
)
from tidelog.client.producer.batch import ProducerBatch
from tidelog.client.producer.delivery import Outcome
from tidelog.client.producer.sequences import EPOCH_MAX, ProducerIdAndEpoch
from tidelog.client.producer.transaction_manager import State, TransactionManager
from tidelog.client.producer.transaction_requests import TransactionRequest
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.record.batch import SEQUENCES
from tidelog.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = ConsumerGroupMetadata("g", 5, "member", "instance")
OFFSETS = {T0: OffsetAndMetadata(10, 3, "note")}


def next_request(manager: TransactionManager) -> TransactionRequest:
    request = manager.next_request(has_incomplete_batches=False)
    assert request is not None
    return request


def init_answer(code: int = 0, producer_id: int = 7, epoch: int = 0) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)


def added(codes: dict[TopicPartition, int]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=partition.topic,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition.partition, partition_error_code=code
                    )
                ],
            )
            for partition, code in codes.items()
        ]
    )


def committed(code: int) -> TxnOffsetCommitResponse:
    row = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
    return TxnOffsetCommitResponse(
        topics=[TxnOffsetCommitResponseTopic(name="t", partitions=[row])]
    )


def ready_manager(*, is_v2: bool = False, can_bump: bool = True) -> TransactionManager:
    manager = TransactionManager("tx", 60_000)
    manager.see_features(1, 2 if is_v2 else 1)
    manager.coordinator_bumps_epochs = can_bump
    outcome = manager.initialize()
    next_request(manager).take_answer(init_answer())
    assert outcome.is_done
    manager.finished(outcome)
    return manager


def in_transaction(
    *partitions: TopicPartition, is_v2: bool = False, can_bump: bool = True
) -> TransactionManager:
    """With these partitions added."""
    manager = ready_manager(is_v2=is_v2, can_bump=can_bump)
    manager.begin()
    for partition in partitions:
        manager.maybe_add_partition(partition)
    if partitions and not is_v2:
        next_request(manager).take_answer(added(dict.fromkeys(partitions, 0)))
    return manager


def batch_for(partition: TopicPartition, records: int = 1) -> ProducerBatch:
    batch = ProducerBatch(
        partition, size_max=1000, reserved_bytes=0, created_at=0.0, deadline=100.0
    )
    batch.records = [(None, b"v", (), 0)] * records
    batch.close()
    return batch


def sent(manager: TransactionManager, partition: TopicPartition, records: int = 1) -> ProducerBatch:
    batch = batch_for(partition, records)
    assert manager.may_send(batch)
    manager.sequences.number(batch)
    return batch


# Producer ids


def test_an_idempotent_producer_asks_any_broker_for_its_id() -> None:
    manager = TransactionManager(None, 60_000)
    manager.maybe_renew_idempotent_producer()
    request = next_request(manager)
    message = request.message()
    assert isinstance(message, InitProducerIdRequest)
    assert (message.transactional_id, request.needs_coordinator) == (None, False)
    request.take_answer(init_answer(producer_id=9, epoch=3))
    assert (manager.state, manager.producer) == (State.READY, ProducerIdAndEpoch(9, 3))


def test_the_id_is_asked_for_once() -> None:
    manager = TransactionManager(None, 60_000)
    manager.maybe_renew_idempotent_producer()
    manager.maybe_renew_idempotent_producer()
    next_request(manager)
    assert manager.next_request(has_incomplete_batches=False) is None


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS]
)
def test_a_request_that_failed_for_now_is_sent_again(code: ErrorCode) -> None:
    manager = TransactionManager("tx", 60_000)
    outcome = manager.initialize()
    request = next_request(manager)
    request.take_answer(init_answer(code))
    assert not outcome.is_done
    assert next_request(manager) is request
    assert (request.attempts, request.must_find_coordinator) == (1, False)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_looked_for(code: ErrorCode) -> None:
    manager = TransactionManager("tx", 60_000)
    manager.initialize()
    request = next_request(manager)
    request.take_answer(init_answer(code))
    assert next_request(manager).must_find_coordinator


def test_an_answer_without_a_producer_id_is_fatal() -> None:
    manager = TransactionManager(None, 60_000)
    manager.maybe_renew_idempotent_producer()
    next_request(manager).take_answer(init_answer(producer_id=-1, epoch=-1))
    assert isinstance(manager.last_error, UnreadableAnswer)
    assert manager.has_fatal_error


def test_a_producer_without_the_right_to_its_id_may_try_again() -> None:
    manager = TransactionManager("tx", 60_000)
    outcome = manager.initialize()
    next_request(manager).take_answer(init_answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    assert isinstance(outcome.error, NotAuthorized)
    manager.finished(outcome)
    assert manager.forget_authorization_error() is not None
    assert manager.initialize() is not outcome
    next_request(manager).take_answer(init_answer())
    assert manager.state == State.READY


# The calls of the application


def test_calls_out_of_their_order_are_refused() -> None:
    manager = TransactionManager("tx", 60_000)
    with pytest.raises(IllegalState):
        manager.begin()
    with pytest.raises(IllegalState, match="init_transactions"):
        manager.maybe_add_partition(T0)
    ready = ready_manager()
    for call in (ready.commit, ready.abort):
        with pytest.raises(IllegalState):
            call()
    with pytest.raises(IllegalState, match="begin a transaction first"):
        ready.maybe_add_partition(T0)
    with pytest.raises(IllegalState, match="begin a transaction first"):
        ready.send_offsets(OFFSETS, GROUP)
    ready.begin()
    with pytest.raises(IllegalState):
        ready.begin()


def test_transactions_need_a_transactional_id() -> None:
    manager = idempotent_manager()
    calls: list[Callable[[], object]] = [manager.initialize, manager.begin, manager.commit]
    for call in calls:
        with pytest.raises(IllegalState, match=r"transactional\.id"):
            call()


def test_a_call_that_timed_out_is_taken_up_by_the_same_call_alone() -> None:
    manager = in_transaction(T0)
    outcome = manager.commit()
    with pytest.raises(IllegalState, match="commit_transaction timed out"):
        manager.abort()
    with pytest.raises(IllegalState, match="commit_transaction timed out"):
        manager.begin()
    assert manager.commit() is outcome
    next_request(manager).take_answer(EndTxnResponse())
    assert outcome.is_done
    manager.finished(outcome)
    manager.begin()


# Transactions of version 1


def test_partitions_are_added_before_their_records_leave() -> None:
    manager = ready_manager()
    manager.begin()
    manager.maybe_add_partition(T0)
    manager.maybe_add_partition(T1)
    manager.maybe_add_partition(T0)
    assert not manager.may_send(batch_for(T0))
    request = next_request(manager)
    message = request.message()
    assert isinstance(message, AddPartitionsToTxnRequest)
    assert [(row.name, row.partitions) for row in message.v3_and_below_topics] == [("t", [0, 1])]
    request.take_answer(added({T0: 0, T1: 0}))
    assert manager.may_send(batch_for(T0))
    assert manager.next_request(has_incomplete_batches=True) is None


def test_a_commit_waits_for_the_batches_and_then_ends_the_transaction() -> None:
    manager = in_transaction(T0)
    outcome = manager.commit()
    assert manager.next_request(has_incomplete_batches=True) is None
    request = next_request(manager)
    message = request.message()
    assert isinstance(message, EndTxnRequest)
    assert (message.committed, request.at_most) == (True, 4)
    request.take_answer(EndTxnResponse())
    assert (outcome.is_done, manager.state) == (True, State.READY)
    assert manager.producer == ProducerIdAndEpoch(7, 0)


def test_a_transaction_that_touched_nothing_is_not_ended_at_the_coordinator() -> None:
    manager = in_transaction()
    outcome = manager.commit()
    assert manager.next_request(has_incomplete_batches=False) is None
    assert (outcome.is_done, manager.state) == (True, State.READY)


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_transaction_that_is_handed_over_stays_open_and_the_producer_starts_anew(
    is_v2: bool,
) -> None:
    manager = in_transaction(T0, is_v2=is_v2)
    batch = sent(manager, T0)
    manager.sequences.completed(batch, base_offset=3)
    assert manager.hand_over() == ("tx", 7, 0, is_v2)
    assert not manager.has_ongoing_transaction
    assert manager.next_request(has_incomplete_batches=False) is None
    with pytest.raises(IllegalState, match="no producer id"):
        manager.maybe_add_partition(T0)
    outcome = manager.initialize()
    next_request(manager).take_answer(init_answer(epoch=1))
    manager.finished(outcome)
    manager.begin()
    manager.maybe_add_partition(T0)
    if not is_v2:
        next_request(manager).take_answer(added({T0: 0}))
    assert sent(manager, T0).base_sequence == 0


def test_only_a_transaction_with_records_and_without_errors_is_handed_over() -> None:
    with pytest.raises(IllegalState, match="no transaction with records"):
        in_transaction().hand_over()
    manager = in_transaction(T0)
    manager.become_abortable(refused("records", ErrorCode.MESSAGE_TOO_LARGE))
    with pytest.raises(ClientError, match="abort the transaction"):
        manager.hand_over()


def test_offsets_go_through_both_coordinators() -> None:
    manager = in_transaction()
    outcome = manager.send_offsets(OFFSETS, GROUP)
    request = next_request(manager)
    message = request.message()
    assert isinstance(message, AddOffsetsToTxnRequest)
    assert (message.group_id, request.group_id) == ("g", None)
    request.take_answer(AddOffsetsToTxnResponse())
    assert not outcome.is_done
    request = next_request(manager)
    commit = request.message()
    assert isinstance(commit, TxnOffsetCommitRequest)
    assert (request.group_id, request.at_most) == ("g", 4)
    assert (commit.generation_id, commit.member_id, commit.group_instance_id) == (
        5,
        "member",
        "instance",
    )
    row = commit.topics[0].partitions[0]
    assert (row.committed_offset, row.committed_leader_epoch, row.committed_metadata) == (
        10,
        3,
        "note",
    )
    request.take_answer(committed(ErrorCode.NONE))
    assert outcome.is_done
    assert outcome.error is None
    manager.commit()
    assert isinstance(next_request(manager).message(), EndTxnRequest)


def test_offsets_that_failed_for_now_are_committed_again() -> None:
    manager = in_transaction(is_v2=True)
    outcome = manager.send_offsets(OFFSETS, GROUP)
    request = next_request(manager)
    request.take_answer(committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert not next_request(manager).must_find_coordinator
    request.take_answer(committed(ErrorCode.NOT_COORDINATOR))
    assert next_request(manager).must_find_coordinator
    assert not outcome.is_done


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_offsets_of_a_member_that_left_its_group_abort_the_transaction(code: ErrorCode) -> None:
    manager = in_transaction(is_v2=True)
    outcome = manager.send_offsets(OFFSETS, GROUP)
    next_request(manager).take_answer(committed(code))
    assert isinstance(outcome.error, CommitFailed)
    assert manager.has_abortable_error


def test_the_end_of_the_transaction_before_is_waited_for_only_shortly() -> None:
    manager = ready_manager()
    manager.begin()
    manager.maybe_add_partition(T0)
    request = next_request(manager)
    request.take_answer(added({T0: ErrorCode.CONCURRENT_TRANSACTIONS}))
    assert next_request(manager).backoff_max_s == pytest.approx(0.02)


def test_a_topic_without_the_right_to_write_aborts_the_transaction() -> None:
    manager = ready_manager()
    manager.begin()
    manager.maybe_add_partition(T0)
    manager.maybe_add_partition(T1)
    next_request(manager).take_answer(
        added({T0: ErrorCode.OPERATION_NOT_ATTEMPTED, T1: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    )
    assert manager.has_abortable_error
    assert isinstance(manager.last_error, NotAuthorized)


def test_a_partition_that_an_answer_leaves_out_counts_as_not_added() -> None:
    manager = ready_manager()
    manager.begin()
    manager.maybe_add_partition(T0)
    next_request(manager).take_answer(added({}))
    assert manager.has_abortable_error
    assert not manager.may_send(batch_for(T0))


# Transactions of version 2


def test_version_2_adds_partitions_and_offsets_with_the_records() -> None:
    manager = ready_manager(is_v2=True)
    manager.begin()
    manager.maybe_add_partition(T0)
    assert manager.next_request(has_incomplete_batches=True) is None
    assert manager.may_send(batch_for(T0))
    manager.send_offsets(OFFSETS, GROUP)
    request = next_request(manager)
    assert isinstance(request.message(), TxnOffsetCommitRequest)
    assert request.at_most is None


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_of_a_version_2_transaction_brings_the_next_epoch(is_commit: bool) -> None:
    manager = in_transaction(T0, is_v2=True)
    sent(manager, T0, 3)
    if is_commit:
        manager.commit()
    else:
        manager.abort()
    request = next_request(manager)
    assert request.at_most is None
    request.take_answer(EndTxnResponse(producer_id=7, producer_epoch=1))
    assert (manager.state, manager.producer) == (State.READY, ProducerIdAndEpoch(7, 1))
    assert manager.sequences.of(T0).next_sequence == 0


def test_a_cluster_that_was_upgraded_gives_a_new_epoch_between_transactions() -> None:
    manager = in_transaction(T0)
    manager.see_features(2, 2)
    assert not manager.is_v2
    outcome = manager.commit()
    request = next_request(manager)
    assert request.at_most == 4
    request.take_answer(EndTxnResponse())
    assert manager.is_v2
    assert not outcome.is_done
    bump = next_request(manager)
    message = bump.message()
    assert isinstance(message, InitProducerIdRequest)
    assert (message.producer_id, message.producer_epoch) == (7, 0)
    bump.take_answer(init_answer(epoch=1))
    assert (outcome.is_done, manager.state) == (True, State.READY)


def test_older_news_of_features_do_not_count() -> None:
    manager = ready_manager(is_v2=True)
    manager.see_features(0, 1)
    manager.begin()
    manager.maybe_add_partition(T0)
    manager.commit()
    next_request(manager).take_answer(EndTxnResponse(producer_id=7, producer_epoch=1))
    assert manager.is_v2


# Errors


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_has_come_to_its_end(code: ErrorCode) -> None:
    manager = in_transaction(T0)
    outcome = manager.commit()
    next_request(manager).take_answer(EndTxnResponse(error_code=code))
    assert isinstance(outcome.error, ProducerFenced)
    manager.finished(outcome)
    for call in (manager.begin, manager.commit, manager.abort, manager.initialize):
        with pytest.raises(ProducerFenced):
            call()
    with pytest.raises(ProducerFenced):
        manager.maybe_add_partition(T0)


def test_a_transaction_with_an_error_can_only_be_aborted() -> None:
    manager = in_transaction(T0)
    batch = sent(manager, T0)
    manager.batch_failed(batch, RequestTimedOut("late"), is_sequence_free=False)
    with pytest.raises(RequestTimedOut, match="abort the transaction"):
        manager.maybe_add_partition(T1)
    with pytest.raises(RequestTimedOut, match="abort the transaction"):
        manager.commit()
    manager.abort()
    assert manager.state == State.ABORTING


def test_a_record_that_was_not_taken_cannot_be_missing_from_a_commit() -> None:
    manager = in_transaction(T0)
    too_large = MessageTooLarge("too large", ErrorCode.MESSAGE_TOO_LARGE)
    manager.records_not_taken(too_large, are_others_taken=False)
    with pytest.raises(MessageTooLarge, match="abort the transaction"):
        manager.commit()
    manager.abort()
    assert manager.state == State.ABORTING


def test_a_wrong_call_of_send_leaves_the_transaction_as_it_is() -> None:
    manager = in_transaction(T0)
    for error in (Serialization("no bytes"), IllegalState("closed"), InvalidRow("partition -1")):
        manager.records_not_taken(error, are_others_taken=False)
    manager.commit()
    assert manager.state == State.COMMITTING


def test_rows_of_a_wrong_call_that_were_taken_are_not_committed_without_the_others() -> None:
    manager = in_transaction(T0)
    manager.records_not_taken(InvalidRow("a row has a null topic"), are_others_taken=True)
    with pytest.raises(InvalidRow, match="abort the transaction"):
        manager.commit()


def test_a_record_that_was_not_taken_outside_a_transaction_spoils_nothing() -> None:
    manager = ready_manager()
    manager.records_not_taken(RequestTimedOut("no metadata"), are_others_taken=False)
    manager.begin()
    assert manager.state == State.IN_TRANSACTION


def test_after_a_failed_batch_an_abort_gets_a_new_epoch() -> None:
    """KIP-360: what became of the batch is not known, so its sequences must not be used again."""
    manager = in_transaction(T0)
    batch = sent(manager, T0, 5)
    manager.batch_failed(batch, RequestTimedOut("late"), is_sequence_free=False)
    outcome = manager.abort()
    next_request(manager).take_answer(EndTxnResponse())
    assert manager.state == State.INITIALIZING
    request = next_request(manager)
    assert isinstance(request.message(), InitProducerIdRequest)
    request.take_answer(init_answer(epoch=1))
    assert (outcome.is_done, manager.state) == (True, State.READY)
    assert manager.producer == ProducerIdAndEpoch(7, 1)
    assert manager.sequences.of(T0).next_sequence == 0


def test_a_coordinator_that_does_not_know_the_producer_is_asked_for_an_epoch_at_once() -> None:
    manager = in_transaction(T0)
    outcome = manager.commit()
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    next_request(manager).take_answer(EndTxnResponse(error_code=code))
    assert manager.has_abortable_error
    manager.finished(outcome)
    manager.abort()
    assert isinstance(next_request(manager).message(), InitProducerIdRequest)


def test_before_kafka_2_5_an_unknown_producer_is_fatal() -> None:
    manager = in_transaction(T0, can_bump=False)
    manager.commit()
    next_request(manager).take_answer(EndTxnResponse(error_code=ErrorCode.UNKNOWN_PRODUCER_ID))
    assert manager.has_fatal_error


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
)
def test_errors_that_no_abort_mends_are_fatal(code: ErrorCode) -> None:
    manager = in_transaction(T0)
    manager.commit()
    next_request(manager).take_answer(EndTxnResponse(error_code=code))
    assert manager.has_fatal_error


def test_a_broker_may_demand_an_abort() -> None:
    manager = in_transaction(T0)
    outcome = manager.commit()
    next_request(manager).take_answer(EndTxnResponse(error_code=ErrorCode.TRANSACTION_ABORTABLE))
    assert manager.has_abortable_error
    assert outcome.error is not None


def test_a_fatal_error_fails_everything_that_waits() -> None:
    manager = in_transaction(T0)
    offsets = manager.send_offsets(OFFSETS, GROUP)
    commit = manager.commit()
    manager.become_fatal(ClientError("the end"))
    assert [str(each.error) for each in (offsets, commit)] == ["the end", "the end"]


def test_a_closed_producer_tells_whoever_waits() -> None:
    manager = in_transaction(T0)
    outcome: Outcome = manager.commit()
    manager.close(ClientError("closed"))
    assert str(outcome.error) == "closed"


# Sequences


def test_batches_are_numbered_by_their_records() -> None:
    manager = idempotent_manager()
    batches = [sent(manager, T0, count) for count in (3, 1, 4)]
    assert [batch.base_sequence for batch in batches] == [0, 3, 4]
    assert sent(manager, T1).base_sequence == 0


def test_sequences_begin_anew_after_the_last_one() -> None:
    manager = idempotent_manager()
    sequences = manager.sequences.of(T0)
    sequences.start_at_beginning(manager.producer)
    sequences.next_sequence = SEQUENCES - 2
    sequences.last_acked_sequence = SEQUENCES - 3
    first, second = sent(manager, T0, 3), sent(manager, T0)
    assert (first.base_sequence, first.last_sequence) == (SEQUENCES - 2, 0)
    assert second.base_sequence == 1
    manager.sequences.completed(first, 10)
    assert sequences.is_next(second.base_sequence)


def test_no_batch_is_sent_that_would_make_the_broker_forget_one_in_flight() -> None:
    manager = idempotent_manager()
    batches = [sent(manager, T0) for _ in range(5)]
    assert not manager.may_send(batch_for(T0))
    manager.sequences.completed(batches[1], 1)
    assert not manager.may_send(batch_for(T0))
    manager.sequences.completed(batches[0], 0)
    assert [sent(manager, T0).base_sequence for _ in range(2)] == [5, 6]
    assert not manager.may_send(batch_for(T0))


def test_a_batch_behind_one_that_failed_is_sent_again_without_ado() -> None:
    manager = idempotent_manager()
    sent(manager, T0)
    second = sent(manager, T0)
    assert manager.sequences.can_retry(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    manager.maybe_renew_idempotent_producer()
    assert manager.producer == ProducerIdAndEpoch(7, 0)


def test_a_refusal_from_before_the_last_acknowledgement_proves_no_gap() -> None:
    """After a change of leaders it comes over another connection, and so perhaps later."""
    manager = idempotent_manager()
    first, second = sent(manager, T0), sent(manager, T0)
    manager.sequences.completed(first, 0)
    assert manager.sequences.can_retry(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    manager.maybe_renew_idempotent_producer()
    assert manager.producer == ProducerIdAndEpoch(7, 0)


def test_a_real_gap_bumps_the_epoch_and_numbers_what_is_in_flight_anew() -> None:
    manager = idempotent_manager()
    first, second, third = (sent(manager, T0, 2) for _ in range(3))
    manager.sequences.completed(first, 0)
    manager.sequences.number(second)  # sent again
    assert manager.sequences.can_retry(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    manager.maybe_renew_idempotent_producer()
    assert manager.producer == ProducerIdAndEpoch(7, 1)
    assert [(each.producer_epoch, each.base_sequence) for each in (second, third)] == [
        (1, 0),
        (1, 2),
    ]
    assert sent(manager, T0).base_sequence == 4
    # What comes back now was sent before, so nothing more is concluded from it.
    assert manager.sequences.can_retry(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    manager.maybe_renew_idempotent_producer()
    assert manager.producer == ProducerIdAndEpoch(7, 1)


def test_other_partitions_take_the_new_epoch_when_nothing_is_in_flight() -> None:
    manager = idempotent_manager()
    other = sent(manager, T1)
    batch = sent(manager, T0)
    manager.sequences.can_retry(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    manager.maybe_renew_idempotent_producer()
    assert not manager.may_send(batch_for(T1))
    manager.sequences.completed(other, 0)
    later = sent(manager, T1)
    assert (later.producer_epoch, later.base_sequence) == (1, 0)


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    manager = idempotent_manager(producer_epoch=EPOCH_MAX)
    batch = sent(manager, T0)
    manager.sequences.can_retry(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    manager.maybe_renew_idempotent_producer()
    assert not manager.may_send(batch)
    next_request(manager).take_answer(init_answer(producer_id=8))
    assert manager.producer == ProducerIdAndEpoch(8, 0)


def test_a_broker_that_forgot_the_producer_gets_a_new_epoch() -> None:
    manager = idempotent_manager()
    batch = sent(manager, T0)
    assert manager.sequences.can_retry(batch, ErrorCode.UNKNOWN_PRODUCER_ID, 5)
    manager.maybe_renew_idempotent_producer()
    assert manager.producer == ProducerIdAndEpoch(7, 1)


def test_a_transaction_goes_on_where_retention_took_what_the_broker_knew() -> None:
    manager = in_transaction(T0)
    manager.sequences.completed(sent(manager, T0, 2), 10)
    batch = sent(manager, T0)
    assert batch.base_sequence == 2
    assert manager.sequences.can_retry(batch, ErrorCode.UNKNOWN_PRODUCER_ID, 12)
    assert batch.base_sequence == 0


def test_a_transaction_cannot_go_on_where_records_were_lost() -> None:
    manager = in_transaction(T0)
    manager.sequences.completed(sent(manager, T0, 2), 10)
    batch = sent(manager, T0)
    assert not manager.sequences.can_retry(batch, ErrorCode.UNKNOWN_PRODUCER_ID, 5)
    assert not manager.sequences.can_retry(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_batches_behind_one_that_a_transaction_lost_move_up() -> None:
    manager = in_transaction(T0)
    first, second = sent(manager, T0, 3), sent(manager, T0, 2)
    error = refused("write", ErrorCode.MESSAGE_TOO_LARGE)
    manager.batch_failed(first, error, is_sequence_free=True)
    assert second.base_sequence == 0
    assert manager.sequences.of(T0).next_sequence == 2


def test_a_batch_refused_for_good_bumps_the_epoch_of_an_idempotent_producer() -> None:
    manager = idempotent_manager()
    first, second = sent(manager, T0, 3), sent(manager, T0, 2)
    error = refused("write", ErrorCode.MESSAGE_TOO_LARGE)
    manager.batch_failed(first, error, is_sequence_free=True)
    manager.maybe_renew_idempotent_producer()
    assert (second.producer_epoch, second.base_sequence) == (1, 0)


def test_after_an_expired_batch_nothing_new_leaves_until_those_in_flight_are_answered() -> None:
    manager = idempotent_manager()
    expired, behind = sent(manager, T0), sent(manager, T0)
    manager.batch_failed(expired, RequestTimedOut("late"), is_sequence_free=False)
    manager.sequences.mark_unresolved(expired)
    manager.maybe_resolve_sequences()
    assert not manager.may_send(batch_for(T0))
    manager.sequences.completed(behind, 1)
    manager.maybe_resolve_sequences()
    # The one behind it was written, so the one that expired was too.
    assert sent(manager, T0).base_sequence == 2
    manager.maybe_renew_idempotent_producer()
    assert manager.producer == ProducerIdAndEpoch(7, 0)


def test_where_the_last_batches_expired_the_epoch_is_bumped() -> None:
    manager = idempotent_manager()
    expired = sent(manager, T0)
    manager.batch_failed(expired, RequestTimedOut("late"), is_sequence_free=False)
    manager.sequences.mark_unresolved(expired)
    manager.maybe_resolve_sequences()
    manager.maybe_renew_idempotent_producer()
    later = sent(manager, T0)
    assert (later.producer_epoch, later.base_sequence) == (1, 0)


def test_the_answer_to_a_batch_that_expired_before_the_bump_changes_nothing() -> None:
    manager = idempotent_manager()
    expired = sent(manager, T0)
    manager.batch_failed(expired, RequestTimedOut("late"), is_sequence_free=False)
    manager.sequences.mark_unresolved(expired)
    manager.maybe_resolve_sequences()
    manager.maybe_renew_idempotent_producer()
    manager.sequences.completed(expired, 5)
    assert sent(manager, T0).base_sequence == 0


def test_records_of_a_transaction_are_marked_so() -> None:
    manager = in_transaction(T0, is_v2=True)
    stage = ProducerStage(transactions=manager, linger_s=0.0)
    stage.append()
    batch = stage.drain_one()
    assert batch.is_transactional
    assert batch.data is not None
    assert batch.data[22] & 0x10


def test_no_record_is_appended_between_transactions() -> None:
    manager = ready_manager(is_v2=True)
    stage = ProducerStage(transactions=manager)
    with pytest.raises(IllegalState):
        stage.append()
    manager.begin()
    stage.append()
    manager.commit()
    with pytest.raises(IllegalState):
        stage.append()
