from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tidelog.tools import zookeeper_server
from tidelog.tools.zookeeper_server import Member, ServerSettings

JARS = (
    "zookeeper-3.9.5.jar",
    "zookeeper-jute-3.9.5.jar",
    "slf4j-api-2.0.17.jar",
    "metrics-core-4.2.37.jar",
    "snappy-java-1.1.10.8.jar",
)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pyspark with its jars."""
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in (*JARS, "zookeeper-jute-tests.jar", "netty-all-4.1.jar"):
        (jars / name).touch()
    spec = ModuleSpec("pyspark", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(zookeeper_server, "find_spec", lambda name: spec)
    return jars


def test_the_five_jars_are_found_whatever_their_versions(wheel: Path) -> None:
    assert [jar.name for jar in zookeeper_server.must_find_jars()] == list(JARS)


def test_a_pyspark_without_jars_is_told_from_none_at_all(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheel / "snappy-java-1.1.10.8.jar").unlink()
    with pytest.raises(zookeeper_server.ZooKeeperMissing, match="the whole pyspark"):
        zookeeper_server.must_find_jars()
    monkeypatch.setattr(zookeeper_server, "find_spec", lambda name: None)
    with pytest.raises(zookeeper_server.ZooKeeperMissing, match="pip install 'tidelog"):
        zookeeper_server.must_find_jars()


def test_that_java_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_server, "java_command", lambda: None)
    with pytest.raises(zookeeper_server.ZooKeeperMissing, match="there is no java on the PATH"):
        zookeeper_server.must_find_java()


def test_the_configuration_binds_to_the_loopback_address(tmp_path: Path) -> None:
    members = (Member(1, 2888, 3888), Member(2, 2889, 3889))
    text = ServerSettings(tmp_path, 2181, number=2, members=members).config_text()
    assert "clientPortAddress=127.0.0.1\n" in text
    assert "server.1=127.0.0.1:2888:3888\nserver.2=127.0.0.1:2889:3889\n" in text
    assert "server." not in ServerSettings(tmp_path, 2181).config_text()
