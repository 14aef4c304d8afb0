"""The first page: is the cluster well, and what does it do.

The page itself takes one look at the brokers and the topics. Rates, lag and disks come with its
live parts, so the first answer waits for none of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.client.admin.brokers import LogDirDescription
from tidelog.client.admin.topics import TopicDescription
from tidelog.client.errors import ClientError
from tidelog.tools.console.cluster_watch import ClusterWatch, Sample, health, watch_of
from tidelog.tools.console.events import Event, event_stream
from tidelog.tools.console.page import part, parts_event, render
from tidelog.tools.console.plots import Line, Plot, plot
from tidelog.types import NO_LEADER

NAVIGATION: Final = ("Overview", "/")
ROWS_MAX: Final = 8
GAP_MS: Final = 20_000


class Disk(NamedTuple):
    """All log directories of a broker; the volume is None where the broker does not say."""

    broker_id: int
    held_bytes: int
    total_bytes: int | None
    usable_bytes: int | None
    trouble: str

    @property
    def used_share(self) -> float | None:
        if not self.total_bytes or self.usable_bytes is None:
            return None
        return 1 - self.usable_bytes / self.total_bytes


class Trouble(NamedTuple):
    """A partition that lacks a leader or replicas in sync."""

    topic: str
    partition: int
    leader_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


async def show(request: Request) -> Response:
    watch = watch_of(request)
    return render(request, "overview/overview.html", **await _figures(watch), **_live(watch))


async def live(request: Request) -> Response:
    return event_stream(request, _events(request, watch_of(request)))


async def _events(request: Request, watch: ClusterWatch) -> AsyncGenerator[Event, None]:
    async with aclosing(watch.looks()) as looks:
        async for trouble in looks:
            if trouble:
                yield "problem", trouble
                continue
            disks = disks_of(await _disks_or_none(watch))
            figures = await _figures(watch)
            parts = {
                "facts": part(request, "overview/facts.html", **figures, **_live(watch)),
                "plots": part(request, "overview/plots.html", **_live(watch)),
                "troubles": part(request, "overview/troubles.html", **figures),
                "busy": part(request, "overview/busy.html", **_live(watch)),
                "disks": part(request, "overview/disks.html", disks=disks),
            }
            yield parts_event(parts)


async def _disks_or_none(
    watch: ClusterWatch,
) -> Mapping[int, Mapping[str, LogDirDescription] | ClientError] | None:
    """None where the cluster does not tell."""
    try:
        return await watch.disks()
    except ClientError:
        return None


async def _figures(watch: ClusterWatch) -> dict[str, Any]:
    topics = await watch.topics()
    cluster = await watch.cluster()
    internal = sum(topic.is_internal for topic in topics.values())
    return {
        "found": cluster,
        "health": health(topics),
        "topic_count": len(topics) - internal,
        "internal_count": internal,
        "troubles": troubles_of(watch.latest.topics if watch.latest else topics),
    }


def troubles_of(topics: Mapping[str, TopicDescription]) -> list[Trouble]:
    found = []
    for topic in topics.values():
        for each in topic.partitions:
            if each.leader_id == NO_LEADER or len(each.isr) < len(each.replicas):
                found.append(
                    Trouble(topic.name, each.partition, each.leader_id, each.replicas, each.isr)
                )
    return sorted(found, key=lambda each: (each.leader_id != NO_LEADER, each))


def _live(watch: ClusterWatch) -> dict[str, Any]:
    look, rates = watch.latest, watch.rates
    topics = sorted(rates.by_topic.items(), key=lambda row: (-row[1], row[0]))[:ROWS_MAX]
    lags = [] if look is None else sorted(look.lags.items(), key=lambda row: (-row[1], row[0]))
    return {
        "sample": watch.samples[-1] if watch.samples else None,
        "look": look,
        "plots": plots_of(watch),
        "busy_topics": [(name, rate, rates.history.get(name, ())) for name, rate in topics],
        "groups": [row for row in lags if row[1]][:ROWS_MAX],
        "rows_max": ROWS_MAX,
    }


def plots_of(watch: ClusterWatch) -> list[Plot]:
    samples = list(watch.samples)
    found = [
        plot("Records written per second", [_line("records/s", samples, "records_per_s")]),
        plot("Lag of all groups", [_line("records", samples, "lag")]),
    ]
    if any(each.bytes_in_per_s is not None for each in samples):
        lines = [_line("in", samples, "bytes_in_per_s"), _line("out", samples, "bytes_out_per_s")]
        found.append(plot("Bytes per second", lines, unit="B/s"))
    return found


def _line(name: str, samples: Sequence[Sample], what: str) -> Line:
    """With a gap where nobody looked for a while."""
    points: list[tuple[float, float | None]] = []
    before_ms = None
    for sample in samples:
        if before_ms is not None and sample.at_ms - before_ms > GAP_MS:
            points.append((float(before_ms), None))
        value = getattr(sample, what)
        points.append((float(sample.at_ms), None if value is None else float(value)))
        before_ms = sample.at_ms
    return Line(name, points)


def disks_of(
    told: Mapping[int, Mapping[str, LogDirDescription] | ClientError] | None,
) -> list[Disk]:
    found = []
    for broker, folders in sorted((told or {}).items()):
        if isinstance(folders, ClientError):
            found.append(Disk(broker, 0, None, None, str(folders)))
            continue
        rows = list(folders.values())
        held = sum(each.size_bytes for row in rows for each in row.replicas.values())
        totals = [row.total_bytes for row in rows]
        usable = [row.usable_bytes for row in rows]
        found.append(
            Disk(
                broker,
                held,
                None if None in totals else sum(each or 0 for each in totals),
                None if None in usable else sum(each or 0 for each in usable),
                "; ".join(str(row.error) for row in rows if row.error is not None),
            )
        )
    return found


ROUTES: Final[Sequence[BaseRoute]] = (Route("/", show), Route("/overview/live", live))
