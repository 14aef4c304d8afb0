"""The JSON is Kafka 3.9's; the samples are as its tools and brokers write and read them."""

from __future__ import annotations

import json

import pytest

from tidelog.controller import znodes
from tidelog.controller.znodes import Endpoint, PartitionState, ProducerIdBlock
from tidelog.types import TopicPartition, Uuid

TOPIC_ID = Uuid.parse("qaAWHYOVSP-HRC6iO0I1wA")


def test_cluster_id() -> None:
    encoded = znodes.encode_cluster_id("R1CwuFLDT_Ws1G6P3jI_1g")
    assert json.loads(encoded) == {"version": "1", "id": "R1CwuFLDT_Ws1G6P3jI_1g"}
    assert znodes.decode_cluster_id(encoded) == "R1CwuFLDT_Ws1G6P3jI_1g"


def test_controller() -> None:
    encoded = znodes.encode_controller(3, 1700000000000)
    assert json.loads(encoded) == {
        "version": 2,
        "brokerid": 3,
        "timestamp": "1700000000000",
        "kraftControllerEpoch": -1,
    }
    assert znodes.decode_controller(encoded) == 3
    assert znodes.encode_controller_epoch(17) == b"17"
    assert znodes.decode_controller_epoch(b"17") == 17


def test_broker() -> None:
    endpoints = [
        Endpoint("INTERNAL", "10.0.0.1", 9091, "SASL_PLAINTEXT"),
        Endpoint("CLIENTS", "::1", 9092, "PLAINTEXT"),
    ]
    encoded = znodes.encode_broker(endpoints, timestamp_ms=1700000000000, rack="r1")
    assert json.loads(encoded) == {
        "version": 5,
        "host": "::1",
        "port": 9092,
        "endpoints": ["INTERNAL://10.0.0.1:9091", "CLIENTS://[::1]:9092"],
        "jmx_port": -1,
        "timestamp": "1700000000000",
        "listener_security_protocol_map": {"INTERNAL": "SASL_PLAINTEXT", "CLIENTS": "PLAINTEXT"},
        "features": {},
        "rack": "r1",
    }
    assert znodes.decode_broker(encoded) == znodes.Broker(tuple(endpoints), "r1")
    assert znodes.broker_path(7) == "/brokers/ids/7"


def test_topic() -> None:
    encoded = znodes.encode_topic(TOPIC_ID, [[0, 1], [1, 0]])
    assert json.loads(encoded) == {
        "version": 3,
        "topic_id": "qaAWHYOVSP-HRC6iO0I1wA",
        "partitions": {"0": [0, 1], "1": [1, 0]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert znodes.decode_topic(encoded) == (TOPIC_ID, {0: [0, 1], 1: [1, 0]}, {}, {})


def test_a_topic_of_before_topic_ids() -> None:
    decoded = znodes.decode_topic(b'{"version":1,"partitions":{"0":[1]}}')
    assert decoded == (None, {0: [1]}, {}, {})


def test_partition_state() -> None:
    encoded = znodes.encode_state(1, 4, 9, [1, 2])
    assert json.loads(encoded) == {
        "version": 1,
        "leader": 1,
        "leader_epoch": 4,
        "controller_epoch": 9,
        "isr": [1, 2],
    }
    assert znodes.decode_state(encoded) == PartitionState(1, 4, 9, [1, 2])
    assert json.loads(znodes.encode_state(-1, 0, 1, []))["isr"] == []
    assert znodes.state_path("t", 3) == "/brokers/topics/t/partitions/3/state"


def test_config() -> None:
    encoded = znodes.encode_config({"retention.ms": "5000"})
    assert json.loads(encoded) == {"version": 1, "config": {"retention.ms": "5000"}}
    assert znodes.decode_config(encoded) == {"retention.ms": "5000"}
    assert znodes.decode_config(b"") == {}
    assert znodes.config_path("topics", "t") == "/config/topics/t"
    assert json.loads(znodes.encode_config_change("topics", "t")) == {
        "version": 2,
        "entity_path": "topics/t",
    }


def test_producer_id_block() -> None:
    encoded = znodes.encode_producer_id_block(ProducerIdBlock(0, 1000, 1999))
    assert json.loads(encoded) == {
        "version": 1,
        "broker": 0,
        "block_start": "1000",
        "block_end": "1999",
    }
    assert znodes.decode_producer_id_block(encoded) == ProducerIdBlock(0, 1000, 1999)
    assert znodes.decode_producer_id_block(b"") is None


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff"])
def test_what_is_not_a_json_object_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        znodes.decode_topic(data)


def test_a_topic_whose_replicas_are_being_changed() -> None:
    assignment = znodes.TopicAssignment(TOPIC_ID, {0: [3, 1, 2]}, {0: [3]}, {0: [2]})
    encoded = znodes.encode_assignment(assignment)
    assert znodes.decode_topic(encoded) == assignment
    assert json.loads(encoded)["adding_replicas"] == {"0": [3]}


def test_a_state_after_an_unclean_election_and_one_with_eligible_replicas() -> None:
    plain = znodes.encode_state(1, 4, 9, [1])
    assert b"elr" not in plain
    assert b"recovery" not in plain
    encoded = znodes.encode_state(1, 4, 9, [1], leader_recovery_state=1, elr=[2, 3])
    assert znodes.decode_state(encoded) == PartitionState(1, 4, 9, [1], 1, [2, 3])
    assert json.loads(encoded)["leader_recovery_state"] == 1


def test_what_a_broker_announces() -> None:
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")
    encoded = znodes.encode_broker(
        [endpoint], timestamp_ms=0, features={"f": 2}, clean_shutdown=True
    )
    assert json.loads(encoded)["features"] == {"f": {"min_version": 1, "max_version": 2}}
    decoded = znodes.decode_broker(encoded)
    assert (decoded.features, decoded.clean_shutdown) == ({"f": 2}, True)


def test_what_tools_ask_for_and_what_brokers_notify_of() -> None:
    t0 = TopicPartition("t", 0)
    moves = znodes.encode_reassignment({t0: [1, 2]})
    assert json.loads(moves) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}],
    }
    assert znodes.decode_reassignment(moves) == {t0: (1, 2)}
    named = znodes.encode_partitions([t0])
    assert json.loads(named) == {"version": 1, "partitions": [{"topic": "t", "partition": 0}]}
    assert znodes.decode_partitions(named) == [t0]
    lost = znodes.encode_log_dir_event(3)
    assert json.loads(lost) == {"version": 1, "broker": 3, "event": 1}
    assert znodes.decode_log_dir_event(lost) == 3
    assert znodes.decode_config_change(znodes.encode_config_change("topics", "t")) == "topics/t"
    assert json.loads(znodes.encode_no_features()) == {"version": 2, "status": 1, "features": {}}
