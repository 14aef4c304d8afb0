from __future__ import annotations

from tidelog.broker.fetch_sessions import EVICTION_MS, FetchedRow, FetchPlan, FetchSessions
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tidelog.types import Uuid

VERSION_BY_NAME = 12
VERSION_BY_ID = 13


def request(
    session_id: int,
    epoch: int,
    *partitions: int,
    forget: tuple[int, ...] = (),
    topic_id: Uuid | None = None,
    offset: int = 0,
) -> FetchRequest:
    rows = [FetchPartition(partition=p, fetch_offset=offset) for p in partitions]
    by_name = {"topic": "t"} if topic_id is None else {}
    by_id = {} if topic_id is None else {"topic_id": topic_id}
    topics = [FetchTopic(**by_name, **by_id, partitions=rows)] if rows else []  # type: ignore[arg-type]
    forgotten = [ForgottenTopic(topic="t", partitions=list(forget))] if forget else []
    return FetchRequest(
        session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=forgotten
    )


def rows_of(plan: FetchPlan, high_watermark: int = 5, records: bytes = b"") -> list[FetchedRow]:
    return [
        (
            wanted,
            PartitionData(
                partition_index=wanted.index,
                high_watermark=high_watermark,
                log_start_offset=0,
                records=records,
            ),
        )
        for wanted in plan.partitions
    ]


def answered(response: FetchResponse) -> list[int]:
    return [row.partition_index for topic in response.responses for row in topic.partitions]


def opened(sessions: FetchSessions, *partitions: int, now_ms: int = 0) -> int:
    plan = sessions.resolve(request(0, 0, *partitions), VERSION_BY_NAME, now_ms)
    return plan.answer(rows_of(plan)).session_id


def test_first_fetch_answers_everything_and_opens_a_session() -> None:
    sessions = FetchSessions(slots_max=10)
    plan = sessions.resolve(request(0, 0, 0, 1), VERSION_BY_NAME, 0)
    response = plan.answer(rows_of(plan))
    assert answered(response) == [0, 1]
    assert response.session_id != 0
    assert len(sessions) == 1


def test_epoch_minus_one_wants_no_session() -> None:
    sessions = FetchSessions(slots_max=10)
    plan = sessions.resolve(request(0, -1, 0), VERSION_BY_NAME, 0)
    assert plan.answer(rows_of(plan)).session_id == 0
    assert len(sessions) == 0


def test_incremental_answer_holds_only_what_changed() -> None:
    sessions = FetchSessions(slots_max=10)
    session_id = opened(sessions, 0, 1)
    plan = sessions.resolve(request(session_id, 1), VERSION_BY_NAME, 0)
    assert answered(plan.answer(rows_of(plan))) == []
    plan = sessions.resolve(request(session_id, 2), VERSION_BY_NAME, 0)
    rows = rows_of(plan)
    rows[1][1].high_watermark = 6
    assert answered(plan.answer(rows)) == [1]


def test_partition_with_an_error_is_answered_every_time() -> None:
    sessions = FetchSessions(slots_max=10)
    session_id = opened(sessions, 0)
    for epoch in (1, 2, 3):
        plan = sessions.resolve(request(session_id, epoch), VERSION_BY_NAME, 0)
        rows = rows_of(plan, high_watermark=-1)
        rows[0][1].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answered(plan.answer(rows)) == [0]


def test_partition_that_recovers_from_an_error_is_told_again() -> None:
    sessions = FetchSessions(slots_max=10)
    session_id = opened(sessions, 0)
    plan = sessions.resolve(request(session_id, 1), VERSION_BY_NAME, 0)
    rows = rows_of(plan)
    rows[0][1].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    plan.answer(rows)
    plan = sessions.resolve(request(session_id, 2), VERSION_BY_NAME, 0)
    assert answered(plan.answer(rows_of(plan))) == [0]


def test_partitions_can_be_added_changed_and_forgotten() -> None:
    sessions = FetchSessions(slots_max=10)
    session_id = opened(sessions, 0, 1)
    plan = sessions.resolve(request(session_id, 1, 1, 2, forget=(0,), offset=9), VERSION_BY_NAME, 0)
    assert [(p.index, p.fetch_offset) for p in plan.partitions] == [(1, 9), (2, 9)]


def test_partition_that_got_records_goes_to_the_end_of_the_line() -> None:
    sessions = FetchSessions(slots_max=10)
    session_id = opened(sessions, 0, 1)
    plan = sessions.resolve(request(session_id, 1), VERSION_BY_NAME, 0)
    rows = rows_of(plan)
    rows[0][1].records = b"batch"
    plan.answer(rows)
    plan = sessions.resolve(request(session_id, 2), VERSION_BY_NAME, 0)
    assert [p.index for p in plan.partitions] == [1, 0]


def test_unknown_session_is_not_found() -> None:
    plan = FetchSessions(slots_max=10).resolve(request(77, 1), VERSION_BY_NAME, 0)
    assert plan.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert plan.answer([]).session_id == 0


def test_wrong_epoch_is_refused_and_the_session_stays() -> None:
    sessions = FetchSessions(slots_max=10)
    session_id = opened(sessions, 0)
    plan = sessions.resolve(request(session_id, 5), VERSION_BY_NAME, 0)
    assert plan.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.resolve(request(session_id, 1), VERSION_BY_NAME, 0).error is ErrorCode.NONE


def test_session_by_name_cannot_go_on_by_id() -> None:
    sessions = FetchSessions(slots_max=10)
    session_id = opened(sessions, 0)
    plan = sessions.resolve(request(session_id, 1), VERSION_BY_ID, 0)
    assert plan.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_wrong_epoch_is_told_before_a_wrong_kind_of_naming() -> None:
    sessions = FetchSessions(slots_max=10)
    session_id = opened(sessions, 0)
    plan = sessions.resolve(request(session_id, 5), VERSION_BY_ID, 0)
    assert plan.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_forgetting_everything_ends_the_session() -> None:
    sessions = FetchSessions(slots_max=10)
    session_id = opened(sessions, 0)
    plan = sessions.resolve(request(session_id, 1, forget=(0,)), VERSION_BY_NAME, 0)
    assert plan.answer([]).session_id == 0
    assert len(sessions) == 0


def test_full_cache_gives_no_session_while_all_are_fresh() -> None:
    sessions = FetchSessions(slots_max=1)
    opened(sessions, 0, now_ms=0)
    assert opened(sessions, 0, 1, now_ms=1000) == 0


def test_session_unused_for_long_is_displaced() -> None:
    sessions = FetchSessions(slots_max=1)
    first = opened(sessions, 0, now_ms=0)
    second = opened(sessions, 0, now_ms=EVICTION_MS + 1)
    assert second not in (0, first)
    assert len(sessions) == 1


def test_larger_session_displaces_a_settled_smaller_one() -> None:
    sessions = FetchSessions(slots_max=1)
    first = opened(sessions, 0, now_ms=0)
    sessions.resolve(request(first, 1), VERSION_BY_NAME, EVICTION_MS)
    assert opened(sessions, 0, 1, now_ms=EVICTION_MS + 1) != 0


def test_full_fetch_of_nothing_opens_a_session_that_can_grow() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    assert session_id
    plan = sessions.resolve(request(session_id, 1, 0), VERSION_BY_NAME, 0)
    response = plan.answer(rows_of(plan))
    assert (response.session_id, answered(response)) == (session_id, [0])


def test_session_of_nothing_closes_when_nothing_is_added() -> None:
    sessions = FetchSessions(10)
    plan = sessions.resolve(request(opened(sessions), 1), VERSION_BY_NAME, 0)
    assert plan.answer([]).session_id == 0
    assert len(sessions) == 0
