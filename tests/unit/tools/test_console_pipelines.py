"""Pipelines of a project and their dead letters, as the console finds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.console_client import ConsoleClient
from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.console.dead_letters import (
    CHOSEN_MAX,
    BadChoice,
    counted_reasons,
    letter_of,
    places_of,
    reason_filter,
    targets_of,
)
from tidelog.tools.console.pages import pipelines
from tidelog.tools.console.pipeline_folders import (
    UnknownFolder,
    folder_of,
    letter_topics,
    look_at,
    pipeline_folders,
    queries_of,
)
from tidelog.types import TopicPartition

SCRIPT = "<script>alert(1)</script>"
MEMBER = {
    "name": "dead-letter.orders",
    "query": "source.orders",
    "state": "running",
    "batch_id": 4,
    "rows_in": 1_000,
    "rows_out": 7,
    "lag": 30,
    "rows_too_late": 2,
    "restarts": 1,
    "error": SCRIPT,
    "reasons": {f"field x: {SCRIPT}": 7},
}
SINK = {**MEMBER, "name": "revenue", "rows_out": 10, "reasons": {}, "error": ""}
DECLARATION = """
[pipeline]
name = "shop"
dead_letter = "shop.dead-letter"

[source.orders]
topic = "orders"
format = "json"
schema = "id string"

[sink.all]
from = "orders"
topic = "all"
format = "json"
"""


RUN = {
    "pid": 4_242,
    "name": f"shop {SCRIPT}",
    "started_at_s": 1_000.0,
    "told_at_s": 2_000.0,
    "has_ended": False,
    "members": [MEMBER, SINK],
    "dropped": {"positive": 3},
}


def project(root: Path, **changes: object) -> Path:
    folder = root / "shop"
    (folder / ".tidelog").mkdir(parents=True)
    (folder / ".tidelog" / "status.json").write_text(json.dumps(RUN | changes))
    return root


def test_folders_with_pipelines_are_found_two_levels_deep(tmp_path: Path) -> None:
    for place in (".", "a", "a/b", "a/b/c", ".hidden"):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "pipeline.toml").write_text("")
    project(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert pipeline_folders(tmp_path) == [".", "a", "a/b", "shop"]


@pytest.mark.parametrize("name", ["", "..", "../shop", "/etc", "shop/..", "shop/../shop", "gone"])
def test_no_other_folder_is_reached(tmp_path: Path, name: str) -> None:
    project(tmp_path)
    with pytest.raises(UnknownFolder):
        folder_of(tmp_path, name)


def test_a_run_is_looked_at(tmp_path: Path) -> None:
    look = look_at(project(tmp_path), "shop", 2_010.0, lambda pid: pid == 4_242)
    assert (look.state, look.runs) == ("runs", True)
    assert look.lag == 30  # both read the same records
    assert look.letters == 7
    assert queries_of(look) == ["source.orders"]


def test_a_run_that_is_over_runs_no_query(tmp_path: Path) -> None:
    look = look_at(project(tmp_path), "shop", 2_010.0, lambda _: False)
    assert (look.state, look.runs) == ("does not run", False)
    assert {member.state for member in look.members} == {"ended"}


def test_a_query_that_failed_is_told_also_afterwards(tmp_path: Path) -> None:
    project(tmp_path, members=[{**MEMBER, "state": "failed"}], has_ended=True)
    look = look_at(tmp_path, "shop", 2_010.0, lambda _: False)
    assert look.state == "failed"
    assert [member.state for member in look.members] == ["failed"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "7",
        '{"members": 7}',
        '{"members": [{}]}',
        json.dumps({**RUN, "told_at_s": "soon"}),
        json.dumps({**RUN, "dropped": {"a": "b"}}),
        json.dumps({**RUN, "members": [{**MEMBER, "rows_in": "many"}]}),
        json.dumps({**RUN, "members": [{**MEMBER, "reasons": []}]}),
    ],
)
def test_a_status_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    (project(tmp_path) / "shop" / ".tidelog" / "status.json").write_text(text)
    look = look_at(tmp_path, "shop", 2_010.0)
    assert look.state == "unreadable"
    assert look.problem


def test_names_of_queries_that_lead_elsewhere_are_left_out(tmp_path: Path) -> None:
    names = ["../x", "", ".hidden", "a/b", "good.one"]
    project(tmp_path, members=[{**MEMBER, "query": name} for name in names])
    assert queries_of(look_at(tmp_path, "shop", 2_010.0)) == ["good.one"]


def test_topics_of_dead_letters_are_declared(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(DECLARATION)
    topics, problem = letter_topics(tmp_path)
    assert ([tuple(each) for each in topics], problem) == ([("orders", "shop.dead-letter")], "")
    (tmp_path / "pipeline.toml").write_text("[")
    assert "no valid TOML" in letter_topics(tmp_path)[1]


# Pages


def test_pages_show_a_run_and_its_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "LIVE_S", 0.0)
    (project(tmp_path) / "shop" / "pipeline.toml").write_text(DECLARATION)
    with ConsoleClient(pipelines=tmp_path) as console:
        page = console.get("/pipelines")
        assert page.status == 200
        assert f"shop {SCRIPT}" in page.words
        one = console.get("/pipelines/one?folder=shop")
        assert one.status == 200
        assert SCRIPT not in one.text
        assert f"7 rows: field x: {SCRIPT}" in one.words
        assert "Expectation positive : 3 rows dropped" in one.words
        assert "shop.dead-letter" in one.words
        ((name, data),) = console.events("/pipelines/one/live?folder=shop", 1)
        assert (name, list(json.loads(data))) == ("parts", ["status"])


def test_a_folder_that_is_none_is_a_calm_page(tmp_path: Path) -> None:
    with ConsoleClient(pipelines=project(tmp_path)) as console:
        for path in ("/pipelines/one?folder=..", "/pipelines/one/live?folder=gone"):
            assert console.get(path).status == 404
    with ConsoleClient() as console:
        assert "--pipelines DIR" in console.get("/pipelines").words
        assert console.get("/pipelines/one?folder=.").status == 404


def test_a_query_of_a_run_is_wished_to_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, told_at_s=9e12)
    monkeypatch.setattr("tidelog.tools.console.pipeline_folders.is_alive", lambda _: True)
    monkeypatch.setattr(look_at, "__defaults__", (lambda _: True,))
    wish = tmp_path / "shop" / ".tidelog" / "restart" / "source.orders"
    with ConsoleClient(pipelines=tmp_path) as console:
        assert (
            console.post("/pipelines/restart", folder="shop", query="source.orders").status == 403
        )
    with ConsoleClient(pipelines=tmp_path, can_write=True) as console:
        assert console.post("/pipelines/restart", folder="shop", query="../../x").status == 400
        assert console.post("/pipelines/restart", folder="..", query="source.orders").status == 404
        assert not wish.exists()
        done = console.post("/pipelines/restart", folder="shop", query="source.orders")
        assert done.status == 303
    assert wish.exists()


# Letters


def record(*headers: tuple[str, bytes | None]) -> ConsumerRecord:
    return ConsumerRecord("dead", 1, 7, 1_000, 0, b"k", b"v", headers, None)


TOLD = (
    ("dead-letter.reason", b"is no JSON object"),
    ("dead-letter.source", b"orders"),
    ("dead-letter.topic", b"shop.orders"),
    ("dead-letter.partition", b"2"),
    ("dead-letter.offset", b"40"),
)


def test_a_letter_says_why_and_from_where() -> None:
    letter = letter_of(record(("trace", b"1"), *TOLD))
    assert (letter.place, letter.reason, letter.source) == ((1, 7), "is no JSON object", "orders")
    assert (letter.origin, letter.origin_offset) == (TopicPartition("shop.orders", 2), 40)
    assert letter.headers == (("trace", b"1"),)


def test_headers_that_are_hostile_are_text_or_nothing() -> None:
    letter = letter_of(
        record(
            ("dead-letter.reason", b"\xff\x00"),
            ("dead-letter.partition", b"-1"),
            ("dead-letter.offset", "٣".encode()),
            ("dead-letter.topic", None),
        )
    )
    assert (letter.reason, letter.origin, letter.origin_offset) == ("�\0", None, None)


def test_letters_are_filtered_by_their_reason() -> None:
    wanted = reason_filter("no JSON")
    assert wanted.accepts(record(*TOLD))
    assert not wanted.accepts(record(("dead-letter.reason", b"other")))
    assert reason_filter("").accepts(record())


def test_letters_go_to_the_topic_chosen_or_to_where_they_came_from() -> None:
    letters = [letter_of(record(*TOLD)), letter_of(record(*TOLD))]
    assert targets_of(letters, "") == ["shop.orders"] * 2
    assert targets_of(letters, "repaired") == ["repaired"] * 2
    with pytest.raises(BadChoice, match="offset 7 of partition 1"):
        targets_of([*letters, letter_of(record())], "")


def test_places_are_named_by_forms() -> None:
    assert places_of(["1:5", "0:9", "1:5"]) == [(0, 9), (1, 5)]
    for wrong in ([], ["x"], ["1"], ["1:"], ["-1:3"], ["1:2:3"]):
        with pytest.raises(BadChoice):
            places_of(wrong)
    with pytest.raises(BadChoice):
        places_of(f"0:{number}" for number in range(CHOSEN_MAX + 1))


def test_reasons_are_counted() -> None:
    letters = [letter_of(record(("dead-letter.reason", text))) for text in (b"b", b"a", b"b")]
    assert counted_reasons(letters) == [("b", 2), ("a", 1)]
