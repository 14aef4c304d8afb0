"""What clients have used, and how long those over a quota have to wait (KIP-13, 124, 219, 599).

    producer_byte_rate         bytes of Produce requests; over it they are answered, and the
                               connection is muted
    consumer_byte_rate         bytes of answers to Fetch; over it the answer is empty, and the
                               connection is muted
    request_percentage         time of the loop, of which 100 is all; over it the connection is
                               muted for one sample at most, and a Fetch gets nothing
    controller_mutation_rate   partitions created and deleted; over it the change is refused, or in
                               versions without that error made, and the connection is muted

A muted connection is not read (`network/channel.py`). The first three are averages over
quota.window.num samples of quota.window.size.seconds, the last is a token bucket that holds as much
as controller.quota.window.* together are long. Both are Kafka's, with the same throttle times.

A `Charge` goes with every request while a quota is set, and there is none otherwise. Request time
is what the loop spends from decoding the request until its handler returns, on each step of a
coroutine, and on making the answer. Time in threads, and the work of waking a request that waits,
do not count. What brokers ask each other is exempt.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tidelog.broker.authorized_operations import CLUSTER_ACTION
from tidelog.broker.quotas.quota_entity import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    INT_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.api_keys import ApiKey
from tidelog.rate import QuotaRate, RateLimiter, Sensors

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.quotas.quota_limits import Client, ClientLimits, QuotaLimits
    from tidelog.clock import Clock
    from tidelog.config.broker import BrokerConfig

Result = TypeVar("Result")

PERCENT: Final = 100.0
CLIENT_ID_CHARACTERS_MAX: Final = 256  # of a sensor's name; longer ids that begin alike share one

# What brokers ask each other; a follower's Fetch says so itself.
OF_BROKERS: Final = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
    )
)


class RateQuota:
    """One kind of quota that is an average."""

    def __init__(
        self,
        limits: ClientLimits,
        config: BrokerConfig,
        clock: Clock,
        *,
        throttle_s_max: float = inf,
    ) -> None:
        self._limits = limits
        self._sample_count = config.get_int("quota.window.num")
        self._sample_s = config.get_int("quota.window.size.seconds")
        self._throttle_s_max = throttle_s_max
        self._clock = clock
        self._sensors = Sensors(self._new_rate, clock)

    def _new_rate(self) -> QuotaRate:
        return QuotaRate(self._clock, sample_count=self._sample_count, sample_s=self._sample_s)

    def rate_or_none(self, user: str, client_id: str) -> QuotaRate | None:
        """None where nothing limits the client."""
        limit = self._limits.find(user, client_id)
        if limit is None:
            return None
        sensor = self._sensors.get(_name(limit.client))
        sensor.rate = limit.rate
        return sensor

    def measured(self) -> list[tuple[Client, QuotaRate]]:
        """Clients that a quota has limited lately."""
        return cast("list[tuple[Client, QuotaRate]]", self._sensors.items())

    def spend(self, user: str, client_id: str, units: float) -> float:
        """How long the client has to wait then, in seconds."""
        rate = self.rate_or_none(user, client_id)
        if rate is None:
            return 0.0
        rate.spend(units)
        return min(rate.debt_s(), self._throttle_s_max)

    def at_once_max(self, user: str, client_id: str) -> float:
        """As much as a client may spend that has been quiet."""
        limit = self._limits.find(user, client_id)
        if limit is None:
            return inf
        return limit.rate * max(self._sample_count - 1, 1) * self._sample_s


class MutationQuota:
    """The quota of changes to topics: a bucket of tokens that are paid for in advance."""

    def __init__(self, limits: ClientLimits, config: BrokerConfig, clock: Clock) -> None:
        self._limits = limits
        samples = config.get_int("controller.quota.window.num")
        self._burst_s = float(samples * config.get_int("controller.quota.window.size.seconds"))
        self._clock = clock
        self._sensors = Sensors(self._new_bucket, clock)

    def _new_bucket(self) -> RateLimiter:
        return RateLimiter(0.0, self._clock, burst_s=self._burst_s)

    def bucket_or_none(self, user: str, client_id: str) -> RateLimiter | None:
        limit = self._limits.find(user, client_id)
        if limit is None:
            return None
        bucket = self._sensors.get(_name(limit.client))
        if bucket.rate != limit.rate:
            bucket.change(limit.rate)
            bucket.spend(-limit.rate * self._burst_s)  # it begins full
        return bucket


def _name(client: Client) -> Client:
    user, client_id = client
    return user, client_id[:CLIENT_ID_CHARACTERS_MAX]


class ClientQuotas:
    """Of one broker; touched only on its loop."""

    def __init__(self, limits: QuotaLimits, config: BrokerConfig, clock: Clock) -> None:
        self.limits = limits
        self.clock = clock
        self.produce = RateQuota(limits.of(PRODUCER_BYTE_RATE), config, clock)
        self.fetch = RateQuota(limits.of(CONSUMER_BYTE_RATE), config, clock)
        self.request = RateQuota(
            limits.of(REQUEST_PERCENTAGE),
            config,
            clock,
            throttle_s_max=config.get_int("quota.window.size.seconds"),
        )
        self.mutation = MutationQuota(limits.of(CONTROLLER_MUTATION_RATE), config, clock)


class Charge:
    """What one request uses. The dispatcher calls `resume` and `pause` around its work on the
    request, `settle` before the answer is encoded and `finish` when it is.
    """

    __slots__ = (
        "_client_id",
        "_is_settled",
        "_produced_bytes",
        "_quotas",
        "_since",
        "_spent_s",
        "_throttled_until",
        "_user",
        "fetched_bytes",
        "is_exempt",
        "throttle_ms",
    )

    def __init__(self, quotas: ClientQuotas, context: RequestContext, size_bytes: int) -> None:
        self._quotas = quotas
        self._user = context.session.principal.name
        self._client_id = context.client_id or ""
        api_key = context.header.api_key
        self._produced_bytes = size_bytes if api_key == ApiKey.PRODUCE else 0
        self.is_exempt = api_key in OF_BROKERS and context.may_on_cluster_quietly(CLUSTER_ACTION)
        self.fetched_bytes = 0  # counted so far
        self.throttle_ms = 0  # once it is settled
        self._is_settled = False
        self._throttled_until = 0.0  # by clock.monotonic()
        self._spent_s = 0.0  # not counted yet
        self._since = quotas.clock.monotonic()

    # Time

    def resume(self) -> None:
        self._since = self._quotas.clock.monotonic()

    def pause(self) -> None:
        now = self._quotas.clock.monotonic()
        self._spent_s += now - self._since
        self._since = now

    def timed(self, work: Coroutine[Any, Any, Result]) -> Coroutine[Any, Any, Result]:
        return _TimedCoroutine(work, self)

    def _spend_time(self) -> float:
        self.pause()
        spent_s, self._spent_s = self._spent_s, 0.0
        return self._quotas.request.spend(self._user, self._client_id, spent_s * PERCENT)

    # Bytes and mutations

    def fetch_bytes_max(self) -> float:
        """More could never be sent without going over the quota."""
        if self.is_exempt:
            return inf
        return self._quotas.fetch.at_once_max(self._user, self._client_id)

    def withholds(self, size_bytes: int) -> bool:
        """Whether a Fetch gets nothing now, because it would go over a quota.

        An answer that is larger than a whole window is one large batch. Kafka's client would never
        get past it; here it is sent to a client that is not over its quota, and waited for then.
        """
        if self.is_exempt:
            return False
        wait_s = self._spend_time()
        debt_s = 0.0  # after the answer
        rate = self._quotas.fetch.rate_or_none(self._user, self._client_id)
        if rate is not None:
            if size_bytes > self.fetch_bytes_max():
                wait_s = max(wait_s, rate.debt_s())
                rate.spend(size_bytes)
                debt_s = rate.debt_s()
            else:
                rate.spend(size_bytes)
                wait_s = max(wait_s, rate.debt_s())
        is_over = _milliseconds(wait_s) > 0
        if not is_over:
            self.fetched_bytes = size_bytes
        elif rate is not None:
            rate.spend(-size_bytes)
        self._throttle(wait_s if is_over else debt_s)
        self._is_settled = True
        self.throttle_ms = self._remaining_ms()
        return is_over

    def mutate(self, count: int, *, is_strict: bool) -> None:
        """Before partitions are created or deleted. Strict: raises KafkaError while the client has
        used up its quota. Otherwise the change is made, and waited for afterwards.
        """
        bucket = self._quotas.mutation.bucket_or_none(self._user, self._client_id)
        if bucket is None:
            return
        if is_strict:
            wait_s = bucket.wait_s()
            if wait_s > 0:
                self._throttle(wait_s)
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
                )
            bucket.spend(count)
        else:
            bucket.spend(count)
            self._throttle(bucket.wait_s())

    def note_mutations(self, count: int) -> None:
        """Of a topic that the broker creates of itself: nobody waits, but it counts."""
        bucket = self._quotas.mutation.bucket_or_none(self._user, self._client_id)
        if bucket is not None:
            bucket.spend(count)

    def _throttle(self, wait_s: float) -> None:
        if wait_s > 0:
            self._throttled_until = max(
                self._throttled_until, self._quotas.clock.monotonic() + wait_s
            )

    def _remaining_ms(self) -> int:
        """A request may wait long between a throttle and its answer."""
        return _milliseconds(self._throttled_until - self._quotas.clock.monotonic())

    # The answer

    def settle(self, response: object) -> None:
        """Decides the throttle time, unless it is, and writes it into the answer."""
        if self.is_exempt:
            return
        if not self._is_settled:
            self._is_settled = True
            if self._produced_bytes:
                quota = self._quotas.produce
                self._throttle(quota.spend(self._user, self._client_id, self._produced_bytes))
            self._throttle(self._spend_time())
            self.throttle_ms = self._remaining_ms()
        if self.throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = self.throttle_ms

    def finish(self, api_key: int, answer_bytes: int) -> None:
        """The answer is made. What was not counted yet counts for the next request."""
        if self.is_exempt:
            return
        self._spend_time()
        if api_key == ApiKey.FETCH:
            rest = answer_bytes - self.fetched_bytes
            self._quotas.fetch.spend(self._user, self._client_id, rest)


class _TimedCoroutine(Coroutine[Any, Any, Result]):
    """The time of each step counts."""

    __slots__ = ("_charge", "_work")

    def __init__(self, work: Coroutine[Any, Any, Result], charge: Charge) -> None:
        self._work = work
        self._charge = charge

    def send(self, value: Any, /) -> Any:
        self._charge.resume()
        try:
            return self._work.send(value)
        finally:
            self._charge.pause()

    def throw(self, *cause: Any) -> Any:
        self._charge.resume()
        try:
            return self._work.throw(*cause)
        finally:
            self._charge.pause()

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Result]:
        return self._work.__await__()


def _milliseconds(seconds: float) -> int:
    return min(round(max(seconds, 0.0) * 1000), INT_MAX)
