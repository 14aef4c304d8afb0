"""The console's pages of messages against a broker: reading, search, live, export, import."""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.console_client import Answer, ConsoleClient
from tidelog.client.admin.topics import NewTopic
from tidelog.client.blocking.admin import Admin
from tidelog.client.blocking.consumer import Consumer
from tidelog.client.blocking.producer import Producer
from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.console.pages import messages
from tidelog.tools.console.settings import ConsoleSettings
from tidelog.types import TopicPartition

ROW = re.compile(r"partition=(\d+)&(?:amp;)?offset=(\d+)")


@pytest.fixture
def console(bootstrap: str) -> Iterator[ConsoleClient]:
    """One that may change things."""
    with ConsoleClient(ConsoleSettings({"bootstrap.servers": bootstrap}), can_write=True) as made:
        yield made


@pytest.fixture
def reader(bootstrap: str) -> Iterator[ConsoleClient]:
    """One that may not."""
    with ConsoleClient(ConsoleSettings({"bootstrap.servers": bootstrap})) as made:
        yield made


def rows_of(page: Answer) -> list[tuple[int, int]]:
    assert page.status == 200, page.words
    return [(int(partition), int(offset)) for partition, offset in ROW.findall(page.text)]


def following(page: Answer) -> str | None:
    found = re.search(r'rel="next" href="([^"]+)"', page.text)
    return None if found is None else html.unescape(found[1])


def all_rows(console: ConsoleClient, path: str) -> tuple[list[tuple[int, int]], int]:
    """And how many pages it took."""
    rows: list[tuple[int, int]] = []
    pages = 0
    next_path: str | None = path
    while next_path is not None:
        page = console.get(next_path)
        rows += rows_of(page)
        pages += 1
        next_path = following(page)
    return rows, pages


def fill(bootstrap: str, topic: str, count: int) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(count):
            value = json.dumps({"n": number, "kind": "even" if number % 2 == 0 else "odd"})
            producer.send(
                topic,
                value.encode(),
                key=b"k%d" % number,
                partition=number % 2,
                timestamp=1_000_000 + number,
                headers=[("kind", b"even")] if number % 2 == 0 else [],
            )


def read_all(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    with Consumer({"bootstrap.servers": bootstrap}) as consumer:
        places = [TopicPartition(topic, each) for each in consumer.partitions_for(topic)]
        consumer.assign(places)
        consumer.seek_to_beginning()
        wanted = sum(consumer.end_offsets(places).values())
        found: list[ConsumerRecord] = []
        while len(found) < wanted:
            found += consumer.poll(1.0)
        return found


@pytest.fixture
def pair(bootstrap: str, topic: str) -> str:
    """A topic with two partitions."""
    name = f"{topic}-pair"
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(name, num_partitions=2)])[name].get()
    return name


def test_the_newest_records_come_first_and_older_ones_page_by_page(
    reader: ConsoleClient, bootstrap: str, pair: str
) -> None:
    fill(bootstrap, pair, 100)

    first = reader.get(f"/messages?topic={pair}&limit=30")
    rows, pages = all_rows(reader, f"/messages?topic={pair}&limit=30")

    assert rows_of(first)[:3] == [(1, 49), (0, 49), (1, 48)]
    assert pages == 4
    assert rows == [(number % 2, number // 2) for number in reversed(range(100))]


def test_a_search_goes_on_and_finds_every_match_once(
    reader: ConsoleClient, bootstrap: str, pair: str
) -> None:
    fill(bootstrap, pair, 200)
    search = "filter=value.n+%3E%3D+100+and+headers%5B%22kind%22%5D+%3D%3D+%22even%22"

    for place in ("oldest", "newest"):
        rows, pages = all_rows(reader, f"/messages?topic={pair}&from={place}&limit=20&{search}")
        assert sorted(rows) == [(0, number // 2) for number in range(100, 200, 2)]
        assert pages >= 3
    complete = reader.get(f"/messages?topic={pair}&limit=200&{search}")
    assert "Went through 200 records: 200 of 200 offsets, 2 partitions" in complete.words
    assert "That is all." in complete.words


def test_a_search_whose_time_is_over_says_so_and_goes_on(
    reader: ConsoleClient, bootstrap: str, pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bootstrap, pair, 20)
    monkeypatch.setattr(messages, "SEARCH_S", 0.0)
    late = reader.get(f"/messages?topic={pair}&from=oldest&value=n")
    assert "the search is not complete" in late.words
    monkeypatch.undo()
    path = following(late)
    assert path is not None
    rows, _ = all_rows(reader, path)
    assert len(rows_of(late)) + len(rows) == 20


def test_places_partitions_and_ends(reader: ConsoleClient, bootstrap: str, pair: str) -> None:
    fill(bootstrap, pair, 40)

    by_offset = reader.get(f"/messages?topic={pair}&from=offset&at=5&to=8&partitions=1")
    by_time = reader.get(f"/messages?topic={pair}&from=time&at=1000030&to=1000034")

    assert rows_of(by_offset) == [(1, 5), (1, 6), (1, 7)]
    assert rows_of(by_time) == [(0, 15), (1, 15), (0, 16), (1, 16)]
    assert reader.get(f"/messages?topic={pair}&partitions=7").status == 404


def test_only_committed_records_are_shown_when_asked_for(
    reader: ConsoleClient, bootstrap: str, topic: str
) -> None:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-tx"}
    with Producer(settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"committed", partition=0)

    everything = reader.get(f"/messages?topic={topic}&from=oldest")
    committed = reader.get(f"/messages?topic={topic}&from=oldest&committed=1")

    assert rows_of(everything) == [(0, 0), (0, 2)]
    assert rows_of(committed) == [(0, 2)]
    assert "That is all." in committed.words


def test_what_is_wrong_in_the_form_is_told_beside_it(reader: ConsoleClient, topic: str) -> None:
    page = reader.get(f"/messages?topic={topic}&filter=value.a+%3D+1")

    assert page.status == 400
    assert "Filter: at character 9: to compare, write ==" in page.words
    assert 'value="value.a = 1"' in page.text
    assert reader.get(f"/messages?topic={topic}&cursor=rubbish").status == 400
    assert reader.get("/messages?topic=nobody-made-this").status == 404


def test_what_records_hold_is_shown_and_never_run(
    reader: ConsoleClient, bootstrap: str, topic: str
) -> None:
    attack = b'</pre><script>alert(1)</script>"\' onx="\x1b[2J\xe2\x80\xae'
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send(topic, attack, key=attack, headers=[("<b>", attack)], partition=0)
        producer.send(topic, b"\xff\xfe", partition=0)

    for path in (
        f"/messages?topic={topic}",
        f"/messages/+record?topic={topic}&partition=0&offset=0",
        f"/messages?topic={topic}&value=%3Cscript%3E&filter=value+contains+%22%3Cb%3E%22",
    ):
        page = reader.get(path)
        assert page.status == 200
        assert "<script>alert" not in page.text
        assert "<b>" not in page.text
        assert "\x1b" not in page.text
        assert "\u202e" not in page.text
    assert "ff fe" in reader.get(f"/messages?topic={topic}").words


def test_one_record_is_shown_whole_and_downloaded(
    reader: ConsoleClient, bootstrap: str, topic: str
) -> None:
    value = json.dumps({"text": "x" * 50_000}).encode()
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send(topic, value, partition=0, headers=[("a", b"1"), ("b", None)])
    place = f"topic={topic}&partition=0&offset=0"

    page = reader.get(f"/messages/+record?{place}")
    download = reader.get(f"/messages/+bytes?{place}&part=value")

    assert "x" * 50_000 in page.text
    assert "Copy as JSON" in page.words
    assert download.body == value
    assert download.headers["content-type"] == "application/octet-stream"
    assert "attachment" in download.headers["content-disposition"]
    assert reader.get(f"/messages/+bytes?{place}&part=key").status == 404
    assert reader.get(f"/messages/+record?topic={topic}&partition=0&offset=9").status == 404
    assert reader.get(f"/messages/+record?topic={topic}&partition=x&offset=").status == 404
    as_hex = reader.get(f"/messages/+record?{place}&value-decoder=hex")
    assert "7b 22 74" in as_hex.words
    as_uuid = reader.get(f"/messages/+record?{place}&value-decoder=uuid")
    assert "are no UUID, which has 16" in as_uuid.words


def test_internal_topics_are_decoded(reader: ConsoleClient, bootstrap: str, topic: str) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.alter_group_offsets(f"{topic}-group", {TopicPartition(topic, 0): 0})

    page = reader.get(f"/messages?topic=__consumer_offsets&key={topic}-group")

    assert f"{topic}-group" in page.words
    assert '"offset":0' in page.words


@contextmanager
def writing(bootstrap: str, topic: str) -> Iterator[None]:
    """A record now and then, until the block ends."""
    done = threading.Event()

    def write() -> None:
        with Producer({"bootstrap.servers": bootstrap}) as producer:
            number = 0
            while not done.wait(0.02):
                producer.send(topic, b"live %d" % number, partition=0)
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_the_tail_shows_records_as_they_are_written(
    reader: ConsoleClient, bootstrap: str, topic: str
) -> None:
    page = reader.get(f"/messages/+tail?topic={topic}&value=live")
    assert f'data-live="/messages/%2Blive?topic={topic}&amp;value=live"' in page.text

    with writing(bootstrap, topic):
        events = reader.events(f"/messages/+live?topic={topic}&value=live", 3)

    parts = [json.loads(data) for name, data in events if name == "parts"]
    assert len(parts) == 3
    assert "live" in parts[-1]["rows"]
    assert "since this page was opened" in parts[-1]["counts"]
    assert reader.get(f"/messages/+live?topic={topic}&filter=%28").status == 400


def test_an_export_comes_back_by_an_import(
    console: ConsoleClient, bootstrap: str, topic: str, pair: str
) -> None:
    fill(bootstrap, pair, 50)
    export = console.get(f"/messages/+export?topic={pair}&value=even")
    assert export.headers["content-type"] == "application/x-ndjson"
    assert len(export.body.splitlines()) == 25

    as_file = console.send(f"/messages/+import?topic={topic}", export.body)
    as_form = console.post("/messages/+import", topic=topic, lines=export.text)

    assert "25 records written" in as_file.words
    assert "25 records written" in as_form.words
    found = read_all(bootstrap, topic)
    assert len(found) == 50
    assert found[0].headers == (("kind", b"even"),)
    assert {each.key for each in found} == {b"k%d" % number for number in range(0, 50, 2)}


def test_an_import_with_a_wrong_line_writes_nothing(
    console: ConsoleClient, bootstrap: str, topic: str
) -> None:
    lines = b'{"value": 1}\n{"valeu": 2}\n'

    as_file = console.send(f"/messages/+import?topic={topic}", lines)
    as_form = console.post("/messages/+import", topic=topic, lines=lines.decode())
    kept = console.send(f"/messages/+import?topic={topic}&keep=1", b'{"partition": 99}')

    assert (as_file.status, as_form.status, kept.status) == (400, 400, 400)
    assert "Nothing was written: line 2: valeu is no field" in as_file.text
    assert "Nothing was written: line 2: valeu is no field" in as_form.words
    assert "no partition 99" in kept.text
    assert read_all(bootstrap, topic) == []


def test_a_record_is_produced(console: ConsoleClient, bootstrap: str, topic: str) -> None:
    answer = console.post(
        "/messages/+produce",
        {"key-form": "text", "value-form": "json", "headers": "type: order\nnone"},
        topic=topic,
        key="k",
        value='{"a": 1}',
        timestamp="5",
    )
    assert answer.status == 303
    assert "The record is written to partition 0." in console.get(answer.location).words
    wrong = console.post("/messages/+produce", {"value-form": "json"}, topic=topic, value="{")
    nowhere = console.post("/messages/+produce", {}, topic=topic, value="v", partition="99")

    record = read_all(bootstrap, topic)[0]
    assert (record.key, record.value, record.timestamp) == (b"k", b'{"a": 1}', 5)
    assert record.headers == (("type", b"order"), ("none", None))
    assert (wrong.status, nowhere.status) == (400, 400)
    assert "value: is not JSON" in wrong.words
    assert "partition: the topic has no 99" in nowhere.words


def test_a_console_that_only_reads_offers_and_takes_no_writes(
    reader: ConsoleClient, topic: str
) -> None:
    page = reader.get(f"/messages?topic={topic}")

    assert "Produce" not in page.words
    assert "read-only" in reader.get(f"/messages/+produce?topic={topic}").words
    assert reader.post("/messages/+produce", topic=topic, value="v").status == 403
    assert reader.send(f"/messages/+import?topic={topic}", b'{"value": 1}').status == 403
    assert topic in reader.get(f"/messages?q={topic}").words
