"""The console's pages of consumer groups against a broker."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.support.console_client import Answer, ConsoleClient
from tidelog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.tools.console.pages import groups
from tidelog.tools.console.settings import ConsoleSettings

RECORDS = 20  # in each of the two partitions


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap) as made:
        yield made


@pytest.fixture
def topic(admin: Admin, bootstrap: str, topic_name: str) -> str:
    admin.create_topics([NewTopic(topic_name, num_partitions=2)])[topic_name].get()
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(2 * RECORDS):
            producer.send(topic_name, b"%d" % number, partition=number % 2)
    return topic_name


@pytest.fixture
def group(admin: Admin, topic: str) -> str:
    """Without members, and a hostile name. It has read five records of partition 0."""
    name = f'{topic}"><script>alert(1)</script>/../ü'
    admin.alter_group_offsets(name, {TopicPartition(topic, 0): 5})[TopicPartition(topic, 0)].get()
    return name


@pytest.fixture
def console(bootstrap: str) -> Iterator[ConsoleClient]:
    settings = ConsoleSettings({"bootstrap.servers": bootstrap}, can_write=True)
    with ConsoleClient(settings) as client:
        yield client


def page_of(group: str) -> str:
    return "/groups/one?" + urlencode({"group": group})


def row_of(page: Answer, name: str) -> str:
    (row,) = [each for each in re.findall(r"<tr>.*?</tr>", page.text, re.S) if name in each]
    return row


def test_groups_are_listed_with_their_lag(console: ConsoleClient, group: str, topic: str) -> None:
    page = console.get("/groups?" + urlencode({"text": topic}))
    assert page.status == 200
    assert "<script>alert" not in page.text
    assert group in page.words
    cells = re.findall(r'<td class="number">(.*?)</td>', row_of(page, topic))
    assert cells == ["15", "0", "1"]  # lag, members, partitions
    assert "Empty" in row_of(page, topic)


def test_a_filter_that_nothing_passes_says_so(console: ConsoleClient, group: str) -> None:
    assert "No group matches" in console.get("/groups?text=no-such-group-at-all").words
    assert "No group matches" in console.get("/groups?state=Nowhere").words


def test_a_group_shows_partitions_and_members(
    console: ConsoleClient, bootstrap: str, topic: str
) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": f"{topic}-g", "client.id": "reader-7"}
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while not consumer.poll(timeout=1.0):
            pass
        consumer.commit()
        page = console.get(page_of(f"{topic}-g"))
        words = page.words
        assert "Stable" in words
        assert "reader-7" in words
        assert f"{topic}-0" in row_of(page, f"{topic}-0<")
        assert "Its state is Stable; stop its consumers first" in words
        tried = console.post("/groups/preview", group=f"{topic}-g", kind="to-latest")
        assert tried.status == 400
        assert "its state is Stable" in tried.words


def test_a_group_that_is_not_there_is_a_calm_page(console: ConsoleClient) -> None:
    page = console.get("/groups/one?group=nobody-knows")
    assert page.status == 404
    assert "There is no such thing" in page.words


def test_the_live_part_shows_new_lag_and_then_a_plot(
    console: ConsoleClient, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "LIVE_S", 0.01)
    monkeypatch.setattr("tidelog.tools.group_watch.LOOK_EVERY_MS", 0)
    address = page_of(group).replace("/one", "/one/live")
    found = console.events(address, 3)
    assert [name for name, _ in found] == ["parts"] * 3
    parts = json.loads(found[-1][1])
    assert set(parts) == {"lag", "members"}
    assert "<svg" in parts["lag"]
    assert "<script>" not in parts["lag"]
    ((_, data),) = console.events("/groups/live?" + urlencode({"text": group}), 1)
    assert html.escape(group, quote=False)[:10] in json.loads(data)["groups"]


def test_a_reset_commits_what_its_plan_showed(
    console: ConsoleClient, admin: Admin, bootstrap: str, group: str, topic: str
) -> None:
    plan = console.post("/groups/preview", group=group, kind="to-latest")
    assert plan.status == 200
    assert f"{topic}-0 5 20 15" in plan.words
    found = re.search(r'name="offsets" value="([^"]*)"', plan.text)
    assert found is not None
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"later", partition=0).result()

    done = console.post("/groups/reset", group=group, offsets=html.unescape(found[1]))

    assert done.status == 303
    assert done.location == page_of(group)
    assert admin.list_group_offsets(group)[TopicPartition(topic, 0)] is not None
    assert admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset == RECORDS  # type: ignore[union-attr]
    assert "goes on at the new offsets of 1 partition." in console.get(done.location).words


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("to-earliest", "", {0: 0}),
        ("to-offset", "7", {0: 7}),
        ("shift-by", "-2", {0: 3}),
        ("to-datetime", "2200-01-01T00:00:00", {0: RECORDS}),
        ("by-duration", "P1D", {0: 0}),
        ("to-current", "", {0: 5}),
    ],
)
def test_every_kind_of_reset_is_planned(
    console: ConsoleClient, group: str, topic: str, kind: str, value: str, expected: dict[int, int]
) -> None:
    plan = console.post("/groups/preview", group=group, kind=kind, value=value)
    found = re.search(r'name="offsets" value="([^"]*)"', plan.text)
    assert found is not None, plan.words
    assert groups.offsets_of(html.unescape(found[1])) == {
        TopicPartition(topic, index): offset for index, offset in expected.items()
    }


def test_a_topic_without_offsets_can_be_chosen(
    console: ConsoleClient, group: str, topic: str
) -> None:
    plan = console.post("/groups/preview", group=group, kind="to-latest", other=topic)
    assert f"{topic}-1 - 20 -" in plan.words


@pytest.mark.parametrize(
    ("kind", "value"), [("to-offset", "x"), ("by-duration", "1 day"), ("elsewhere", "")]
)
def test_what_cannot_be_planned_is_told(
    console: ConsoleClient, group: str, kind: str, value: str
) -> None:
    page = console.post("/groups/preview", group=group, kind=kind, value=value)
    assert page.status == 400
    assert "This cannot be planned" in page.words


@pytest.mark.parametrize("offsets", ["", "t 0", "t x 1", "t 0 -1", "t -1 0", "a b c d"])
def test_offsets_that_are_none_change_nothing(
    console: ConsoleClient, admin: Admin, group: str, topic: str, offsets: str
) -> None:
    page = console.post("/groups/reset", group=group, offsets=offsets)
    assert page.status == 400
    assert "Nothing was changed" in page.words
    assert admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset == 5  # type: ignore[union-attr]


def test_a_group_and_its_offsets_are_deleted(
    console: ConsoleClient, admin: Admin, group: str
) -> None:
    assert console.post("/groups/delete", group=group, confirm="no").status == 400
    done = console.post("/groups/delete", group=group, confirm=group)
    assert (done.status, done.location) == (303, "/groups")
    assert group not in {each.group_id for each in admin.list_groups()}


def test_offsets_of_one_topic_are_forgotten(
    console: ConsoleClient, admin: Admin, group: str, topic: str
) -> None:
    done = console.post("/groups/delete-offsets", group=group, topic=topic)
    assert done.status == 303
    assert admin.list_group_offsets(group) == {}


def test_a_console_that_only_reads_shows_plans_and_changes_nothing(
    bootstrap: str, admin: Admin, group: str, topic: str
) -> None:
    with ConsoleClient(ConsoleSettings({"bootstrap.servers": bootstrap})) as console:
        page = console.get(page_of(group))
        assert "Delete the group" not in page.words
        plan = console.post("/groups/preview", group=group, kind="to-latest")
        assert "Start it with --write" in plan.words
        assert 'action="/groups/reset"' not in plan.text
        for path in ("/groups/reset", "/groups/delete", "/groups/delete-offsets"):
            refused = console.post(path, group=group, offsets=f"{topic} 0 1", confirm=group)
            assert refused.status == 403
    assert admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset == 5  # type: ignore[union-attr]
