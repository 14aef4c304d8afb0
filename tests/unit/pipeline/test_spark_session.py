"""Whether Spark can run here, told in one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tidelog.pipeline import spark_session
from tidelog.pipeline.declaration.example import write_example
from tidelog.pipeline.declaration.file import load_pipeline
from tidelog.pipeline.declaration.parts import Pipeline


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


@pytest.fixture
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    for name in ("PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)


def pipeline_on(master: str, folder: Path) -> Pipeline:
    write_example(folder)
    return load_pipeline(folder, {"master": master})


@pytest.mark.usefixtures("without_variables")
def test_workers_on_this_machine_run_this_python(tmp_path: Path) -> None:
    spark_session.choose_python(pipeline_on("local[2]", tmp_path))
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["PATH"] == "/usr/bin"


@pytest.mark.usefixtures("without_variables")
def test_workers_elsewhere_run_their_python3_and_the_driver_finds_this_one(tmp_path: Path) -> None:
    spark_session.choose_python(pipeline_on("spark://host:7077", tmp_path))
    assert "PYSPARK_PYTHON" not in os.environ
    assert os.environ["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"


@pytest.mark.usefixtures("without_variables")
@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"])
def test_a_python_that_somebody_else_has_chosen_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    spark_session.choose_python(pipeline_on("spark://host:7077", tmp_path))
    assert os.environ["PATH"] == "/usr/bin"
    assert os.environ.get("PYSPARK_PYTHON") == ("1" if name == "PYSPARK_PYTHON" else None)


def test_under_spark_submit_no_master_is_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pipeline_on("local[2]", tmp_path)
    assert spark_session.is_local(pipeline)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert not spark_session.is_local(pipeline)
