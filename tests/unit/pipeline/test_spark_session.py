"""Whether Spark can run here, told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.pipeline import spark_session


def installed(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda name: name in modules or None)


def java(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    command = folder / "bin" / "java"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))


def test_a_missing_package_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "pyarrow")
    assert spark_session.missing() == ("pyspark is not installed: pip install 'tidelog[spark]'")


def test_a_missing_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, "pyspark", "pyarrow")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "there is no java on the PATH" in (spark_session.missing() or "")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_java_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    installed(monkeypatch, "pyspark", "pyarrow")
    java(tmp_path, monkeypatch, version)
    assert f"Java {version.removeprefix('1.').split('.')[0]}" in (spark_session.missing() or "")


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_17_and_later_will_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    installed(monkeypatch, "pyspark", "pyarrow")
    java(tmp_path, monkeypatch, version)
    assert spark_session.missing() is None


def test_connect_needs_its_packages_and_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "pyspark", "pyarrow")
    assert spark_session.missing("sc://host") == (
        "Spark Connect needs grpc: pip install 'pyspark[connect]'"
    )
