"""By which name the rows of a batch are written, so that a repeated batch is known."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.pipeline.queries.topic_writer import save_batch


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
