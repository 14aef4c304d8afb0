"""References in pipeline.toml: looked up, left to the clients, or told to be missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.pipeline.declaration.file import parse_pipeline
from tidelog.pipeline.declaration.parts import Pipeline, PipelineError
from tidelog.tools.cli.main import main

DECLARATION = """\
[pipeline]
name = "shop"
bootstrap = "${env:SHOP_BROKERS}"

[kafka]
"client.id" = "${file:word}"

[spark]
"spark.hadoop.fs.s3a.secret.key" = "${env:SHOP_KEY}"

[source.orders]
topics = ["${env:SHOP_TOPIC}.eu", "us"]
schema = "id string"
options = { "kafka.client.rack" = "${env:SHOP_KEY}" }

[sink.out]
from = "orders"
parquet = "out"
options = { "encryption.key" = "${env:SHOP_KEY}" }
"""


@pytest.fixture(autouse=True)
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_BROKERS", "broker:9093")
    monkeypatch.setenv("SHOP_TOPIC", "orders")
    monkeypatch.setenv("SHOP_KEY", "mellon")
    (tmp_path / "word").write_text("friend\n")


def parsed(folder: Path, text: str = DECLARATION) -> Pipeline:
    return parse_pipeline(folder / "pipeline.toml", text, {})


def problems(folder: Path, text: str = DECLARATION) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        parsed(folder, text)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_values_take_the_place_of_references(tmp_path: Path) -> None:
    pipeline = parsed(tmp_path)
    assert pipeline.bootstrap == "broker:9093"
    assert pipeline.sources[0].topics == ("orders.eu", "us")
    assert pipeline.spark == {"spark.hadoop.fs.s3a.secret.key": "mellon"}
    assert pipeline.sinks[0].options == {"encryption.key": "mellon"}


def test_settings_of_the_clients_stay_references_with_whole_paths(tmp_path: Path) -> None:
    pipeline = parsed(tmp_path)
    assert pipeline.kafka == {"client.id": f"${{file:{tmp_path / 'word'}}}"}
    assert pipeline.sources[0].options == {"kafka.client.rack": "${env:SHOP_KEY}"}


def test_the_pipeline_knows_its_references_and_what_spark_must_hide(tmp_path: Path) -> None:
    pipeline = parsed(tmp_path)
    assert pipeline.references == (
        "${env:SHOP_BROKERS}",
        f"${{file:{tmp_path / 'word'}}}",
        "${env:SHOP_KEY}",
        "${env:SHOP_TOPIC}",
    )
    assert pipeline.hidden_settings == ("spark.hadoop.fs.s3a.secret.key", "encryption.key")


def test_every_missing_value_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_KEY")
    (tmp_path / "word").unlink()
    assert problems(tmp_path) == [
        "pipeline.toml:6: [kafka] client.id: ${file:word}: No such file or directory",
        "pipeline.toml:9: [spark] spark.hadoop.fs.s3a.secret.key: ${env:SHOP_KEY}: the "
        "environment has no variable SHOP_KEY",
        "pipeline.toml:14: [source.orders.options] kafka.client.rack: ${env:SHOP_KEY}: the "
        "environment has no variable SHOP_KEY",
        "pipeline.toml:19: [sink.out.options] encryption.key: ${env:SHOP_KEY}: the environment "
        "has no variable SHOP_KEY",
    ]


def test_an_unknown_kind_of_reference_is_refused_but_not_in_sql(tmp_path: Path) -> None:
    text = DECLARATION.replace("${env:SHOP_TOPIC}", "${evn:SHOP_TOPIC}")
    assert problems(tmp_path, text) == [
        "pipeline.toml:12: [source.orders] topics: ${evn:SHOP_TOPIC} is no reference; there is "
        "${env:NAME}, ${file:PATH}"
    ]
    view = "\n[view.some]\nsql = \"select '${hivevar:x} ${env:SHOP_TOPIC}' from orders\"\n"
    assert parsed(tmp_path, DECLARATION + view).views[0].sql == (
        "select '${hivevar:x} orders' from orders"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        'start = "latest"\npartitions = "${env:SHOP_KEY}"',
        'format = "${env:SHOP_KEY}"',
        'watermark = { column = "at", delay = "${env:SHOP_KEY}" }',
        'dead_letter = ["${env:SHOP_KEY}", "and enough more to make it a long text"]',
    ],
)
def test_a_bad_value_behind_a_reference_is_told_without_showing_it(
    tmp_path: Path, wrong: str
) -> None:
    told = problems(tmp_path, DECLARATION.replace('schema = "id', f'{wrong}\nschema = "id'))
    assert len(told) == 1
    assert "mellon" not in told[0]


def test_validate_names_the_references_and_no_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pipeline.toml").write_text(DECLARATION)
    assert main(["pipeline", "validate", "--structure", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "values from ${env:SHOP_BROKERS}, " in shown
    assert not [value for value in ("mellon", "friend", "broker:9093") if value in shown]


def test_errors_of_a_run_have_references_instead_of_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_BROKERS", "127.0.0.1:1")
    settings = '"default.api.timeout.ms" = 100\n"client.id" = '
    text = DECLARATION.replace('"client.id" = ', settings)
    (tmp_path / "pipeline.toml").write_text(text)
    assert main(["pipeline", "run", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "no answer from bootstrap ${env:SHOP_BROKERS}" in told
    assert "127.0.0.1:1" not in told


def test_settings_that_spark_connect_cannot_hide_are_refused(tmp_path: Path) -> None:
    told = problems(tmp_path, DECLARATION.replace("[spark]", '[spark]\nremote = "sc://host"'))
    assert told == [
        "pipeline.toml:9: Spark Connect cannot keep spark.hadoop.fs.s3a.secret.key, "
        "encryption.key out of the server's logs; set it there"
    ]
