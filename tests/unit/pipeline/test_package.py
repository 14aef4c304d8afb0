"""The archive for Spark's workers: what is in it, what is not, and for whom it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from tidelog.errors import StartupError
from tidelog.pipeline.declaration.example import write_example
from tidelog.pipeline.declaration.file import load_pipeline
from tidelog.pipeline.package import Package, package_settings, write_package
from tidelog.spark.shipped import MANIFEST, abi
from tidelog.tools.cli.main import main

IMPORTS = """
import cramjam, lz4.frame, zstandard, tidelog, tidelog.spark.executor
from tidelog.record import kernel
print(tidelog.__file__, lz4.frame.__file__, kernel.COMPILED)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packaged") / "shop"
    write_example(folder)
    file = folder / "pipeline.toml"
    file.write_text(file.read_text() + '\n[kafka]\n"client.id" = "${file:word}"\n')
    for name in ("views.py", "word", "spark.log", ".hidden", "checkpoint/revenue/metadata"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("shop")
    (folder / "paid_orders").mkdir()
    (folder / "paid_orders" / "part-0.parquet").write_text("shop")
    return folder


@pytest.fixture(scope="module")
def made(folder: Path) -> Package:
    return write_package(load_pipeline(folder), folder / "shop.zip")


@pytest.fixture(scope="module")
def names(made: Package) -> set[str]:
    with ZipFile(made.file) as archive:
        return set(archive.namelist())


def test_a_package_holds_tidelog_its_dependencies_and_the_pipeline(
    made: Package, names: set[str]
) -> None:
    for name in ("pyspark_tidelog.py", "tidelog/__init__.py", "pipeline/views.py", "lz4/frame/"):
        assert any(each.startswith(name) for each in names), name
    assert {"click", "cramjam", "lz4", "zstandard"} <= made.dependencies.keys()
    assert made.pipeline_files == ("pipeline.toml", "tests/revenue.toml", "views.py")
    assert made.size_bytes == made.file.stat().st_size


def test_what_workers_have_already_is_left_out(names: set[str]) -> None:
    assert not [name for name in names if name.startswith(("pyspark/", "pyarrow/", "pandas/"))]


def test_results_logs_and_files_of_secrets_are_left_out(made: Package, names: set[str]) -> None:
    assert made.left_out == ("checkpoint", "paid_orders", "spark.log", "word")
    assert {name for name in names if name.startswith("pipeline/")} == {
        "pipeline/pipeline.toml",
        "pipeline/tests/revenue.toml",
        "pipeline/views.py",
    }


def test_private_keys_are_left_out(tmp_path: Path) -> None:
    write_example(tmp_path)
    file = tmp_path / "pipeline.toml"
    more = """
[kafka]
"ssl.keystore.location" = "client.pem"
"ssl.truststore.location" = "ca.pem"
[sink.framed]
from = "orders"
topic = "framed"
framing = "confluent"
registry = { "schema.registry.url" = "https://host:8081", "ssl.key.location" = "keys/own.key" }
"""
    file.write_text(file.read_text() + more)
    (tmp_path / "keys").mkdir()
    for name in ("client.pem", "ca.pem", "keys/own.key"):
        (tmp_path / name).write_text("key")
    made = write_package(load_pipeline(tmp_path), tmp_path / "shop.zip")
    assert made.left_out == ("client.pem", "keys/own.key")
    assert "ca.pem" in made.pipeline_files


def test_an_unpacked_package_runs_where_nothing_else_is_installed(
    made: Package, tmp_path: Path
) -> None:
    with ZipFile(made.file) as archive:
        archive.extractall(tmp_path)
    # pyarrow is what a worker of Spark has; the rest must come out of the package.
    for module in ("pyarrow", "numpy", "numpy.libs"):
        found = next(Path(each) / module for each in sys.path if (Path(each) / "pyarrow").is_dir())
        if found.exists():
            (tmp_path / module).symlink_to(found)
    done = subprocess.run(
        [sys.executable, "-S", "-c", IMPORTS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    package, lz4, is_compiled = done.stdout.split()
    assert Path(package).is_relative_to(tmp_path)
    assert Path(lz4).is_relative_to(tmp_path)
    assert is_compiled == str(made.has_kernel)


def test_settings_of_spark_are_added_to_those_of_the_pipeline(made: Package) -> None:
    given = {"spark.archives": "my.zip#mine", "spark.executorEnv.PYTHONPATH": "./mine"}
    assert package_settings(made.file, {}) == {
        "spark.archives": f"{made.file}#tidelog_package",
        "spark.executorEnv.PYTHONPATH": "./tidelog_package",
    }
    assert package_settings(made.file, given) == {
        "spark.archives": f"my.zip#mine,{made.file}#tidelog_package",
        "spark.executorEnv.PYTHONPATH": "./mine:./tidelog_package",
    }


@pytest.fixture
def of_another_python(made: Package, tmp_path: Path) -> Callable[[], Path]:
    def make() -> Path:
        other = tmp_path / "other.zip"
        with ZipFile(made.file) as old, ZipFile(other, "w") as new:
            for name in old.namelist():
                if name == MANIFEST:
                    told = json.loads(old.read(name))
                    new.writestr(name, json.dumps({**told, "abi": "cpython-39-riscv64-linux-gnu"}))
                elif name.startswith("tidelog"):
                    new.writestr(name, old.read(name))
        return other

    return make


def test_a_package_of_another_python_is_refused_before_spark_starts(
    of_another_python: Callable[[], Path],
) -> None:
    with pytest.raises(StartupError, match="was packaged for cpython-39-riscv64-linux") as caught:
        package_settings(of_another_python(), {})
    assert f"this Python is {abi()}" in str(caught.value)


def test_a_worker_that_the_package_does_not_fit_says_so(
    of_another_python: Callable[[], Path], tmp_path: Path
) -> None:
    with ZipFile(of_another_python()) as archive:
        archive.extractall(tmp_path / "unpacked")
    done = subprocess.run(
        [sys.executable, "-c", "import tidelog.spark.reader"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "unpacked")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "PackageMismatch" in done.stderr
    assert "was packaged for cpython-39-riscv64-linux-gnu" in done.stderr


def test_a_file_that_is_no_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="is not there; tidelog pipeline package"):
        package_settings(tmp_path / "shop.zip", {})
    (tmp_path / "shop.zip").write_text("hello")
    with pytest.raises(StartupError, match="was not made by tidelog pipeline package"):
        package_settings(tmp_path / "shop.zip", {})


def test_the_command_says_what_it_packed_and_how_to_use_it(
    folder: Path, made: Package, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out" / "shop.zip"
    assert main(["pipeline", "package", str(folder), "-o", str(file)]) == 0
    told = capsys.readouterr().out
    assert f" MB for {abi()}, with" in told
    assert "the pipeline: pipeline.toml, tests/revenue.toml, views.py\n" in told
    assert "without checkpoint, paid_orders, shop.zip, spark.log, word of" in told
    assert f"--archives {file}#tidelog_package" in told


def test_the_lines_that_the_command_shows_can_be_copied_whatever_the_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = tmp_path / "my shop", tmp_path / "my shop.zip"
    assert main(["pipeline", "init", str(folder)]) == 0
    assert main(["pipeline", "package", str(folder), "-o", str(file)]) == 0
    told = capsys.readouterr().out
    assert f"tidelog pipeline validate '{folder}'" in told
    assert f"tidelog pipeline run '{folder}' --master spark://HOST:7077 --package '{file}'" in told
    assert f"--archives '{file}'#tidelog_package" in told


@pytest.mark.parametrize("where", ["--master=local[2]", "--remote=sc://host"])
def test_a_run_that_cannot_use_a_package_refuses_it(
    folder: Path, made: Package, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "run", str(folder), where, "--package", str(made.file)]) == 1
    assert "--package is for a Spark master such as spark://HOST:7077" in capsys.readouterr().err
