"""Formats in the declarative file: frames, registries and folders of schemas, and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.pipeline.declaration.file import parse_pipeline
from tidelog.pipeline.declaration.parts import PipelineError
from tidelog.spark.codecs.schema_registry import RegistrySettings, SchemaFolder
from tidelog.spark.record_format import RecordFormat

DECLARATION = """\
[pipeline]
name = "shop"
{top}
[source.orders]
topic = "orders"
schema = "id string"
{source}
[sink.out]
from = "orders"
topic = "out"
{sink}
"""
AVRO = 'format = "avro"\nframing = "confluent"'
PROTOBUF = 'format = "protobuf"\nframing = "confluent"\ndescriptors = "shop.desc"\nmessage = "a.B"'
JSON = 'framing = "confluent"'
REGISTRY = '[registry]\n"schema.registry.url" = "http://r:8081"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.desc").write_bytes(b"")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "7.avsc").write_text('"string"')
    (tmp_path / "empty").mkdir()
    return tmp_path


def formats(folder: Path, top: str = "", source: str = "", sink: str = "") -> list[RecordFormat]:
    text = DECLARATION.format(top=top, source=source, sink=sink)
    pipeline = parse_pipeline(folder / "pipeline.toml", text, {})
    return [pipeline.sources[0].format, pipeline.sinks[0].format]


def problems(folder: Path, top: str = "", source: str = "", sink: str = "") -> list[str]:
    with pytest.raises(PipelineError) as caught:
        formats(folder, top, source, sink)
    return [line.removeprefix(f"{folder}/pipeline.toml:") for line in str(caught.value).split("\n")]


def test_a_registry_of_the_pipeline_serves_all_frames(folder: Path) -> None:
    source, sink = formats(folder, REGISTRY, AVRO, PROTOBUF)
    assert isinstance(source.schemas, RegistrySettings)
    assert source.schemas.urls == ("http://r:8081",)
    assert sink.schemas == source.schemas
    assert (source.schema_file, sink.subject) == (None, "out-value")


def test_a_part_may_have_its_own_registry_or_folder(folder: Path) -> None:
    table = f'{AVRO}\n[sink.out.registry]\n"schema.registry.url" = "https://a:1,https://b:2"'
    source, sink = formats(folder, "", f'{AVRO}\nregistry = "http://own:1"', table)
    assert isinstance(source.schemas, RegistrySettings)
    assert isinstance(sink.schemas, RegistrySettings)
    assert source.schemas.urls == ("http://own:1",)
    assert sink.schemas.urls == ("https://a:1", "https://b:2")
    source, sink = formats(folder, REGISTRY, f'{AVRO}\nschemas = "schemas"', AVRO)
    assert isinstance(sink.schemas, RegistrySettings)
    assert sink.schemas.urls == ("http://r:8081",)
    assert isinstance(source.schemas, SchemaFolder)
    assert source.schemas.schema(7).text == '"string"'


def test_only_what_needs_schemas_must_have_them(folder: Path) -> None:
    fix = 'add registry = "http://localhost:8081", or schemas = "folder" of files by id'
    told = f"framing: confluent needs the schemas of its ids; {fix}"
    for source in (PROTOBUF, JSON):
        assert formats(folder, source=source)[0].schemas is None
        assert problems(folder, sink=source)[0].endswith(f"[sink.out] {told}")
    assert problems(folder, source=AVRO) == [f"8: [source.orders] {told}"]
    assert problems(folder, source='format = "avro"') == [
        '4: [source.orders] avro_schema: is missing; name the schema: avro_schema = "order.avsc"'
    ]


def test_a_user_may_stand_in_the_address_and_is_shown_nowhere(folder: Path) -> None:
    top = '[registry]\n"schema.registry.url" = "http://shop:sec%3Aret@r:8081/base/"\n'
    source, _ = formats(folder, top, AVRO)
    assert isinstance(source.schemas, RegistrySettings)
    assert source.schemas.user_info == "shop:sec:ret"
    assert source.schemas.urls == ("http://r:8081/base",)
    assert "sec" not in repr(source)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("", "3: [registry] schema.registry.url: is missing, for example"),
        ('"schema.registry.url" = "r:8081"', "4: [registry] schema.registry.url: is not of the"),
        ('"schema.registry.url" = "http://r:x"', "4: [registry] schema.registry.url: is not of"),
        ('"schema.registry.uri" = "http://r"', "4: [registry] schema.registry.uri: is not a key"),
        ('"basic.auth.user.info" = "me"', "3: [registry] schema.registry.url: is missing"),
        (
            '"schema.registry.url" = "http://r"\n"basic.auth.user.info" = "me"',
            "5: [registry] basic.auth.user.info: is not of the form user:password",
        ),
        (
            '"schema.registry.url" = "http://a:b@r"\n"basic.auth.user.info" = "a:b"',
            "5: [registry] basic.auth.user.info: the address has a user too",
        ),
        (
            '"schema.registry.url" = "http://r"\n"max.retries" = -1',
            "5: [registry] max.retries: is a number from 0 to 100",
        ),
        (
            '"schema.registry.url" = "http://r"\n"auto.register.schemas" = "maybe"',
            "5: [registry] auto.register.schemas: is true or false",
        ),
        ('schema.registry.url = "http://r"', "4: [registry] schema: expected a text or number"),
    ],
)
def test_wrong_keys_of_a_registry_are_told_with_their_line(
    folder: Path, keys: str, told: str
) -> None:
    found = problems(folder, f"[registry]\n{keys}", AVRO)
    assert found[0].startswith(told)


@pytest.mark.parametrize(
    ("source", "sink", "told"),
    [
        (f'{AVRO}\nschemas = "gone"', "", "9: [source.orders] schemas: "),
        (f'{AVRO}\nschemas = "empty"', "", "9: [source.orders] schemas: "),
        (
            f'{AVRO}\nschemas = "schemas"\nregistry = "http://r"',
            "",
            "10: [source.orders] registry: stands beside schemas",
        ),
        (f"{AVRO}\nregistry = 7", "", "9: [source.orders] registry: expected a table"),
        (
            "",
            f'{PROTOBUF}\nschemas = "schemas"',
            "15: [sink.out] schemas: a sink of Protobuf needs a registry",
        ),
        ('format = "csv"\nframing = "confluent"', "", "8: [source.orders] framing: is not a key"),
        ('registry = "http://r"', "", "7: [source.orders] registry: is not a key"),
    ],
)
def test_wrong_sources_of_schemas_are_told_with_their_line(
    folder: Path, source: str, sink: str, told: str
) -> None:
    assert problems(folder, source=source, sink=sink)[0].startswith(told)


def test_files_of_a_registry_begin_at_the_folder_of_the_pipeline(tmp_path: Path) -> None:
    """The command may run anywhere."""
    text = """\
[pipeline]
name = "shop"
[registry]
"schema.registry.url" = "https://host:8081"
"ssl.ca.location" = "ca.pem"
"ssl.key.location" = "/etc/own.key"
[source.orders]
topic = "orders"
format = "avro"
framing = "confluent"
schema = "id string"
[sink.out]
from = "orders"
topic = "out"
"""
    (source,) = parse_pipeline(tmp_path / "pipeline.toml", text, {}).sources
    found = source.format.schemas
    assert isinstance(found, RegistrySettings)
    assert (found.ca_file, found.key_file) == (str(tmp_path / "ca.pem"), "/etc/own.key")
