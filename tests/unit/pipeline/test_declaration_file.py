"""The declarative file: what it says, and how it is told that something in it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.pipeline.declaration.example import write_example
from tidelog.pipeline.declaration.file import load_pipeline, parse_pipeline
from tidelog.pipeline.declaration.parts import (
    PARQUET,
    TOPIC,
    Pipeline,
    PipelineError,
    Watermark,
)
from tidelog.pipeline.frames.dataframes import topic_source_options
from tidelog.spark.options import source_options
from tidelog.spark.record_format import AVRO

GOOD = """\
[pipeline]
name = "shop"

[source.orders]
topic = "orders"
schema = "id string, at timestamp"

[view.hourly]
sql = "select id from orders"

[sink.out]
from = "hourly"
topic = "hourly"
"""


def parsed(text: str, folder: Path = Path("shop"), **overrides: str) -> Pipeline:
    return parse_pipeline(folder / "pipeline.toml", text, overrides)


def problems(text: str, folder: Path = Path("shop")) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        parsed(text, folder)
    return str(caught.value).splitlines()


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_the_example_that_init_writes_is_valid(tmp_path: Path) -> None:
    write_example(tmp_path / "shop", "broker:9093")
    pipeline = load_pipeline(tmp_path / "shop")
    assert pipeline.bootstrap == "broker:9093"
    assert [source.topics for source in pipeline.sources] == [("shop.orders",), ("shop.payments",)]
    assert [(sink.kind, sink.source) for sink in pipeline.sinks] == [
        (TOPIC, "revenue"),
        (PARQUET, "paid_orders"),
    ]
    assert pipeline.sources[0].watermark == Watermark("ordered_at", "10 minutes")
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "2"}
    assert pipeline.sinks[1].target == str(tmp_path / "shop" / "paid_orders")


def test_an_example_is_never_written_over_a_pipeline(tmp_path: Path) -> None:
    write_example(tmp_path)
    with pytest.raises(Exception, match="is there already"):
        write_example(tmp_path)


def test_what_is_not_said_has_a_default() -> None:
    pipeline = parsed(GOOD)
    assert (pipeline.master, pipeline.trigger) == ("local[*]", "1 second")
    assert pipeline.bootstrap == "127.0.0.1:9092"
    assert pipeline.dead_letter_topics == ["shop.dead-letter"]
    source = pipeline.sources[0]
    assert (source.format.kind, source.start) == ("json", "earliest")
    assert (pipeline.sinks[0].mode, pipeline.sinks[0].delivery) == ("append", "exactly-once")


def test_options_of_the_command_come_before_the_file() -> None:
    pipeline = parsed(GOOD, trigger="available-now", master="local[1]", bootstrap="b:1")
    assert (pipeline.trigger, pipeline.master, pipeline.bootstrap) == (
        "available-now",
        "local[1]",
        "b:1",
    )


def test_paths_begin_at_the_folder_and_addresses_stay() -> None:
    text = changed('topic = "hourly"', 'parquet = "s3a://bucket/out"')
    pipeline = parsed(text, Path("/data/shop"))
    assert pipeline.sinks[0].target == "s3a://bucket/out"
    assert pipeline.checkpoint == "/data/shop/checkpoint"


def test_numbers_and_flags_become_option_texts() -> None:
    text = GOOD + "[source.orders.options]\nmaxOffsetsPerTrigger = 100\nfailOnDataLoss = false\n"
    assert parsed(text).sources[0].options == {
        "maxOffsetsPerTrigger": "100",
        "failOnDataLoss": "false",
    }


def test_avro_names_its_schema_file(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text("{}")
    schema = 'schema = "id string, at timestamp"'
    more = f'{schema}\nformat = "avro"\navro_schema = "order.avsc"'
    format = parsed(changed(schema, more), tmp_path).sources[0].format
    assert (format.kind, format.schema_file) == (AVRO, tmp_path / "order.avsc")
    assert not format.is_confluent


def test_a_folder_without_a_pipeline_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="tidelog pipeline init"):
        load_pipeline(tmp_path)


def test_text_that_is_no_toml_is_told_with_its_line() -> None:
    assert problems('[pipeline]\nname = "shop\n')[0].startswith("shop/pipeline.toml:2: is no valid")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            'name = "shop"',
            "",
            '1: [pipeline] name: is missing; give the pipeline a name, for example name = "shop"',
        ),
        (
            'topic = "orders"',
            'topik = "orders"',
            "4: [source.orders]: one of topic, topics, pattern is missing",
        ),
        (
            'topic = "orders"',
            'topic = "orders"\nformat = "jsn"',
            '6: [source.orders] format: "jsn" is not known; did you mean "json"?',
        ),
        (
            'schema = "id string, at timestamp"',
            "",
            "4: [source.orders] schema: format json needs to know the columns",
        ),
        (
            'topic = "orders"',
            'topic = "or ders"',
            '5: [source.orders] topic: "or ders" is no topic name',
        ),
        (
            'topic = "orders"',
            'topic = "orders"\npartitions = 0',
            "6: [source.orders] partitions: expected a whole number of at least 1, got 0",
        ),
        (
            'topic = "orders"',
            'topic = "orders"\nwatermark = { column = "at", delay = "soon" }',
            '6: [source.orders.watermark] delay: "soon" is no duration for Spark;',
        ),
        (
            'from = "hourly"',
            'from = "hurly"',
            '12: [sink.out] from: "hurly" is no source or view above it; there is orders, hourly',
        ),
        (
            'topic = "hourly"',
            'topic = "hourly"\nparquet = "out"',
            "14: [sink.out] parquet: stands beside topic; keep one of them",
        ),
        (
            'topic = "hourly"',
            'topic = "orders"',
            '13: [sink.out] topic: "orders" is also read by [source.orders], by its topic',
        ),
        (
            'topic = "hourly"',
            'parquet = "hourly"\nmode = "update"',
            '14: [sink.out] mode: "update" is not known; there is append',
        ),
        (
            'topic = "hourly"',
            'topic = "hourly"\ndelivery = "once"',
            '14: [sink.out] delivery: "once" is not known; there is exactly-once, at-least-once',
        ),
        (
            'sql = "select id from orders"',
            'python = "views.txt"',
            '9: [view.hourly] python: "views.txt" is not of the form "file.py:function"',
        ),
        (
            'sql = "select id from orders"',
            'sql_file = "missing.sql"',
            "9: [view.hourly] sql_file: shop/missing.sql is not there",
        ),
        (
            'name = "shop"',
            'name = "shop"\ntrigger = "often"',
            '3: [pipeline] trigger: "often" is no duration for Spark',
        ),
        (
            'name = "shop"',
            "name = 7",
            "2: [pipeline] name: expected text in quotes, got 7",
        ),
    ],
)
def test_a_problem_names_file_line_and_fix(old: str, new: str, problem: str) -> None:
    assert any(
        line.startswith(f"shop/pipeline.toml:{problem}") for line in problems(changed(old, new))
    ), problems(changed(old, new))


@pytest.mark.parametrize("duration", ["5 min", "500ms", "10 s", "1h", "1 fortnight", "2 months"])
def test_durations_that_spark_refuses_are_refused_before_it_starts(duration: str) -> None:
    (told,) = problems(changed('name = "shop"', f'name = "shop"\ntrigger = "{duration}"'))
    assert told.startswith(f'shop/pipeline.toml:3: [pipeline] trigger: "{duration}" is no duration')


@pytest.mark.parametrize("duration", ["1 second", "10 minutes", "1 hour 30 minutes", "2  days"])
def test_durations_that_spark_takes_are_taken(duration: str) -> None:
    text = changed('name = "shop"', f'name = "shop"\ntrigger = "{duration}"')
    assert parsed(text).trigger == duration


def test_unknown_keys_are_told_with_the_nearest_known_one() -> None:
    told = problems(changed('topic = "hourly"', 'topic = "hourly"\nkee = "id"'))
    assert told == ['shop/pipeline.toml:14: [sink.out] kee: is not a key here; did you mean "key"?']
    told = problems(GOOD + "[sources.x]\n")
    assert told == ['shop/pipeline.toml:14: sources: is not a key here; did you mean "source"?']


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    text = GOOD.replace('name = "shop"', "nam = 1").replace("hourly", "9th")
    lines = [int(line.split(":")[1]) for line in problems(text)]
    assert len(lines) >= 3
    assert lines == sorted(lines)


def test_a_dead_letter_topic_that_is_read_would_go_round() -> None:
    (told,) = problems(changed('name = "shop"', 'name = "shop"\ndead_letter = "orders"'))
    assert told.startswith(
        'shop/pipeline.toml:3: [pipeline] dead_letter: "orders" is also read by [source.orders], '
        "by its topic: it would never end."
    )


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("shop.*", ['1: [pipeline] dead_letter: "shop.dead-letter"']),
        ("hour", ['13: [sink.out] topic: "hourly"']),
        (
            ".",
            [
                '1: [pipeline] dead_letter: "shop.dead-letter"',
                '13: [sink.out] topic: "hourly"',
            ],
        ),
    ],
)
def test_a_pattern_that_finds_what_the_pipeline_writes_is_refused(
    pattern: str, places: list[str]
) -> None:
    told = problems(changed('topic = "orders"', f'pattern = "{pattern}"'))
    told = [line for line in told if "is also read by" in line]
    assert len(told) == len(places)
    for line, place in zip(told, places, strict=True):
        assert line.startswith(f"shop/pipeline.toml:{place} is also read by [source.orders], by ")
        assert line.endswith("name another topic, or choose a narrower pattern")


def test_a_sources_own_dead_letter_topic_is_held_against_every_source() -> None:
    text = changed('topic = "orders"', 'topic = "orders"\ndead_letter = "lost.orders"')
    (told,) = problems(text + '[source.all]\npattern = "^lost"\nformat = "raw"\n')
    assert told.startswith('shop/pipeline.toml:6: [source.orders] dead_letter: "lost.orders" is')


def test_a_pattern_beside_what_is_written_is_fine() -> None:
    assert parsed(changed('topic = "orders"', 'pattern = "^orders"')).sources[0].reads("orders.eu")


def test_a_pattern_that_is_no_regular_expression_is_told() -> None:
    (told,) = problems(changed('topic = "orders"', 'pattern = "orders["'))
    assert told.startswith('shop/pipeline.toml:5: [source.orders] pattern: "orders[" is no regular')


def test_topics_are_not_chosen_by_options() -> None:
    (told,) = problems(GOOD + '[source.orders.options]\nsubscribePattern = "."\n')
    assert told.endswith("subscribePattern: is said by another key here: pattern")


def test_spark_settings_without_quotes_are_told_how_to_write_them() -> None:
    told = problems(GOOD + "[spark]\nspark.sql.shuffle.partitions = 2\n")
    assert "names with dots are quoted" in told[0]


@pytest.mark.parametrize(
    ("kind", "option", "key"),
    [
        ('parquet = "files"', "path", "parquet"),
        ('parquet = "files"', "PATH", "parquet"),
        ('parquet = "files"', "checkpointLocation", "checkpoint in [pipeline]"),
        ('parquet = "files"', "outputMode", "mode"),
        ('parquet = "files"', "queryName", "none; a query has"),
        ("console = true", "path", "none; a console has"),
        ("console = true", "outputMode", "mode"),
        ('topic = "hourly"', "path", "topic"),
        ('topic = "hourly"', "checkpointLocation", "checkpoint in [pipeline]"),
        ('topic = "hourly"', "includeHeaders", "none; the column headers"),
    ],
)
def test_what_a_sink_declares_is_not_said_by_options_too(kind: str, option: str, key: str) -> None:
    text = changed('topic = "hourly"', f'{kind}\noptions = {{ {option} = "/elsewhere" }}')
    (told,) = problems(text)
    assert told.startswith("shop/pipeline.toml:14: [sink.out.options] ")
    assert f": is said by another key here: {key}" in told


RAW = changed('schema = "id string, at timestamp"', 'format = "raw"')
EXPECTATION = """
[expect.there]
on = "orders"
sql = "value is not null"
on_fail = "dead-letter"
"""


@pytest.mark.parametrize("option", ["path", "endingTimestamp", "endingOffsets"])
def test_a_source_is_told_no_end_and_no_folder(option: str) -> None:
    (told,) = problems(changed('topic = "orders"', f'topic = "orders"\noptions.{option} = "1"'))
    assert f"[source.orders.options] {option}: is said by another key here: none; a" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            RAW.replace('format = "raw"', 'format = "raw"\nformat_options = { mode = "x" }'),
            "7: [source.orders] format_options: has no effect with format raw: Spark's options "
            "are for json and csv; leave them out",
        ),
        (
            GOOD + 'format = "raw"\nformat_options = { mode = "x" }\n',
            "15: [sink.out] format_options: has no effect with format raw: Spark's options "
            "are for json and csv; leave them out",
        ),
        (
            RAW.replace('format = "raw"', 'format = "raw"\ntombstones = "dead-letter"'),
            '7: [source.orders] tombstones: no raw record is broken; use "keep" or "drop", or an '
            'expectation with sql = "value is not null"',
        ),
        (
            RAW.replace('format = "raw"', 'format = "raw"\ndead_letter = "lost"'),
            "7: [source.orders] dead_letter: no raw record is broken, so there are no letters; "
            'add an expectation with on_fail = "dead-letter", or leave it out',
        ),
        *(
            (
                RAW.replace('name = "shop"', f'name = "shop"\n{key} = {value}'),
                f"3: [pipeline] {key}: no source has dead letters for it; leave it out",
            )
            for key, value in (
                ("dead_letter", '"lost"'),
                ("dead_letter_partitions", "2"),
                ("dead_letter_replication", "3"),
                ("dead_letter_config", '{ "retention.ms" = "1" }'),
            )
        ),
        (
            GOOD.replace('name = "shop"', 'name = "shop"\ndead_letter = "all"').replace(
                'topic = "orders"', 'topic = "orders"\ndead_letter = "own"'
            ),
            "3: [pipeline] dead_letter: no source has dead letters for it; leave it out",
        ),
        (
            GOOD.replace(
                'topic = "orders"',
                'topic = "orders"\nstart = "latest"\noptions = { startingTimestamp = 5 }',
            ),
            "6: [source.orders] start: stands beside startingTimestamp in options; keep one of "
            "them",
        ),
        (
            GOOD + '[registry]\n"schema.registry.url" = "http://r:8081"\n',
            '14: registry: no source and no sink uses it; add framing = "confluent" to a source '
            "or sink, or leave it out",
        ),
        (
            GOOD + '[spark]\nmaster = "local[2]"\nremote = "sc://host"\n',
            "16: [spark] remote: stands beside master; keep one of them",
        ),
    ],
)
def test_a_key_that_can_have_no_effect_is_told(text: str, told: str) -> None:
    assert problems(text) == [f"shop/pipeline.toml:{told}"]


def test_a_pipeline_that_is_no_table_is_told_once() -> None:
    told = problems("pipeline = 5\n" + GOOD.partition("\n\n")[2])
    assert sum("expected a table [pipeline]" in line for line in told) == 1


@pytest.mark.parametrize("kept", ["keep", "drop"])
def test_raw_tombstones_are_kept_or_dropped(kept: str) -> None:
    text = RAW.replace('format = "raw"', f'format = "raw"\ntombstones = "{kept}"')
    assert parsed(text).sources[0].tombstones == kept


def test_a_raw_source_with_an_expectation_may_say_all_of_dead_letters() -> None:
    keys = 'name = "shop"\ndead_letter_partitions = 2\ndead_letter_config = { "a.b" = "c" }'
    text = RAW.replace('name = "shop"', keys) + EXPECTATION
    assert parsed(text).dead_letter.partitions == 2
    own = text.replace('format = "raw"', 'format = "raw"\ndead_letter = "lost"')
    assert parsed(own).dead_letter_topics == ["lost"]


def test_the_commands_place_to_run_comes_before_the_files() -> None:
    remote = GOOD + '[spark]\nremote = "sc://host"\n'
    made = parsed(remote, master="local[2]")
    assert (made.master, made.remote) == ("local[2]", "")
    both = GOOD + '[spark]\nmaster = "local[2]"\nremote = "sc://host"\n'
    assert parsed(both, remote="sc://other").remote == "sc://other"
    with pytest.raises(PipelineError, match="the command names both master and remote"):
        parsed(GOOD, master="local", remote="sc://host")


def test_a_batch_over_a_source_leaves_out_what_only_streams_have() -> None:
    text = GOOD + '[source.orders.options]\ncommitgroupid = "g"\nminPartitions = 4\n'
    pipeline = parsed(text)
    (source,) = pipeline.sources
    streamed = topic_source_options(pipeline, source, streaming=True)
    assert streamed["commitgroupid"] == "g"
    options = source_options(topic_source_options(pipeline, source, streaming=False))
    options.check_batch()
    assert options.min_partitions == 4


def parquet_sinks(first: str, second: str) -> str:
    sinks = (
        f'[sink.{name}]\nfrom = "hourly"\nparquet = "{folder}"\n'
        for name, folder in (("one", first), ("two", second))
    )
    return GOOD + "".join(sinks)


def test_two_sinks_may_not_write_one_folder() -> None:
    """Spark would leave out the rows of one of them."""
    assert problems(parquet_sinks("days", "./days/")) == [
        "shop/pipeline.toml:19: [sink.two] parquet: [sink.one] writes this folder; name another, "
        "or write both by one view"
    ]
    parsed(parquet_sinks("days", "hours"))


def test_two_sinks_of_one_topic_say_once_how_it_is_made() -> None:
    other = '[sink.more]\nfrom = "orders"\ntopic = "hourly"\n'
    parsed(GOOD + "partitions = 3\n" + other)
    parsed(GOOD + "partitions = 3\n" + other + "partitions = 3\n")
    assert problems(GOOD + "partitions = 3\n" + other + "partitions = 1\n") == [
        "shop/pipeline.toml:18: [sink.more] partitions: [sink.out] makes this topic in another "
        "way; say it once"
    ]


def test_a_compacted_topic_needs_keys() -> None:
    """Brokers refuse a record without one, so no batch could be written."""
    text = GOOD + 'partitions = 1\ntopic_config = { "cleanup.policy" = "compact,delete" }\n'
    assert problems(text) == [
        "shop/pipeline.toml:15: [sink.out] topic_config: records of a compacted topic need keys; "
        'add a key, for example key = "id"'
    ]
    parsed(text + 'key = "id"\n')


def test_a_sink_does_not_make_the_dead_letter_topic_compacted() -> None:
    text = changed('topic = "hourly"', 'topic = "shop.dead-letter"') + "partitions = 1\n"
    parsed(text)
    text += 'key = "id"\n'
    told = problems(text + 'topic_config = { "cleanup.policy" = "compact" }\n')
    assert told[0].startswith("shop/pipeline.toml:16: [sink.out] topic_config: dead letters go to")


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ('pattern = "spark"', ""),
        ('topics = ["_tidelog_spark_progress"]', ""),
        ('pattern = "mark"', 'options = { ProgressTopic = "marks" }\n'),
    ],
)
def test_a_source_may_not_read_where_exactly_once_sinks_mark_their_batches(
    source: str, sink: str
) -> None:
    """Each batch adds a record, so each batch would bring the next."""
    told = problems(changed('topic = "orders"', source) + sink)
    assert len(told) == 1
    assert "each exactly-once batch adds a record: it would never end" in told[0]


def test_at_least_once_no_batch_is_marked() -> None:
    raw = changed('schema = "id string, at timestamp"', 'format = "raw"')
    text = raw.replace('topic = "orders"', 'pattern = "spark"')
    assert len(problems(text)) == 1
    parsed(text + 'delivery = "at-least-once"\n')


def test_names_of_tables_differ_in_more_than_case() -> None:
    other = '[source.Orders]\ntopic = "other"\nschema = "id string"\n'
    assert problems(GOOD + other) == [
        "shop/pipeline.toml:14: [source] Orders: there is a source of that name; rename it"
    ]
    view = changed("[view.hourly]", "[view.ORDERS]").replace('"hourly"\nt', '"ORDERS"\nt')
    assert problems(view) == [
        "shop/pipeline.toml:8: [view] ORDERS: there is a source of that name; rename it"
    ]


def test_keys_of_the_clients_that_would_have_no_effect_are_refused() -> None:
    assert problems(GOOD + '[kafka]\n"bootstrap.servers" = "kafka:9092"\n') == [
        "shop/pipeline.toml:15: [kafka] bootstrap.servers: is said by another key here: bootstrap "
        "in [pipeline]"
    ]
    assert problems(GOOD + '[kafka]\n"kafka.client.id" = "shop"\n') == [
        "shop/pipeline.toml:15: [kafka] kafka.client.id: is written without its prefix here: "
        '"client.id"'
    ]


def test_a_pattern_makes_no_topics() -> None:
    text = changed('topic = "orders"', 'pattern = "orders[.]"\npartitions = 3')
    assert problems(text) == [
        "shop/pipeline.toml:6: [source.orders] partitions: a pattern names no topic to be made; "
        "leave it out"
    ]
