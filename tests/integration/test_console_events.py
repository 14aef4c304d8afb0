"""The console's timeline and explanations against a broker that tells its events."""

from __future__ import annotations

import json
import re
from urllib.parse import urlencode

import pytest

from tests.conftest import StartBroker
from tests.support.console_client import ConsoleClient
from tidelog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.tools.console.pages import events
from tidelog.tools.console.settings import ConsoleSettings

METRICS = {"tidelog.metrics.listener": "http://127.0.0.1:0"}
GROUP = "readers<b onmouseover=alert(1)>"


def metrics_url(told: str) -> str:
    found = re.search(r"metrics=(\S+)", told)
    assert found is not None, told
    return found[1].strip('"')


def test_events_are_shown_filtered_live_and_explained(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LIVE_S", 0.01)
    broker = start_broker(METRICS)
    bootstrap = broker.bootstrap
    with Admin(bootstrap_servers=bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as out:
        admin.create_topics([NewTopic("orders", num_partitions=1)])["orders"].get()
        out.send("orders", b"x").result()
        admin.alter_group_offsets("lone", {TopicPartition("orders", 0): 0})
        with Consumer(
            bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["orders"])
            while not consumer.poll(timeout=1.0):
                pass
    url = metrics_url(broker.stdout_path.read_text())
    settings = ConsoleSettings({"bootstrap.servers": bootstrap}, metrics_urls=(url,))
    with ConsoleClient(settings) as console:
        page = console.get("/events")
        assert page.status == 200
        for name in ("broker-started", "topic-created", "rebalance-ended"):
            assert name in page.words
        assert GROUP in page.words
        assert "<b onmouseover" not in page.text
        groups = console.get("/events?kind=groups")
        assert "rebalance-began" in groups.words
        assert "broker-started" not in groups.words
        of_group = console.get("/events?" + urlencode({"group": GROUP, "kind": "topics"}))
        assert "No event matches" in of_group.words
        assert "No event matches" in console.get("/events?broker=77").words

        ((_, data),) = console.events("/events/live?name=topic-created", 1)
        shown = json.loads(data)["events"]
        assert "topic-created" in shown
        assert "rebalance" not in shown

        answer = console.get("/explain?kind=partition&topic=orders&partition=0")
        assert answer.status == 200
        assert "no problem" in answer.words
        assert "Timeline" in answer.words
        record = console.get("/explain?kind=record&topic=orders&partition=0&offset=0")
        assert record.status == 200
        assert "What holds now" in record.words
        group = console.get("/explain?" + urlencode({"kind": "group", "group": "lone"}))
        assert "a problem" in group.words
        gone = console.get("/explain?kind=txn&id=nobody")
        assert "unknown-transactional-id" in gone.words


def test_a_broker_without_events_is_no_error(bootstrap: str) -> None:
    with ConsoleClient(ConsoleSettings({"bootstrap.servers": bootstrap})) as console:
        page = console.get("/events")
        assert page.status == 200
        assert "No broker tells of any event" in page.words
        assert "What could not be known" in page.words


@pytest.mark.parametrize(
    "query",
    [
        "kind=partition",
        "kind=partition&topic=t",
        "kind=partition&topic=t&partition=-1",
        "kind=partition&topic=t&partition=x",
        "kind=record&topic=t&partition=0",
        "kind=group",
        "kind=txn",
    ],
)
def test_a_question_that_is_not_whole_is_told(query: str) -> None:
    with ConsoleClient() as console:
        page = console.get(f"/explain?{query}")
        assert (page.status, "not whole" in page.words) == (400, True)


def test_questions_are_asked_by_forms() -> None:
    with ConsoleClient() as console:
        page = console.get("/explain?kind=elsewhere")
        assert page.status == 200
        assert page.text.count('action="/explain"') == 4


def test_a_partition_that_is_not_there_is_a_calm_page(bootstrap: str) -> None:
    with ConsoleClient(ConsoleSettings({"bootstrap.servers": bootstrap})) as console:
        page = console.get("/explain?kind=partition&topic=no-such-topic&partition=0")
        assert page.status == 404
        assert "There is no such thing" in page.words
