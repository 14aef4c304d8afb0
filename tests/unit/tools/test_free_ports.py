"""Ports that are still free when a server that was started meanwhile binds them."""

from __future__ import annotations

import socket

import pytest

from tidelog.errors import StartupError
from tidelog.tools.free_ports import EPHEMERAL_FROM, HOST, free_port, free_ports


def test_no_outgoing_connection_can_take_the_port_meanwhile() -> None:
    assert all(port < EPHEMERAL_FROM for port in free_ports(0, 50))


def test_no_port_is_given_twice() -> None:
    assert len(set(free_ports(0, 50))) == 50


def test_a_port_that_somebody_listens_on_is_passed_over() -> None:
    port = free_port()
    with socket.create_server((HOST, port)):
        assert port not in free_ports(port, 3)


def test_too_many_ports_are_refused() -> None:
    with pytest.raises(StartupError, match="no 10 free ports from 65530 on"):
        free_ports(65_530, 10)
