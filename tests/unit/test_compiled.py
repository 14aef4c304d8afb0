"""Compiled modules are used all together or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import tidelog
from tidelog._compiled import MODULES, library_name
from tidelog.record import kernel

ROOT = Path(tidelog.__file__).parents[1]
BUILT = ROOT / f"{library_name(str(ROOT))}__mypyc{EXTENSION_SUFFIXES[0]}"
ASK = """
import importlib, tidelog
from tidelog._compiled import APART, MODULES
files = {importlib.import_module(name).__file__ for name in sorted(MODULES)}
print(tidelog.COMPILED, *sorted({file.rpartition(".")[2] for file in files}))
"""


def answer(root: Path, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TIDELOG_PURE"}
    result = subprocess.run(
        [sys.executable, "-c", ASK],
        env=environment | {"PYTHONPATH": str(root)} | variables,
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


def source_of(module: str, root: Path) -> Path:
    return root / f"{module.replace('.', '/')}.py"


def require_built() -> None:
    if BUILT.exists():
        return
    if kernel.COMPILED and not list(ROOT.glob("tidelog_*__mypyc*")):
        pytest.fail("the kernel was compiled and the hot modules were not: see `make compile`")
    pytest.skip("hot modules were not compiled, or have changed since: `make compile`")


def test_what_was_built_is_used() -> None:
    require_built()
    assert answer(ROOT) == "True so"


@pytest.mark.parametrize("value", ["1", "modules"])
def test_pure_python_is_used_where_that_is_asked_for(value: str) -> None:
    assert answer(ROOT, TIDELOG_PURE=value) == "False py"


@pytest.mark.parametrize(
    "name", ["pending", "types", "log.producer_snapshots", "protocol.messages.produce"]
)
def test_one_changed_source_turns_all_compiled_modules_off(tmp_path: Path, name: str) -> None:
    """An interpreted one too: its constants and named tuples are compiled into others."""
    require_built()
    shutil.copytree(ROOT / "tidelog", tmp_path / "tidelog")
    shutil.copy(BUILT, tmp_path)
    assert answer(tmp_path) == "True so"
    with open(source_of(f"tidelog.{name}", tmp_path), "a") as source:
        source.write("# a change\n")
    assert answer(tmp_path) == "False py"


def test_without_the_library_its_stubs_are_not_used(tmp_path: Path) -> None:
    require_built()
    shutil.copytree(ROOT / "tidelog", tmp_path / "tidelog")
    assert answer(tmp_path) == "False py"


def test_the_digest_covers_every_compiled_module(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tidelog", tmp_path / "tidelog", ignore=shutil.ignore_patterns("*.so"))
    found = {library_name(str(tmp_path))}
    for name in sorted(MODULES):
        with open(source_of(name, tmp_path), "a") as source:
            source.write("# a change\n")
        digest = library_name(str(tmp_path))
        assert digest not in found, name
        found.add(digest)


def test_every_compiled_module_has_a_source() -> None:
    for name in MODULES:
        assert source_of(name, ROOT).exists(), name


def test_no_compiled_class_has_a_cached_property() -> None:
    """mypyc makes a plain property of it, which is worked out anew each time."""
    for name in sorted(MODULES):
        source = source_of(name, ROOT).read_text()
        assert "cached_property" not in source, name
