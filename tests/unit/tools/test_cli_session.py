from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import parsed
from tidelog.config.client import AdminConfig, ProducerConfig
from tidelog.tools.cli.contexts import Contexts
from tidelog.tools.cli.frame import CommandFailed
from tidelog.tools.cli.session import Session, milliseconds


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("TIDELOG_CONTEXT", raising=False)
    return tmp_path


def session(*arguments: str) -> Session:
    found = parsed(arguments).find_root().obj
    assert isinstance(found, Session)
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ("-b", "h:1", "-o", "json", "group", "list"),
        ("group", "-b", "h:1", "-o", "json", "list"),
        ("group", "list", "-b", "h:1", "-o", "json"),
        ("-b", "other:2", "group", "list", "--bootstrap-server", "h:1", "--output", "json"),
    ],
)
def test_global_options_stand_anywhere_and_the_last_holds(arguments: tuple[str, ...]) -> None:
    found = session(*arguments)
    assert found.bootstrap_server == "h:1"
    assert found.output_format == "json"


def test_settings_replace_each_other_in_their_order(tmp_path: Path) -> None:
    Contexts().write(
        "prod", {"bootstrap.servers": "context:1", "client.id": "context", "client.rack": "r"}
    )
    Contexts().use("prod")
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=file\nlinger.ms=5\n")
    found = session(
        "--config", str(file), "-X", "linger.ms=7", "group", "-X", "acks=1", "list", "-b", "h:1"
    )
    assert found.client_properties() == {
        "bootstrap.servers": "h:1",
        "client.id": "file",
        "client.rack": "r",
        "linger.ms": "7",
        "acks": "1",
    }


def test_a_client_gets_the_settings_that_it_knows() -> None:
    found = session("-X", "acks=1", "-X", "client.id=me", "group", "list")
    assert "acks" not in found.settings(AdminConfig, {})
    assert found.settings(ProducerConfig, {"acks": "all"})["acks"] == "1"


def test_a_key_that_no_client_knows_is_refused() -> None:
    found = session("-X", "linger.mss=1", "group", "list")
    with pytest.raises(CommandFailed, match=r"did you mean linger\.ms\?"):
        found.settings(AdminConfig, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("60", 60), ("500ms", 500), ("5s", 5_000), ("0.5m", 30_000), ("1h", 3_600_000)],
)
def test_times_have_units(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "s", "5w", "nan", "inf", "1e400h", "99999d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        milliseconds(text)


def test_a_time_may_be_as_long_as_its_field() -> None:
    assert milliseconds("365d", bits=45) == 31_536_000_000
    with pytest.raises(ValueError, match="365d"):
        milliseconds("365d")
