"""By which name the rows of a batch are written, so that a repeated batch is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidelog.pipeline.declaration.file import parse_pipeline
from tidelog.pipeline.queries import topic_writer
from tidelog.pipeline.queries.topic_writer import SharedWriter, save_batch


class Rows:
    """A DataFrame inside a batch of query `query-1`, and the options it was saved with."""

    def __init__(self) -> None:
        self.saved: dict[str, str] = {}
        self.sparkSession = self.sparkContext = self.write = self

    def getLocalProperty(self, name: str) -> str | None:
        return {"sql.streaming.queryId": "query-1"}.get(name)

    def format(self, name: str) -> Rows:
        assert name == "tidelog"
        return self

    def mode(self, name: str) -> Rows:
        assert name == "append"
        return self

    def options(self, **options: str) -> Rows:
        self.saved = options
        return self

    def save(self) -> None:
        pass


@pytest.mark.parametrize(("writer", "known_by"), [("", "query-1"), ("query-0", "query-0")])
def test_a_batch_is_known_by_its_query_or_by_the_one_that_it_goes_on_for(
    writer: str, known_by: str
) -> None:
    rows: Any = Rows()
    save_batch(rows, {"deliveryGuarantee": "exactly-once"}, "sink.a", 7, writer)
    assert rows.saved["txnAppId"] == f"{known_by}.sink.a"
    assert rows.saved["txnVersion"] == "7"


def test_at_least_once_a_batch_has_no_name() -> None:
    rows: Any = Rows()
    save_batch(rows, {"deliveryGuarantee": "at-least-once"}, "sink.a", 7, "query-0")
    assert rows.saved == {"deliveryGuarantee": "at-least-once"}


PIPELINE = """\
[pipeline]
name = "shop"
[source.orders]
topic = "orders"
schema = "cents bigint"
[expect.positive]
on = "orders"
sql = "cents > 0"
[sink.out]
from = "orders"
topic = "out"
"""


@pytest.mark.parametrize("has_sink", [True, False])
def test_nobody_waits_for_counts_of_rows_that_were_not_read(
    monkeypatch: pytest.MonkeyPatch, has_sink: bool
) -> None:
    """Only the dead letters are written: the sink has left the query, or has the batch already.
    Spark counts nothing then, and each batch would have waited until it gave up."""

    class Counted:
        def __init__(self, frame: Any, metrics: Any) -> None:
            self.frame = frame

        def wait(self) -> dict[str, Any]:
            raise AssertionError("nothing has read these rows")

    def frames(pipeline: Any, source: Any, rows: Any, views: Any, observe: Any) -> dict[str, Any]:
        return {"orders": observe(rows, "positive", None)}

    monkeypatch.setattr(topic_writer, "_Observed", Counted)
    monkeypatch.setattr(topic_writer, "frames_of_batch", frames)
    monkeypatch.setattr(topic_writer, "dead_letters", lambda rows, topic, source: rows)
    monkeypatch.setattr(topic_writer, "sink_rows", lambda pipeline, sink, rows: rows)
    monkeypatch.setattr(topic_writer, "_Broken", lambda rows: None)
    monkeypatch.setattr(SharedWriter, "_letters", lambda *given: 2)
    monkeypatch.setattr(SharedWriter, "_sink", lambda *given: 5)
    pipeline = parse_pipeline(Path("shop/pipeline.toml"), PIPELINE, {})
    sinks = pipeline.sinks if has_sink else ()
    shared = SharedWriter(pipeline, pipeline.sources[0], sinks, has_letters=True)
    shared.counts.add(7, "out", 5)
    shared(Rows(), 7)  # type: ignore[arg-type]
    assert shared.counts.of(7, "dead-letter.orders") == 2
