"""Where Kafka 3.9 keeps what in ZooKeeper, and the JSON that it writes there.

    /cluster/id                                 {"version":"1","id":...}
    /controller                       ephemeral {"version":2,"brokerid":0,"timestamp":"...",...}
    /controller_epoch                           the number as text
    /brokers/ids/N                    ephemeral version 5: endpoints, rack, features
    /brokers/seqid                              empty; its version numbers brokers without an id
    /brokers/topics/T                           version 3: topic_id, partitions to replicas,
                                                replicas being added and removed
    /brokers/topics/T/partitions/P/state        version 1: leader, leader_epoch, isr
    /config/{topics,brokers,...}/NAME           {"version":1,"config":{...}}
    /config/users/USER                          the same, for SCRAM credentials and quotas
    /config/users/USER/clients/CLIENT           the same, for quotas of both
    /config/{clients,ips}/NAME                  the same, for quotas
    /config/changes/config_change_N             {"version":2,"entity_path":"topics/T"}
    /latest_producer_id_block                   {"version":1,"broker":0,"block_start":"0",...}
    /isr_change_notification/isr_change_N       version 1: partitions (brokers before 2.7)
    /log_dir_event_notification/log_dir_event_N {"version":1,"broker":0,"event":1}
    /admin/delete_topics/T                      empty; a deletion under way
    /admin/reassign_partitions                  version 1: partitions to replicas (before 2.4)
    /admin/preferred_replica_election           version 1: partitions (tools before 2.4)
    /feature                                    version 2: status, features (KIP-584)
    /tidelog/adoption                           tidelog's own, see adoption

Every node is a path function or constant, beside it the encode and decode that are needed. The
bytes are those of Kafka 3.9, down to the order of the fields. Decoding accepts what any Kafka since
0.8 has written; a node that is not JSON of the right shape is a ValueError.

Four fields are tidelog's own; Kafka passes over them. `clean_shutdown` of a broker: whether its
last stop was clean; `min_insync_replicas`: what its server.properties say. `elr` and
`last_known_elr` of a partition's state: its eligible leader replicas (KIP-966) and those that were
eligible, left out while there are none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from tidelog.config.listeners import Endpoint
from tidelog.types import TopicPartition, Uuid

CONSUMERS: Final = "/consumers"
CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE_ID: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
DELETE_TOPICS: Final = "/admin/delete_topics"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
USER_CONFIGS: Final = "/config/users"
CONFIG_CHANGES: Final = "/config/changes"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGE_NOTIFICATIONS: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
FEATURE: Final = "/feature"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
ADOPTION: Final = "/tidelog/adoption"

# Where notifications are made, as sequence nodes.
CONFIG_CHANGE: Final = f"{CONFIG_CHANGES}/config_change_"
LOG_DIR_EVENT: Final = f"{LOG_DIR_EVENTS}/log_dir_event_"

# What a Kafka broker expects to find, or makes, when it starts.
PERSISTENT_PATHS: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGE_NOTIFICATIONS,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    TOPIC_CONFIGS,
    "/config/clients",
    USER_CONFIGS,
    BROKER_CONFIGS,
    "/config/ips",
)


def _encode(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class _Fields(dict[str, Any]):
    def __missing__(self, field: str) -> Any:
        raise ValueError(f"there is no {field} in {dict(self)}")


def _decode(data: bytes) -> dict[str, Any]:
    value = json.loads(str(data, "utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {data!r}")
    return _Fields(value)


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


def encode_broker(
    endpoints: Sequence[Endpoint],
    *,
    timestamp_ms: int,
    rack: str | None = None,
    features: Mapping[str, int] = MappingProxyType({}),
    clean_shutdown: bool | None = None,
    min_insync_replicas: int | None = None,
) -> bytes:
    """Host and port at the top are the first PLAINTEXT endpoint's, for clients of long ago."""
    plaintext = [e for e in endpoints if e.security_protocol == "PLAINTEXT"]
    value: dict[str, object] = {
        "features": {
            name: {"min_version": 1, "max_version": version} for name, version in features.items()
        },
        "listener_security_protocol_map": {e.listener_name: e.security_protocol for e in endpoints},
        "endpoints": [str(endpoint) for endpoint in endpoints],
    }
    if rack is not None:
        value["rack"] = rack
    value |= {
        "jmx_port": -1,
        "port": plaintext[0].port if plaintext else -1,
        "host": plaintext[0].host if plaintext else None,
        "version": 5,
        "timestamp": str(timestamp_ms),
    }
    if clean_shutdown is not None:
        value["clean_shutdown"] = clean_shutdown
    if min_insync_replicas is not None:
        value["min_insync_replicas"] = min_insync_replicas
    return _encode(value)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Broker(NamedTuple):
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    features: Mapping[str, int] = MappingProxyType({})  # to the highest version supported
    clean_shutdown: bool = False
    min_insync_replicas: int | None = None


def decode_broker(data: bytes) -> Broker:
    """Version 1 has no endpoints but a host and a port; 2 and 3 name endpoints by protocol."""
    value = _decode(data)
    protocols = value.get("listener_security_protocol_map", {})
    features = value.get("features") or {}
    endpoints = value.get("endpoints")
    if endpoints is None:
        endpoints = [f"PLAINTEXT://{_bracketed(value['host'])}:{value['port']}"]
    return Broker(
        tuple(_endpoint(text, protocols) for text in endpoints),
        value.get("rack"),
        {name: int(versions["max_version"]) for name, versions in features.items()},
        bool(value.get("clean_shutdown", False)),
        value.get("min_insync_replicas"),
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
    return encode_assignment(TopicAssignment(topic_id, dict(enumerate(assignment))))


class TopicAssignment(NamedTuple):
    topic_id: Uuid | None  # topics made before Kafka 2.8 have none
    partitions: Mapping[int, Sequence[int]]
    # Of partitions whose replicas are being changed.
    adding_replicas: Mapping[int, Sequence[int]] = MappingProxyType({})
    removing_replicas: Mapping[int, Sequence[int]] = MappingProxyType({})


def encode_assignment(assignment: TopicAssignment) -> bytes:
    value: dict[str, object] = {"partitions": _by_partition(assignment.partitions)}
    if assignment.topic_id is not None:
        value["topic_id"] = str(assignment.topic_id)
    value |= {
        "adding_replicas": _by_partition(assignment.adding_replicas),
        "removing_replicas": _by_partition(assignment.removing_replicas),
        "version": 3,
    }
    return _encode(value)


def _by_partition(replicas: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(partition): list(replicas[partition]) for partition in sorted(replicas)}


def decode_topic(data: bytes) -> TopicAssignment:
    value = _decode(data)
    topic_id = value.get("topic_id")
    return TopicAssignment(
        Uuid.parse(topic_id) if topic_id else None,
        *(
            {int(p): replicas for p, replicas in value.get(field, {}).items()}
            for field in ("partitions", "adding_replicas", "removing_replicas")
        ),
    )


class LeaderIsrAndControllerEpoch(NamedTuple):
    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: Sequence[int]
    leader_recovery_state: int = 0  # 1 after an unclean election, until the leader has recovered
    elr: Sequence[int] = ()
    last_known_elr: Sequence[int] = ()


def encode_state(
    leader: int,
    leader_epoch: int,
    controller_epoch: int,
    isr: Sequence[int],
    *,
    leader_recovery_state: int = 0,
    elr: Sequence[int] = (),
    last_known_elr: Sequence[int] = (),
) -> bytes:
    # Written for every partition at each start, so not through the JSON encoder.
    recovery = f'"leader_recovery_state":{leader_recovery_state},' if leader_recovery_state else ""
    eligible = f',"elr":[{",".join(map(str, elr))}]' if elr else ""
    if last_known_elr:
        eligible += f',"last_known_elr":[{",".join(map(str, last_known_elr))}]'
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{leader},"version":1,{recovery}'
        f'"leader_epoch":{leader_epoch},"isr":[{",".join(map(str, isr))}]{eligible}}}'
    ).encode()


def decode_state(data: bytes) -> LeaderIsrAndControllerEpoch:
    value = _decode(data)
    return LeaderIsrAndControllerEpoch(
        value["leader"],
        value["leader_epoch"],
        value["controller_epoch"],
        value["isr"],
        value.get("leader_recovery_state", 0),
        value.get("elr", ()),
        value.get("last_known_elr", ()),
    )


DEFAULT_ENTITY: Final = "<default>"  # in place of a name: for all that have none of their own


def config_path(entity_type: str, name: str) -> str:
    """entity_type is topics, brokers, groups, clients, users or ips; all but the first two
    sanitized.

    A quota of a client of a user has the name USER/clients/CLIENT below users.
    """
    return f"/config/{entity_type}/{name}"


def sanitized(name: str) -> str:
    """The name of the node of a user, client or address, by Kafka's Sanitizer.

    That is Java's URLEncoder but for two signs.
    """
    return quote(name, safe="").replace("~", "%7E")


def desanitized(entity: str) -> str:
    return unquote(entity.replace("+", " "))


def encode_config(config: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    if not data or data.endswith(b'"config":{}}'):  # most topics: not worth the JSON decoder
        return {}
    return {str(key): str(value) for key, value in _decode(data).get("config", {}).items()}


def encode_config_change(entity_type: str, name: str) -> bytes:
    return _encode({"version": 2, "entity_path": f"{entity_type}/{name}"})


def decode_config_change(data: bytes) -> str:
    """What has changed, as `topics/NAME`, `brokers/ID`, `users/USER/clients/CLIENT`, ..."""
    value = _decode(data)
    if value["version"] == 1:
        return f"{value['entity_type']}/{value['entity_name']}"
    if value["version"] != 2:
        raise ValueError(f"not a version that is known: {data!r}")
    return str(value["entity_path"])


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def encode_reassignment(replicas: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    return _encode(
        {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": partition, "replicas": list(target)}
                for (topic, partition), target in replicas.items()
            ],
        }
    )


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    return {
        TopicPartition(row["topic"], row["partition"]): tuple(row["replicas"])
        for row in _decode(data)["partitions"]
    }


def decode_partitions(data: bytes) -> list[TopicPartition]:
    """Of /admin/preferred_replica_election and the nodes below /isr_change_notification."""
    return [TopicPartition(row["topic"], row["partition"]) for row in _decode(data)["partitions"]]


def encode_log_dir_event(broker_id: int) -> bytes:
    return _encode({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes) -> int:
    """The broker that has lost a log directory."""
    return int(_decode(data)["broker"])


def encode_no_features() -> bytes:
    """Versioned features are in use, and none is finalized."""
    return _encode({"features": {}, "version": 2, "status": 1})


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


class AdoptionMark(NamedTuple):
    metadata_log: str  # the fingerprint of what was taken in, empty if there was none
    is_retention_guessed: bool  # nobody has said how long the broker keeps records


def encode_adoption(mark: AdoptionMark) -> bytes:
    return _encode({"version": 1, **mark._asdict()})


def decode_adoption(data: bytes) -> AdoptionMark:
    mark = _decode(data)
    return AdoptionMark(str(mark["metadata_log"]), bool(mark.get("is_retention_guessed")))
