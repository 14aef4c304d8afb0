"""What `tidelog top` shows: looks at a cluster, and a frame made of two of them.

A look is taken over the client, and of each broker's metrics where their addresses are given. Rates
are differences between a look and the one before. A frame is plain text of a given size: nothing
here knows a terminal. At most TOPICS_MAX topics and GROUPS_MAX groups are looked at; the frame says
how many there are beyond that.
"""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelog.tools.cli.output import human_bytes, printable
from tidelog.tools.group_lag import PartitionLag
from tidelog.types import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.groups import GroupMember
    from tidelog.client.blocking.admin import Admin

TOPICS_MAX: Final = 500
GROUPS_MAX: Final = 100
METRICS_TIMEOUT_S: Final = 5.0
PAGE_BYTES_MAX: Final = 64 << 20
SAMPLE: Final = re.compile(r"^([a-z_]+)(\{[^}]*\})? ([0-9.e+-]+)$", re.MULTILINE)
TRAFFIC: Final = "kafka_server_brokertopicmetrics_"
TIMES: Final = "kafka_network_requestmetrics_totaltimems"
BROKERS_SHARE: Final = 4  # of the rows of a frame, one in so many is for brokers


class Sort(Enum):
    BUSIEST = "busiest"
    NAME = "name"


@dataclass(frozen=True)
class BrokerMetrics:
    bytes_in: float
    bytes_out: float
    requests: float
    produce_p99_ms: float | None
    fetch_p99_ms: float | None


@dataclass
class Look:
    at_s: float
    cluster_id: str = ""
    controller_id: int | None = None
    brokers: dict[int, str] = field(default_factory=dict)  # addresses
    leads: Counter[int] = field(default_factory=Counter)
    holds: Counter[int] = field(default_factory=Counter)
    topics: dict[str, int] = field(default_factory=dict)  # partitions
    topic_count: int = 0
    group_count: int = 0
    leaderless: int = 0
    under_replicated: int = 0
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)  # of groups
    members: dict[str, int] = field(default_factory=dict)
    committed: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    owners: dict[str, dict[TopicPartition, GroupMember]] = field(default_factory=dict)
    metrics: list[BrokerMetrics | None] = field(default_factory=list)  # None: no answer

    def lag(self, group: str) -> int:
        offsets = self.committed.get(group, {})
        return sum(max(self.ends.get(place, 0) - offset, 0) for place, offset in offsets.items())

    def partition_lags(self, group: str) -> list[PartitionLag]:
        """For a `GroupWatch`."""
        owners = self.owners.get(group, {})
        return [
            PartitionLag(place, offset, self.ends.get(place), owners.get(place))
            for place, offset in self.committed.get(group, {}).items()
        ]


def look(admin: Admin, metrics_urls: Sequence[str], clock: Callable[[], float]) -> Look:
    from tidelog.protocol.listed_timestamps import LATEST

    cluster = admin.describe_cluster()
    found = Look(clock(), cluster.cluster_id or "")
    found.controller_id = None if cluster.controller is None else cluster.controller.id
    found.brokers = {node.id: f"{node.host}:{node.port}" for node in cluster.nodes}
    names = [each.name for each in admin.list_topics(include_internal=True)]
    found.topic_count = len(names)
    for result in admin.describe_topics(names[:TOPICS_MAX]).values():
        if result.error is not None:
            continue
        topic = result.get()
        found.topics[topic.name] = len(topic.partitions)
        for partition in topic.partitions:
            found.leads[partition.leader_id] += 1
            found.holds.update(partition.replicas)
            found.leaderless += partition.leader_id == NO_LEADER
            found.under_replicated += len(partition.isr) < len(partition.replicas)
            if partition.leader_id != NO_LEADER:
                found.ends[TopicPartition(topic.name, partition.partition)] = 0
    listed = admin.list_offsets(dict.fromkeys(found.ends, LATEST))
    found.ends = {
        place: result.get().offset for place, result in listed.items() if result.error is None
    }
    _look_at_groups(admin, found)
    found.metrics = [metrics_or_none(url) for url in metrics_urls]
    return found


def _look_at_groups(admin: Admin, found: Look) -> None:
    groups = admin.list_groups()
    found.group_count = len(groups)
    shown = [each.group_id for each in groups[:GROUPS_MAX]]
    for group_id, result in admin.describe_groups(shown).items():
        if result.error is None:
            group = result.get()
            found.states[group_id] = group.state
            found.members[group_id] = len(group.members)
            found.owners[group_id] = {
                place: member for member in group.members for place in member.assignment
            }
            offsets = admin.list_group_offsets(group_id)
            found.committed[group_id] = {
                place: row.offset for place, row in offsets.items() if row is not None
            }


def metrics_or_none(url: str) -> BrokerMetrics | None:
    """None if nobody answers in time."""
    try:
        with urllib.request.urlopen(url, timeout=METRICS_TIMEOUT_S) as answer:
            text = answer.read(PAGE_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
    return metrics_of(text)


def metrics_of(page: str) -> BrokerMetrics:
    samples = {name + label: float(value) for name, label, value in SAMPLE.findall(page)}
    return BrokerMetrics(
        samples.get(f"{TRAFFIC}bytesin_total", 0.0),
        samples.get(f"{TRAFFIC}bytesout_total", 0.0),
        samples.get("kafka_network_socketserver_requests_total", 0.0),
        samples.get(f'{TIMES}{{request="Produce",quantile="0.99"}}'),
        samples.get(f'{TIMES}{{request="Fetch",quantile="0.99"}}'),
    )


# Frames


def frame(
    now: Look,
    before: Look | None,
    *,
    width: int = 80,
    height: int = 24,
    sort: Sort = Sort.BUSIEST,
    metrics_urls: Sequence[str] = (),
    health: Mapping[str, str] | None = None,
) -> list[str]:
    """At most `height` lines of at most `width` characters. `health` has a word for each group."""
    seconds = now.at_s - before.at_s if before is not None else 0.0
    head = [
        f"tidelog top  cluster {now.cluster_id}  brokers {len(now.brokers)}  "
        f"controller {'none' if now.controller_id is None else now.controller_id}",
        f"topics {now.topic_count}  partitions {len(now.ends)}  "
        f"leaderless {now.leaderless}  under-replicated {now.under_replicated}  "
        f"groups {now.group_count}",
        "",
    ]
    room = height - len(head)
    brokers = _fitted(_broker_lines(now), max(3, room // BROKERS_SHARE))
    if metrics_urls:
        brokers += _fitted(_metrics_lines(now, before, seconds, metrics_urls), 4)
    left = room - len(brokers) - 2
    groups = _fitted(_group_lines(now, before, seconds, sort, health), max(2, left // 2))
    topics = _fitted(_topic_lines(now, before, seconds, sort), max(2, left - len(groups)))
    lines = [*head, *brokers, "", *topics, "", *groups]
    return [printable(line)[:width].rstrip() for line in lines[:height]]


def _fitted(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"  ... {len(lines) - most + 1} more"]


def _broker_lines(now: Look) -> list[str]:
    lines = [f"{'BROKER':<8}{'ADDRESS':<32}{'LEADS':>8}{'REPLICAS':>10}"]
    for broker_id, address in sorted(now.brokers.items()):
        name = f"{broker_id}{'*' if broker_id == now.controller_id else ''}"
        leads, holds = now.leads[broker_id], now.holds[broker_id]
        lines.append(f"{name:<8}{_cut(address, 31):<32}{leads:>8}{holds:>10}")
    return lines


def _metrics_lines(
    now: Look, before: Look | None, seconds: float, urls: Sequence[str]
) -> list[str]:
    lines = [f"{'METRICS':<32}{'IN/S':>10}{'OUT/S':>10}{'REQ/S':>9}{'PRODUCE99':>10}{'FETCH99':>9}"]
    earlier = before.metrics if before is not None else [None] * len(urls)
    for url, new, old in zip(urls, now.metrics, earlier, strict=True):
        if new is None:
            lines.append(f"{_cut(url, 31):<32}no answer")
            continue
        bytes_in = bytes_out = requests = "-"
        if old is not None and seconds > 0:
            bytes_in = human_bytes(int(max(new.bytes_in - old.bytes_in, 0) / seconds))
            bytes_out = human_bytes(int(max(new.bytes_out - old.bytes_out, 0) / seconds))
            requests = f"{max(new.requests - old.requests, 0) / seconds:.0f}"
        lines.append(
            f"{_cut(url, 31):<32}{bytes_in:>10}{bytes_out:>10}{requests:>9}"
            f"{_ms(new.produce_p99_ms):>10}{_ms(new.fetch_p99_ms):>9}"
        )
    return lines


def _topic_lines(now: Look, before: Look | None, seconds: float, sort: Sort) -> list[str]:
    lines = [f"{'TOPIC':<40}{'PARTITIONS':>11}{'RECORDS':>14}{'RECORDS/S':>13}"]
    totals = _by_topic(now.ends)
    earlier = {} if before is None else _by_topic(before.ends)
    rates = {
        topic: _rate(totals.get(topic, 0), earlier.get(topic), seconds) for topic in now.topics
    }
    for topic in _sorted(now.topics, rates, sort):
        lines.append(
            f"{_cut(topic, 39):<40}{now.topics[topic]:>11}{totals.get(topic, 0):>14}"
            f"{_told(rates[topic]):>13}"
        )
    return lines


def _group_lines(
    now: Look,
    before: Look | None,
    seconds: float,
    sort: Sort,
    health: Mapping[str, str] | None,
) -> list[str]:
    width = 34 if health is None else 26
    head = "" if health is None else f"{'HEALTH':<8}"
    lines = [f"{'GROUP':<{width}}{'STATE':<16}{head}{'MEMBERS':>8}{'LAG':>11}{'READ/S':>10}"]
    lags: dict[str, float | None] = {group: now.lag(group) for group in now.states}
    for group in _sorted(now.states, lags, sort):
        read = sum(now.committed.get(group, {}).values())
        old = None
        if before is not None and group in before.committed:
            old = sum(before.committed[group].values())
        word = "" if health is None else f"{health.get(group, '-'):<8}"
        lines.append(
            f"{_cut(group, width - 1):<{width}}{_cut(now.states[group], 15):<16}{word}"
            f"{now.members[group]:>8}{lags[group]:>11}{_told(_rate(read, old, seconds)):>10}"
        )
    return lines


def _by_topic(ends: Mapping[TopicPartition, int]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for place, end in ends.items():
        totals[place.topic] += end
    return totals


def _sorted(names: Iterable[str], values: Mapping[str, float | None], sort: Sort) -> list[str]:
    if sort is Sort.NAME:
        return sorted(names)
    return sorted(names, key=lambda name: (-(values[name] or 0), name))


def _rate(new: int, old: int | None, seconds: float) -> float | None:
    return None if old is None or seconds <= 0 else max(new - old, 0) / seconds


def _told(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.0f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"


def _cut(text: str, width: int) -> str:
    text = printable(text)
    return text if len(text) <= width else text[: width - 1] + "~"
