"""The console's pages about a cluster: overview, brokers, settings, topics and their changes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.conftest import StartBroker
from tests.support.broker_process import unlike_apache_kafka
from tests.support.console_client import ConsoleClient
from tidelog.client.blocking.admin import Admin
from tidelog.client.blocking.producer import Producer
from tidelog.tools.console import cluster_watch
from tidelog.tools.console.pages import topics
from tidelog.tools.console.settings import ConsoleSettings
from tidelog.types import TopicPartition


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


def partitions_of(bootstrap: str, topic: str) -> int:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        return len(admin.describe_topics([topic])[topic].get().partitions)


def written(bootstrap: str, topic: str, count: int) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(count):
            producer.send(topic, b"value", key=str(number).encode(), partition=0)


def test_the_overview_tells_what_there_is_and_stays_current(
    console: ConsoleClient, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_S", 0.05)
    page = console.get("/")
    assert page.status == 200
    assert "Under-replicated" in page.words
    written(bootstrap, topic, 10)
    (first, _), (name, data) = console.events("/overview/live", 2)
    assert (first, name) == ("parts", "parts")
    parts = json.loads(data)
    assert {"facts", "plots", "troubles", "busy", "disks"} == set(parts)
    assert "Records written" in parts["facts"]
    assert "Broker" in parts["disks"]


def test_the_list_of_topics_filters_sorts_and_pages(
    reader: ConsoleClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert topic in reader.get(f"/topics?q={topic[:6]}").words
    for sort in ("name", "rate", "size", "partitions", "nonsense"):
        assert reader.get(f"/topics?sort={sort}&internal=1").status == 200
    monkeypatch.setattr(topics, "PAGE_ROWS", 1)
    assert "page 1 of 1" in reader.get(f"/topics?q={topic}&page=99999").words
    assert reader.get("/topics?page=x").status == 200
    hostile = reader.get("/topics?q=%3Cscript%3Ealert(1)")
    assert "<script>alert" not in hostile.text


def test_a_topic_shows_its_partitions_offsets_and_sizes(
    reader: ConsoleClient, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_S", 0.05)
    written(bootstrap, topic, 3)
    words = reader.get(f"/topics/{topic}").words
    assert "Next offset" in words
    assert "Records 3" in words
    name, data = reader.events(f"/topics/{topic}/live", 1)[0]
    assert name == "parts"
    assert "partitions" in json.loads(data)
    assert "Delete topic" not in words, "a console that only reads has no such forms"


def test_a_topic_that_is_not_there_is_a_page_that_says_so(reader: ConsoleClient) -> None:
    answer = reader.get("/topics/nobody-made-this")
    assert answer.status == 404
    assert "There is no such thing" in answer.words


def test_a_topic_is_made_grown_emptied_and_deleted(
    console: ConsoleClient, bootstrap: str, topic_name: str
) -> None:
    made = console.post(
        "/topics/+new",
        name=topic_name,
        partitions="2",
        replication="1",
        configs="retention.ms=3600000\n\ncleanup.policy = compact,delete",
    )
    assert made.location == f"/topics/{topic_name}"
    page = console.get(made.location).words
    assert f"Topic {topic_name} is there." in page
    assert "is there." not in console.get(made.location).words, "it is told once"
    settings = console.get(f"/topics/{topic_name}/configs?set=1").words
    assert "3600000" in settings
    assert "compact,delete" in settings
    assert console.post(f"/topics/{topic_name}/partitions", total="3").status == 303
    assert partitions_of(bootstrap, topic_name) == 3
    written(bootstrap, topic_name, 5)
    emptied = console.post(f"/topics/{topic_name}/empty", partition="0", before="2")
    assert emptied.status == 303, emptied.words
    assert "Records 3" in console.get(f"/topics/{topic_name}").words
    assert console.post(f"/topics/{topic_name}/empty").status == 303
    assert "Records 0" in console.get(f"/topics/{topic_name}").words
    assert console.post(f"/topics/{topic_name}/delete", name="another").status == 400
    assert console.post(f"/topics/{topic_name}/delete", name=topic_name).location == "/topics"
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        assert topic_name not in {each.name for each in admin.list_topics()}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "needs a name"),
        ({"name": "a b"}, "topic a b"),
        ({"name": "x", "partitions": "0"}, "no number of partitions"),
        ({"name": "x", "partitions": "many"}, "no number of partitions"),
        ({"name": "x", "replication": "-1"}, "no number of replicas"),
        ({"name": "x", "configs": "nonsense"}, "key=value"),
        ({"name": "x", "partitions": "1", "configs": "no.such.key=1"}, "no.such.key"),
        ({"name": "<script>alert(1)</script>", "partitions": "1"}, "alert(1)"),
    ],
)
def test_a_topic_that_cannot_be_made_keeps_the_form_and_says_why(
    console: ConsoleClient, fields: dict[str, str], said: str
) -> None:
    answer = console.post("/topics/+new", fields)
    assert answer.status == 400
    assert said in answer.words
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    "fields",
    [
        {"partition": "9"},
        {"partition": "0", "before": "-5"},
        {"partition": "0", "before": "x"},
        {"before": "1"},
    ],
)
def test_records_are_not_deleted_by_a_form_that_is_wrong(
    console: ConsoleClient, bootstrap: str, topic: str, fields: dict[str, str]
) -> None:
    written(bootstrap, topic, 2)
    assert console.post(f"/topics/{topic}/empty", fields).status == 400
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        place = TopicPartition(topic, 0)
        assert admin.list_offsets({place: -2})[place].get().offset == 0


def test_a_setting_is_shown_with_its_source_and_documentation_and_changed(
    console: ConsoleClient, topic: str
) -> None:
    path = f"/topics/{topic}/configs/retention.ms"
    before = console.get(path)
    assert "default" in before.words
    assert len(before.words) > len("retention.ms") + 200, "the broker documents it"
    assert console.post(path, do="set", value="1234567").status == 303
    after = console.get(path).words
    assert "1234567" in after
    assert "set for this topic" in after
    assert console.post(path, do="reset").status == 303
    assert "set for this topic" not in console.get(path).words.replace("Back to", "")
    assert console.post(path, do="set", value="nonsense").status == 400
    assert "no such setting" in console.get(f"/topics/{topic}/configs/none").words


def test_brokers_show_their_disks_and_settings(
    console: ConsoleClient, bootstrap: str, topic: str
) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        broker_id = admin.describe_cluster().nodes[0].id
    listed = console.get("/brokers").words
    assert f"Broker {broker_id}" in listed
    page = console.get(f"/brokers/{broker_id}?q=log.retention")
    assert "Log directories" in page.words
    assert "log.retention.ms" in page.words
    assert "log.segment.bytes" not in page.words
    assert console.get("/brokers/999").status == 404
    assert console.get("/brokers/x").status == 404
    path = f"/brokers/{broker_id}/configs/log.retention.ms"
    assert console.post(path, do="set", value="86400000").status == 303
    assert "set for this broker" in console.get(path).words
    assert console.post(path, do="reset").status == 303


def test_settings_tell_what_the_console_may_do_and_no_secret(bootstrap: str) -> None:
    properties = {"bootstrap.servers": bootstrap, "ssl.key.password": "hidden away"}
    with ConsoleClient(ConsoleSettings(properties)) as console:
        page = console.get("/settings")
        assert "read-only" in page.words
        assert "hidden away" not in page.text
        assert "[hidden]" in page.words


@unlike_apache_kafka
def test_metrics_add_bytes_and_latencies(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_S", 0.05)
    monkeypatch.setattr(cluster_watch, "TOPICS_AGE_S", 0.0)
    process = start_broker({"tidelog.metrics.listener": "http://127.0.0.1:0"})
    with Admin({"bootstrap.servers": process.bootstrap}) as admin:
        admin.create_topics(["busy"])
    written(process.bootstrap, "busy", 100)
    url = process.stdout_path.read_text().split("metrics=")[1].split()[0]
    settings = ConsoleSettings(
        {"bootstrap.servers": process.bootstrap}, metrics_urls=(url, "http://127.0.0.1:1/")
    )
    with ConsoleClient(settings) as console:
        facts = json.loads(console.events("/overview/live", 2)[1][1])["facts"]
        assert "Bytes in" in facts
        brokers = console.get("/brokers").words
        assert url in brokers
        assert "no answer" in brokers


def test_many_topics_come_in_pages_of_bounded_size(
    console: ConsoleClient, bootstrap: str, topic_name: str
) -> None:
    names = [f"{topic_name}-{number:03}" for number in range(250)]
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics(names)
        page = console.get(f"/topics?q={topic_name}")
        assert "250 topics, page 1 of 3" in page.words
        assert len(page.body) < 200_000
        last = console.get(f"/topics?q={topic_name}&page=3").words
        assert f"{topic_name}-249" in last
        admin.delete_topics(names)
