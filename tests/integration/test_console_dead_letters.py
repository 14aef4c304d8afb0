"""The console's page of dead letters against a broker: reasons, pages, replay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.support.console_client import ConsoleClient
from tidelog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.tools.console import dead_letters
from tidelog.tools.console.settings import ConsoleSettings

LETTERS = 12
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> str:
    """Of dead letters, in two partitions; half of them say that they came from `<topic>.source`."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        made = admin.create_topics(
            [NewTopic(topic_name, num_partitions=2), f"{topic_name}.source", f"{topic_name}.other"]
        )
        for result in made.values():
            result.get()
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(LETTERS):
            headers = [
                ("trace", b"%d" % number),
                ("dead-letter.reason", f"reason {number % 2} {SCRIPT}".encode()),
                ("dead-letter.source", b"orders"),
                ("dead-letter.topic", f"{topic_name}.source".encode()),
                ("dead-letter.partition", b"0"),
                ("dead-letter.offset", b"%d" % number),
            ]
            producer.send(
                topic_name,
                f"{number} {SCRIPT}".encode(),
                key=b"k",
                partition=number % 2,
                headers=headers if number < LETTERS - 1 else [],
            )
    return topic_name


@pytest.fixture
def console(bootstrap: str) -> Iterator[ConsoleClient]:
    settings = ConsoleSettings({"bootstrap.servers": bootstrap}, can_write=True)
    with ConsoleClient(settings) as client:
        yield client


def letters_of(topic: str, **query: str) -> str:
    return "/pipelines/letters?" + urlencode({"topic": topic, **query})


def values_in(
    bootstrap: str, topic: str, count: int
) -> list[tuple[bytes | None, tuple[object, ...]]]:
    found: list[tuple[bytes | None, tuple[object, ...]]] = []
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < count:
            found += [(each.value, tuple(each.headers)) for each in consumer.poll(timeout=1.0)]
    return sorted(found, key=lambda row: row[0] or b"")


def test_letters_are_shown_with_their_reasons(console: ConsoleClient, topic: str) -> None:
    page = console.get(letters_of(topic))
    assert page.status == 200
    assert SCRIPT not in page.text
    assert f"6 letters: reason 0 {SCRIPT}" in page.words
    assert "1 letter: no reason is given" in page.words
    assert len(re.findall(r'name="letter"', page.text)) == LETTERS
    filtered = console.get(letters_of(topic, reason="reason 1"))
    assert len(re.findall(r'name="letter"', filtered.text)) == 5


def test_pages_of_letters_hold_each_once(
    console: ConsoleClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "PAGE_LETTERS", 5)
    seen: list[str] = []
    path = letters_of(topic)
    while path:
        page = console.get(path)
        assert page.status == 200
        seen += re.findall(r'name="letter" value="([^"]*)"', page.text)
        older = re.search(r'href="([^"]*)">Older ones', page.text)
        path = older[1].replace("&amp;", "&") if older else ""
    assert len(seen) == LETTERS
    assert len(set(seen)) == LETTERS


def test_chosen_letters_are_written_to_where_they_came_from(
    console: ConsoleClient, bootstrap: str, topic: str
) -> None:
    fields = {"topic": topic, "letter": ["0:0", "1:0"]}
    look = console.post("/pipelines/letters/preview", fields)
    assert look.status == 200
    assert f"2 records to {topic}.source" in look.words
    assert SCRIPT not in look.text

    done = console.post("/pipelines/letters/replay", fields)

    assert (done.status, done.location) == (303, letters_of(topic))
    assert f"2 dead letters written again, to {topic}.source." in console.get(done.location).words
    assert values_in(bootstrap, f"{topic}.source", 2) == [
        (f"0 {SCRIPT}".encode(), (("trace", b"0"),)),
        (f"1 {SCRIPT}".encode(), (("trace", b"1"),)),
    ]


def test_all_letters_shown_go_to_a_topic_that_is_chosen(
    console: ConsoleClient, bootstrap: str, topic: str
) -> None:
    shown = re.findall(r'name="shown" value="([^"]*)"', console.get(letters_of(topic)).text)
    fields = {"topic": topic, "shown": shown, "all": "yes"}
    refused = console.post("/pipelines/letters/preview", fields)
    assert (refused.status, "does not say where it came from" in refused.words) == (400, True)
    fields["target"] = f"{topic}.other"
    look = console.post("/pipelines/letters/preview", fields)
    assert f"{LETTERS} records to {topic}.other" in look.words
    names = re.findall(r'name="letter" value="([^"]*)"', look.text)
    done = console.post(
        "/pipelines/letters/replay", {"topic": topic, "target": f"{topic}.other", "letter": names}
    )
    assert done.status == 303
    assert len(values_in(bootstrap, f"{topic}.other", LETTERS)) == LETTERS


def test_letters_that_are_gone_are_told(console: ConsoleClient, topic: str) -> None:
    fields = {"topic": topic, "letter": ["0:0", "0:999"]}
    assert "1 dead letter could not be read any more" in (
        console.post("/pipelines/letters/preview", fields).words
    )
    fields = {"topic": topic, "letter": ["0:999"]}
    gone = console.post("/pipelines/letters/preview", fields)
    assert (gone.status, "can be read any more" in gone.words) == (400, True)
    assert console.post("/pipelines/letters/preview", {"topic": topic}).status == 400
    other = console.post("/pipelines/letters/preview", {"topic": topic, "letter": ["9:0"]})
    assert other.status == 404


def test_a_cursor_that_is_none_and_a_topic_that_is_none_are_told(
    console: ConsoleClient, topic: str
) -> None:
    assert console.get(letters_of(topic, cursor="nonsense")).status == 400
    assert console.get(letters_of(f"{topic}.gone")).status == 404
    assert console.get("/pipelines/letters").status == 200


def test_a_console_that_only_reads_writes_nothing(bootstrap: str, topic: str) -> None:
    fields = {"topic": topic, "letter": ["0:0"]}
    with ConsoleClient(ConsoleSettings({"bootstrap.servers": bootstrap})) as console:
        assert "read-only" in console.post("/pipelines/letters/preview", fields).words
        assert console.post("/pipelines/letters/replay", fields).status == 403
