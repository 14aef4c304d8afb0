from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.tools.cli.contexts import Contexts
from tidelog.tools.cli.frame import CommandFailed
from tidelog.tools.cli.main import main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("TIDELOG_CONTEXT", raising=False)
    return tmp_path


def test_a_context_is_set_used_shown_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "set", "prod", "bootstrap.servers=a:1,b:2", "client.id=me"]) == 0
    assert main(["context", "set", "dev", "-b", "c:3", "--use"]) == 0
    assert main(["context", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "   NAME  BOOTSTRAP-SERVERS",
        "*  dev   c:3",
        "   prod  a:1,b:2",
    ]
    assert main(["context", "use", "prod"]) == 0
    assert main(["context", "show", "-o", "jsonl"]) == 0
    assert capsys.readouterr().out == (
        '{"name":"prod","properties":{"bootstrap.servers":"a:1,b:2","client.id":"me"}}\n'
    )
    assert main(["context", "delete", "prod"]) == 0
    assert Contexts().names() == ["dev"]
    assert Contexts().current() is None


def test_the_files_are_for_their_owner_alone(home: Path) -> None:
    Contexts().write("prod", {"sasl.jaas.config": "x"})
    path = home / "tidelog" / "contexts" / "prod.properties"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["prod.properties"]


@pytest.mark.parametrize("value", ["a=b:c #!", "  lead", "back\\slash", "two\nlines\t", ""])
def test_any_value_comes_back(value: str) -> None:
    Contexts().write("prod", {"client.id": value})
    assert Contexts().properties("prod") == {"client.id": value}


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b", "x" * 65])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(CommandFailed, match="no name of a context"):
        Contexts().properties(name)


def test_a_context_that_is_not_there_says_how_to_make_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["context", "use", "prod"]) == 1
    assert capsys.readouterr().err == (
        "tidelog: error: there is no context prod (known: none yet). "
        "`tidelog context set prod bootstrap.servers=HOST:PORT` makes it.\n"
    )


def test_a_misspelt_key_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "set", "prod", "bootstrap.server=a:1"]) == 1
    assert "did you mean bootstrap.servers?" in capsys.readouterr().err
    assert Contexts().names() == []


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "set", "prod", "bootstrap.servers=a:1", "--dry-run"]) == 0
    assert "would be written" in capsys.readouterr().err
    assert Contexts().names() == []


def test_passwords_are_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    Contexts().write("prod", {"sasl.jaas.config": "top secret"})
    assert main(["context", "show", "prod"]) == 0
    assert "top secret" not in capsys.readouterr().out
    assert main(["context", "show", "prod", "--secrets"]) == 0
    assert "top secret" in capsys.readouterr().out


def test_the_environment_chooses_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Contexts().write("one", {})
    Contexts().use("one")
    monkeypatch.setenv("TIDELOG_CONTEXT", "two")
    assert Contexts().current() == "two"
