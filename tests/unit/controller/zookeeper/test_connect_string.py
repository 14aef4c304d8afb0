from __future__ import annotations

import pytest

from tidelog.controller.zookeeper.connect_string import parse_connect_string
from tidelog.errors import StartupError


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("localhost:2182", [("localhost", 2182)], ""),
        ("localhost", [("localhost", 2181)], ""),
        ("h1:2181,h2:2182/kafka", [("h1", 2181), ("h2", 2182)], "/kafka"),
        (" h1 , h2:1 /a/b", [("h1", 2181), ("h2", 1)], "/a/b"),
        ("h1:2181/", [("h1", 2181)], ""),
        ("h1/kafka/", [("h1", 2181)], "/kafka"),
        ("[::1]:2183,[fe80::1]/k", [("::1", 2183), ("fe80::1", 2181)], "/k"),
    ],
)
def test_hosts_ports_and_chroot(text: str, hosts: list[tuple[str, int]], chroot: str) -> None:
    assert parse_connect_string(text) == (tuple(hosts), chroot)


def test_servers_are_written_as_they_are_read() -> None:
    assert parse_connect_string("h1,[::1]:5/k").servers == "h1:2181,[::1]:5"


@pytest.mark.parametrize("text", ["", "/kafka", ",", "h:port", "h:0", "h:70000", ":2181", "h//k"])
def test_what_cannot_be_read_is_told_with_the_key(text: str) -> None:
    with pytest.raises(StartupError, match=r"^zookeeper\.connect: "):
        parse_connect_string(text)
