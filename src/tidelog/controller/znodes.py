"""Where Kafka 3.9 keeps what in ZooKeeper, and the JSON that it writes there.

    /cluster/id                                 {"version":"1","id":...}
    /controller                       ephemeral {"version":2,"brokerid":0,"timestamp":"...",...}
    /controller_epoch                           the number as text
    /brokers/ids/N                    ephemeral version 5: endpoints, rack, features
    /brokers/topics/T                           version 3: topic_id, partitions to replicas
    /brokers/topics/T/partitions/P/state        version 1: leader, leader_epoch, isr
    /config/{topics,brokers,...}/NAME           {"version":1,"config":{...}}
    /latest_producer_id_block                   {"version":1,"broker":0,"block_start":"0",...}
    /admin/delete_topics/T                      a deletion under way

Every node is a path function or constant with its encode and decode beside it. Decoding accepts
what any Kafka since 2.8 has written; a node that is not JSON of the right shape is a ValueError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidelog.types import Uuid

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE_ID: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
DELETE_TOPICS: Final = "/admin/delete_topics"
TOPIC_CONFIGS: Final = "/config/topics"
CONFIG_CHANGES: Final = "/config/changes"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

# What a Kafka broker expects to find, or makes, when it starts.
PERSISTENT_PATHS: Final = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    "/isr_change_notification",
    PRODUCER_ID_BLOCK,
    "/log_dir_event_notification",
    TOPIC_CONFIGS,
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)


def _encode(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    value = json.loads(str(data, "utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {data!r}")
    return value


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(_decode(data)["id"])


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return _encode(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": -1,
        }
    )


def decode_controller(data: bytes) -> int:
    """The controller's broker id."""
    return int(_decode(data)["brokerid"])


def encode_controller_epoch(epoch: int) -> bytes:
    return b"%d" % epoch


def decode_controller_epoch(data: bytes) -> int:
    return int(data)


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


class Endpoint(NamedTuple):
    """Where clients are told to connect."""

    listener_name: str
    host: str
    port: int
    security_protocol: str


def encode_broker(
    endpoints: Sequence[Endpoint], *, timestamp_ms: int, rack: str | None = None
) -> bytes:
    """Host and port at the top are the first PLAINTEXT endpoint's, for clients of long ago."""
    plaintext = [e for e in endpoints if e.security_protocol == "PLAINTEXT"]
    value: dict[str, object] = {
        "version": 5,
        "host": plaintext[0].host if plaintext else None,
        "port": plaintext[0].port if plaintext else -1,
        "endpoints": [f"{e.listener_name}://{_bracketed(e.host)}:{e.port}" for e in endpoints],
        "jmx_port": -1,
        "timestamp": str(timestamp_ms),
        "listener_security_protocol_map": {e.listener_name: e.security_protocol for e in endpoints},
        "features": {},
    }
    if rack is not None:
        value["rack"] = rack
    return _encode(value)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Broker(NamedTuple):
    endpoints: tuple[Endpoint, ...]
    rack: str | None


def decode_broker(data: bytes) -> Broker:
    value = _decode(data)
    protocols = value.get("listener_security_protocol_map", {})
    return Broker(
        tuple(_endpoint(text, protocols) for text in value["endpoints"]), value.get("rack")
    )


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(name, host.strip("[]"), int(port), protocols.get(name, name))


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def encode_topic(topic_id: Uuid, assignment: Sequence[Sequence[int]]) -> bytes:
    """The assignment lists the replicas of partition 0, 1, ..."""
    return _encode(
        {
            "version": 3,
            "topic_id": str(topic_id),
            "partitions": {str(p): list(replicas) for p, replicas in enumerate(assignment)},
            "adding_replicas": {},
            "removing_replicas": {},
        }
    )


class TopicAssignment(NamedTuple):
    topic_id: Uuid | None  # topics made before Kafka 2.8 have none
    partitions: dict[int, list[int]]


def decode_topic(data: bytes) -> TopicAssignment:
    value = _decode(data)
    topic_id = value.get("topic_id")
    return TopicAssignment(
        Uuid.parse(topic_id) if topic_id else None,
        {int(p): replicas for p, replicas in value.get("partitions", {}).items()},
    )


class PartitionState(NamedTuple):
    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: list[int]


def encode_state(
    leader: int, leader_epoch: int, controller_epoch: int, isr: Sequence[int]
) -> bytes:
    # Written for every partition at each start, so not through the JSON encoder.
    return (
        f'{{"version":1,"leader":{leader},"leader_epoch":{leader_epoch},'
        f'"controller_epoch":{controller_epoch},"isr":[{",".join(map(str, isr))}]}}'
    ).encode()


def decode_state(data: bytes) -> PartitionState:
    value = _decode(data)
    return PartitionState(
        value["leader"], value["leader_epoch"], value["controller_epoch"], value["isr"]
    )


def config_path(entity_type: str, name: str) -> str:
    """entity_type is topics, brokers, clients, users or ips."""
    return f"/config/{entity_type}/{name}"


def encode_config(config: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    if not data or data.endswith(b'"config":{}}'):  # most topics: not worth the JSON decoder
        return {}
    return dict(_decode(data).get("config", {}))


def encode_config_change(entity_type: str, name: str) -> bytes:
    return _encode({"version": 2, "entity_path": f"{entity_type}/{name}"})


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


class ProducerIdBlock(NamedTuple):
    broker_id: int
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return _encode(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock | None:
    """None if no block has been handed out: Kafka makes the node empty."""
    if not data:
        return None
    value = _decode(data)
    return ProducerIdBlock(value["broker"], int(value["block_start"]), int(value["block_end"]))
