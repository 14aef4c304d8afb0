"""The console's pages of transactions and producers against a broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.support.console_client import ConsoleClient
from tidelog.client import Admin, NewTopic, Producer
from tidelog.tools.console.settings import ConsoleSettings


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> str:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic_name)])[topic_name].get()
    return topic_name


@pytest.fixture
def name(bootstrap: str, topic: str) -> Iterator[str]:
    """A transactional id that is no friend of HTML; its transaction in the topic is open."""
    transactional_id = f"{topic}<img src=x onerror=alert(1)>"
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    with Producer(settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open").result()
        yield transactional_id


@pytest.fixture
def console(bootstrap: str) -> Iterator[ConsoleClient]:
    settings = ConsoleSettings({"bootstrap.servers": bootstrap}, can_write=True)
    with ConsoleClient(settings) as client:
        yield client


def test_transactional_ids_are_listed_and_filtered(console: ConsoleClient, name: str) -> None:
    page = console.get("/transactions?" + urlencode({"text": name, "state": "Ongoing"}))
    assert page.status == 200
    assert "<img src=x" not in page.text
    assert name in page.words
    other = console.get("/transactions?" + urlencode({"text": name, "state": "CompleteCommit"}))
    assert "No transactional id matches" in other.words


def test_one_transaction_shows_where_and_since_when_it_is_open(
    console: ConsoleClient, name: str, topic: str
) -> None:
    page = console.get("/transactions/one?" + urlencode({"id": name}))
    assert page.status == 200
    assert "Ongoing" in page.words
    assert f"{topic}-0 0 Producers" in page.words


def test_an_id_that_nobody_knows_is_a_calm_page(console: ConsoleClient) -> None:
    page = console.get("/transactions/one?id=nobody")
    assert page.status == 404
    assert "No coordinator knows the transactional id nobody." in page.words


def test_a_transaction_is_aborted_after_a_question(
    console: ConsoleClient, name: str, topic: str
) -> None:
    producers = console.get(
        "/transactions/producers?" + urlencode({"topic": topic, "partition": 0})
    )
    found = re.search(r'href="(/transactions/abort\?[^"]*)"', producers.text)
    assert found is not None, producers.words
    question = console.get(found[1].replace("&amp;", "&"))
    assert "Begins at offset 0" in question.words

    done = console.post("/transactions/abort", topic=topic, partition="0", offset="0")

    assert done.status == 303, done.words
    after = console.get(done.location)
    assert "is aborted" in after.words
    assert "Abort</a>" not in after.text
    for offset in ("0", "-1", ""):
        again = console.post("/transactions/abort", topic=topic, partition="0", offset=offset)
        assert (again.status, "nothing to abort" in again.words) == (404, True)


@pytest.mark.parametrize("query", ["", "?topic=t", "?topic=t&partition=-1", "?partition=0"])
def test_a_partition_that_is_none_is_told(console: ConsoleClient, query: str) -> None:
    assert console.get(f"/transactions/producers{query}").status == 400


def test_transactions_that_live_do_not_hang(console: ConsoleClient, name: str, topic: str) -> None:
    page = console.get("/transactions/hanging?" + urlencode({"topic": topic, "minutes": "0"}))
    assert page.status == 200
    assert "There are none." in page.words


def test_a_console_that_only_reads_aborts_nothing(bootstrap: str, name: str, topic: str) -> None:
    with ConsoleClient(ConsoleSettings({"bootstrap.servers": bootstrap})) as console:
        page = console.get("/transactions/one?" + urlencode({"id": name}))
        assert "Abort" not in page.words.replace("Aborted in", "")
        refused = console.post("/transactions/abort", topic=topic, partition="0", offset="0")
        assert refused.status == 403
