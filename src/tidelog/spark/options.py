"""Option texts to checked values: every option of Spark's kafka source and sink, and ours.

    source   assign | subscribe | subscribePattern          exactly one
             kafka.bootstrap.servers, kafka.*               handed to the client
             startingTimestamp > startingOffsetsByTimestamp > startingOffsets
             endingTimestamp > endingOffsetsByTimestamp > endingOffsets       batch alone
             startingOffsetsByTimestampStrategy             error | latest
             failOnDataLoss                                 true
             minPartitions, maxRecordsPerPartition
             maxOffsetsPerTrigger, minOffsetsPerTrigger     of streams: a batch warns
             maxTriggerDelay                                15m, with minOffsetsPerTrigger
             kafkaConsumer.pollTimeoutMs                    120000
             fetchOffset.numRetries                         3
             fetchOffset.retryIntervalMs                    1000
             groupIdPrefix                                  no group is joined: a warning
             includeHeaders                                 false
             commitGroupId                                  ours: offsets of streams for lag tools
             path                                           ours: segment files, no broker
    sink     topic, kafka.*; includeHeaders                 headers are a column: a warning
             deliveryGuarantee                              ours: at-least-once | exactly-once
             progressTopic, driverBytesPerTask              ours: of exactly-once alone

Names are case-insensitive. A bad value raises InvalidOption, which names the option, and so does an
option that is unknown: it names the nearest known one. An option that can have no effect where it
stands raises too, unless Spark's kafka connector takes it there: then the log has a warning. What
Spark itself puts among the options of a sink (checkpointLocation, path, queryName, outputMode) is
left to it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Final, NamedTuple

from tidelog.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from tidelog.config.definition import ConfigError, InvalidValue, UnknownKey
from tidelog.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    TIMESTAMPS_EXAMPLE,
    GlobalTimestamp,
    MalformedOffsets,
    OffsetLimit,
    PartitionOffsets,
    PartitionTimestamps,
    SpecificOffsets,
    Word,
    offsets_from_text,
    partitions_from_text,
    partitions_text,
)
from tidelog.spark.references import (
    MissingReference,
    resolved,
    resolved_values,
    without_values,
)
from tidelog.spark.subscription import Assign, Subscribe, SubscribePattern, Subscription
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

COMMIT_GROUP_ID: Final = "commitGroupId"
SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
SOURCE_OPTIONS: Final = (
    *SUBSCRIPTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "includeHeaders",
    COMMIT_GROUP_ID,
    "path",
)
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
EXACTLY_ONCE_OPTIONS: Final = ("progressTopic", "driverBytesPerTask", "txnAppId", "txnVersion")
SINK_OPTIONS: Final = ("topic", "includeHeaders", "deliveryGuarantee", *EXACTLY_ONCE_OPTIONS)
PROGRESS_TOPIC: Final = "_tidelog_spark_progress"
DRIVER_BYTES_PER_TASK: Final = 1024 * 1024
# As long as brokers allow unless they are told otherwise (transaction.max.timeout.ms).
TRANSACTION_TIMEOUT_MS: Final = 900_000
SPARKS_OWN: Final = ("checkpointLocation", "outputMode", "path", "queryName")
ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
LIMITS_OF_A_TRIGGER: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
OF_STREAMS: Final = (*LIMITS_OF_A_TRIGGER, COMMIT_GROUP_ID)
OF_A_BROKER: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    COMMIT_GROUP_ID,
)
OF_FILES_TOO: Final = ("kafka.isolation.level", "kafka.check.crcs")
REFUSED_BY_SOURCE: Final = {
    "auto.offset.reset": "set the option startingOffsets to earliest or latest instead; Spark "
    "itself keeps track of what was read",
    "key.deserializer": "keys come as binary; cast or decode the column",
    "value.deserializer": "values come as binary; cast or decode the column",
    "enable.auto.commit": "Spark's checkpoint holds the offsets; see the option commitGroupId",
    "interceptor.classes": "there are no interceptors",
    "transactional.id": "a source writes nothing",
}
REFUSED_BY_SINK: Final = {
    "key.serializer": "the key column is written as it is",
    "value.serializer": "the value column is written as it is",
    "interceptor.classes": "there are no interceptors",
    "transactional.id": "with deliveryGuarantee=exactly-once the sink makes its own",
}

# What one fetch brings becomes one Arrow batch: large enough for Spark, small enough for caches.
FETCH_BYTES: Final = 4608 * 1024
ROWS_MAX: Final = 40_000

_TIME = re.compile(r"(-?\d+)\s*([a-z]*)")
_UNIT_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class InvalidOption(ValueError):
    """`option` is at fault; the message names it."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}")
        self.option = option


class OptionTexts:
    """Options as they were given, by name in any case."""

    __slots__ = ("_texts",)

    def __init__(self, given: Mapping[str, str]) -> None:
        self._texts = {name.lower(): text for name, text in given.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def __bool__(self) -> bool:
        return bool(self._texts)

    def names(self) -> list[str]:
        return list(self._texts)

    def text(self, name: str) -> str | None:
        return self._texts.get(name.lower())

    def must_text(self, name: str) -> str:
        return self._texts[name.lower()]

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise InvalidOption(name, f"expected true or false, got {text}")
        return text.strip().lower() == "true"

    def integer(self, name: str, *, at_least: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            raise InvalidOption(name, f"expected a whole number, got {text}") from None
        if value < at_least:
            what = "positive" if at_least == 1 else f"at least {at_least}"
            raise InvalidOption(name, f"must be {what}, got {text}")
        return value

    def integer_or(self, name: str, default: int, *, at_least: int = 0) -> int:
        value = self.integer(name, at_least=at_least)
        return default if value is None else value

    def time_ms(self, name: str, default: str) -> int:
        """Spark's time texts: 15m, 10s, 500ms; milliseconds when there is no unit."""
        text = self.text(name) or default
        match = _TIME.fullmatch(text.strip().lower())
        if match is None or match[2] not in _UNIT_MS or int(match[1]) < 0:
            raise InvalidOption(name, f"expected a time such as 15m, 10s or 500ms, got {text}")
        return int(match[1]) * _UNIT_MS[match[2]]

    def kafka(self) -> dict[str, str]:
        """The options of the client, without their prefix."""
        prefix = "kafka."
        return {
            name.removeprefix(prefix): text
            for name, text in self._texts.items()
            if name.startswith(prefix)
        }


class DataLoss(RuntimeError):
    """Records may have been missed and failOnDataLoss is true."""


class DataLossPolicy(NamedTuple):
    """What happens when records that should be read are not there: `failOnDataLoss`.

    true     DataLoss, and the query fails before anything of the batch is read
    false    a warning in the log, and the query goes on with what there is
    """

    fail: bool

    def report(self, message: str) -> None:
        if self.fail:
            raise DataLoss(
                f"{message}. The records were deleted by retention, or their topic was deleted or "
                f'made anew, before they were read. Set the option "failOnDataLoss" to "false" to '
                f"go on without them."
            )
        logger.warning(
            '%s. Some records may have been missed; the option "failOnDataLoss" is "false".',
            message,
        )


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Plain data: it travels to the executors."""

    subscription: Subscription | None  # None only with path: everything there
    client: dict[str, str]  # may hold references; the configurations have their values
    start: OffsetLimit | None  # None: the default of batch or stream
    end: OffsetLimit | None
    latest_if_no_match: bool
    data_loss: DataLossPolicy
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    poll_timeout_ms: int
    fetch_offset_tries: int
    fetch_offset_retry_interval_ms: int
    commit_group_id: str | None
    path: str | None
    given: frozenset[str] = frozenset()  # names of the options, in small letters

    def batch_start(self) -> OffsetLimit:
        start = Word.EARLIEST if self.start is None else self.start
        if start is Word.LATEST:
            raise InvalidOption("startingOffsets", "a batch query cannot start at latest")
        _refuse_offset(start, LATEST_OFFSET, "startingOffsets", "start at latest")
        return start

    def batch_end(self) -> OffsetLimit:
        end = Word.LATEST if self.end is None else self.end
        if end is Word.EARLIEST:
            raise InvalidOption("endingOffsets", "a batch query cannot end at earliest")
        _refuse_offset(end, EARLIEST_OFFSET, "endingOffsets", "end at earliest")
        return end

    def stream_start(self) -> OffsetLimit:
        for name in self._given_of(ENDS):
            raise InvalidOption(name, "a streaming query has no end; leave it out")
        return Word.LATEST if self.start is None else self.start

    def check_batch(self) -> None:
        """Called once a query, in the driver. Spark's kafka source warns of the same limits."""
        if self.path is not None:
            self._refuse_what_asks_a_broker()
        for name in self._given_of((COMMIT_GROUP_ID,)):
            raise InvalidOption(name, "is for streaming queries: a batch commits nothing")
        for name in self._given_of(LIMITS_OF_A_TRIGGER):
            logger.warning("option %s has no effect on a batch query", name)
        self._warn_of_groups()

    def check_stream(self) -> None:
        """Called once a run, in the driver."""
        if self.min_offsets_per_trigger is None:
            for name in self._given_of(("maxTriggerDelay",)):
                logger.warning("option %s has no effect without minOffsetsPerTrigger", name)
        self._warn_of_groups()

    def _given_of(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name.lower() in self.given]

    def _refuse_what_asks_a_broker(self) -> None:
        others = sorted(name for name in self.given if name.startswith("kafka."))
        for name in (*self._given_of(OF_A_BROKER), *others):
            if name not in OF_FILES_TOO:
                told = "has no effect with path, which asks no broker; leave one of them out"
                raise InvalidOption(name, told)

    def _warn_of_groups(self) -> None:
        for name in self._given_of(("groupIdPrefix", "kafka.group.id")):
            logger.warning("option %s has no effect: the source joins no consumer group", name)

    def driver_config(self) -> ConsumerConfig:
        return ConsumerConfig(resolved_values(self.client))

    def executor_config(self) -> ConsumerConfig:
        """kafkaConsumer.pollTimeoutMs is how long an executor waits for records it knows of."""
        defaults = {
            "default.api.timeout.ms": self.poll_timeout_ms,
            "max.partition.fetch.bytes": FETCH_BYTES,
        }
        return ConsumerConfig({**defaults, **resolved_values(self.client)})


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises InvalidOption; what only a batch or only a stream may not have is left to both."""
    texts = OptionTexts(given)
    _refuse_unknown(texts, SOURCE_OPTIONS)
    path = texts.text("path")
    options = SourceOptions(
        subscription=_subscription(texts, is_optional=path is not None),
        client=client_options(texts, REFUSED_BY_SOURCE, needs_broker=path is None),
        start=_limit(texts, "starting"),
        end=_limit(texts, "ending"),
        latest_if_no_match=_latest_if_no_match(texts),
        data_loss=DataLossPolicy(texts.flag("failOnDataLoss", True)),
        include_headers=texts.flag("includeHeaders", False),
        min_partitions=texts.integer("minPartitions"),
        max_records_per_partition=texts.integer("maxRecordsPerPartition"),
        max_offsets_per_trigger=texts.integer("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=texts.integer("minOffsetsPerTrigger"),
        max_trigger_delay_ms=texts.time_ms("maxTriggerDelay", "15m"),
        poll_timeout_ms=texts.integer_or("kafkaConsumer.pollTimeoutMs", 120_000),
        fetch_offset_tries=texts.integer_or("fetchOffset.numRetries", 3, at_least=1),
        fetch_offset_retry_interval_ms=texts.integer_or("fetchOffset.retryIntervalMs", 1000),
        commit_group_id=_group_id(texts),
        path=path,
        given=frozenset(texts.names()),
    )
    _require_consistent(options)
    return options


class BatchWrite(NamedTuple):
    """Who writes, and which of its writes this is: the second job with the same pair writes
    nothing. The names of the options are Delta Lake's."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Plain data: it travels to the executors."""

    topic: str | None  # overrides the topic column
    client: dict[str, str]  # may hold references
    is_exactly_once: bool
    progress_topic: str
    driver_bytes_per_task: int
    write: BatchWrite | None = None  # of a batch job that may be repeated
    given: frozenset[str] = frozenset()  # names of the options, in small letters

    def check_batch(self) -> None:
        """A batch job without a name writes all rows in one transaction, and no marker."""
        for name in ("progressTopic", "driverBytesPerTask"):
            if self.write is None and name.lower() in self.given:
                raise InvalidOption(
                    name, "has no effect on a batch job without txnAppId and txnVersion; set them"
                )

    def producer_options(self) -> dict[str, str]:
        return resolved_values(self.client)

    @property
    def transaction_timeout_ms(self) -> int:
        return int(self.producer_options().get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))

    def task_producer(self) -> dict[str, str]:
        timeout_ms = str(self.transaction_timeout_ms)
        return {**self.producer_options(), "transaction.timeout.ms": timeout_ms}


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    texts = OptionTexts(given)
    _refuse_unknown(texts, (*SINK_OPTIONS, *SPARKS_OWN))
    topic = texts.text("topic")
    if topic is not None and not topic.strip():
        raise InvalidOption("topic", "is empty")
    is_exactly_once = _is_exactly_once(texts)
    options = SinkOptions(
        topic=None if topic is None else topic.strip(),
        client=client_options(texts, REFUSED_BY_SINK, kind=ProducerConfig),
        is_exactly_once=is_exactly_once,
        progress_topic=(texts.text("progressTopic") or PROGRESS_TOPIC).strip(),
        driver_bytes_per_task=texts.integer_or("driverBytesPerTask", DRIVER_BYTES_PER_TASK),
        write=_batch_write(texts),
        given=frozenset(texts.names()),
    )
    if is_exactly_once:
        _require_transactions_possible(options)
    if "includeHeaders" in texts:
        _warn_of_headers()
    return options


@cache
def _warn_of_headers() -> None:
    """Once a process: a stream makes its sink anew for every batch."""
    logger.warning("option includeHeaders has no effect on a sink; it writes the column headers")


def _is_exactly_once(texts: OptionTexts) -> bool:
    wanted = (texts.text("deliveryGuarantee") or AT_LEAST_ONCE).strip().lower()
    if wanted not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise InvalidOption(
            "deliveryGuarantee", f"expected {AT_LEAST_ONCE} or {EXACTLY_ONCE}, got {wanted}"
        )
    for name in EXACTLY_ONCE_OPTIONS:
        if name in texts and wanted != EXACTLY_ONCE:
            raise InvalidOption(name, f"has no effect unless deliveryGuarantee is {EXACTLY_ONCE}")
    return wanted == EXACTLY_ONCE


def _batch_write(texts: OptionTexts) -> BatchWrite | None:
    app_id, version = texts.text("txnAppId"), texts.integer("txnVersion", at_least=0)
    if app_id is None and version is None:
        return None
    if app_id is None or version is None:
        raise InvalidOption("txnAppId, txnVersion", "one is set; they go together")
    if not app_id.strip():
        raise InvalidOption("txnAppId", "is empty")
    return BatchWrite(app_id.strip(), version)


def _require_transactions_possible(options: SinkOptions) -> None:
    try:
        ProducerConfig({**options.producer_options(), "transactional.id": "any"})
    except InvalidValue as problem:
        value = options.client.get(problem.name)
        raise InvalidOption(
            f"kafka.{problem.name}", f"{value} does not go with {EXACTLY_ONCE}: {problem.rule}"
        ) from None
    except ConfigError as problem:
        told = without_values(str(problem), options.client.values())
        raise InvalidOption("kafka.*", f"do not go with {EXACTLY_ONCE}: {told}") from None


def client_options(
    texts: OptionTexts,
    refused: Mapping[str, str],
    *,
    needs_broker: bool = True,
    kind: type[ConsumerConfig] | type[ProducerConfig] = ConsumerConfig,
) -> dict[str, str]:
    """The kafka.* options, checked, without their prefix. References stay in them."""
    options = texts.kafka()
    for name, advice in refused.items():
        if name in options:
            raise InvalidOption(f"kafka.{name}", f"is not supported: {advice}")
    if not needs_broker:
        options.setdefault("bootstrap.servers", "localhost:9092")
    if "bootstrap.servers" not in options:
        hint = "" if texts else _HINT_WITHOUT_OPTIONS
        raise InvalidOption("kafka.bootstrap.servers", f"must be set{hint}")
    values = _looked_up(options)
    try:
        options = _without_others_keys(options, values, kind)
        config = kind({name: values[name] for name in options})
    except UnknownKey as problem:
        hint = f"; did you mean kafka.{problem.nearest}?" if problem.nearest else ""
        raise InvalidOption(f"kafka.{problem.name}", f"is unknown{hint}") from problem
    except InvalidValue as problem:
        value = options.get(problem.name)
        raise InvalidOption(f"kafka.{problem.name}", f"{problem.rule}, got {value}") from None
    except ConfigError as problem:
        raise InvalidOption("kafka.*", without_values(str(problem), options.values())) from None
    for warning in config.warnings:
        logger.debug("kafka option: %s", warning)
    return options


def _looked_up(options: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, text in options.items():
        try:
            found[name] = resolved(text)
        except MissingReference as problem:
            raise InvalidOption(f"kafka.{name}", str(problem)) from None
    return found


def _without_others_keys(
    options: Mapping[str, str],
    values: Mapping[str, str],
    kind: type[ConsumerConfig] | type[ProducerConfig],
) -> dict[str, str]:
    """Source and sink are often given the same options; each of Kafka's clients passes over keys
    that are another client's alone. They are checked all the same."""
    kept = {}
    for name, text in options.items():
        others = (
            client.TABLE.get(name) for client in (ProducerConfig, ConsumerConfig, AdminConfig)
        )
        key = next((key for key in others if key is not None), None)
        if key is None or kind.TABLE.get(name) is not None:
            kept[name] = text
        else:
            key.parse(values[name])
            logger.debug("kafka option: %s has no effect on a %s", name, kind.__name__)
    return kept


_HINT_WITHOUT_OPTIONS = (
    ". No options came at all: Spark forgets those of CREATE TABLE ... USING tidelog; use CREATE "
    "TEMPORARY VIEW, or SELECT ... WITH (`kafka.bootstrap.servers`='...', ...)"
)


def _subscription(texts: OptionTexts, *, is_optional: bool) -> Subscription | None:
    given = [name for name in SUBSCRIPTIONS if name in texts]
    if not given and is_optional:
        return None
    if len(given) != 1:
        problem = "must be set" if not given else f"are set: {', '.join(given)}; only one may be"
        hint = "" if texts else _HINT_WITHOUT_OPTIONS
        raise InvalidOption("assign, subscribe or subscribePattern", f"{problem}{hint}")
    name = given[0]
    text = texts.must_text(name).strip()
    if name == "assign":
        try:
            partitions = partitions_from_text(text)
        except MalformedOffsets as problem:
            raise InvalidOption("assign", str(problem)) from None
        if not partitions:
            raise InvalidOption("assign", "names no partitions")
        return Assign(partitions)
    if name == "subscribe":
        topics = frozenset(filter(None, map(str.strip, text.split(","))))
        if not topics:
            raise InvalidOption("subscribe", "names no topics")
        return Subscribe(topics)
    if not text:
        raise InvalidOption("subscribePattern", "is empty")
    try:
        re.compile(text)
    except re.error as problem:
        raise InvalidOption("subscribePattern", f"no regular expression: {problem}") from None
    return SubscribePattern(text)


def _limit(texts: OptionTexts, end: str) -> OffsetLimit | None:
    """The first that is given: a timestamp, timestamps, offsets."""
    timestamp = texts.text(f"{end}Timestamp")
    if timestamp is not None:
        try:
            return GlobalTimestamp(int(timestamp))
        except ValueError:
            raise InvalidOption(
                f"{end}Timestamp", f"expected one whole number of milliseconds, got {timestamp}"
            ) from None
    timestamps = texts.text(f"{end}OffsetsByTimestamp")
    offsets = texts.text(f"{end}Offsets")
    name = f"{end}OffsetsByTimestamp" if timestamps is not None else f"{end}Offsets"
    try:
        if timestamps is not None:
            return PartitionTimestamps(offsets_from_text(timestamps, TIMESTAMPS_EXAMPLE))
        if offsets is None:
            return None
        if offsets.strip().lower() in ("earliest", "latest"):
            return Word(offsets.strip().lower())
        return SpecificOffsets(offsets_from_text(offsets))
    except MalformedOffsets as problem:
        raise InvalidOption(name, str(problem)) from None


def _refuse_offset(limit: OffsetLimit, refused: int, name: str, deed: str) -> None:
    if not isinstance(limit, SpecificOffsets):
        return
    at_fault = [partition for partition, offset in limit.offsets.items() if offset == refused]
    if at_fault:
        raise InvalidOption(name, f"a batch query cannot {deed} ({partitions_text(at_fault)})")


def _latest_if_no_match(texts: OptionTexts) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    text = (texts.text(name) or "error").strip().lower()
    if text not in ("error", "latest"):
        raise InvalidOption(name, f"expected error or latest, got {text}")
    return text == "latest"


def _group_id(texts: OptionTexts) -> str | None:
    text = texts.text(COMMIT_GROUP_ID)
    if text is not None and not text.strip():
        raise InvalidOption(COMMIT_GROUP_ID, "is empty")
    return text


def _require_consistent(options: SourceOptions) -> None:
    most, least = options.max_offsets_per_trigger, options.min_offsets_per_trigger
    if most is not None and least is not None and least > most:
        raise InvalidOption(
            "minOffsetsPerTrigger", f"{least} is higher than maxOffsetsPerTrigger, {most}"
        )
    start, end = options.start, options.end
    if isinstance(start, SpecificOffsets) and isinstance(end, SpecificOffsets):
        _require_same_order(start.offsets, end.offsets, "Offsets")
    if isinstance(start, PartitionTimestamps) and isinstance(end, PartitionTimestamps):
        _require_same_order(start.timestamps_ms, end.timestamps_ms, "OffsetsByTimestamp")


def _require_same_order(start: PartitionOffsets, end: PartitionOffsets, suffix: str) -> None:
    if start.keys() != end.keys():
        odd = partitions_text(start.keys() ^ end.keys())
        raise InvalidOption(
            f"ending{suffix}", f"must name the partitions of starting{suffix}; not in both: {odd}"
        )
    for partition, first in start.items():
        if 0 <= end[partition] < first:
            raise InvalidOption(
                f"starting{suffix}", f"{first} of {partition} is after its end, {end[partition]}"
            )


def _refuse_unknown(texts: OptionTexts, names: Iterable[str]) -> None:
    known = {name.lower(): name for name in names}
    known |= {"kafka.bootstrap.servers": "kafka.bootstrap.servers"}
    for name in texts.names():
        if name in known or name.startswith("kafka."):
            continue
        nearest = get_close_matches(name, known, 1)
        hint = f"; did you mean {known[nearest[0]]}?" if nearest else ""
        raise InvalidOption(name, f"is unknown{hint}")


def start_too_late(limit: OffsetLimit, missing: Collection[TopicPartition]) -> InvalidOption:
    """No record of these partitions is as late as the timestamp that a query is to start at."""
    if isinstance(limit, GlobalTimestamp):
        name, times = "startingTimestamp", {limit.timestamp_ms}
    else:
        assert isinstance(limit, PartitionTimestamps), limit
        name = "startingOffsetsByTimestamp"
        times = {limit.timestamps_ms[partition] for partition in missing}
    told = ", ".join(f"{time} ({_utc_text(time)})" for time in sorted(times)[:3])
    more = f" and {len(times) - 3} more" if len(times) > 3 else ""
    return InvalidOption(
        name,
        f"no record of {partitions_text(missing)} is as late as {told}{more}; set "
        f"startingOffsetsByTimestampStrategy to latest to begin at the end there",
    )


def _utc_text(time_ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return "beyond the calendar"
