"""A pipeline whose file changes between runs, and what its queries share."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.spark.test_pipeline import dict_of, fill, records
from tests.support.spark_topics import SparkTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.declaration.parts import Pipeline
    from tidelog.pipeline.queries.running import RunningPipeline

HEAD = """\
[pipeline]
name = "{name}"
bootstrap = "{bootstrap}"
trigger = "available-now"
"""
VISITS = """\
[source.visits]
topic = "{name}.visits"
schema = "page string not null, seconds bigint"
"""
NOTES = """\
[source.notes]
topic = "{name}.notes"
schema = "page string not null, seconds bigint"
"""
LONG = """\
[view.long]
sql = "select page, seconds from visits where seconds >= 5"
[sink.long]
from = "long"
topic = "{name}.long"
key = "page"
"""
ALL = """\
[sink.all]
from = "visits"
topic = "{name}.all"
"""
BOTH = """\
[view.both]
sql = "select page from visits union all select page from notes"
[sink.both]
from = "both"
topic = "{name}.both"
"""
TWICE = """\
[view.twice]
sql = "select page from visits union all select page from visits where seconds > 5"
[sink.twice]
from = "twice"
parquet = "twice"
"""


class Stage:
    """One pipeline in one folder, through several versions of its file."""

    def __init__(self, spark: SparkSession, topics: SparkTopics, name: str, folder: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.name = name
        self.folder = folder
        for topic in ("visits", "notes"):
            topics.create(f"{name}.{topic}")

    def declare(self, *parts: str) -> Pipeline:
        from tidelog.pipeline.declaration.file import load_pipeline

        text = "".join((HEAD, *parts))
        for mark, value in (("{name}", self.name), ("{bootstrap}", self.topics.bootstrap)):
            text = text.replace(mark, value)
        (self.folder / "pipeline.toml").write_text(text)
        return load_pipeline(self.folder)

    def run(self, *parts: str) -> RunningPipeline:
        from tidelog.pipeline.queries.start import start_queries

        running = start_queries(self.spark, self.declare(*parts))
        try:
            running.watch(lambda: None, 0.2)
        finally:
            running.stop()
        running.raise_failure()
        return running

    def send(self, topic: str, *values: bytes | None) -> None:
        fill(self.topics, f"{self.name}.{topic}", list(values))

    def visit(self, *seconds: int, topic: str = "visits") -> None:
        self.send(topic, *(b'{"page": "p%d", "seconds": %d}' % (n, n) for n in seconds))

    def written(self, topic: str) -> list[dict[str, Any]]:
        rows = records(self.topics, f"{self.name}.{topic}")
        return [json.loads(row["value"]) for row in rows]

    def pages(self, topic: str) -> Counter[str]:
        return Counter(row["page"] for row in self.written(topic))

    def parquet(self, folder: str) -> Counter[str]:
        rows = self.spark.read.parquet(str(self.folder / folder)).collect()
        return Counter(row.page for row in rows)


@pytest.fixture
def stage(spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path) -> Stage:
    return Stage(spark, topics, topic_name, tmp_path)


def test_sinks_of_one_source_and_its_dead_letters_share_a_query(stage: Stage) -> None:
    stage.visit(1, 5, 9)
    stage.send("visits", b"{", b'{"page": "x", "seconds": "ten"}', b'{"page": "y", "seconds": []}')
    running = stage.run(VISITS, LONG, ALL)
    assert list(running.queries) == ["source.visits"]
    assert stage.pages("long") == Counter(["p5", "p9"])
    assert stage.pages("all") == Counter(["p1", "p5", "p9"])
    assert "_headers" not in stage.written("all")[0]
    assert len(records(stage.topics, f"{stage.name}.dead-letter")) == 3
    assert {name: row.rows_out for name, row in running.progress.items()} == {
        "long": 2,
        "all": 3,
        "dead-letter.visits": 3,
    }
    counts = running.queries["source.visits"].counts
    assert counts is not None
    assert counts.reasons == {"is no JSON object": 1, "field seconds: is no bigint": 2}


def test_a_record_is_parsed_once(stage: Stage) -> None:
    from tidelog.pipeline.frames.dataframes import build_dataframes

    pipeline = stage.declare(VISITS, LONG)
    frames = build_dataframes(stage.spark, pipeline, streaming=False)
    stage.spark.conf.set("spark.sql.debug.maxToStringFields", "1000")
    plan = frames.by_name["long"]._jdf.queryExecution().executedPlan().toString()
    stage.spark.conf.unset("spark.sql.debug.maxToStringFields")
    # A text is parsed as an array only to see what stands behind an object.
    assert plan.count("from_json(") - plan.count("from_json(ArrayType(StringType,true)") == 1


def test_a_new_sink_reads_from_the_start_and_the_others_go_on(stage: Stage) -> None:
    stage.visit(1, 6)
    stage.run(VISITS, LONG)
    stage.visit(7)
    running = stage.run(ALL, VISITS, LONG)
    assert set(running.queries) == {"source.visits", "all"}
    assert stage.pages("long") == Counter(["p6", "p7"])
    assert stage.pages("all") == Counter(["p1", "p6", "p7"])
    # It is gone again, and the first has another name.
    stage.visit(8)
    running = stage.run(VISITS, LONG.replace("[sink.long]", "[sink.longer]"))
    assert set(running.queries) == {"source.visits"}
    assert stage.pages("long") == Counter(["p6", "p7", "p8"])


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_sink_that_fails_leaves_the_shared_query_and_no_row_is_lost_or_written_twice(
    stage: Stage, delivery: str
) -> None:
    """The broker refuses its records as too large, until the others have long gone on."""
    from tidelog.pipeline.queries.start import start_queries

    stage.visit(1, 5, 9)
    stage.topics.create(f"{stage.name}.all", max_message_bytes="20")
    parts = VISITS, LONG, ALL + f'delivery = "{delivery}"\n'
    running = start_queries(stage.spark, stage.declare(*parts))

    def mend() -> None:
        if "source.visits.all" in running.queries and stage.pages("long") == Counter(["p5", "p9"]):
            stage.topics.alter(f"{stage.name}.all", max_message_bytes="1000000")

    try:
        running.watch(mend, 0.2)
    finally:
        running.stop()
    running.raise_failure()
    assert list(running.queries) == ["source.visits", "source.visits.all"]
    assert running.progress["all"].rows_out == 3
    assert stage.pages("all") == Counter(["p1", "p5", "p9"])
    stage.visit(2, 6)
    assert set(stage.run(*parts).queries) == {"source.visits", "source.visits.all"}
    assert stage.pages("all") == Counter(["p1", "p5", "p9", "p2", "p6"])
    assert stage.pages("long") == Counter(["p5", "p9", "p6"])


def test_sources_come_go_and_are_renamed_and_no_row_is_lost_or_written_twice(
    stage: Stage,
) -> None:
    one = BOTH.replace(" union all select page from notes", "")
    files = one.replace('topic = "{name}.both"', 'parquet = "both"')
    both = BOTH.replace('topic = "{name}.both"', 'parquet = "both"')
    stage.visit(1)
    stage.send("visits", b"broken")
    stage.run(VISITS, files)
    # A source more, declared above the first.
    stage.visit(2)
    stage.visit(20, topic="notes")
    stage.run(NOTES, VISITS, both)
    assert stage.parquet("both") == Counter(["p1", "p2", "p20"])
    # The first is renamed, and comes second in SQL.
    stage.visit(3)
    renamed = VISITS.replace("[source.visits]", "[source.views]")
    turned = both.replace("from visits union all select page from notes", "from notes").replace(
        "select page from notes", "select page from notes union all select page from views"
    )
    running = stage.run(renamed, NOTES, turned)
    assert set(running.queries) == {"both", "dead-letter.visits", "dead-letter.notes"}
    assert stage.parquet("both") == Counter(["p1", "p2", "p20", "p3"])
    # The second is gone.
    stage.visit(4)
    stage.run(VISITS, files)
    assert stage.parquet("both") == Counter(["p1", "p2", "p20", "p3", "p4"])
    assert len(records(stage.topics, f"{stage.name}.dead-letter")) == 1


def test_a_checkpoint_of_an_older_version_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no record, knows sources by their order, and one query for the dead letters."""
    from tidelog.pipeline.queries.start import StreamingFrames

    stage.visit(1, 6)
    stage.send("visits", b"broken")
    with monkeypatch.context() as before:
        before.setattr(StreamingFrames, "_with_names", lambda *_: None)
        stage.run(VISITS, TWICE)
    checkpoint = stage.folder / "checkpoint"
    (checkpoint / "pipeline.json").unlink()
    (checkpoint / "dead-letter.visits").rename(checkpoint / "dead-letter")
    stage.visit(7)
    running = stage.run(VISITS, TWICE)
    assert set(running.queries) == {"twice", "dead-letter"}
    assert stage.parquet("twice") == Counter(["p1", "p6", "p6", "p7", "p7"])
    assert len(records(stage.topics, f"{stage.name}.dead-letter")) == 1


def test_a_source_that_is_read_twice_by_one_query_is_known_by_its_order(stage: Stage) -> None:
    stage.visit(1, 6)
    assert not stage.run(VISITS, TWICE).queries["twice"].query.is_named
    stage.visit(7)
    stage.run(VISITS, TWICE)
    assert stage.parquet("twice") == Counter(["p1", "p6", "p6", "p7", "p7"])


def test_update_mode_writes_what_has_changed(stage: Stage) -> None:
    counts = """\
[view.counts]
sql = "select page, count(*) as visits from visits group by page"
[sink.counts]
from = "counts"
topic = "{name}.counts"
mode = "update"
key = "page"
"""
    stage.visit(1, 1, 2)
    running = stage.run(VISITS, counts)
    assert running.progress["counts"].rows_out == 2
    stage.visit(2, 3)
    stage.run(VISITS, counts)
    rows = [(row["page"], row["visits"]) for row in stage.written("counts")]
    assert sorted(rows[:2]) == [("p1", 2), ("p2", 1)]
    assert sorted(rows[2:]) == [("p2", 2), ("p3", 1)]


def test_headers_and_tombstones_are_there_for_sql(stage: Stage) -> None:
    kept = VISITS + 'tombstones = "keep"\n'
    trace = """\
[view.traced]
sql = \"\"\"
    select cast(_key as string) as id, page,
           cast(filter(_headers, h -> h.key = 'trace')[0].value as string) as trace
    from visits
\"\"\"
[sink.traced]
from = "traced"
topic = "{name}.traced"
"""
    stage.visit(1)
    stage.send("visits", None)
    stage.run(kept, trace)
    assert stage.written("traced") == [
        {"id": "k0", "page": "p1", "trace": "0"},
        {"id": "k0", "trace": "0"},
    ]
    assert records(stage.topics, f"{stage.name}.dead-letter") == []


def test_a_python_view_imports_what_stands_beside_it_on_workers_too(stage: Stage) -> None:
    (stage.folder / "loudness.py").write_text("def shout(text):\n    return text.upper() + '!'\n")
    (stage.folder / "pages").mkdir()
    (stage.folder / "pages" / "__init__.py").write_text("LOUD = 5\n")
    (stage.folder / "views.py").write_text(
        "from pyspark.sql import functions as F\n"
        "import loudness\n"
        "from pages import LOUD\n"
        "def loud(spark, visits):\n"
        "    shout = F.udf(lambda page: loudness.shout(page), 'string')\n"
        "    return visits.where(F.col('seconds') >= LOUD).select(shout('page').alias('page'))\n"
    )
    loud = '[view.loud]\npython = "views.py:loud"\ninputs = ["visits"]\n'
    loud += '[sink.loud]\nfrom = "loud"\nparquet = "loud"\n'
    loud += '[sink.shared]\nfrom = "loud"\ntopic = "{name}.shared"\n'
    stage.visit(1, 6)
    stage.run(VISITS, loud)
    assert stage.parquet("loud") == Counter(["P6!"])
    assert stage.pages("shared") == Counter(["P6!"])


def test_expectations_drop_rows_make_dead_letters_or_stop_the_query(stage: Stage) -> None:
    from tidelog.pipeline.declaration.parts import PipelineError

    expect = """\
[expect.known]
on = "visits"
sql = "page <> 'p1'"
on_fail = "dead-letter"
[expect.short]
on = "long"
sql = "seconds < 9"
"""
    stage.visit(1, 6, 9)
    running = stage.run(VISITS, LONG, expect)
    assert stage.pages("long") == Counter(["p6"])
    assert running.unexpected == {"short": 1}
    (letter,) = records(stage.topics, f"{stage.name}.dead-letter")
    reason = dict_of(letter["headers"])["dead-letter.reason"].decode()
    assert reason == "expectation known: not page <> 'p1'"
    stop = '[expect.few]\non = "visits"\nsql = "seconds < 100"\non_fail = "fail"\n'
    stage.visit(7, 100)
    with pytest.raises(
        PipelineError, match="expectation few: a row of visits is not seconds < 100"
    ):
        stage.run(VISITS, LONG, expect, stop)
    assert stage.pages("long") == Counter(["p6"])
