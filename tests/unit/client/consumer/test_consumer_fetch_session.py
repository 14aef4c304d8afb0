from __future__ import annotations

from tidelog.client.consumer.fetch_session import FetchSession, SessionPartition
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)
ID = Uuid(bytes([1]) * 16)
OTHER_ID = Uuid(bytes([2]) * 16)


def row(offset: int, topic_id: Uuid = ID) -> SessionPartition:
    return SessionPartition(topic_id, offset, 0, -1, 1024)


def open_session(wanted: dict[TopicPartition, SessionPartition]) -> FetchSession:
    session = FetchSession()
    request = session.prepare(wanted)
    assert session.answered(request, FetchResponse(session_id=7), wanted)
    return session


def test_the_first_request_is_full() -> None:
    request = FetchSession().prepare({P0: row(0), P1: row(0)})
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert request.sent.keys() == {P0, P1}


def test_later_requests_name_what_moved_and_what_is_to_be_forgotten() -> None:
    session = open_session({P0: row(0), P1: row(0)})
    request = session.prepare({P0: row(5)})
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert request.sent == {P0: row(5)}
    assert request.forgotten == {P1: ID}
    assert session.answered(request, FetchResponse(session_id=7), [])
    again = session.prepare({P0: row(5)})
    assert (again.session_epoch, again.sent, again.forgotten) == (2, {}, {})


def test_a_broker_without_sessions_gets_full_requests() -> None:
    session = FetchSession()
    request = session.prepare({P0: row(0)})
    assert session.answered(request, FetchResponse(session_id=0), [P0])
    assert session.prepare({P0: row(1)}).session_epoch == 0


def test_a_lost_session_is_begun_anew() -> None:
    session = open_session({P0: row(0)})
    request = session.prepare({P0: row(1)})
    lost = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert not session.answered(request, lost, [])
    again = session.prepare({P0: row(1)})
    assert (again.session_id, again.session_epoch) == (0, 0)
    assert again.sent == {P0: row(1)}


def test_a_wrong_epoch_makes_the_broker_drop_the_session() -> None:
    session = open_session({P0: row(0)})
    request = session.prepare({P0: row(1)})
    wrong = FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert not session.answered(request, wrong, [])
    again = session.prepare({P0: row(1)})
    assert (again.session_id, again.session_epoch) == (7, 0)


def test_an_answer_about_a_partition_that_was_not_asked_for_is_refused() -> None:
    session = open_session({P0: row(0)})
    request = session.prepare({P0: row(1)})
    assert not session.answered(request, FetchResponse(session_id=7), [P1])
    assert session.prepare({P0: row(1)}).session_epoch == 0


def test_a_lost_answer_makes_the_next_request_full() -> None:
    session = open_session({P0: row(0)})
    session.prepare({P0: row(1)})
    session.failed()
    again = session.prepare({P0: row(1)})
    assert (again.session_id, again.session_epoch, again.sent) == (7, 0, {P0: row(1)})


def test_a_topic_made_anew_is_forgotten_under_its_old_id() -> None:
    session = open_session({P0: row(0)})
    request = session.prepare({P0: row(0, OTHER_ID)})
    assert request.forgotten == {P0: ID}
    assert request.sent == {P0: row(0, OTHER_ID)}


def test_going_from_names_to_ids_begins_anew() -> None:
    session = open_session({P0: row(0, ZERO_UUID)})
    request = session.prepare({P0: row(0, ID)})
    assert request.session_epoch == 0
    assert request.uses_topic_ids


def test_closing_ends_an_open_session_once() -> None:
    session = open_session({P0: row(0)})
    request = session.closing()
    assert request is not None
    assert (request.session_id, request.session_epoch) == (7, -1)
    assert session.closing() is None
