from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from tidelog.spark.log_reader import LogReader
from tidelog.spark.micro_batch_stream import MicroBatchStream
from tidelog.spark.offsets import GlobalTimestamp, PartitionTimestamps, SpecificOffsets, Word
from tidelog.spark.options import (
    InvalidOption,
    SourceOptions,
    _warn_of_headers,
    sink_options,
    source_options,
)
from tidelog.spark.reader import TidelogReader
from tidelog.spark.subscription import Assign, Subscribe, SubscribePattern
from tidelog.spark.writer import RowSink, TidelogStreamWriter, TidelogWriter
from tidelog.types import TopicPartition

BROKER = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
TOPIC = {**BROKER, "subscribe": "orders"}


def parsed(**more: str) -> SourceOptions:
    return source_options({**TOPIC, **more})


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    options = parsed()
    assert options.data_loss.fail
    assert not options.include_headers
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert options.poll_timeout_ms == 120_000
    assert options.fetch_offset_tries == 3
    assert options.fetch_offset_retry_interval_ms == 1000
    assert options.batch_start() is Word.EARLIEST
    assert options.batch_end() is Word.LATEST
    assert options.stream_start() is Word.LATEST


def test_names_are_case_insensitive() -> None:
    options = source_options({**BROKER, "SUBSCRIBE": "a", "FailOnDataLoss": "FALSE"})
    assert options.subscription == Subscribe(frozenset({"a"}))
    assert not options.data_loss.fail


def test_checked_options_survive_pickling() -> None:
    options = parsed(startingOffsets='{"orders": {"0": 3}}', includeHeaders="true")
    assert pickle.loads(pickle.dumps(options)) == options


def test_topics_and_patterns_are_trimmed() -> None:
    assert source_options({**BROKER, "subscribe": " a , b,,"}).subscription == Subscribe(
        frozenset({"a", "b"})
    )
    assert source_options({**BROKER, "subscribePattern": " a.* "}).subscription == SubscribePattern(
        "a.*"
    )


def test_assign_names_partitions() -> None:
    given = source_options({**BROKER, "assign": '{"a": [1]}'})
    assert given.subscription == Assign(frozenset({TopicPartition("a", 1)}))


def test_a_timestamp_comes_before_timestamps_and_those_before_offsets() -> None:
    everything = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"orders": {"0": 5}}',
        "startingTimestamp": "7",
    }
    assert parsed(**everything).start == GlobalTimestamp(7)
    del everything["startingTimestamp"]
    assert parsed(**everything).start == PartitionTimestamps({TopicPartition("orders", 0): 5})
    del everything["startingOffsetsByTimestamp"]
    assert parsed(**everything).start is Word.EARLIEST


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("subscribe", " , "),
        ("failOnDataLoss", "yes"),
        ("includeHeaders", "1"),
        ("minPartitions", "0"),
        ("minPartitions", "many"),
        ("maxRecordsPerPartition", "-1"),
        ("maxOffsetsPerTrigger", "ten"),
        ("maxTriggerDelay", "soon"),
        ("startingOffsets", "oldest"),
        ("startingOffsets", '{"orders": [0]}'),
        ("startingTimestamp", "yesterday"),
        ("startingOffsetsByTimestamp", "latest"),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("fetchOffset.numRetries", "0"),
        ("kafkaConsumer.pollTimeoutMs", "x"),
        ("commitGroupId", " "),
        ("kafka.bootstrap.servers", "nowhere"),
        ("kafka.isolation.level", "read_everything"),
        ("kafka.security.protocol", "TLS"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_option(option: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=option.replace(".", r"\.")):
        source_options({**TOPIC, option: value})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers"),
        (BROKER, "assign, subscribe or subscribePattern"),
        ({**TOPIC, "assign": '{"a": [0]}'}, "only one may be"),
        ({**BROKER, "assign": "a"}, "assign"),
        ({**BROKER, "assign": "{}"}, "assign"),
        ({**BROKER, "subscribePattern": "a("}, "subscribePattern"),
        ({**TOPIC, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "maxOffsets"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        source_options(given)


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
        "transactional.id",
    ],
)
def test_client_keys_that_spark_decides_are_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="is not supported"):
        source_options({**TOPIC, f"kafka.{name}": "x"})


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer"])
def test_the_sink_refuses_serializers(name: str) -> None:
    with pytest.raises(InvalidOption, match=name):
        sink_options({**BROKER, f"kafka.{name}": "x"})


def test_other_client_keys_are_handed_on() -> None:
    options = parsed(**{"kafka.isolation.level": "read_committed", "kafka.group.id": "g"})
    assert options.driver_config().text("isolation.level") == "read_committed"


def test_a_source_passes_over_keys_of_the_producer_and_checks_them() -> None:
    options = parsed(**{"kafka.linger.ms": "5", "kafka.acks": "1", "kafka.client.id": "me"})
    assert options.client == {"bootstrap.servers": "127.0.0.1:9092", "client.id": "me"}
    with pytest.raises(InvalidOption, match=r"kafka\.acks"):
        parsed(**{"kafka.acks": "2"})


def test_a_sink_passes_over_keys_of_the_consumer_and_checks_them() -> None:
    """One set of options often serves the source and the sink."""
    given = {"kafka.isolation.level": "read_committed", "kafka.group.id": "g", "kafka.acks": "all"}
    options = sink_options({**BROKER, **given, "kafka.max.poll.records": "100"})
    assert options.client == {"bootstrap.servers": "127.0.0.1:9092", "acks": "all"}
    with pytest.raises(InvalidOption, match=r"kafka\.isolation\.level"):
        sink_options({**BROKER, "kafka.isolation.level": "read_some"})
    with pytest.raises(InvalidOption, match=r"did you mean kafka\.compression\.type"):
        sink_options({**BROKER, "kafka.compresion.type": "lz4"})


def test_executors_wait_for_the_poll_timeout_unless_the_client_is_told() -> None:
    assert parsed().executor_config().integer("default.api.timeout.ms") == 120_000
    told = parsed(**{"kafka.default.api.timeout.ms": "5000"})
    assert told.executor_config().integer("default.api.timeout.ms") == 5000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("15m", 900_000),
        ("10s", 10_000),
        ("500ms", 500),
        ("7", 7),
        ("1 h", 3_600_000),
        ("2min", 120_000),
    ],
)
def test_delays_are_sparks_time_texts(text: str, ms: int) -> None:
    assert parsed(maxTriggerDelay=text).max_trigger_delay_ms == ms


@pytest.mark.parametrize("start", ["latest", '{"orders": {"0": 4, "1": -1}}'])
def test_a_batch_cannot_start_at_latest(start: str) -> None:
    options = parsed(startingOffsets=start)
    assert options.stream_start() == options.start
    with pytest.raises(InvalidOption, match=r"startingOffsets.*cannot start at latest"):
        options.batch_start()


@pytest.mark.parametrize("end", ["earliest", '{"orders": {"0": -2}}'])
def test_a_batch_cannot_end_at_earliest(end: str) -> None:
    with pytest.raises(InvalidOption, match=r"endingOffsets.*cannot end at earliest"):
        parsed(endingOffsets=end).batch_end()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingOffsetsByTimestamp", '{"orders": {"0": 5}}'),
        ("endingTimestamp", "5"),
    ],
)
def test_a_stream_has_no_end(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=f"option {name}: "):
        parsed(**{name: value}).stream_start()


# Options without effect


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "5"),
        ("minOffsetsPerTrigger", "5"),
        ("maxTriggerDelay", "1m"),
        ("groupIdPrefix", "spark"),
        ("kafka.group.id", "g"),
    ],
)
def test_a_batch_warns_of_what_sparks_kafka_source_takes_without_effect(
    caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    parsed(**{name: value}).check_batch()
    assert f"option {name} has no effect" in caplog.text


def test_a_batch_commits_to_no_group() -> None:
    with pytest.raises(InvalidOption, match="option commitGroupId: is for streaming queries"):
        TidelogReader(parsed(commitGroupId="g")).partitions()


def test_a_delay_without_a_least_number_of_offsets_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parsed(maxTriggerDelay="1m", minOffsetsPerTrigger="5").check_stream()
    assert not caplog.text
    MicroBatchStream(parsed(maxTriggerDelay="1m"))
    assert "option maxTriggerDelay has no effect without minOffsetsPerTrigger" in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commitGroupId", "g"),
        ("kafkaConsumer.pollTimeoutMs", "1"),
        ("fetchOffset.numRetries", "1"),
        ("fetchOffset.retryIntervalMs", "1"),
        ("groupIdPrefix", "g"),
        ("kafka.bootstrap.servers", "127.0.0.1:9092"),
        ("kafka.security.protocol", "SSL"),
    ],
)
def test_segment_files_refuse_what_asks_a_broker(tmp_path: Path, name: str, value: str) -> None:
    reader = LogReader(source_options({"path": str(tmp_path), name: value}))
    with pytest.raises(InvalidOption, match=f"option {name}: has no effect with path"):
        reader.partitions()


def test_segment_files_are_read_as_the_consumers_settings_say() -> None:
    given = {"kafka.isolation.level": "read_committed", "kafka.check.crcs": "false"}
    source_options({"path": "/data", **given}).check_batch()


def test_a_sink_warns_of_include_headers_once(caplog: pytest.LogCaptureFixture) -> None:
    _warn_of_headers.cache_clear()
    for _ in range(2):
        sink_options({**BROKER, "includeHeaders": "true"})
    assert caplog.text.count("option includeHeaders has no effect on a sink") == 1


@pytest.mark.parametrize("name", ["progressTopic", "driverBytesPerTask"])
def test_a_batch_job_without_a_name_has_no_progress(name: str) -> None:
    given = {**BROKER, "topic": "t", "deliveryGuarantee": "exactly-once", name: "7"}
    with pytest.raises(InvalidOption, match=f"option {name}: .*without txnAppId"):
        TidelogWriter(RowSink(sink_options(given), ["value"]))
    TidelogStreamWriter(RowSink(sink_options(given), ["value"]))
    named = {**given, "txnAppId": "nightly", "txnVersion": "1"}
    TidelogWriter(RowSink(sink_options(named), ["value"]))


def test_start_and_end_must_name_the_same_partitions() -> None:
    with pytest.raises(InvalidOption, match="orders-1"):
        parsed(startingOffsets='{"orders": {"0": 1}}', endingOffsets='{"orders": {"0": 2, "1": 2}}')


def test_a_start_after_its_end_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"5 of orders-0 is after its end, 2"):
        parsed(startingOffsets='{"orders": {"0": 5}}', endingOffsets='{"orders": {"0": 2}}')


def test_latest_as_end_is_after_every_start() -> None:
    options = parsed(startingOffsets='{"orders": {"0": 5}}', endingOffsets='{"orders": {"0": -1}}')
    assert options.batch_end() == SpecificOffsets({TopicPartition("orders", 0): -1})


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("startingOfsets", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("kafka.isolation.levle", "kafka.isolation.level"),
        ("kafa.bootstrap.servers", "kafka.bootstrap.servers"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_known(given: str, nearest: str) -> None:
    with pytest.raises(InvalidOption, match=rf"is unknown; did you mean {re.escape(nearest)}\?"):
        source_options({**BROKER, "subscribe": "orders", given: "1"})


def test_a_sinks_unknown_option_is_refused_and_what_spark_adds_is_not() -> None:
    with pytest.raises(InvalidOption, match=r"option topics: is unknown; did you mean topic\?"):
        sink_options({**BROKER, "topics": "out"})
    with pytest.raises(InvalidOption, match=r"did you mean kafka\.max\.block\.ms\?"):
        sink_options({**BROKER, "kafka.max.blok.ms": "2000"})
    assert sink_options({**BROKER, "checkpointLocation": "/c", "queryName": "q"}).topic is None


def test_without_any_option_the_message_tells_of_create_table() -> None:
    with pytest.raises(InvalidOption, match="TEMPORARY VIEW"):
        source_options({})


def test_segment_files_need_neither_broker_nor_topics() -> None:
    options = source_options({"path": "/data"})
    assert options.path == "/data"
    assert options.subscription is None


def test_the_sinks_topic_is_trimmed_and_may_not_be_empty() -> None:
    assert sink_options({**BROKER, "topic": " out "}).topic == "out"
    assert sink_options(BROKER).topic is None
    with pytest.raises(InvalidOption, match="topic"):
        sink_options({**BROKER, "topic": " "})


def test_keys_of_tls_are_handed_to_the_client() -> None:
    keys = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/client.pem",
        "ssl.key.password": "hush",
    }
    options = parsed(**{f"kafka.{name}": text for name, text in keys.items()})
    assert options.client == {"bootstrap.servers": "127.0.0.1:9092", **keys}


# Delivery


def test_a_sink_writes_at_least_once_unless_it_is_told_otherwise() -> None:
    assert not sink_options(BROKER).is_exactly_once
    options = sink_options({**BROKER, "deliveryGuarantee": " Exactly-Once "})
    assert options.is_exactly_once
    assert options.progress_topic == "_tidelog_spark_progress"
    assert options.driver_bytes_per_task == 1024 * 1024
    assert options.task_producer()["transaction.timeout.ms"] == "900000"


def test_a_batch_job_may_have_a_name_and_a_number() -> None:
    given = {"deliveryGuarantee": "exactly-once", "txnAppId": "nightly", "txnVersion": "0"}
    assert sink_options({**BROKER, **given}).write == ("nightly", 0)


def test_the_timeout_of_transactions_is_the_users() -> None:
    given = {"deliveryGuarantee": "exactly-once", "kafka.transaction.timeout.ms": "30000"}
    assert sink_options({**BROKER, **given}).transaction_timeout_ms == 30_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"deliveryGuarantee": "at-most-once"}, "expected at-least-once or exactly-once"),
        ({"progressTopic": "p"}, "no effect unless deliveryGuarantee is exactly-once"),
        ({"driverBytesPerTask": "9"}, "no effect unless deliveryGuarantee is exactly-once"),
        ({"deliveryGuarantee": "exactly-once", "driverBytesPerTask": "-1"}, "at least 0"),
        ({"deliveryGuarantee": "exactly-once", "kafka.acks": "1"}, r"kafka\.acks: 1 does not go"),
        (
            {"deliveryGuarantee": "exactly-once", "kafka.enable.idempotence": "false"},
            r"kafka\.enable\.idempotence: false does not go with exactly-once",
        ),
        ({"kafka.transactional.id": "mine"}, "the sink makes its own"),
        ({"txnAppId": "a", "txnVersion": "1"}, "no effect unless deliveryGuarantee is exactly"),
        ({"deliveryGuarantee": "exactly-once", "txnAppId": "a"}, "they go together"),
        ({"deliveryGuarantee": "exactly-once", "txnVersion": "1"}, "they go together"),
        (
            {"deliveryGuarantee": "exactly-once", "txnAppId": " ", "txnVersion": "1"},
            "txnAppId: is empty",
        ),
    ],
)
def test_what_does_not_go_with_a_delivery_guarantee_is_refused(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        sink_options({**BROKER, **given})
