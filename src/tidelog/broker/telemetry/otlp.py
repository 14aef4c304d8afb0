"""The metrics of a push: a bounded reader of OpenTelemetry's MetricsData in protobuf's wire format.

Fields that are read, by number (opentelemetry-proto, metrics/v1):

    MetricsData      1 resource_metrics
    ResourceMetrics  1 resource {1 attributes}, 2 scope_metrics
    ScopeMetrics     2 metrics
    Metric           1 name, 5 gauge, 7 sum, 9 histogram
    Gauge            1 data_points
    Sum, Histogram   1 data_points, 2 aggregation_temporality (1 is delta), 3 is_monotonic
    NumberDataPoint  7 attributes, 4 as_double, 6 as_int
    HistogramDataPoint  9 attributes, 4 count, 5 sum
    KeyValue         1 key, 2 value {1 string, 2 bool, 3 int, 4 double}

All others are skipped. A histogram becomes two counters, NAME.count and NAME.sum; its buckets are
left out, and so are exponential histograms and summaries, which no client of Kafka sends.

A push comes from anybody who can connect, so it has bounds: FIELDS_MAX fields are read in all, and
POINTS_MAX data points. What goes beyond, or is no message, raises MalformedMetrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from struct import Struct, error
from typing import Final, NamedTuple

FIELDS_MAX: Final = 200_000
POINTS_MAX: Final = 10_000
ATTRIBUTES_MAX: Final = 32
VARINT_BYTES_MAX: Final = 10
DELTA: Final = 1

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = Struct("<d")
_SIGNED64: Final = Struct("<q")

Field = tuple[int, "int | memoryview"]  # a fixed field is its bytes


class MalformedMetrics(Exception):
    """It is no MetricsData, or too much of it."""


class Point(NamedTuple):
    name: str
    attributes: Mapping[str, str]
    value: float
    is_counter: bool
    is_delta: bool  # to be added to what was pushed before


class PushedBatch(NamedTuple):
    resource: dict[str, str]  # what the client says of itself
    points: list[Point]


def read_metrics(data: bytes | bytearray) -> PushedBatch:
    return _Reader().read(memoryview(data))


class _Reader:
    def __init__(self) -> None:
        self._fields = 0
        self._batch = PushedBatch({}, [])

    def read(self, view: memoryview) -> PushedBatch:
        for resource_metrics in self._messages(view, 1):
            for number, value in self._fields_of(resource_metrics):
                if number == 1:
                    attributes = self._attributes(_bytes(value), 1)
                    if len(self._batch.resource) + len(attributes) <= ATTRIBUTES_MAX:
                        self._batch.resource.update(attributes)
                elif number == 2:
                    for metric in self._messages(_bytes(value), 2):
                        self._metric(metric)
        return self._batch

    def _metric(self, view: memoryview) -> None:
        name = ""
        kinds: list[tuple[int, memoryview]] = []
        for number, value in self._fields_of(view):
            if number == 1:
                name = _text(value)
            elif number in (5, 7, 9):
                kinds.append((number, _bytes(value)))
        for number, body in kinds:
            if number == 9:
                self._histogram(name, body)
            else:
                self._numbers(name, body, is_sum=number == 7)

    def _numbers(self, name: str, view: memoryview, *, is_sum: bool) -> None:
        points, is_delta, is_monotonic = self._data(view)
        for point in points:
            value: float | None = None
            for number, field in self._fields_of(point):
                if number == 4:
                    value = _double(field)
                elif number == 6:
                    value = _fixed(_SIGNED64, field)
            if value is not None:
                attributes = self._attributes(point, 7)
                self._add(Point(name, attributes, value, is_sum and is_monotonic, is_delta))

    def _histogram(self, name: str, view: memoryview) -> None:
        points, is_delta, _ = self._data(view)
        for point in points:
            attributes = self._attributes(point, 9)
            for number, field in self._fields_of(point):
                if number == 4:
                    count = _fixed(_SIGNED64, field)
                    self._add(Point(f"{name}.count", attributes, count, True, is_delta))
                elif number == 5:
                    self._add(Point(f"{name}.sum", attributes, _double(field), True, is_delta))

    def _data(self, view: memoryview) -> tuple[list[memoryview], bool, bool]:
        """Of a gauge, a sum or a histogram: its points, and whether it is delta and monotonic."""
        points: list[memoryview] = []
        temporality = is_monotonic = 0
        for number, value in self._fields_of(view):
            if number == 1:
                points.append(_bytes(value))
            elif number == 2 and isinstance(value, int):
                temporality = value
            elif number == 3 and isinstance(value, int):
                is_monotonic = value
        return points, temporality == DELTA, bool(is_monotonic)

    def _add(self, point: Point) -> None:
        if len(self._batch.points) >= POINTS_MAX:
            raise MalformedMetrics(f"more than {POINTS_MAX} data points")
        if math.isfinite(point.value):
            self._batch.points.append(point)

    def _attributes(self, view: memoryview, field: int) -> dict[str, str]:
        found: dict[str, str] = {}
        for pair in self._messages(view, field):
            key, text = "", ""
            for number, value in self._fields_of(pair):
                if number == 1:
                    key = _text(value)
                elif number == 2:
                    text = self._any_value(_bytes(value))
            if len(found) < ATTRIBUTES_MAX:
                found[key] = text
        return found

    def _any_value(self, view: memoryview) -> str:
        text = ""
        for number, value in self._fields_of(view):
            if number == 1:
                text = _text(value)
            elif number == 2:
                text = "true" if value else "false"
            elif number == 3 and isinstance(value, int):
                text = str(value - (1 << 64) if value >> 63 else value)
            elif number == 4:
                text = repr(_double(value))
        return text

    def _messages(self, view: memoryview, field: int) -> Iterator[memoryview]:
        for number, value in self._fields_of(view):
            if number == field:
                yield _bytes(value)

    def _fields_of(self, view: memoryview) -> Iterator[Field]:
        position, end = 0, len(view)
        while position < end:
            self._fields += 1
            if self._fields > FIELDS_MAX:
                raise MalformedMetrics(f"more than {FIELDS_MAX} fields")
            tag, position = _varint(view, position)
            kind = tag & 7
            if kind == _VARINT:
                value, position = _varint(view, position)
                yield tag >> 3, value
                continue
            if kind == _BYTES:
                size, position = _varint(view, position)
            elif kind == _FIXED64:
                size = 8
            elif kind == _FIXED32:
                size = 4
            else:
                raise MalformedMetrics(f"wire type {kind}")
            if size > end - position:
                raise MalformedMetrics("a field goes beyond its message")
            yield tag >> 3, view[position : position + size]
            position += size


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(view[position : position + VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + shift + 1
    raise MalformedMetrics("a varint has no end")


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise MalformedMetrics("a number where a message or text belongs")
    return value


def _text(value: int | memoryview) -> str:
    return str(_bytes(value), "utf-8", "replace")


def _double(value: int | memoryview) -> float:
    return _fixed(_DOUBLE, value)


def _fixed(layout: Struct, value: int | memoryview) -> float:
    try:
        number: float = layout.unpack(_bytes(value))[0]
    except error:
        raise MalformedMetrics("a number of another size") from None
    return number
