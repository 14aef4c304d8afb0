"""Options of sinks, checked before a query starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.pipeline.declaration.file import parse_pipeline
from tidelog.pipeline.declaration.parts import Pipeline, PipelineError
from tidelog.pipeline.frames.sink_rows import check_topic_options

TEXT = """\
[pipeline]
name = "shop"
[source.orders]
topic = "orders"
schema = "id string"
[sink.out]
from = "orders"
topic = "out"
"""


def parsed(more: str) -> Pipeline:
    return parse_pipeline(Path("shop/pipeline.toml"), TEXT + more, {})


def problem(more: str) -> str:
    with pytest.raises(PipelineError) as caught:
        check_topic_options(parsed(more))
    return str(caught.value)


def test_an_unknown_option_of_a_sink_is_told_with_its_line() -> None:
    """The first batch would fail, and be tried five times more."""
    assert problem('options = { "kafka.compresion.type" = "lz4" }\n') == (
        "shop/pipeline.toml:6: [sink.out] option kafka.compresion.type: is unknown; did you mean "
        "kafka.compression.type?"
    )


def test_an_option_of_exactly_once_does_not_go_with_at_least_once() -> None:
    assert "[sink.out] option driverBytesPerTask: has no effect unless deliveryGuarantee is" in (
        problem('delivery = "at-least-once"\noptions = { driverBytesPerTask = 0 }\n')
    )


def test_settings_with_which_dead_letters_cannot_be_written_are_told() -> None:
    """They are written exactly once, whatever the sinks say."""
    told = problem('delivery = "at-least-once"\n[kafka]\nacks = "1"\n')
    assert told.startswith(
        "shop/pipeline.toml:3: dead letters of [source.orders] option kafka.acks"
    )


def test_settings_of_all_clients_may_stand_together() -> None:
    keys = '"isolation.level" = "read_committed"\n"linger.ms" = 5\n"client.id" = "shop"\n'
    check_topic_options(parsed(f"[kafka]\n{keys}"))
