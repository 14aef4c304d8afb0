from __future__ import annotations

from tidelog.network.session import ANONYMOUS, Session


def test_a_new_session_knows_where_the_client_is_and_nothing_of_who_it_is() -> None:
    session = Session("EXTERNAL", "10.0.0.1", 40000)

    assert (session.listener_name, session.client_host, session.client_port) == (
        "EXTERNAL",
        "10.0.0.1",
        40000,
    )
    assert session.principal == ANONYMOUS
    assert session.client_software_name == session.client_software_version == "unknown"


def test_a_principal_is_written_as_kafka_writes_it() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_only_the_admin_client_appends_to_internal_topics() -> None:
    session = Session("PLAINTEXT", "127.0.0.1", 40000)

    assert session.may_append_to_internal_topics("__admin_client")
    assert not session.may_append_to_internal_topics("admin")
    assert not session.may_append_to_internal_topics("")
    assert not session.may_append_to_internal_topics(None)
