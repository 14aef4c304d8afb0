"""Topics: the list, one topic with its partitions and settings, and what changes them.

Names of topics have no `+`, so paths below /topics that begin with one are pages, not topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.client.admin.brokers import LogDirDescription
from tidelog.client.admin.configs import ConfigResource, ConfigResourceType
from tidelog.client.admin.topics import LEFT_TO_BROKER, TO_END, NewTopic, TopicDescription
from tidelog.client.errors import ClientError
from tidelog.protocol.listed_timestamps import EARLIEST, LATEST
from tidelog.tools.console.clients import clients_of
from tidelog.tools.console.cluster_watch import ClusterWatch, sizes_by_topic, watch_of
from tidelog.tools.console.config_entries import (
    SOURCES,
    change_entry,
    entries_of,
    matching,
    show_entry,
)
from tidelog.tools.console.events import Event, event_stream
from tidelog.tools.console.page import (
    field_of,
    link,
    part,
    parts_event,
    problem,
    render,
    told,
)
from tidelog.types import NO_LEADER, TopicPartition

NAVIGATION: Final = ("Topics", "/topics")
PAGE_ROWS: Final = 100
PARTITIONS_SHOWN: Final = 500
SORTS: Final = (
    ("name", "Name"),
    ("rate", "Busiest"),
    ("size", "Largest"),
    ("partitions", "Most partitions"),
)
NEW_FIELDS: Final = ("name", "partitions", "replication", "configs")
Disks = Mapping[int, Mapping[str, LogDirDescription] | ClientError]


class TopicRow(NamedTuple):
    topic: TopicDescription
    records: int | None  # between the first and the last offset of all partitions
    rate: float | None
    history: Sequence[tuple[float, float | None]]
    size_bytes: int | None

    @property
    def replication(self) -> str:
        counts = {len(each.replicas) for each in self.topic.partitions}
        return "-" if not counts else str(min(counts)) if len(counts) == 1 else "mixed"

    @property
    def troubles(self) -> int:
        return sum(
            each.leader_id == NO_LEADER or len(each.isr) < len(each.replicas)
            for each in self.topic.partitions
        )


class PartitionRow(NamedTuple):
    """The offsets are None where the leader does not tell."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    first: int | None
    last: int | None
    size_bytes: int | None


class Listing(NamedTuple):
    """A page of the list, and where it stands."""

    rows: Sequence[TopicRow]
    matching: int
    page: int
    pages: int
    words: str
    sort: str
    internal: bool

    def query(self, **changes: object) -> dict[str, object]:
        return {
            "q": self.words or None,
            "sort": None if self.sort == "name" else self.sort,
            "internal": "1" if self.internal else None,
            "page": None if self.page == 1 else self.page,
        } | changes


# The list


async def show_list(request: Request) -> Response:
    listing = await _listing(request, watch_of(request))
    return render(
        request,
        "topics/list.html",
        listing=listing,
        sorts=SORTS,
        live=link("topics", "+live", **listing.query()),
    )


async def live_list(request: Request) -> Response:
    return event_stream(request, _list_events(request, watch_of(request)))


async def _list_events(request: Request, watch: ClusterWatch) -> AsyncGenerator[Event, None]:
    async with aclosing(watch.looks()) as looks:
        async for trouble in looks:
            if trouble:
                yield "problem", trouble
                continue
            listing = await _listing(request, watch)
            yield parts_event({"rows": part(request, "topics/rows.html", listing=listing)})


async def _listing(request: Request, watch: ClusterWatch) -> Listing:
    query = request.query_params
    words, internal = query.get("q", "").strip(), "internal" in query
    sort = query.get("sort", "name")
    if sort not in dict(SORTS):
        sort = "name"
    topics = await watch.topics()
    sizes: Mapping[str, int] | None = None
    if sort == "size" or watch.latest is not None:  # the first page does not wait for disks
        sizes = await _sizes_or_none(watch)
    found = [
        topic
        for topic in topics.values()
        if (internal or not topic.is_internal)
        and all(word in topic.name.lower() for word in words.lower().split())
    ]
    rates = watch.rates.by_topic
    if sort == "rate":
        found.sort(key=lambda topic: (-rates.get(topic.name, 0.0), topic.name))
    elif sort == "size":
        found.sort(key=lambda topic: (-(sizes or {}).get(topic.name, 0), topic.name))
    elif sort == "partitions":
        found.sort(key=lambda topic: (-len(topic.partitions), topic.name))
    pages = max(-(-len(found) // PAGE_ROWS), 1)
    page = min(max(_integer(query.get("page", "1"), 1), 1), pages)
    shown = found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    has_rates = len(watch.samples) > 1
    rows = [
        TopicRow(
            topic,
            _ends_sum(watch, topic),
            rates.get(topic.name, 0.0) if has_rates else None,
            tuple(watch.rates.history.get(topic.name, ())),
            None if sizes is None else sizes.get(topic.name, 0),
        )
        for topic in shown
    ]
    return Listing(rows, len(found), page, pages, words, sort, internal)


def _ends_sum(watch: ClusterWatch, topic: TopicDescription) -> int | None:
    """The records ever written, by the last look."""
    if watch.latest is None:
        return None
    ends = watch.latest.ends
    places = (TopicPartition(topic.name, each.partition) for each in topic.partitions)
    return sum(ends.get(place, 0) for place in places)


async def _sizes_or_none(watch: ClusterWatch) -> Mapping[str, int] | None:
    try:
        return sizes_by_topic(await watch.disks())
    except ClientError:
        return None


# One topic


async def show_one(request: Request) -> Response:
    topic = await _topic(request)
    return render(
        request,
        "topics/one.html",
        tab="partitions",
        **await _partitions(request, topic),
    )


async def live_one(request: Request) -> Response:
    return event_stream(request, _one_events(request))


async def _one_events(request: Request) -> AsyncGenerator[Event, None]:
    async with aclosing(watch_of(request).looks()) as looks:
        async for _ in looks:  # the topic is asked for all the same, and may tell why itself
            topic = await _topic(request)
            context = await _partitions(request, topic)
            yield parts_event({"partitions": part(request, "topics/partitions.html", **context)})


async def _topic(request: Request) -> TopicDescription:
    """Raises where there is none, or the user may not see it."""
    name = request.path_params["topic"]
    answer = await clients_of(request).admin.describe_topics([name])
    return answer[name].get()


async def _partitions(request: Request, topic: TopicDescription) -> dict[str, Any]:
    admin = clients_of(request).admin
    watch = watch_of(request)
    shown = topic.partitions[:PARTITIONS_SHOWN]
    places = [
        TopicPartition(topic.name, each.partition) for each in shown if each.leader_id != NO_LEADER
    ]
    firsts, lasts = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(places, EARLIEST)),
        admin.list_offsets(dict.fromkeys(places, LATEST)),
    )
    first = {place: each.get().offset for place, each in firsts.items() if each.error is None}
    last = {place: each.get().offset for place, each in lasts.items() if each.error is None}
    try:
        sizes = _leader_sizes(await watch.disks(), topic)
    except ClientError:
        sizes = {}
    rows = [
        PartitionRow(
            each.partition,
            each.leader_id,
            each.leader_epoch,
            each.replicas,
            each.isr,
            first.get(TopicPartition(topic.name, each.partition)),
            last.get(TopicPartition(topic.name, each.partition)),
            sizes.get(each.partition),
        )
        for each in shown
    ]
    return {
        "rows": rows,
        "left_out": len(topic.partitions) - len(rows),
        "records": sum(row.last - row.first for row in rows if row.first is not None and row.last),
        "size_bytes": sum(sizes.values()) if sizes else None,
        "rate": watch.rates.by_topic.get(topic.name, 0.0) if len(watch.samples) > 1 else None,
        "topic": topic,
    }


def _leader_sizes(disks: Disks, topic: TopicDescription) -> dict[int, int]:
    """Bytes of each partition, at its leader."""
    sizes: dict[int, int] = {}
    for each in topic.partitions:
        folders = disks.get(each.leader_id)
        if folders is None or isinstance(folders, ClientError):
            continue
        place = TopicPartition(topic.name, each.partition)
        for folder in folders.values():
            replica = folder.replicas.get(place)
            if replica is not None and not replica.is_future:
                sizes[each.partition] = replica.size_bytes
    return sizes


async def show_configs(request: Request) -> Response:
    topic = await _topic(request)
    words, only_set = request.query_params.get("q", ""), "set" in request.query_params
    entries = await entries_of(clients_of(request), _resource(request))
    return render(
        request,
        "topics/configs.html",
        topic=topic,
        tab="configs",
        entries=matching(entries, words, only_set=only_set),
        words=words,
        only_set=only_set,
        sources=SOURCES,
        base=link("topics", topic.name, "configs"),
    )


async def show_config(request: Request) -> Response:
    back = link("topics", request.path_params["topic"], "configs")
    name = request.path_params["name"]
    return await show_entry(request, _resource(request), name, back, request.path_params["topic"])


async def change_config(request: Request) -> Response:
    back = link("topics", request.path_params["topic"], "configs")
    return await change_entry(request, _resource(request), request.path_params["name"], back)


def _resource(request: Request) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, request.path_params["topic"])


# Changes


async def show_new(request: Request) -> Response:
    return render(request, "topics/new.html", given=dict.fromkeys(NEW_FIELDS, ""), wrong="")


async def create(request: Request) -> Response:
    given = {name: field_of(request, name) for name in NEW_FIELDS}
    try:
        topic = _new_topic(given)
        answer = await clients_of(request).admin.create_topics([topic])
        answer[topic.name].get()
    except (ValueError, ClientError) as error:
        return render(request, "topics/new.html", status=400, given=given, wrong=str(error))
    _forget(request)
    return told(request, link("topics", topic.name), f"Topic {topic.name} is there.")


def _new_topic(given: Mapping[str, str]) -> NewTopic:
    """ValueError says what is wrong with the form."""
    configs: dict[str, str | None] = {}
    for line in given["configs"].splitlines():
        if line.strip():
            key, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"{line.strip()!r} is not of the form key=value")
            configs[key.strip()] = value.strip()
    if not given["name"]:
        raise ValueError("A topic needs a name.")
    return NewTopic(
        given["name"],
        _count(given["partitions"], "partitions"),
        _count(given["replication"], "replicas"),
        configs=configs,
    )


def _count(text: str, what: str) -> int:
    if not text:
        return LEFT_TO_BROKER
    count = _integer(text, 0)
    if not 1 <= count <= 100_000:
        raise ValueError(f"{text!r} is no number of {what}")
    return count


async def show_grow(request: Request) -> Response:
    return render(request, "topics/grow.html", topic=await _topic(request), tab="", wrong="")


async def grow(request: Request) -> Response:
    topic = await _topic(request)
    try:
        total = _count(field_of(request, "total"), "partitions")
        answer = await clients_of(request).admin.create_partitions({topic.name: total})
        answer[topic.name].get()
    except (ValueError, ClientError) as error:
        return render(
            request, "topics/grow.html", status=400, topic=topic, tab="", wrong=str(error)
        )
    _forget(request)
    said = f"Topic {topic.name} has {total} partitions."
    return told(request, link("topics", topic.name), said)


async def show_delete(request: Request) -> Response:
    return render(request, "topics/delete.html", topic=await _topic(request), tab="", wrong="")


async def delete(request: Request) -> Response:
    topic = await _topic(request)
    if field_of(request, "name") != topic.name:
        wrong = "That is not the name of this topic."
        return render(request, "topics/delete.html", status=400, topic=topic, tab="", wrong=wrong)
    answer = await clients_of(request).admin.delete_topics([topic.name])
    answer[topic.name].get()
    _forget(request)
    return told(request, "/topics", f"Topic {topic.name} is deleted.")


async def show_empty(request: Request) -> Response:
    return render(request, "topics/empty.html", topic=await _topic(request), tab="", wrong="")


async def empty(request: Request) -> Response:
    """Deletes the records below an offset of one partition, or all records of all partitions."""
    topic = await _topic(request)
    partition, before = field_of(request, "partition"), field_of(request, "before")
    known = {str(each.partition): each.partition for each in topic.partitions}
    if partition and partition not in known:
        return problem(request, "There is no such partition", partition)
    offset = TO_END if not before else _integer(before, -2)
    if offset < TO_END or (before and offset < 0):
        wrong = f"{before!r} is no offset."
        return render(request, "topics/empty.html", status=400, topic=topic, tab="", wrong=wrong)
    if before and not partition:
        wrong = "An offset is of one partition: choose which."
        return render(request, "topics/empty.html", status=400, topic=topic, tab="", wrong=wrong)
    chosen = [known[partition]] if partition else sorted(known.values())
    places = {TopicPartition(topic.name, each): offset for each in chosen}
    results = await clients_of(request).admin.delete_records(places)
    failed = [result.error for result in results.values() if result.error is not None]
    if failed:
        raise failed[0]
    which = f"partition {partition}" if partition else "all partitions"
    below = f"below offset {before} " if before else ""
    said = f"The records {below}of {which} are deleted."
    return told(request, link("topics", topic.name), said)


def _forget(request: Request) -> None:
    clients_of(request).forget("all topics", "disks")


def _integer(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else otherwise


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/topics", show_list),
    Route("/topics/+live", live_list),
    Route("/topics/+new", show_new),
    Route("/topics/+new", create, methods=["POST"]),
    Route("/topics/{topic}", show_one),
    Route("/topics/{topic}/live", live_one),
    Route("/topics/{topic}/configs", show_configs),
    Route("/topics/{topic}/configs/{name}", show_config),
    Route("/topics/{topic}/configs/{name}", change_config, methods=["POST"]),
    Route("/topics/{topic}/partitions", show_grow),
    Route("/topics/{topic}/partitions", grow, methods=["POST"]),
    Route("/topics/{topic}/empty", show_empty),
    Route("/topics/{topic}/empty", empty, methods=["POST"]),
    Route("/topics/{topic}/delete", show_delete),
    Route("/topics/{topic}/delete", delete, methods=["POST"]),
)
