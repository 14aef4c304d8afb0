"""docs/observability.md lists the events that the code logs: no more, no fewer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tidelog"
BROKER_PARTS = ("broker", "controller", "coordinator", "log", "network", "replication", "sasl")
NAME = re.compile(r"[a-z]+(-[a-z]+)+")
ROW = re.compile(r"^\| `([a-z]+(?:-[a-z]+)+)` \|", re.MULTILINE)
# Functions that are given the name of an event, and its place among their arguments.
TELLERS = {"_log_change": 2, "_tell": 1}


def events_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                is_event = isinstance(key, ast.Constant) and key.value == "event"
                if is_event and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            place = TELLERS.get(node.func.attr)
            if place is not None and len(node.args) > place:
                argument = node.args[place]
                if isinstance(argument, ast.Constant) and NAME.fullmatch(str(argument.value)):
                    yield str(argument.value)


def test_the_page_lists_all_events_and_no_others() -> None:
    paths = [path for part in BROKER_PARTS for path in (SOURCE / part).rglob("*.py")]
    paths += SOURCE.glob("*.py")  # what the broker and other servers share
    logged = {event for path in paths for event in events_in(path)}
    assert all(map(NAME.fullmatch, logged)), logged
    page = (ROOT / "docs" / "observability.md").read_text().partition("## Events")[2]
    listed = ROW.findall(page)
    assert sorted(logged) == sorted(listed)
