"""What a release holds: the sdist is enough to build from, and the pure wheel is complete.

`make release` itself compiles for many minutes, so these are its parts that need no compiler.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog.record import kernel

ROOT = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT_S = 600
TRIAL_TIMEOUT_S = 600


def run_hook(hook: str, source: Path, output: Path, **variables: str) -> str:
    """As pip and build do it, in this environment. What it prints."""
    output.mkdir()
    program = f"import sys, setuptools.build_meta as b; print(b.{hook}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(output)],
        cwd=source,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=BUILD_TIMEOUT_S,
    )
    return done.stdout


def build(hook: str, source: Path, output: Path) -> Path:
    run_hook(hook, source, output, TIDELOG_COMPILE="none")
    (made,) = output.iterdir()
    return made


def extracted(sdist: Path, place: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    (source,) = place.iterdir()
    return source


@pytest.fixture(scope="module")
def release() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "packaging" / "release.py"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a copy, because a build leaves its traces in the tree."""
    place = tmp_path_factory.mktemp("sdist")
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("this is no checkout of the repository")
    for name in tracked.stdout.split("\0"):
        wanted = name.startswith(("src/", "packaging/")) or "/" not in name
        if name and wanted and (ROOT / name).is_file():
            target = place / "tree" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    return build("build_sdist", place / "tree", place / "out")


def names_in_sdist(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def files_of_console() -> set[str]:
    """Templates, styles and scripts, without which it would serve nothing."""
    console = ROOT / "src" / "tidelog" / "tools" / "console"
    found = [path for part in ("templates", "static") for path in (console / part).rglob("*.*")]
    assert found
    return {path.relative_to(ROOT / "src").as_posix() for path in found}


def test_the_sdist_holds_sources_schemas_headers_and_packaging(sdist: Path) -> None:
    names = names_in_sdist(sdist)
    assert {
        "LICENSE",
        "CHANGELOG.md",
        "README.md",
        "setup.py",
        "src/pyspark_tidelog.py",
        "src/tidelog/py.typed",
        "src/tidelog/record/_kernel.c",
        "packaging/systemd/tidelog.service",
        "packaging/docker/entrypoint.sh",
    } <= names
    assert any(name.endswith(".schema") for name in names)
    assert files_of_console() <= {name.removeprefix("src/") for name in names}
    assert any(re.fullmatch(r"src/tidelog/record/csrc/\w+\.h", name) for name in names)
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_the_sdist_alone_builds_a_pure_wheel_with_everything_in_it(
    sdist: Path, tmp_path: Path
) -> None:
    wheel = build("build_wheel", extracted(sdist, tmp_path / "source"), tmp_path / "wheel")
    assert wheel.name == f"tidelog-{tidelog.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert modules <= names
    assert {"tidelog/py.typed", "pyspark_tidelog.py"} <= names
    assert files_of_console() <= names
    assert not [name for name in names if name.endswith(".so")]
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


def test_a_build_without_a_compiler_ends_with_a_wheel_and_does_not_ask_mypyc(
    sdist: Path, tmp_path: Path
) -> None:
    source = extracted(sdist, tmp_path / "source")
    said = run_hook("build_wheel", source, tmp_path / "wheel", TIDELOG_COMPILE="1", CC="false")
    assert "no C compiler is there" in said
    (wheel,) = (tmp_path / "wheel").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "tidelog/broker/server.py" in names
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.parametrize(
    ("kind", "parts", "is_accepted"),
    [
        ("pure", [], True),
        ("pure", ["tidelog/record/_kernel.abi3.so"], False),
        ("kernel", ["tidelog/record/_kernel.abi3.so"], True),
        ("kernel", [], False),
        ("full", ["tidelog/record/_kernel.abi3.so", "tidelog_0a1b2c3d__mypyc.x.so"], True),
        ("full", ["tidelog/record/_kernel.abi3.so"], False),
        ("full", ["tidelog_0a1b2c3d__mypyc.x.so"], False),
    ],
)
def test_a_wheel_that_lost_an_optional_part_is_not_released(
    release: dict[str, Any], tmp_path: Path, kind: str, parts: list[str], is_accepted: bool
) -> None:
    wheel = tmp_path / "tidelog-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("tidelog/__init__.py", *parts):
            archive.writestr(name, "")
    looks = release["must_hold_its_parts"]
    if is_accepted:
        looks(wheel, release["KINDS"][kind])
    else:
        with pytest.raises(SystemExit, match="holds"):
            looks(wheel, release["KINDS"][kind])


def test_a_release_passes_over_a_python_that_does_not_run(
    release: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shim of pyenv is on the path for versions that are not chosen, too."""
    answers = {"shim": "exit 127", "other": "echo 3.98", "real": "echo 3.99"}
    for name, answer in answers.items():
        program = tmp_path / name / "python3.99"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{answer}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / name) for name in answers))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert release["find_python"]("3.99").program == str(tmp_path / "real" / "python3.99")
    assert release["find_python"]("3.97") is None


def test_a_release_is_for_every_python_that_the_project_names(release: dict[str, Any]) -> None:
    versions = release["supported_versions"]()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={versions[0]}"
    assert len(versions) > 1


def test_the_trial_of_a_release_passes_here_and_tells_what_is_not_loaded() -> None:
    trial = [sys.executable, str(ROOT / "packaging" / "trial.py")]
    kernel_name, other = ("c", "python") if kernel.COMPILED else ("python", "c")
    modules = "compiled" if tidelog.COMPILED else "interpreted"
    for claimed, code in ((kernel_name, 0), (other, 1)):
        done = subprocess.run(
            [*trial, claimed, modules],
            capture_output=True,
            text=True,
            check=False,
            timeout=TRIAL_TIMEOUT_S,
        )
        assert done.returncode == code, done.stdout + done.stderr
    assert f"not kernel={other} modules={modules}" in done.stderr


def test_version_and_changelog_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == tidelog.__version__
    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes[0] == tidelog.__version__


def imported_by(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_the_extra_test_has_what_the_fixtures_import() -> None:
    """The developers' own packages are groups of pyproject.toml, which users never install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.split("[<>=]", each)[0] for each in project["optional-dependencies"]["test"]] == [
        "pytest"
    ]
    paths = (ROOT / "src" / "tidelog" / "testing").rglob("*.py")
    imported = set[str]().union(*map(imported_by, paths))
    assert imported - sys.stdlib_module_names == {"tidelog", "pytest"}
