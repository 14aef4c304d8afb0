"""Which sinks share a query, and which stay where an earlier run has had them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.pipeline.test_restart_plan import left_behind
from tidelog.pipeline.declaration.file import parse_pipeline
from tidelog.pipeline.declaration.parts import Pipeline, PipelineError
from tidelog.pipeline.queries.checkpoint import Checkpoint
from tidelog.pipeline.queries.layout import (
    PlanShape,
    Query,
    lay_out,
    member_alone,
    records,
    without_members,
)
from tidelog.pipeline.queries.restart_plan import RestartPlan, allowed

TEXT = """\
[pipeline]
name = "shop"
[source.orders]
topic = "orders"
schema = "id string"
[source.clicks]
topic = "clicks"
format = "raw"
[view.counts]
sql = "select id, count(*) from orders group by id"
[view.big]
sql = "select id from orders where id > 'm'"
[sink.big]
from = "big"
topic = "big"
[sink.all]
from = "orders"
topic = "all"
[sink.counts]
from = "counts"
topic = "counts"
mode = "complete"
[sink.files]
from = "orders"
parquet = "files"
[sink.once]
from = "orders"
topic = "once"
delivery = "at-least-once"
[sink.clicks]
from = "clicks"
topic = "clicks.copy"
"""


class Shape(PlanShape):
    def __init__(self, is_row_by_row: bool, has_unique_sources: bool = True) -> None:
        self.is_row_by_row = is_row_by_row
        self.has_unique_sources = has_unique_sources


def declared(folder: Path, text: str = TEXT) -> Pipeline:
    return parse_pipeline(folder / "pipeline.toml", text, {})


def laid_out(
    pipeline: Pipeline, *stateful: str, new_state: tuple[str, ...] = (), has_names: bool = True
) -> dict[str, Query]:
    plan = allowed(RestartPlan(pipeline, Checkpoint(pipeline)), new_state=new_state)
    shapes = {sink.name: Shape(sink.name not in stateful) for sink in pipeline.sinks}
    found = lay_out(pipeline, plan, shapes, has_names=has_names)
    return {query.name: query for query in found}


def ran(pipeline: Pipeline, *stateful: str) -> None:
    checkpoint = Checkpoint(pipeline)
    queries = laid_out(pipeline, *stateful)
    checkpoint.save(records(pipeline, checkpoint, list(queries.values())))
    for name in queries:
        left_behind(pipeline, name)


def members(queries: dict[str, Query]) -> dict[str, list[str]]:
    return {name: query.members for name, query in queries.items()}


def test_sinks_without_state_share_the_reading_of_their_source(tmp_path: Path) -> None:
    queries = laid_out(declared(tmp_path), "counts")
    assert members(queries) == {
        "counts": ["counts"],
        "files": ["files"],
        "source.orders": ["big", "all", "once", "dead-letter.orders"],
        "clicks": ["clicks"],
    }
    assert queries["counts"].keeps_state
    assert queries["source.orders"].is_shared
    assert not queries["clicks"].is_shared


def test_members_that_left_a_shared_query_stay_out_of_it(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    ran(pipeline, "counts")
    checkpoint = Checkpoint(pipeline)
    shared = laid_out(pipeline, "counts")["source.orders"]
    leaving = ["all", "dead-letter.orders"]
    alone = [member_alone(shared, name, "id-1") for name in leaving]
    checkpoint.save(records(pipeline, checkpoint, [without_members(shared, leaving), *alone]))
    for query in alone:
        left_behind(pipeline, query.name)
    queries = laid_out(pipeline, "counts")
    assert members(queries) == {
        "counts": ["counts"],
        "files": ["files"],
        "source.orders": ["big", "once"],
        "source.orders.all": ["all"],
        "source.orders.dead-letter": ["dead-letter.orders"],
        "clicks": ["clicks"],
    }
    assert all(queries[row.name].is_shared for row in alone)
    assert {queries[row.name].writer for row in alone} == {"id-1"}
    assert queries["source.orders"].writer == ""


def test_dead_letters_have_a_query_of_their_own_where_nothing_shares(tmp_path: Path) -> None:
    text = TEXT.split("[sink.big]")[0] + '[sink.files]\nfrom = "orders"\nparquet = "files"\n'
    queries = laid_out(declared(tmp_path, text))
    assert members(queries) == {
        "files": ["files"],
        "dead-letter.orders": ["dead-letter.orders"],
    }


def test_a_group_is_committed_to_by_one_query_alone(tmp_path: Path) -> None:
    def with_group(source: str) -> Pipeline:
        options = 'options = { commitgroupid = "g" }\n'
        heading = f"[source.{source}]\n"
        return declared(tmp_path, TEXT.replace(heading, heading + options))

    assert "clicks" in laid_out(with_group("clicks"), "counts")
    with pytest.raises(PipelineError, match=r"toml:3: \[source.orders\] option commitGroupId.* 3 "):
        laid_out(with_group("orders"), "counts")


def test_a_sink_that_comes_later_joins_no_query_that_has_read_something(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    ran(pipeline, "counts")
    more = declared(tmp_path, TEXT + '[sink.more]\nfrom = "big"\ntopic = "more"\n')
    queries = laid_out(more, "counts")
    assert queries["source.orders"].members == ["big", "all", "once", "dead-letter.orders"]
    assert queries["more"].members == ["more"]


def test_new_sinks_of_a_raw_source_do_not_take_the_place_of_an_old_query(tmp_path: Path) -> None:
    raw = TEXT.split("[view.counts]")[0]
    sink = '[sink.{0}]\nfrom = "clicks"\ntopic = "{0}"\n'
    first = raw + sink.format("a") + sink.format("b")
    ran(declared(tmp_path, first))
    queries = laid_out(declared(tmp_path, first + sink.format("c") + sink.format("d")))
    assert members(queries) == {
        "source.clicks": ["a", "b"],
        "c": ["c"],
        "d": ["d"],
        "dead-letter.orders": ["dead-letter.orders"],
    }


def test_a_sink_that_comes_to_keep_state_must_be_told_to_leave(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    ran(pipeline, "counts")
    with pytest.raises(PipelineError, match=r"\[sink.big\] shares .*--new-state big"):
        laid_out(pipeline, "counts", "big")
    queries = laid_out(pipeline, "counts", "big", new_state=("big",))
    assert queries["source.orders"].members == ["all", "once", "dead-letter.orders"]
    assert queries["big"].members == ["big"]


def test_queries_keep_knowing_their_sources_as_they_did(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    assert not any(row.is_named for row in laid_out(pipeline, "counts", has_names=False).values())
    ran(pipeline, "counts")
    assert all(row.is_named for row in laid_out(pipeline, "counts", has_names=False).values())
