"""Certificates that change while a listener runs."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import DAY, REQUIRED, Authority
from tidelog.config.listeners import Endpoint
from tidelog.network.settings import NetworkSettings
from tidelog.network.tls_listeners import TlsListeners
from tidelog.tls.settings import TlsConfigError, TlsSettings

SSL = Endpoint("SSL", "127.0.0.1", 0, "SSL")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def network(tls: TlsSettings, **others: Any) -> NetworkSettings:
    return NetworkSettings(tls={"SSL": tls}, inter_broker_listener_name="SSL", **others)


def served_subject(listeners: TlsListeners) -> str:
    return listeners._contexts["SSL"].certificate.subject


def served_until(listeners: TlsListeners) -> object:
    return listeners._contexts["SSL"].certificate.not_after


def test_a_file_that_has_changed_is_read_again(authority: Authority) -> None:
    settings = network(authority.settings(authority.issue("broker")))
    listeners = TlsListeners(settings)
    before = served_until(listeners)
    listeners.check(settings)
    listeners.configure(settings)
    assert served_until(listeners) == before

    authority.issue("broker", valid_to=10 * DAY)
    listeners.check(settings)
    assert served_until(listeners) == before  # not before it is configured
    listeners.configure(settings)
    assert served_until(listeners) != before


def test_another_file_takes_the_place_of_the_first(authority: Authority) -> None:
    tls = authority.settings(authority.issue("broker"))
    listeners = TlsListeners(network(tls))
    other = authority.settings(authority.issue("broker", valid_to=10 * DAY, file="next.pem"))
    before = served_until(listeners)
    listeners.check(network(other))
    listeners.configure(network(other))
    assert served_until(listeners) != before


def test_what_kafka_refuses_is_refused_and_the_old_certificate_stays(
    authority: Authority, tmp_path: Path
) -> None:
    tls = authority.settings(authority.issue("broker"))
    listeners = TlsListeners(network(tls))
    expired = authority.issue("broker", valid_from=-2 * DAY, valid_to=-DAY, file="expired.pem")
    early = authority.issue("broker", valid_from=DAY, valid_to=2 * DAY, file="early.pem")
    renamed = authority.issue("other")
    fewer = authority.issue("broker", hosts=("localhost",), file="fewer.pem")
    for store, complaint in (
        (expired, "not valid now"),
        (early, "not valid now"),
        (renamed, r"ssl\.allow\.dn\.changes"),
        (fewer, r"ssl\.allow\.san\.changes"),
        (tmp_path / "none.pem", "No such file"),
    ):
        changed = network(authority.settings(store))
        with pytest.raises(TlsConfigError, match=complaint):
            listeners.check(changed)
        listeners.configure(changed)
        assert listeners._contexts["SSL"].settings == tls
    allowed = replace(authority.settings(renamed), allow_dn_changes=True, allow_san_changes=True)
    listeners.check(network(allowed))
    listeners.configure(network(allowed))
    assert served_subject(listeners) == "CN=other"


def test_what_cannot_be_used_and_nobody_asked_for_is_logged(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    settings = network(authority.settings(authority.issue("broker")))
    listeners = TlsListeners(settings)
    os.unlink(authority.directory / "broker.pem")
    listeners.configure(settings)
    assert caplog.records[-1].levelno == logging.ERROR
    assert "keeps its certificate" in caplog.text
    assert served_subject(listeners) == "CN=broker"


def test_brokers_that_would_not_trust_each_other_do_not_start(
    authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "elsewhere", "another CA")
    tls = authority.settings(stranger.issue("broker"))
    with pytest.raises(TlsConfigError, match="could not connect to each other"):
        TlsListeners(network(tls), in_cluster=True)
    TlsListeners(network(tls))


def test_brokers_that_would_not_trust_each_other_any_more_do_not_change(
    authority: Authority, tmp_path: Path
) -> None:
    tls = authority.settings(authority.issue("broker"), **REQUIRED)
    listeners = TlsListeners(network(tls), in_cluster=True)
    stranger = Authority(tmp_path / "elsewhere", "another CA")
    other = stranger.settings(stranger.issue("broker"), **REQUIRED)
    with pytest.raises(TlsConfigError, match="could not connect to each other"):
        listeners.check(network(other))


def test_a_listener_with_tls_never_gets_a_plain_transport(authority: Authority) -> None:
    listeners = TlsListeners(NetworkSettings())
    near, far = socket.socketpair()
    with near, far, pytest.raises(KeyError):
        listeners.transport_of(SSL, near)
