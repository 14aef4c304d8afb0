"""What a release holds: the sdist is enough to build from, and the pure wheel is complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import tidelog

ROOT = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT_S = 600


def build(hook: str, source: Path, output: Path) -> Path:
    """As pip and build do it, in this environment."""
    output.mkdir()
    program = f"import sys, setuptools.build_meta as b; print(b.{hook}(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", program, str(output)],
        cwd=source,
        env={**os.environ, "TIDELOG_COMPILE": "none"},
        capture_output=True,
        check=True,
        timeout=BUILD_TIMEOUT_S,
    )
    (made,) = output.iterdir()
    return made


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
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    wheel = build("build_wheel", source, tmp_path / "wheel")
    assert wheel.name == f"tidelog-{tidelog.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert modules <= names
    assert {"tidelog/py.typed", "pyspark_tidelog.py"} <= names
    assert files_of_console() <= names
    assert not [name for name in names if name.endswith(".so")]
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


def test_version_and_changelog_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == tidelog.__version__
    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes[0] == tidelog.__version__
