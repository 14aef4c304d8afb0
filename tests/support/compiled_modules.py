"""Tests that replace a part of a module which may be compiled.

Compiled modules call each other directly, so a function or constant that a test puts in place of
theirs would not be used, and the test would say nothing. Where modules are compiled, such a test is
skipped at the moment it tries. A test that derives a class from a compiled one says so itself, by
the mark `interpreted`. `make test` runs a second time, interpreted, what may have been skipped:
`--interpreted-only` selects the tests with that mark and those with the fixture `monkeypatch`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import tidelog
from tidelog._compiled import MODULES

INTERPRETED_ONLY = "--interpreted-only"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        INTERPRETED_ONLY, action="store_true", help="only tests that compiled modules may not run"
    )


def pytest_configure(config: pytest.Config) -> None:
    if tidelog.COMPILED:
        guarded = _guarded(pytest.MonkeyPatch.setattr)
        pytest.MonkeyPatch.setattr = guarded  # type: ignore[method-assign]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if tidelog.COMPILED and item.get_closest_marker("interpreted"):
            item.add_marker(pytest.mark.skip("it derives a class from a compiled one"))
    if config.getoption(INTERPRETED_ONLY):
        chosen = [
            item
            for item in items
            if item.get_closest_marker("interpreted")
            or "monkeypatch" in getattr(item, "fixturenames", ())
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def fields_of(thing: object) -> dict[str, object]:
    """What an object holds. A class with slots says its names; a compiled one has members."""
    names = [name for name in dir(type(thing)) if not name.startswith("__")]
    return {name: getattr(thing, name) for name in names if not callable(getattr(thing, name))}


def _guarded(replace: Callable[..., None]) -> Callable[..., None]:
    def setattr(self: pytest.MonkeyPatch, target: object, *arguments: Any, **options: Any) -> None:
        owner = target
        if isinstance(target, str):
            owner = target.rpartition(".")[0]
        if _home_of(owner) in MODULES:
            pytest.skip(f"{_home_of(owner)} is compiled: nothing in it can be replaced")
        replace(self, target, *arguments, **options)

    return setattr


def _home_of(owner: object) -> str:
    """The module of a module, a dotted name, a class, or an object."""
    if isinstance(owner, str):
        try:
            importlib.import_module(owner)
        except ImportError:
            return owner.rpartition(".")[0]
        return owner
    if isinstance(owner, type):
        return owner.__module__
    return str(getattr(owner, "__name__", type(owner).__module__))
