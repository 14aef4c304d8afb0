"""What a change of the file means for a checkpoint, told before Spark starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidelog.pipeline.declaration.file import parse_pipeline
from tidelog.pipeline.declaration.lineage import upstream_sources
from tidelog.pipeline.declaration.parts import Pipeline, PipelineError
from tidelog.pipeline.queries.checkpoint import (
    OLD_LETTERS,
    Checkpoint,
    QueryRecord,
    sink_record,
)
from tidelog.pipeline.queries.restart_plan import (
    NEW_STATE,
    REMOVED,
    REPLAYS,
    SAFE,
    UNKNOWN,
    RestartPlan,
    allowed,
    refuse_occupied,
)

TEXT = """\
[pipeline]
name = "shop"
[source.orders]
topic = "orders"
schema = "id string, at timestamp"
[source.payments]
topic = "payments"
schema = "id string, at timestamp"
[view.paid]
sql = "select o.id from orders o join payments p on o.id = p.id"
[view.big]
sql = "select id from orders where id > 'm'"
[sink.paid]
from = "paid"
parquet = "paid"
[sink.big]
from = "big"
topic = "big"
"""
STATEFUL = {"paid"}


def declared(folder: Path, *changes: tuple[str, str], more: str = "") -> Pipeline:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_pipeline(folder / "pipeline.toml", text + more, {})


def ran(pipeline: Pipeline, *, is_named: bool = True) -> None:
    """Leaves what a run of the pipeline would leave, every sink in a query of its own."""
    checkpoint = Checkpoint(pipeline)
    names = checkpoint.spark_names
    sinks = {sink.name: sink for sink in pipeline.sinks}
    queries = {}
    for row in RestartPlan(pipeline, checkpoint).queries:
        read = [row.letters_of] if row.letters_of else []
        for sink in row.sinks:
            read += upstream_sources(pipeline, sinks[sink].source)
        if read:
            queries[row.name] = QueryRecord(
                sources=tuple(names[source] for source in read),
                sinks={sink: sink_record(pipeline, sinks[sink]) for sink in row.sinks},
                letters_of=names[row.letters_of] if row.letters_of else "",
                keeps_state=not STATEFUL.isdisjoint(row.sinks),
                is_named=is_named,
            )
    checkpoint.save(queries)
    for name in queries:
        left_behind(pipeline, name)


def left_behind(pipeline: Pipeline, query: str) -> None:
    folder = Path(pipeline.checkpoint) / query
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text("{}")


def plan(pipeline: Pipeline) -> RestartPlan:
    return RestartPlan(pipeline, Checkpoint(pipeline))


def outcomes(pipeline: Pipeline) -> dict[str, str]:
    return {row.name: row.outcome for row in plan(pipeline).queries}


def reasons(pipeline: Pipeline, query: str) -> str:
    return "; ".join(next(row.reasons for row in plan(pipeline).queries if row.name == query))


ALL_SAFE = dict.fromkeys(("paid", "big", "dead-letter.orders", "dead-letter.payments"), SAFE)


def test_without_a_checkpoint_everything_is_read_from_the_start(tmp_path: Path) -> None:
    assert set(outcomes(declared(tmp_path)).values()) == {REPLAYS}


def test_an_unchanged_pipeline_goes_on(tmp_path: Path) -> None:
    ran(declared(tmp_path))
    assert outcomes(declared(tmp_path)) == ALL_SAFE


def test_another_order_of_the_parts_and_other_indents_change_nothing(tmp_path: Path) -> None:
    ran(declared(tmp_path))
    head, *parts = TEXT.split("[source.")
    orders, payments = parts
    payments, rest = payments.split("[view.paid]")
    text = f"{head}[source.{payments}[source.{orders}[view.paid]{rest}"
    text = text.replace(
        "\"select id from orders where id > 'm'\"",
        ('"""\n      select id from orders where id > \'m\'\n"""'),
    )
    assert outcomes(parse_pipeline(tmp_path / "pipeline.toml", text, {})) == ALL_SAFE


def test_a_new_sink_reads_from_the_start_and_the_others_go_on(tmp_path: Path) -> None:
    ran(declared(tmp_path))
    more = '[sink.all]\nfrom = "orders"\ntopic = "all"\n'
    assert outcomes(declared(tmp_path, more=more)) == {**ALL_SAFE, "all": REPLAYS}


def test_a_new_source_has_letters_of_its_own_and_disturbs_nothing(tmp_path: Path) -> None:
    ran(declared(tmp_path))
    more = '[source.visits]\ntopic = "visits"\nschema = "id string"\n'
    more += '[sink.visits]\nfrom = "visits"\ntopic = "v"\n'
    assert outcomes(declared(tmp_path, more=more)) == {
        **ALL_SAFE,
        "visits": REPLAYS,
        "dead-letter.visits": REPLAYS,
    }


def test_a_removed_sink_leaves_its_folder_and_goes_on_when_it_returns(tmp_path: Path) -> None:
    whole = declared(tmp_path)
    ran(whole)
    less = declared(tmp_path, ('[sink.big]\nfrom = "big"\ntopic = "big"\n', ""))
    assert outcomes(less) == {**ALL_SAFE, "big": REMOVED}
    ran(less)
    assert outcomes(whole) == ALL_SAFE


def test_a_renamed_sink_keeps_its_checkpoint(tmp_path: Path) -> None:
    ran(declared(tmp_path))
    changed = declared(tmp_path, ("[sink.big]", "[sink.large]"))
    assert outcomes(changed) == ALL_SAFE
    assert reasons(changed, "big") == "sink big is now called large"


def test_a_renamed_source_keeps_state_and_letters(tmp_path: Path) -> None:
    ran(declared(tmp_path))
    changed = declared(
        tmp_path, ("[source.orders]", "[source.sales]"), ("from orders", "from sales")
    )
    assert outcomes(changed) == ALL_SAFE
    assert reasons(changed, "paid") == "source orders is now called sales"
    ran(changed)
    assert outcomes(declared(tmp_path)) == ALL_SAFE


def test_of_two_sources_that_take_the_place_of_one_only_the_first_goes_on_for_it(
    tmp_path: Path,
) -> None:
    """Both would write their dead letters by one query, so those of one would be lost."""
    ran(declared(tmp_path))
    split = declared(
        tmp_path,
        ("[source.orders]", "[source.sales]"),
        ("from orders o", "from sales o"),
        ("id from orders", "id from sales"),
        more='[source.refunds]\ntopic = "orders"\nschema = "id string"\n',
    )
    checkpoint = Checkpoint(split)
    assert checkpoint.spark_names["sales"] == "orders"
    assert checkpoint.spark_names["refunds"] == "refunds"
    letters = {
        row.letters_of: (row.name, row.outcome) for row in RestartPlan(split, checkpoint).queries
    }
    assert letters["sales"] == ("dead-letter.orders", SAFE)
    assert letters["refunds"] == ("dead-letter.refunds", REPLAYS)


def test_a_source_may_not_have_the_former_name_of_another(tmp_path: Path) -> None:
    """Spark would look for its offsets among those of the other one, which would begin anew."""
    ran(declared(tmp_path))
    renamed = (
        ("[source.orders]", "[source.sales]"),
        ("from orders o", "from sales o"),
        ("id from orders", "id from sales"),
    )
    ran(declared(tmp_path, *renamed))
    another = '[source.orders]\ntopic = "others"\nschema = "id string"\n'
    with pytest.raises(PipelineError, match=r"source.orders\] its checkpoint knows .source.sales"):
        plan(declared(tmp_path, *renamed, more=another))
    fine = another.replace("source.orders", "source.others")
    assert outcomes(declared(tmp_path, *renamed, more=fine))["paid"] == SAFE


def test_sources_that_change_their_names_are_known_by_their_topics(tmp_path: Path) -> None:
    ran(declared(tmp_path))
    changed = declared(
        tmp_path,
        ('topic = "orders"', 'topic = "x"'),
        ('topic = "payments"', 'topic = "orders"'),
        ('topic = "x"', 'topic = "payments"'),
    )
    names = Checkpoint(changed).spark_names
    assert names == {"orders": "payments", "payments": "orders"}


def test_other_sql_needs_new_state_only_where_state_is_kept(tmp_path: Path) -> None:
    ran(declared(tmp_path))
    changed = declared(tmp_path, ("select o.id", "select p.id"), ("'m'", "'n'"))
    assert outcomes(changed) == {**ALL_SAFE, "paid": NEW_STATE}
    assert "big has changed; it counts for rows from now on" in reasons(changed, "big")


def test_another_schema_counts_as_other_sql(tmp_path: Path) -> None:
    ran(declared(tmp_path))
    changed = declared(
        tmp_path, ('topic = "orders"\nschema = "id', 'topic = "orders"\nschema = "n int, id')
    )
    assert outcomes(changed) == {**ALL_SAFE, "paid": NEW_STATE}


def test_a_source_that_loses_a_topic_needs_new_state_and_one_that_gains_does_not(
    tmp_path: Path,
) -> None:
    ran(declared(tmp_path))
    gains = declared(tmp_path, ('topic = "payments"', 'topics = ["payments", "refunds"]'))
    assert outcomes(gains) == ALL_SAFE
    ran(gains)
    assert outcomes(declared(tmp_path)) == {
        **ALL_SAFE,
        "paid": NEW_STATE,
        "dead-letter.payments": NEW_STATE,
    }


@pytest.mark.parametrize(("is_named", "outcome"), [(True, SAFE), (False, NEW_STATE)])
def test_a_source_more_in_a_query_without_state_needs_named_sources(
    tmp_path: Path, is_named: bool, outcome: str
) -> None:
    ran(declared(tmp_path), is_named=is_named)
    both = "select id from orders where id > 'm' union all select id from payments"
    changed = declared(tmp_path, ("select id from orders where id > 'm'", both))
    assert outcomes(changed)["big"] == outcome
    ran(changed, is_named=is_named)
    assert outcomes(declared(tmp_path))["big"] == outcome


def test_another_topic_is_safe_and_files_of_another_query_are_not(tmp_path: Path) -> None:
    ran(declared(tmp_path))
    assert outcomes(declared(tmp_path, ('topic = "big"', 'topic = "large"'))) == ALL_SAFE
    (tmp_path / "elsewhere" / "_spark_metadata").mkdir(parents=True)
    changed = declared(tmp_path, ('parquet = "paid"', 'parquet = "elsewhere"'))
    assert outcomes(changed)["paid"] == NEW_STATE


def test_checkpoints_of_older_versions_go_on_as_unknown(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    for query in ("paid", "big", OLD_LETTERS):
        left_behind(pipeline, query)
    assert outcomes(pipeline) == {"paid": UNKNOWN, "big": UNKNOWN, OLD_LETTERS: NEW_STATE}
    assert "made by an older version of tidelog" in reasons(pipeline, "paid")
    with pytest.raises(PipelineError, match="--new-state dead-letter"):
        allowed(plan(pipeline))
    started = allowed(plan(pipeline), new_state=[OLD_LETTERS])
    assert {row.name: row.outcome for row in started.queries} == {
        "paid": UNKNOWN,
        "big": UNKNOWN,
        "dead-letter.orders": REPLAYS,
        "dead-letter.payments": REPLAYS,
    }


def test_dead_letters_of_an_older_version_with_one_source_go_on(tmp_path: Path) -> None:
    text = TEXT.replace('topic = "payments"\n', 'topic = "payments"\nformat = "raw"\n')
    text = text.replace('format = "raw"\nschema = "id string, at timestamp"', 'format = "raw"')
    pipeline = parse_pipeline(tmp_path / "pipeline.toml", text, {})
    left_behind(pipeline, OLD_LETTERS)
    assert outcomes(pipeline)[OLD_LETTERS] == UNKNOWN


def test_new_state_sets_the_folder_aside_and_keep_state_leaves_it(tmp_path: Path) -> None:
    ran(declared(tmp_path))
    changed = declared(tmp_path, ("select o.id", "select p.id"))
    with pytest.raises(PipelineError, match=r"pipeline.toml:13: query paid needs new state"):
        allowed(plan(changed))
    allowed(plan(changed), keep_state=["paid"])
    assert (tmp_path / "checkpoint" / "paid").is_dir()
    started = allowed(plan(changed), new_state=["paid"])
    assert {row.name: row.outcome for row in started.queries}["paid"] == REPLAYS
    assert not (tmp_path / "checkpoint" / "paid").exists()
    assert (tmp_path / "checkpoint" / "paid.old-1" / "metadata").is_file()


def test_new_state_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match='no query "nope"; there is paid, big'):
        allowed(plan(declared(tmp_path)), new_state=["nope"])


def test_a_new_query_is_not_started_on_parquet_files_of_another(tmp_path: Path) -> None:
    """Spark would leave out its first batches without a word."""
    (tmp_path / "paid" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(PipelineError, match="has the files of an earlier query"):
        refuse_occupied(declared(tmp_path), plan(declared(tmp_path)))


def test_a_sink_that_has_left_a_shared_query_goes_on_where_that_one_stopped(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    ran(pipeline)
    checkpoint = Checkpoint(pipeline)
    (big,) = (sink for sink in pipeline.sinks if sink.name == "big")
    shared = QueryRecord(("orders",), {"big": sink_record(pipeline, big)}, letters_of="orders")
    for alone in ("big", "dead-letter.orders"):
        checkpoint.forget(alone)
    checkpoint.save({"source.orders": shared})
    folder = tmp_path / "checkpoint" / "source.orders"
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / "7").write_text("where batch 7 ends")
    (folder / "metadata").write_text('{"id": "id-1"}')
    (folder / ".metadata.crc").write_text("of that id")

    assert checkpoint.copy_folder("source.orders", "source.orders.big") == "id-1"
    copy = folder.with_name("source.orders.big")
    assert (copy / "offsets" / "7").read_text() == "where batch 7 ends"
    assert "id-1" not in (copy / "metadata").read_text()
    assert not (copy / ".metadata.crc").exists()
    assert outcomes(pipeline)["source.orders"] == SAFE  # nobody has said yet that it left
    assert "source.orders.big" not in outcomes(pipeline)

    alone_record = replace(shared, letters_of="", writer="id-1")
    checkpoint.save({"source.orders": shared.without_sinks(["big"]), copy.name: alone_record})
    found = {row.name: row for row in plan(pipeline).queries}
    assert found[copy.name].outcome == SAFE
    assert found[copy.name].sinks == ("big",)
    assert found["source.orders"].sinks == ()
    assert found["source.orders"].letters_of == "orders"
    assert Checkpoint(pipeline).queries[copy.name].writer == "id-1"


def test_a_damaged_record_is_told(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    ran(pipeline)
    (tmp_path / "checkpoint" / "pipeline.json").write_text('{"version": 1}')
    with pytest.raises(PipelineError, match=r"pipeline.json: is damaged"):
        plan(pipeline)


def test_the_record_of_a_checkpoint_elsewhere_is_kept_beside_the_file(tmp_path: Path) -> None:
    pipeline = declared(tmp_path, ('name = "shop"', 'name = "shop"\ncheckpoint = "s3a://b/shop"'))
    checkpoint = Checkpoint(pipeline)
    checkpoint.save(
        {"big": QueryRecord(("orders",), {"big": sink_record(pipeline, pipeline.sinks[1])})}
    )
    assert checkpoint.record_file.parent == tmp_path / ".tidelog"
    assert outcomes(pipeline)["big"] == SAFE
