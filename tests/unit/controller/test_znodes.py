"""The bytes are what Apache Kafka 3.9.2 writes, taken from its own encoders and from clusters that
it ran; the older versions likewise, with an older inter.broker.protocol.version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.config.listeners import Endpoint
from tidelog.controller import znodes
from tidelog.controller.znodes import (
    LeaderIsrAndControllerEpoch,
    ProducerIdBlock,
    TopicAssignment,
)
from tidelog.types import TopicPartition, Uuid

TOPIC_ID = Uuid.parse("qaAWHYOVSP-HRC6iO0I1wA")
PARTITIONS = [TopicPartition("t", 0), TopicPartition("u", 3)]
ENDPOINTS = (
    Endpoint("INTERNAL", "10.0.0.1", 9091, "SASL_PLAINTEXT"),
    Endpoint("CLIENTS", "::1", 9092, "PLAINTEXT"),
)


def test_cluster_id() -> None:
    encoded = znodes.encode_cluster_id("R1CwuFLDT_Ws1G6P3jI_1g")
    assert encoded == b'{"version":"1","id":"R1CwuFLDT_Ws1G6P3jI_1g"}'
    assert znodes.decode_cluster_id(encoded) == "R1CwuFLDT_Ws1G6P3jI_1g"


def test_controller() -> None:
    encoded = znodes.encode_controller(3, 1700000000000)
    assert encoded == (
        b'{"version":2,"brokerid":3,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
    )
    assert znodes.decode_controller(encoded) == 3
    assert znodes.decode_controller(b'{"version":1,"brokerid":4,"timestamp":"17"}') == 4


def test_controller_epoch() -> None:
    assert znodes.encode_controller_epoch(17) == b"17"
    assert znodes.decode_controller_epoch(b"17") == 17


class TestBroker:
    def test_as_it_is_written(self) -> None:
        encoded = znodes.encode_broker(
            ENDPOINTS, timestamp_ms=1700000000000, rack="r1", features={"metadata.version": 21}
        )
        assert encoded == (
            b'{"features":{"metadata.version":{"min_version":1,"max_version":21}},'
            b'"listener_security_protocol_map":{"INTERNAL":"SASL_PLAINTEXT","CLIENTS":"PLAINTEXT"},'
            b'"endpoints":["INTERNAL://10.0.0.1:9091","CLIENTS://[::1]:9092"],"rack":"r1",'
            b'"jmx_port":-1,"port":9092,"host":"::1","version":5,"timestamp":"1700000000000"}'
        )
        assert znodes.decode_broker(encoded) == (
            ENDPOINTS,
            "r1",
            {"metadata.version": 21},
            False,
            None,
        )

    def test_without_rack_and_without_a_plaintext_endpoint(self) -> None:
        encoded = znodes.encode_broker(ENDPOINTS[:1], timestamp_ms=1700000000000)
        assert encoded == (
            b'{"features":{},"listener_security_protocol_map":{"INTERNAL":"SASL_PLAINTEXT"},'
            b'"endpoints":["INTERNAL://10.0.0.1:9091"],"jmx_port":-1,"port":-1,"host":null,'
            b'"version":5,"timestamp":"1700000000000"}'
        )
        assert znodes.decode_broker(encoded) == (ENDPOINTS[:1], None, {}, False, None)

    def test_its_own_fields_say_how_it_stopped_and_what_it_has_for_enough(self) -> None:
        encoded = znodes.encode_broker(
            ENDPOINTS, timestamp_ms=1, clean_shutdown=True, min_insync_replicas=2
        )
        own = b',"clean_shutdown":true,"min_insync_replicas":2}'
        assert encoded.endswith(b',"timestamp":"1"' + own)
        assert znodes.decode_broker(encoded).min_insync_replicas == 2
        assert znodes.decode_broker(encoded).clean_shutdown

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (
                b'{"jmx_port":-1,"timestamp":"1","host":"h1","version":1,"port":9092}',
                ((Endpoint("PLAINTEXT", "h1", 9092, "PLAINTEXT"),), None),
            ),
            (
                b'{"endpoints":["PLAINTEXT://h1:9092","SSL://h1:9093"],"jmx_port":-1,"port":9092,'
                b'"host":"h1","version":2,"timestamp":"1"}',
                (
                    (
                        Endpoint("PLAINTEXT", "h1", 9092, "PLAINTEXT"),
                        Endpoint("SSL", "h1", 9093, "SSL"),
                    ),
                    None,
                ),
            ),
            (
                b'{"endpoints":["PLAINTEXT://[::1]:9092"],"rack":"r1","jmx_port":-1,"port":9092,'
                b'"host":"::1","version":3,"timestamp":"1"}',
                ((Endpoint("PLAINTEXT", "::1", 9092, "PLAINTEXT"),), "r1"),
            ),
            (
                b'{"listener_security_protocol_map":{"INTERNAL":"SASL_PLAINTEXT","CLIENTS":'
                b'"PLAINTEXT"},"endpoints":["INTERNAL://10.0.0.1:9091","CLIENTS://[::1]:9092"],'
                b'"rack":"r1","jmx_port":-1,"port":9092,"host":"::1","version":4,"timestamp":"1"}',
                (ENDPOINTS, "r1"),
            ),
        ],
        ids=["v1", "v2", "v3", "v4"],
    )
    def test_of_an_older_kafka(self, data: bytes, expected: tuple[Any, ...]) -> None:
        assert znodes.decode_broker(data)[:2] == expected

    def test_path(self) -> None:
        assert znodes.broker_path(7) == "/brokers/ids/7"


class TestTopic:
    def test_with_a_reassignment_under_way(self) -> None:
        assignment = TopicAssignment(TOPIC_ID, {0: [1, 2, 3], 1: [1, 2, 3]}, {0: [3]}, {0: [1]})
        encoded = znodes.encode_assignment(assignment)
        assert encoded == (
            b'{"partitions":{"0":[1,2,3],"1":[1,2,3]},"topic_id":"qaAWHYOVSP-HRC6iO0I1wA",'
            b'"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}'
        )
        assert znodes.decode_topic(encoded) == assignment

    def test_as_it_is_created(self) -> None:
        encoded = znodes.encode_topic(TOPIC_ID, [[2, 1], [1, 2]])
        assert encoded == (
            b'{"partitions":{"0":[2,1],"1":[1,2]},"topic_id":"qaAWHYOVSP-HRC6iO0I1wA",'
            b'"adding_replicas":{},"removing_replicas":{},"version":3}'
        )

    @pytest.mark.parametrize(
        "data",
        [
            b'{"version":1,"partitions":{"0":[1]}}',
            b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}',
            b'{"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{},"version":3}',
        ],
    )
    def test_of_before_topic_ids(self, data: bytes) -> None:
        assert znodes.decode_topic(data) == (None, {0: [1]}, {}, {})

    def test_paths(self) -> None:
        assert znodes.topic_path("t") == "/brokers/topics/t"
        assert znodes.state_path("t", 3) == "/brokers/topics/t/partitions/3/state"
        assert znodes.delete_topic_path("t") == "/admin/delete_topics/t"


class TestPartitionState:
    def test_as_it_is_written(self) -> None:
        encoded = znodes.encode_state(1, 4, 9, [1, 2])
        assert encoded == (
            b'{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}'
        )
        assert znodes.decode_state(encoded) == LeaderIsrAndControllerEpoch(1, 4, 9, [1, 2])

    def test_after_an_unclean_election(self) -> None:
        encoded = znodes.encode_state(1, 4, 9, [1], leader_recovery_state=1)
        assert encoded == (
            b'{"controller_epoch":9,"leader":1,"version":1,"leader_recovery_state":1,'
            b'"leader_epoch":4,"isr":[1]}'
        )
        assert znodes.decode_state(encoded) == LeaderIsrAndControllerEpoch(1, 4, 9, [1], 1)

    def test_without_a_leader(self) -> None:
        state = znodes.decode_state(znodes.encode_state(-1, 0, 1, []))
        assert state == LeaderIsrAndControllerEpoch(-1, 0, 1, [])

    def test_its_own_field_holds_the_eligible_leader_replicas(self) -> None:
        encoded = znodes.encode_state(1, 4, 9, [1], elr=[2, 3], last_known_elr=[4])
        assert encoded.endswith(b',"isr":[1],"elr":[2,3],"last_known_elr":[4]}')
        assert znodes.decode_state(encoded).elr == [2, 3]
        assert znodes.decode_state(encoded).last_known_elr == [4]


class TestConfig:
    def test_as_it_is_written(self) -> None:
        encoded = znodes.encode_config({"cleanup.policy": "compact", "retention.ms": "5000"})
        assert encoded == (
            b'{"version":1,"config":{"cleanup.policy":"compact","retention.ms":"5000"}}'
        )
        assert znodes.decode_config(encoded) == {
            "cleanup.policy": "compact",
            "retention.ms": "5000",
        }

    @pytest.mark.parametrize("data", [b"", b'{"version":1,"config":{}}', b'{"version":1}'])
    def test_without_any(self, data: bytes) -> None:
        assert znodes.decode_config(data) == {}
        assert znodes.encode_config({}) == b'{"version":1,"config":{}}'

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            (znodes.config_path("topics", "t"), "/config/topics/t"),
            (znodes.config_path("brokers", znodes.DEFAULT_ENTITY), "/config/brokers/<default>"),
            (znodes.config_path("clients", "c%201"), "/config/clients/c%201"),
            (
                znodes.config_path("users", f"bob/clients/{znodes.DEFAULT_ENTITY}"),
                "/config/users/bob/clients/<default>",
            ),
        ],
    )
    def test_path(self, path: str, expected: str) -> None:
        assert path == expected

    def test_notification(self) -> None:
        encoded = znodes.encode_config_change("topics", "t")
        assert encoded == b'{"version":2,"entity_path":"topics/t"}'
        assert znodes.decode_config_change(encoded) == "topics/t"
        assert znodes.CONFIG_CHANGE == "/config/changes/config_change_"

    def test_notification_of_an_older_kafka(self) -> None:
        data = b'{"version":1,"entity_type":"clients","entity_name":"c1"}'
        assert znodes.decode_config_change(data) == "clients/c1"


def test_producer_id_block() -> None:
    encoded = znodes.encode_producer_id_block(ProducerIdBlock(0, 1000, 1999))
    assert encoded == b'{"version":1,"broker":0,"block_start":"1000","block_end":"1999"}'
    assert znodes.decode_producer_id_block(encoded) == ProducerIdBlock(0, 1000, 1999)
    assert znodes.decode_producer_id_block(b"") is None


def test_partitions_of_a_change_of_isrs_or_of_a_preferred_election() -> None:
    data = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":3}]}'
    assert znodes.decode_partitions(data) == PARTITIONS
    assert znodes.ISR_CHANGE_NOTIFICATIONS == "/isr_change_notification"
    assert znodes.PREFERRED_REPLICA_ELECTION == "/admin/preferred_replica_election"


def test_reassignment() -> None:
    replicas = dict(zip(PARTITIONS, [(1, 2), (3,)], strict=True))
    encoded = znodes.encode_reassignment(replicas)
    assert encoded == (
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]},'
        b'{"topic":"u","partition":3,"replicas":[3]}]}'
    )
    assert znodes.decode_reassignment(encoded) == replicas


def test_log_dir_event() -> None:
    encoded = znodes.encode_log_dir_event(3)
    assert encoded == b'{"version":1,"broker":3,"event":1}'
    assert znodes.decode_log_dir_event(encoded) == 3
    assert znodes.LOG_DIR_EVENT == "/log_dir_event_notification/log_dir_event_"


def test_that_no_feature_is_finalized() -> None:
    assert znodes.encode_no_features() == b'{"features":{},"version":2,"status":1}'


def test_text_beyond_ascii_is_utf8_and_not_escaped() -> None:
    assert znodes.encode_config({"é": "ü"}) == '{"version":1,"config":{"é":"ü"}}'.encode()


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff"])
def test_what_is_not_a_json_object_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        znodes.decode_topic(data)


@pytest.mark.parametrize(
    "decode",
    [
        znodes.decode_cluster_id,
        znodes.decode_controller,
        znodes.decode_broker,
        znodes.decode_state,
        znodes.decode_config_change,
        znodes.decode_producer_id_block,
        znodes.decode_partitions,
        znodes.decode_reassignment,
        znodes.decode_log_dir_event,
    ],
)
def test_an_object_of_another_shape_is_a_value_error(decode: Callable[[bytes], object]) -> None:
    with pytest.raises(ValueError, match="there is no"):
        decode(b'{"elephants":1}')
