"""What is sent behind a refused batch is refused as it was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import simple_batch
from tests.support.clock import FakeClock
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tidelog.broker.handlers import produce
from tidelog.broker.refused_sequences import KEPT_S, ROWS_MAX, RefusedSequences
from tidelog.errors import ErrorCode
from tidelog.log.producer_state import ProducerStateTable
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
RECORDS = 2  # a batch


def batch(sequence: int, *, epoch: int = 0, **fields: Any) -> memoryview:
    fields = {"producer_id": 7, **fields}
    return memoryview(simple_batch(RECORDS, producer_epoch=epoch, base_sequence=sequence, **fields))


class Story:
    """Batches of one producer to a partition that is led here, or not."""

    def __init__(self, stage: HandlerStage) -> None:
        self.stage = stage

    def lead(self, leads: bool) -> None:
        self.stage.partition("t").is_leader = leads

    def misses(self, *sequences: int) -> None:
        """They come while another broker leads."""
        self.lead(False)
        assert [self.send(sequence) for sequence in sequences] == [NOT_LEADER] * len(sequences)
        self.lead(True)

    def send(self, sequence: int, *, epoch: int = 0, transactional_id: str | None = None) -> int:
        answer = self.answer(sequence, epoch=epoch, transactional_id=transactional_id)
        return answer.error_code

    def answer(
        self,
        sequence: int,
        *,
        epoch: int = 0,
        transactional_id: str | None = None,
        version: int = 9,
    ) -> PartitionProduceResponse:
        records = batch(sequence, epoch=epoch, is_transactional=transactional_id is not None)
        row = PartitionProduceData(index=0, records=records)
        topics = [TopicProduceData(name="t", partition_data=[row])]
        request = ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=topics, transactional_id=transactional_id
        )
        answer = produce.handle(self.stage.context(version), request)
        assert isinstance(answer, ProduceResponse)
        return answer.responses[0].partition_responses[0]


@asynccontextmanager
async def told(directory: Path, **configs: str) -> AsyncIterator[Story]:
    async with handler_stage(directory) as stage:
        await stage.topic("t", 1, **configs)
        yield Story(stage)


@in_loop
async def test_a_batch_behind_a_refused_one_waits_for_it(tmp_path: Path) -> None:
    async with told(tmp_path) as story:
        assert story.send(0) == 0
        story.misses(2)
        assert [story.send(4), story.send(6)] == [NOT_LEADER, NOT_LEADER]
        assert [story.send(2), story.send(4), story.send(6)] == [0, 0, 0]
        assert story.stage.partition("t").log.log_end_offset == 4 * RECORDS


@in_loop
async def test_a_producer_the_log_does_not_know_begins_with_the_batch_refused_first(
    tmp_path: Path,
) -> None:
    async with told(tmp_path) as story:
        story.misses(0, 2)
        assert story.send(4) == NOT_LEADER
        assert [story.send(0), story.send(2), story.send(4)] == [0, 0, 0]


@in_loop
async def test_so_it_does_where_the_first_was_not_let_into_its_transaction(tmp_path: Path) -> None:
    async with told(tmp_path) as story:
        not_enough = ErrorCode.NOT_ENOUGH_REPLICAS  # there is no coordinator yet
        assert story.send(0, transactional_id="x") == not_enough
        assert [story.send(2), story.send(0), story.send(2)] == [not_enough, 0, 0]


@in_loop
async def test_a_batch_that_was_taken_before_is_a_duplicate_still(tmp_path: Path) -> None:
    async with told(tmp_path) as story:
        assert story.send(0) == 0
        story.misses(2)
        assert story.send(0) == 0
        assert story.send(4) == NOT_LEADER  # and the refused one is not forgotten over it
        assert story.stage.partition("t").log.log_end_offset == RECORDS


@in_loop
async def test_a_gap_that_no_refusal_explains_is_out_of_order(tmp_path: Path) -> None:
    async with told(tmp_path) as story:
        assert story.send(0) == 0
        story.misses(2)
        assert story.send(2) == 0
        assert story.send(8) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@in_loop
async def test_a_refusal_that_was_made_good_elsewhere_gives_way_to_the_next(tmp_path: Path) -> None:
    async with told(tmp_path) as story:
        assert story.send(0) == 0
        story.lead(False)
        assert story.send(2) == NOT_LEADER
        story.stage.partition("t").append(batch(2), 9)  # as another leader's
        assert story.send(4) == NOT_LEADER
        story.lead(True)
        assert [story.send(6), story.send(4), story.send(6)] == [NOT_LEADER, 0, 0]


@in_loop
async def test_a_refusal_is_forgotten_when_clients_have_given_up(tmp_path: Path) -> None:
    async with told(tmp_path) as story:
        assert story.send(0) == 0
        story.misses(2)
        story.stage.clock.advance(ms=int(KEPT_S * 1000))
        assert story.send(4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert not story.stage.broker.refused_sequences


@in_loop
async def test_another_epoch_has_nothing_to_do_with_it(tmp_path: Path) -> None:
    async with told(tmp_path) as story:
        assert story.send(0, epoch=1) == 0
        story.lead(False)
        assert [story.send(2, epoch=0), story.send(2, epoch=1)] == [NOT_LEADER, NOT_LEADER]
        story.lead(True)
        assert story.send(0, epoch=2) == 0
        assert story.send(4, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert story.send(4, epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH


@in_loop
async def test_a_batch_that_was_given_up_holds_back_nothing_that_comes_again(
    tmp_path: Path,
) -> None:
    async with told(tmp_path) as story:
        story.misses(0)
        assert [story.send(2), story.send(4)] == [NOT_LEADER, NOT_LEADER]
        assert [story.send(2), story.send(4)] == [0, 0]  # nothing is known of the producer
        story.misses(6, 8, 8)
        assert story.send(10) == NOT_LEADER  # behind 8, which is the first one now
        assert story.send(8) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@in_loop
async def test_a_log_that_lags_behind_the_refused_batch_holds_back_as_well(tmp_path: Path) -> None:
    async with told(tmp_path) as story:
        assert story.send(0) == 0
        story.misses(4)
        assert story.send(6) == NOT_LEADER
        assert [story.send(2), story.send(4), story.send(6)] == [0, 0, 0]


@in_loop
async def test_a_refused_batch_that_comes_again_and_is_not_good_holds_back_nothing(
    tmp_path: Path,
) -> None:
    async with told(tmp_path, max_message_bytes="10") as story:
        story.misses(0)
        assert story.send(0) == ErrorCode.MESSAGE_TOO_LARGE
        assert not story.stage.broker.refused_sequences


@in_loop
async def test_a_batch_for_a_topic_that_is_not_there_yet_comes_first(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        story = Story(stage)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert story.send(0) == unknown
        await stage.topic("t")
        assert [story.send(2), story.send(0), story.send(2)] == [unknown, 0, 0]


@in_loop
async def test_a_leader_does_not_name_another_for_what_it_holds_back(tmp_path: Path) -> None:
    async with told(tmp_path) as story:
        story.misses(0)
        held_back = story.answer(2, version=10)
        assert held_back.error_code == NOT_LEADER
        assert held_back.current_leader is None


def test_others_are_not_held_back() -> None:
    refused, producers = RefusedSequences(FakeClock()), ProducerStateTable()
    refused.note("t", 0, batch(0), NOT_LEADER, producers)
    assert refused.refuse("t", 1, batch(2), producers) is None
    assert refused.refuse("u", 0, batch(2), producers) is None
    assert refused.refuse("t", 0, batch(2, producer_id=8), producers) is None
    assert refused.refuse("t", 0, batch(2, epoch=1), producers) is None
    assert refused.refuse("t", 0, batch(2), producers) is NOT_LEADER


def test_sequences_wrap() -> None:
    refused, producers = RefusedSequences(FakeClock()), ProducerStateTable()
    refused.note("t", 0, batch(2**31 - 2), NOT_LEADER, producers)
    assert refused.refuse("t", 0, batch(0), producers) is NOT_LEADER
    assert refused.refuse("t", 0, batch(2**31 - 2), producers) is None


def test_old_rows_make_room() -> None:
    refused, producers = RefusedSequences(FakeClock()), ProducerStateTable()
    for producer_id in range(ROWS_MAX + 1):
        refused.note("t", 0, batch(0, producer_id=producer_id), NOT_LEADER, None)
    assert len(refused) == ROWS_MAX
    assert refused.refuse("t", 0, batch(2, producer_id=0), producers) is None
    assert refused.refuse("t", 0, batch(2, producer_id=1), producers) is NOT_LEADER


@pytest.mark.parametrize(
    "records",
    [None, memoryview(b""), memoryview(b"\xff" * 60), memoryview(b"\xff" * 80), batch(-1)],
    ids=["null", "empty", "short", "no batch", "no sequence"],
)
def test_what_is_no_batch_of_an_idempotent_producer_is_not_noted(
    records: memoryview | None,
) -> None:
    refused = RefusedSequences(FakeClock())
    refused.note("t", 0, records, NOT_LEADER, None)
    assert not refused
