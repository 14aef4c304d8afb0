"""The latest values that clients pushed, as series for a scrape.

A metric `org.apache.kafka.producer.record.send.total` becomes
`kafka_client_producer_record_send_total`. A series has the labels client_instance_id and client_id,
and the attributes of its data point. What else is known of a client stands once in
`kafka_client_info`.

Clients push the change since the last push of what only grows (the broker asks for delta
temporality, as Kafka does). These changes are added up, so that Prometheus sees a counter. It
begins at 0 when the client turns to another broker, as after a restart.

Bounds: SERIES_OF_CLIENT_MAX series for each client, `tidelog.client.metrics.series.max` for all,
and TEXT_CHARS_MAX characters for each. What goes beyond is not kept, and counted in `left_out`. A
client that exceeds them does not push out the series of others. The series of a client are removed
when it has not pushed for three of its intervals, or a minute if that is longer; and a minute after
its connection closed, so that a scrape sees the last push of a client that ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.broker.observation.exposition import COUNTER, GAUGE, Page, labels
from tidelog.broker.telemetry.otlp import Point, PushedBatch
from tidelog.types import Uuid

PREFIX: Final = "kafka_client_"
KAFKA_PREFIX: Final = "org.apache.kafka."
SERIES_OF_CLIENT_MAX: Final = 1_000
TEXT_CHARS_MAX: Final = 1_024  # of the name and labels of a series
NAME_CHARS_MAX: Final = 200
VALUE_CHARS_MAX: Final = 256  # of a label
CLIENTS_A_STEP: Final = 4

_NOT_IN_NAME: Final = re.compile(r"[^a-zA-Z0-9]+")


class Series:
    __slots__ = ("is_counter", "labels", "name", "value")

    def __init__(self, name: str, labels: str, is_counter: bool) -> None:
        self.name = name
        self.labels = labels
        self.is_counter = is_counter
        self.value = 0.0


class PushingClient:
    """What one client instance pushed, and who it is."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        self.facts = {name: text[:VALUE_CHARS_MAX] for name, text in facts.items()}
        self.info = ""  # labels of kafka_client_info
        self.series: dict[str, Series] = {}  # by name and labels
        self.expires_at = 0.0


class PushedMetrics:
    """Touched only on the broker loop."""

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._series = 0
        self.left_out = 0  # data points
        self.clients: dict[Uuid, PushingClient] = {}

    def take(
        self, instance_id: Uuid, facts: Mapping[str, str], batch: PushedBatch, expires_at: float
    ) -> None:
        """`facts` are what the broker knows of the client; they come before what it says."""
        client = self.clients.get(instance_id)
        if client is None:
            if self._series >= self._series_max:
                self.left_out += len(batch.points)
                return
            client = self.clients[instance_id] = PushingClient(facts)
            self._series += 1  # its kafka_client_info
        client.expires_at = expires_at
        client.info = _info(client.facts, batch.resource)
        for point in batch.points:
            series = self._series_or_none(client, point)
            if series is None:
                self.left_out += 1
            elif point.is_delta:
                series.value += point.value
            else:
                series.value = point.value

    def _series_or_none(self, client: PushingClient, point: Point) -> Series | None:
        name = series_name(point.name)
        if len(point.name) > NAME_CHARS_MAX or name == PREFIX:
            return None
        mine = {key: client.facts.get(key, "") for key in ("client_instance_id", "client_id")}
        text = labels(_label_names(point.attributes, mine))
        known = client.series.get(name + text)
        if known is not None:
            return known
        if (
            len(name) + len(text) > TEXT_CHARS_MAX
            or len(client.series) >= SERIES_OF_CLIENT_MAX
            or self._series >= self._series_max
        ):
            return None
        self._series += 1
        made = client.series[name + text] = Series(name, text, point.is_counter)
        return made

    def closes(self, instance_id: Uuid, expires_at: float) -> None:
        """The client's connection is closed; it may come back on another."""
        client = self.clients.get(instance_id)
        if client is not None:
            client.expires_at = min(client.expires_at, expires_at)

    def expire(self, now: float) -> None:
        for instance_id in [key for key, each in self.clients.items() if each.expires_at <= now]:
            self._series -= len(self.clients.pop(instance_id).series) + 1

    def add_to(self, page: Page) -> Iterator[None]:
        info = page.family(PREFIX + "info", GAUGE, "A client that pushes metrics.")
        for number, client in enumerate(tuple(self.clients.values())):
            info.append(f"{PREFIX}info{client.info} 1")
            for series in tuple(client.series.values()):
                kind = COUNTER if series.is_counter else GAUGE
                lines = page.family(series.name, kind, "Pushed by clients.")
                lines.append(f"{series.name}{series.labels} {series.value:.16g}")
            if number % CLIENTS_A_STEP == 0:
                yield
        page.counter(
            "tidelog_client_metrics_left_out_total",
            "Data points that clients pushed and found no room.",
            self.left_out,
        )


def series_name(metric: str) -> str:
    """A metric that is called `info` would be mistaken for a client."""
    name = _NOT_IN_NAME.sub("_", metric.removeprefix(KAFKA_PREFIX)).strip("_").lower()
    return PREFIX + ("info_" if name == "info" else name)


def _label_names(attributes: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """Ours first, which no attribute replaces. Always in the same order: Prometheus refuses a page
    that has a series twice.
    """
    found = dict(ours)
    for key, text in sorted(attributes.items()):
        name = _NOT_IN_NAME.sub("_", key).strip("_").lower()
        if name and not name[0].isdigit() and name not in ours:
            found[name] = text[:VALUE_CHARS_MAX]
    return found


def _info(facts: Mapping[str, str], resource: Mapping[str, str]) -> str:
    text = labels(_label_names(resource, facts))
    return text if len(text) <= TEXT_CHARS_MAX * 2 else labels(facts)
