"""The tree polices itself: names, dead code, docs that must keep up, and long functions.

Nothing here limits the length of a file: a file is as long as its one noun.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tidelog.broker.api_table import API_TABLE
from tidelog.protocol.registry import request_class

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tidelog"
GENERATED = SOURCE / "protocol" / "messages"
TESTS = ROOT / "tests"

BANNED_MODULE_NAMES = re.compile(
    r"^_?(utils?|helpers?|common|misc|stuff|tools_?2|\w+_(v2|new|old))$"
)
UNFINISHED = re.compile(
    r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b"
)
# Words of the place where the code is written have no place in it.
FOREIGN_WORDS = re.compile(
    "|".join(
        (
            r"(?<![\w.])/" + r"(work|root|home/\w+)/",
            r"\bsub" + r"agents?\b",
            r"\bAI " + r"(agent|assistant)s?\b",
            r"\b(file" + r"s\.pythonhosted|py" + r"pi)\.org\b",
            r"\brepo1?\.mav" + r"en\.",
        )
    )
)
BROAD_EXCEPT_FILES = {
    "network/channel.py",
    "network/connection.py",
    "pending.py",  # the failure path of the reader gets what it raises
    "supervisor.py",
    "log/cleaner/log_cleaner.py",
    "testing/control.py",  # the test is told what its command failed with
    "tools/cli/main.py",
}

# Found by name, as dispatch and commands find them: in which folder, or module, what.
DOORS = {
    "tidelog.broker.handlers": {"handle"},
    "tidelog.tools.cli": {"command", "main"},
    "tidelog.tools.kafka": {"command"},
    "tidelog.client": {"__getattr__"},
    "tidelog.spark.expectations": {"dropped_in_last_batch"},
    "tidelog.spark.lag": {"query_lag"},
    "tidelog.spark.topics": {"create_missing_topics"},
    "tidelog.testing.containers": {"KafkaContainer"},
    "tidelog.testing.pytest_plugin": {
        "kafka_server",
        "pytest_addoption",
        "pytest_configure",
        "pytest_runtest_makereport",
        "tidelog",
        "tidelog_broker",
        "tidelog_cluster",
        "tidelog_session",
    },
    # Called by codecs that `generator.WITHOUT_CODEC` leaves out.
    "tidelog.protocol.primitives": {
        "encode_compact_nullable_bytes",
        "read_compact_nullable_bytes",
        "read_compact_records",
    },
}

# Brokers ask them of brokers; the client library that the samples are made with has none of them.
BROKERS_ONLY_KEYS = {4, 5, 6, 7, 56}

BROKERS_THAT_ASK_BROKERS = {
    "coordinator/txn/markers.py",
    "replication/replica_fetcher.py",
    "replication/alter_partition_manager.py",
}

LONG_FUNCTION_LINES = 70
# A change may shorten the list and lower the number, never the other way.
LONG_FUNCTIONS = {"record/_pure.py::scan_log", "log/log_validator.py::validate_for_append"}
LONGEST_FUNCTION_LINES = 85


def python_files(directory: Path) -> list[Path]:
    return sorted(
        path
        for path in directory.rglob("*.py")
        if GENERATED not in path.parents and "__pycache__" not in path.parts
    )


def source_name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def all_python_files() -> list[Path]:
    return [p for part in (SOURCE, TESTS, ROOT / "bench") for p in python_files(part)]


def text_files() -> list[Path]:
    suffixes = {".py", ".md", ".c", ".h", ".toml", ".txt", ".sh"}
    found = [p for p in ROOT.glob("*") if p.is_file() and p.suffix in suffixes]
    found.append(ROOT / "Makefile")
    for part in ("src", "tests", "bench", "docs", ".ci"):
        found += [p for p in (ROOT / part).rglob("*") if p.is_file() and p.suffix in suffixes]
    return [p for p in found if "egg-info" not in p.as_posix() and "__pycache__" not in p.parts]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imported_names(path: Path) -> Iterator[str]:
    """Every module a file may mean: imports, and the pieces of strings for late imports."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"[\w.]{3,80}", str(node.value)):
            yield str(node.value)


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_run_directly(path: Path) -> bool:
    return '__name__ == "__main__"' in path.read_text() or path.name == "__main__.py"


def is_public_door(path: Path) -> bool:
    """Packages, modules that stand in DOORS, and what pyproject.toml names as a command."""
    return (
        path.name == "__init__.py"
        or module_name(path) in DOORS
        or f"{module_name(path)}:" in (ROOT / "pyproject.toml").read_text()
    )


def test_no_module_is_dead() -> None:
    alive: set[str] = set()
    for path in python_files(SOURCE.parent):
        own = module_name(path)
        alive.update(name for name in imported_names(path) if name != own)
    dead = [
        source_name(path)
        for path in python_files(SOURCE)
        if not is_public_door(path)
        and not is_run_directly(path)
        and module_name(path) not in alive
        and path.stem not in alive
    ]
    assert dead == []


def test_no_generated_codec_is_dead() -> None:
    """Those that nothing uses stand in `generator.WITHOUT_CODEC`."""
    alive = {name for path in python_files(SOURCE) for name in imported_names(path)}
    codecs = [path for path in GENERATED.glob("*.py") if path.name != "__init__.py"]
    assert [path.name for path in codecs if module_name(path) not in alive] == []


def names_taken_elsewhere() -> set[tuple[str, str]]:
    """(module, name) of all that some file of the source imports, or may take off a module."""
    taken: set[tuple[str, str]] = set()
    for path in SOURCE.parent.rglob("*.py"):
        nodes = list(ast.walk(tree_of(path)))
        attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                taken.update((node.module, alias.name) for alias in node.names)
        taken.update((name, each) for name in imported_names(path) for each in attributes)
    return taken


def names_said(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def is_door(module: str, name: str) -> bool:
    return name in DOORS.get(module, set()) | DOORS.get(module.rpartition(".")[0], set())


def is_registered(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """With a function of `singledispatch`, which calls it by the type of its argument, or with a
    group of commands, which calls it by its name.
    """
    decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return any(
        isinstance(each, ast.Attribute) and each.attr in ("register", "command")
        for each in decorators
    )


def test_no_function_or_class_is_there_for_the_tests_alone() -> None:
    """Or for nobody. What a test needs and the source does not belongs into tests/support."""
    taken = names_taken_elsewhere()
    dead = []
    for path in python_files(SOURCE):
        module, body = module_name(path), tree_of(path).body
        said = [set(names_said(node)) for node in body]
        for number, node in enumerate(body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not (
                (module, node.name) in taken
                or is_door(module, node.name)
                or is_registered(node)
                or any(node.name in names for names in said[:number] + said[number + 1 :])
            ):
                dead.append(f"{source_name(path)}::{node.name}")
    assert dead == []


def test_no_support_module_of_the_tests_is_dead() -> None:
    alive = {name for path in python_files(TESTS) for name in imported_names(path)}
    dead = [
        path.name
        for path in python_files(TESTS / "support")
        if f"tests.support.{path.stem}" not in alive
    ]
    assert dead == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    bad = [
        str(p.relative_to(ROOT)) for p in all_python_files() if BANNED_MODULE_NAMES.match(p.stem)
    ]
    assert bad == []


def test_no_script_of_the_sdist_has_the_name_of_a_standard_module() -> None:
    """pytest takes `packaging/site.py` for the module `site`, as it does with each file of a
    plug-in's distribution, and ends before the first test because that one is loaded already.
    """
    scripts = {path.stem for path in (ROOT / "packaging").glob("*.py")}
    assert scripts, "looked in the wrong place"
    assert not scripts & sys.stdlib_module_names


def test_test_files_have_unique_names() -> None:
    names = Counter(p.name for p in python_files(TESTS) if p.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("pattern", [UNFINISHED, FOREIGN_WORDS], ids=["unfinished", "foreign"])
def test_no_file_says(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in text_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line) and "\\uXX" + "XX" not in line
    ]
    assert found == []


def test_every_module_begins_with_its_contract() -> None:
    without = [
        source_name(path)
        for path in python_files(SOURCE)
        if tree_of(path).body and ast.get_docstring(tree_of(path)) is None
    ]
    assert without == []


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Catches everything and keeps it; one that passes it on after cleaning up is fine."""
    kind = handler.type.id if isinstance(handler.type, ast.Name) else None
    everything = handler.type is None or kind in ("Exception", "BaseException")
    return everything and not isinstance(handler.body[-1], ast.Raise)


def test_broad_excepts_stand_only_at_the_edges() -> None:
    found = {
        source_name(path)
        for path in python_files(SOURCE)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler) and is_broad(node)
    }
    assert found <= BROAD_EXCEPT_FILES


def test_coordinators_and_partitions_answer_in_their_own_words() -> None:
    """Handlers make messages of it. Those named here ask other brokers, and read their answers."""
    found = {
        source_name(path)
        for part in ("coordinator", "replication")
        for path in python_files(SOURCE / part)
        for name in imported_names(path)
        if re.fullmatch(r"tidelog\.protocol\.messages\.\w+\.\w*Response\w*", name)
    }
    assert found == BROKERS_THAT_ASK_BROKERS


def functions_longer_than(lines: int) -> dict[str, int]:
    return {
        f"{source_name(path)}::{node.name}": length
        for path in python_files(SOURCE)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > lines
    }


def test_long_functions_get_fewer_and_shorter() -> None:
    found = functions_longer_than(LONG_FUNCTION_LINES)
    assert set(found) <= LONG_FUNCTIONS, "split it, or say here why it is better long"
    assert max(found.values(), default=0) <= LONGEST_FUNCTION_LINES


class TestEveryApi:
    """Each row of the API table has a handler that says what it does, docs and tests."""

    ROWS = pytest.mark.parametrize("api", API_TABLE, ids=lambda api: api.key.name.lower())

    @staticmethod
    def versions(low: int, high: int, prefix: str = "") -> str:
        return f"{prefix}{low}" if low == high else f"{prefix}{low}-{prefix}{high}"

    @ROWS
    def test_handler_begins_with_name_and_versions(self, api: object) -> None:
        row = _Row(api)
        source = ROOT / "src" / f"{row.handler.__name__.replace('.', '/')}.py"
        lines = (ast.get_docstring(ast.parse(source.read_text())) or "").splitlines()
        if row.shares_its_handler:
            lines = [line.strip() for line in lines if line.startswith("    ")]
        else:
            lines = lines[:1]
        wanted = rf"{row.name} {self.versions(row.low, row.high, 'v')}\b"
        assert any(re.match(wanted, line) for line in lines)

    @ROWS
    def test_the_protocol_page_has_its_row(self, api: object) -> None:
        row = _Row(api)
        pattern = rf"^\| {row.key} \| {row.name} \| {self.versions(row.low, row.high)} \| served"
        assert re.search(pattern, (ROOT / "docs" / "protocol.md").read_text(), re.MULTILINE)

    @ROWS
    def test_it_is_asked_in_every_version_over_the_wire(self, api: object) -> None:
        from tests.support.kio_samples import kio_samples
        from tests.support.request_samples import sample_requests

        asked = {kind.API_KEY for kind, _ in sample_requests("any")}
        assert _Row(api).key in asked | {s.api_key for s in kio_samples()} | BROKERS_ONLY_KEYS

    def test_there_is_no_other_handler(self) -> None:
        handlers = {p.stem for p in (SOURCE / "broker" / "handlers").glob("*.py")} - {"__init__"}
        assert handlers == {api.handler_module.rpartition(".")[2] for api in API_TABLE}


class _Row:
    def __init__(self, api: object) -> None:
        assert isinstance(api, type(API_TABLE[0]))
        self.key = int(api.key)
        self.low, self.high = api.min_version, api.max_version
        self.name = request_class(api.key).__name__.removesuffix("Request")
        self.handler = importlib.import_module(api.handler_module)
        rows = [other for other in API_TABLE if other.handler_module == api.handler_module]
        self.shares_its_handler = len(rows) > 1
