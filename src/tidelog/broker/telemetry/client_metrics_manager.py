"""Which metrics a client is to push, whether a push is in order, and what becomes of it (KIP-714).

Kafka's ClientMetricsManager, with the same checks in the same order. Kafka hands a push to a
plug-in; here it is decoded and shown at /metrics (`pushed_metrics.py`).

A client instance is known from its first request until it has been silent for three push
intervals, or a minute if that is longer, or until its connection closes; the last INSTANCES_MAX are
known. Another broker that the client turns to computes the same subscription id. When subscriptions
change, the next request of an instance makes a new one of it, so a push gets
UNKNOWN_SUBSCRIPTION_ID, and the client asks anew.

A Get before the push interval is over is THROTTLING_QUOTA_EXCEEDED, but not after an
UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE (as Kafka 4; 3.9 throttles these too). A
Push is accepted once after each Get, because clients spread the first push by a random part of the
interval.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.broker.telemetry.otlp import MalformedMetrics, PushedBatch, read_metrics
from tidelog.broker.telemetry.pushed_metrics import PushedMetrics
from tidelog.config.client_metrics import (
    ALL_METRICS,
    CLIENT_ID,
    CLIENT_INSTANCE_ID,
    CLIENT_SOFTWARE_NAME,
    CLIENT_SOFTWARE_VERSION,
    CLIENT_SOURCE_ADDRESS,
    CLIENT_SOURCE_PORT,
    DEFAULT_INTERVAL_MS,
    Subscription,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.java_hash import java_hash
from tidelog.record.batch import Codec
from tidelog.record.compression import decompress
from tidelog.record.errors import RecordsTooLarge, UndecodableRecords
from tidelog.record.kernel import crc32c
from tidelog.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from tidelog.broker.context import ClientConnection, RequestContext
    from tidelog.broker.dynamic_config import DynamicConfig
    from tidelog.clock import Clock
    from tidelog.protocol.messages.push_telemetry import PushTelemetryRequest

INSTANCES_MAX: Final = 16_384
EXPIRY_MS: Final = 60_000
INTERVALS_KEPT: Final = 3
INFLATED_PER_BYTE_MAX: Final = 16  # of telemetry.max.bytes
RESERVED: Final = frozenset((ZERO_UUID, Uuid(bytes(15) + b"\x01")))
ACCEPTED_COMPRESSION: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
INSTANCES_A_STEP: Final = 1_000
ASKS_ANEW: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class ClientMetricsInstance:
    """One client, as long as its subscriptions stay the same."""

    def __init__(
        self,
        instance_id: Uuid,
        facts: Mapping[str, str],
        subscriptions: Mapping[str, Subscription],
    ) -> None:
        self.instance_id = instance_id
        self.facts = facts
        self.subscriptions = subscriptions  # from which it was made
        matching = [each for each in subscriptions.values() if each.matches(facts)]
        self.metrics = requested_metrics(matching)
        self.push_interval_ms = min([DEFAULT_INTERVAL_MS, *(each.interval_ms for each in matching)])
        self.subscription_id = subscription_id(self.metrics, self.push_interval_ms, instance_id)
        self.last_error = ErrorCode.NONE
        self.is_terminating = False
        self.expires_at_ms = 0.0
        self._last_get_ms = -math.inf
        self._last_push_ms = -math.inf

    @property
    def expiry_ms(self) -> int:
        return max(EXPIRY_MS, INTERVALS_KEPT * self.push_interval_ms)

    def admits_get(self, now_ms: float) -> bool:
        if now_ms - max(self._last_get_ms, self._last_push_ms) < self.push_interval_ms:
            return False
        self._last_get_ms = now_ms
        return True

    def admits_push(self, now_ms: float) -> bool:
        is_first = self._last_get_ms > self._last_push_ms
        if not is_first and now_ms - self._last_push_ms < self.push_interval_ms:
            return False
        self._last_push_ms = now_ms
        return True


class ClientMetricsManager:
    """Touched only on the broker loop."""

    def __init__(
        self, config: DynamicConfig, clock: Clock, *, max_bytes: int, series_max: int
    ) -> None:
        self._config = config
        self._clock = clock
        self.max_bytes = max_bytes
        self.pushed = PushedMetrics(series_max)
        self._instances: OrderedDict[Uuid, ClientMetricsInstance] = OrderedDict()
        self._by_connection: dict[ClientConnection, Uuid] = {}
        self.throttled = 0
        self.unknown_subscriptions = 0
        self.exports = 0
        self.export_errors = 0

    @property
    def instance_count(self) -> int:
        return len(self._instances)

    def get(self, context: RequestContext, instance_id: Uuid) -> ClientMetricsInstance:
        """Raises KafkaError."""
        if instance_id == ZERO_UUID:
            instance_id = Uuid.random()
        instance = self._instance(context, instance_id)
        if not instance.admits_get(self._now_ms()) and instance.last_error not in ASKS_ANEW:
            raise self._throttled(instance_id)
        instance.last_error = ErrorCode.NONE
        return instance

    async def push(self, context: RequestContext, request: PushTelemetryRequest) -> None:
        """Raises KafkaError."""
        instance_id = request.client_instance_id
        if instance_id in RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The client instance id is reserved.")
        instance = self._instance(context, instance_id)
        try:
            self._must_be_in_order(instance, request)
            instance.last_error = ErrorCode.NONE
            if len(request.metrics):
                await self._export(context, instance, request)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.is_terminating = request.terminating

    def _must_be_in_order(
        self, instance: ClientMetricsInstance, request: PushTelemetryRequest
    ) -> None:
        if instance.is_terminating:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "The client has said that its last push was the last."
            )
        if not instance.admits_push(self._now_ms()) and not request.terminating:
            raise self._throttled(instance.instance_id)
        if request.subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type not in tuple(Codec):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self.max_bytes:
            raise too_large(self.max_bytes)

    async def _export(
        self,
        context: RequestContext,
        instance: ClientMetricsInstance,
        request: PushTelemetryRequest,
    ) -> None:
        """In a thread: a push of a megabyte takes longer than the loop may be held."""
        data, codec = bytes(request.metrics), Codec(request.compression_type)
        limit = self.max_bytes * INFLATED_PER_BYTE_MAX
        threads = context.broker.record_threads
        if not threads.may_hold(limit):
            raise self._throttled(instance.instance_id)
        try:
            batch = await threads.run(limit, lambda: decode(codec, data, limit))
        except RecordsTooLarge as error:
            self.export_errors += 1
            raise too_large(limit) from error
        except (UndecodableRecords, MalformedMetrics) as error:
            self.export_errors += 1
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        self.exports += 1
        self.pushed.take(
            instance.instance_id,
            {**instance.facts, "principal": str(context.session.principal)},
            batch,
            self._now_ms() + instance.expiry_ms,
        )

    def _instance(self, context: RequestContext, instance_id: Uuid) -> ClientMetricsInstance:
        now_ms = self._now_ms()
        subscriptions = self._config.subscriptions
        instance = self._instances.get(instance_id)
        if instance is None or instance.expires_at_ms <= now_ms:
            facts = facts_of(instance_id, context)
            instance = self._remember(ClientMetricsInstance(instance_id, facts, subscriptions))
            self._follow(context.connection, instance_id)
        elif instance.subscriptions is not subscriptions:
            instance = self._remember(
                ClientMetricsInstance(instance_id, instance.facts, subscriptions)
            )
            self._follow(context.connection, instance_id)
        self._instances.move_to_end(instance_id)
        instance.expires_at_ms = now_ms + instance.expiry_ms
        return instance

    def _remember(self, instance: ClientMetricsInstance) -> ClientMetricsInstance:
        self._instances[instance.instance_id] = instance
        if len(self._instances) > INSTANCES_MAX:
            self._instances.popitem(last=False)
        return instance

    def _follow(self, connection: ClientConnection, instance_id: Uuid) -> None:
        if connection not in self._by_connection:
            connection.add_close_callback(self._closed)
        self._by_connection[connection] = instance_id

    def _closed(self, connection: ClientConnection) -> None:
        instance_id = self._by_connection.pop(connection, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)
            self.pushed.closes(instance_id, self._now_ms() + EXPIRY_MS)

    def expire(self) -> Iterator[None]:
        """A duty, in steps."""
        now_ms = self._now_ms()
        self.pushed.expire(now_ms)
        for number, (instance_id, instance) in enumerate(tuple(self._instances.items())):
            if instance.expires_at_ms <= now_ms and self._instances.get(instance_id) is instance:
                del self._instances[instance_id]
            if number % INSTANCES_A_STEP == 0:
                yield

    def _throttled(self, instance_id: Uuid) -> KafkaError:
        self.throttled += 1
        return KafkaError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"Request from the client [{instance_id}] arrived before the next push interval time",
        )

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000


def decode(codec: Codec, data: bytes, limit_bytes: int) -> PushedBatch:
    return read_metrics(decompress(codec, data, limit_bytes))


def too_large(limit_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.TELEMETRY_TOO_LARGE, f"The telemetry is larger than {limit_bytes} bytes."
    )


def facts_of(instance_id: Uuid, context: RequestContext) -> dict[str, str]:
    session = context.session
    facts = {
        CLIENT_INSTANCE_ID: str(instance_id),
        CLIENT_SOFTWARE_NAME: session.client_software_name,
        CLIENT_SOFTWARE_VERSION: session.client_software_version,
        CLIENT_SOURCE_ADDRESS: session.client_host,
        CLIENT_SOURCE_PORT: str(session.client_port),
    }
    if context.client_id is not None:
        facts[CLIENT_ID] = context.client_id
    return facts


def requested_metrics(matching: Iterable[Subscription]) -> list[str]:
    """In the order of Java's HashSet, which the subscription id depends on."""
    found = {metric: None for each in matching for metric in hash_set_order(each.metrics)}
    return [ALL_METRICS] if ALL_METRICS in found else hash_set_order(found)


def hash_set_order(texts: Iterable[str]) -> list[str]:
    """A HashSet has 16 buckets, twice as many whenever it is three quarters full."""
    distinct = list(dict.fromkeys(texts))
    buckets = 16
    while len(distinct) > buckets * 3 // 4:
        buckets *= 2

    def bucket(text: str) -> int:
        value = java_hash(text) & 0xFFFFFFFF
        return (value ^ value >> 16) & (buckets - 1)

    return sorted(distinct, key=bucket)


def subscription_id(metrics: list[str], interval_ms: int, instance_id: Uuid) -> int:
    """CRC-32C of the metrics and the interval as Java writes them, XOR the id's hash code."""
    crc = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode("utf-8", "replace"))
    words = [int.from_bytes(instance_id[at : at + 4], "big") for at in range(0, 16, 4)]
    value = crc ^ words[0] ^ words[1] ^ words[2] ^ words[3]
    return value - (1 << 32) if value >> 31 else value
