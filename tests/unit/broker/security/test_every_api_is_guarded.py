"""One row for each API and way of asking: the permissions it needs, and the codes without them.

Each row is asked through its handler in a version, by User:alice of a lone broker. With all its
permissions nothing in the answer says that it is not authorised. Without any one of them something
does, with the code of the row. Permissions are those of Kafka 3.9 (KafkaApis.scala), for the
consumer protocol those of Kafka 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tests.support.raw_batch import batch
from tidelog.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tidelog.broker.api_table import API_TABLE
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.network.session import Principal
from tidelog.pending import Pending
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.header import RequestHeader
from tidelog.protocol.message import Message, Struct
from tidelog.protocol.registry import request_class

Permission = tuple[AclOperation, ResourceType, str]

SETTINGS = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
}
ALICE = Principal("User", "alice")

TOPIC_CODE = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_CODE = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TXN_CODE = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CODES = {
    ResourceType.TOPIC: TOPIC_CODE,
    ResourceType.GROUP: GROUP_CODE,
    ResourceType.CLUSTER: CLUSTER_CODE,
    ResourceType.TRANSACTIONAL_ID: TXN_CODE,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
DENIED = frozenset(CODES.values())

# Nobody needs a permission for these, as in Kafka: they come before anybody is known, are for
# owners and renewers of a delegation token alone, or bring metrics that a subscription asked for.
OPEN = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
# What they leave out of an answer that is no refusal has tests of its own in this directory.
FILTERED = {
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}


class Row(NamedTuple):
    key: ApiKey
    version: int
    request: dict[str, Any]
    needs: tuple[Permission, ...]
    code: ErrorCode | None = None  # where it is not the one of the resource
    title: str = ""


def topic(operation: str, name: str = "t") -> Permission:
    return AclOperation[operation], ResourceType.TOPIC, name


def group(operation: str) -> Permission:
    return AclOperation[operation], ResourceType.GROUP, "g"


def txn(operation: str) -> Permission:
    return AclOperation[operation], ResourceType.TRANSACTIONAL_ID, "x"


def cluster(operation: str) -> Permission:
    return AclOperation[operation], ResourceType.CLUSTER, CLUSTER_NAME


WRITE_TOPIC, READ_TOPIC, SEE_TOPIC = topic("WRITE"), topic("READ"), topic("DESCRIBE")
READ_GROUP, WRITE_TXN = group("READ"), txn("WRITE")


def of(key: ApiKey, struct: str, /, **fields: Any) -> Any:
    """A struct of the module of a request."""
    return getattr(import_module(request_class(key).__module__), struct)(**fields)


def produced(*, transactional: bool) -> dict[str, Any]:
    identity: dict[str, Any] = {}
    if transactional:
        identity = {"attributes": 0x10, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    row = of(
        ApiKey.PRODUCE,
        "PartitionProduceData",
        index=0,
        records=memoryview(bytearray(batch(b"v", **identity))),
    )
    data = of(ApiKey.PRODUCE, "TopicProduceData", name="t", partition_data=[row])
    return {
        "acks": 1,
        "timeout_ms": 100,
        "transactional_id": "x" if transactional else None,
        "topic_data": [data],
    }


def hidden_behind_others() -> dict[str, Any]:
    """The records of a transaction in the second partition (CVE-2018-17196)."""
    first, second = produced(transactional=False), produced(transactional=True)
    (topic_data,) = first["topic_data"]
    (row,) = second["topic_data"][0].partition_data
    row.index = 1
    topic_data.partition_data.append(row)
    return {**second, "topic_data": [topic_data]}


def fetched(**fields: Any) -> dict[str, Any]:
    row = of(ApiKey.FETCH, "FetchPartition", partition=0, partition_max_bytes=100)
    return {
        "max_bytes": 100,
        "topics": [of(ApiKey.FETCH, "FetchTopic", topic="t", partitions=[row])],
        "replica_id": -1,
        **fields,
    }


def rows() -> Iterator[Row]:
    key = ApiKey
    yield Row(key.PRODUCE, 9, produced(transactional=False), (WRITE_TOPIC,))
    yield Row(key.PRODUCE, 9, produced(transactional=True), (WRITE_TXN, WRITE_TOPIC), title="txn")
    request = hidden_behind_others()
    yield Row(key.PRODUCE, 9, request, (WRITE_TXN, WRITE_TOPIC), title="hidden txn")
    yield Row(key.FETCH, 12, fetched(), (READ_TOPIC,))
    follower = fetched(replica_id=1)
    needed = (cluster("CLUSTER_ACTION"),)
    yield Row(key.FETCH, 12, follower, needed, TOPIC_CODE, "forged replica id")
    row = of(key.LIST_OFFSETS, "ListOffsetsPartition", partition_index=0, timestamp=-1)
    asked = {"topics": [of(key.LIST_OFFSETS, "ListOffsetsTopic", name="t", partitions=[row])]}
    yield Row(key.LIST_OFFSETS, 7, {"replica_id": -1, **asked}, (SEE_TOPIC,))
    yield from metadata_rows()
    yield from cluster_rows()
    yield from group_rows()
    yield from txn_rows()
    yield from topic_admin_rows()
    yield from config_rows()


def metadata_rows() -> Iterator[Row]:
    key = ApiKey
    request: dict[str, Any]
    needed: tuple[Permission, ...]
    named = [of(key.METADATA, "MetadataRequestTopic", name="t")]
    yield Row(key.METADATA, 9, {"topics": named}, (SEE_TOPIC,))
    new = [of(key.METADATA, "MetadataRequestTopic", name="new")]
    request = {"topics": new, "allow_auto_topic_creation": True}
    needed = (topic("DESCRIBE", "new"), topic("CREATE", "new"))
    yield Row(key.METADATA, 9, request, needed, title="creates a topic")
    needed = (topic("DESCRIBE", "new"), cluster("CREATE"))
    yield Row(key.METADATA, 9, request, needed, TOPIC_CODE, "creates a topic by the cluster")
    request = {"topics": [of(key.DESCRIBE_TOPIC_PARTITIONS, "TopicRequest", name="t")]}
    request["response_partition_limit"] = 10
    yield Row(key.DESCRIBE_TOPIC_PARTITIONS, 0, request, (SEE_TOPIC,))
    row = of(key.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderPartition", partition=0)
    by_topic = of(key.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderTopic", topic="t", partitions=[row])
    request = {"topics": [by_topic], "replica_id": -1}
    yield Row(key.OFFSET_FOR_LEADER_EPOCH, 4, request, (SEE_TOPIC,))
    needed = (cluster("CLUSTER_ACTION"),)
    yield Row(key.OFFSET_FOR_LEADER_EPOCH, 4, request, needed, TOPIC_CODE, "a broker")
    request = {"topics": [of(key.DESCRIBE_PRODUCERS, "TopicRequest", name="t")]}
    request["topics"][0].partition_indexes = [0]
    yield Row(key.DESCRIBE_PRODUCERS, 0, request, (READ_TOPIC,))


def cluster_rows() -> Iterator[Row]:
    key = ApiKey
    for brokers_only in (
        key.LEADER_AND_ISR,
        key.STOP_REPLICA,
        key.UPDATE_METADATA,
        key.CONTROLLED_SHUTDOWN,
        key.ALTER_PARTITION,
    ):
        version = {key.LEADER_AND_ISR: 7, key.UPDATE_METADATA: 8}.get(brokers_only, 3)
        yield Row(brokers_only, version, {}, (cluster("CLUSTER_ACTION"),))
    marker = of(
        key.WRITE_TXN_MARKERS,
        "WritableTxnMarker",
        producer_id=1,
        topics=[
            of(key.WRITE_TXN_MARKERS, "WritableTxnMarkerTopic", name="no", partition_indexes=[0])
        ],
    )
    for operation in ("CLUSTER_ACTION", "ALTER"):
        needed = (cluster(operation),)
        yield Row(key.WRITE_TXN_MARKERS, 1, {"markers": [marker]}, needed, title=operation)
    yield Row(key.DESCRIBE_LOG_DIRS, 4, {"topics": None}, (cluster("DESCRIBE"),))
    yield Row(key.LIST_CONFIG_RESOURCES, 1, {}, (cluster("DESCRIBE_CONFIGS"),))
    moved = of(key.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirTopic", name="t", partitions=[0])
    to = of(key.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDir", path="/no", topics=[moved])
    yield Row(key.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": [to]}, (cluster("ALTER"),))
    wanted = of(key.ELECT_LEADERS, "TopicPartitions", topic="t", partitions=[0])
    yield Row(key.ELECT_LEADERS, 2, {"topic_partitions": [wanted]}, (cluster("ALTER"),))
    yield Row(key.ALTER_PARTITION_REASSIGNMENTS, 0, {}, (cluster("ALTER"),))
    yield Row(key.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None}, (cluster("DESCRIBE"),))
    yield Row(key.DESCRIBE_CLIENT_QUOTAS, 1, {}, (cluster("DESCRIBE_CONFIGS"),))
    alter = key.ALTER_CLIENT_QUOTAS
    whose = of(alter, "EntityData", entity_type="client-id", entity_name="app")
    quota = of(alter, "OpData", key="producer_byte_rate", value=1.0)
    entry = of(alter, "AlterClientQuotasRequestEntryData", entity=[whose], ops=[quota])
    yield Row(alter, 1, {"entries": [entry]}, (cluster("ALTER_CONFIGS"),))
    yield Row(key.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}, (cluster("DESCRIBE"),))
    scram = key.ALTER_USER_SCRAM_CREDENTIALS
    gone = of(scram, "ScramCredentialDeletion", name="bob", mechanism=1)
    yield Row(scram, 0, {"deletions": [gone]}, (cluster("ALTER"),))
    anything = {"operation": 1, "permission_type": 1, "resource_type_filter": 1}
    yield Row(key.DESCRIBE_ACLS, 3, anything, (cluster("DESCRIBE"),))
    acl = {"resource_name": "other", "principal": "User:bob", "host": "*", "operation": 3}
    creation = of(key.CREATE_ACLS, "AclCreation", resource_type=2, permission_type=3, **acl)
    yield Row(key.CREATE_ACLS, 3, {"creations": [creation]}, (cluster("ALTER"),))
    nothing = {**anything, "principal_filter": "User:nobody"}
    filters = [of(key.DELETE_ACLS, "DeleteAclsFilter", **nothing)]
    yield Row(key.DELETE_ACLS, 3, {"filters": filters}, (cluster("ALTER"),))


def group_rows() -> Iterator[Row]:
    key = ApiKey
    request: dict[str, Any]
    needed: tuple[Permission, ...]
    row = of(key.OFFSET_COMMIT, "OffsetCommitRequestPartition", partition_index=0)
    commit = of(key.OFFSET_COMMIT, "OffsetCommitRequestTopic", name="t", partitions=[row])
    request = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [commit]}
    yield Row(key.OFFSET_COMMIT, 8, request, (READ_GROUP, READ_TOPIC))
    for version in (1, 7):
        wanted = of(key.OFFSET_FETCH, "OffsetFetchRequestTopic", name="t", partition_indexes=[0])
        request = {"group_id": "g", "topics": [wanted]}
        needed = (group("DESCRIBE"), SEE_TOPIC)
        yield Row(key.OFFSET_FETCH, version, request, needed, title=f"v{version}")
    wanted = of(key.OFFSET_FETCH, "OffsetFetchRequestTopics", name="t", partition_indexes=[0])
    one = of(key.OFFSET_FETCH, "OffsetFetchRequestGroup", group_id="g", topics=[wanted])
    needed = (group("DESCRIBE"), SEE_TOPIC)
    yield Row(key.OFFSET_FETCH, 8, {"groups": [one]}, needed, title="v8")
    request = {"key_type": 0, "coordinator_keys": ["g"]}
    yield Row(key.FIND_COORDINATOR, 4, request, (group("DESCRIBE"),), title="group")
    request = {"key_type": 1, "key": "x"}
    yield Row(key.FIND_COORDINATOR, 3, request, (txn("DESCRIBE"),), title="txn")
    request = {"key_type": 2, "coordinator_keys": ["g:id:0"]}
    needed = (cluster("CLUSTER_ACTION"),)
    yield Row(key.FIND_COORDINATOR, 6, request, needed, title="share")
    for member in (key.JOIN_GROUP, key.HEARTBEAT, key.LEAVE_GROUP):
        yield Row(member, 3, {"group_id": "g"}, (READ_GROUP,))
    request = {"group_id": "g", "protocol_type": "p", "protocol_name": "p"}
    yield Row(key.SYNC_GROUP, 5, request, (READ_GROUP,))
    yield Row(key.DESCRIBE_GROUPS, 5, {"groups": ["g"]}, (group("DESCRIBE"),))
    yield Row(key.DELETE_GROUPS, 2, {"groups_names": ["g"]}, (group("DELETE"),))
    row = of(key.OFFSET_DELETE, "OffsetDeleteRequestPartition", partition_index=0)
    wanted = of(key.OFFSET_DELETE, "OffsetDeleteRequestTopic", name="t", partitions=[row])
    request = {"group_id": "g", "topics": [wanted]}
    yield Row(key.OFFSET_DELETE, 0, request, (group("DELETE"), READ_TOPIC))
    request = {"group_id": "g", "member_id": "m", "subscribed_topic_names": ["t"]}
    request |= {"rebalance_timeout_ms": 1000, "topic_partitions": []}
    yield Row(key.CONSUMER_GROUP_HEARTBEAT, 1, request, (READ_GROUP, SEE_TOPIC))
    yield Row(key.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["g"]}, (group("DESCRIBE"),))


def txn_rows() -> Iterator[Row]:
    key = ApiKey
    request: dict[str, Any]
    needed: tuple[Permission, ...]
    for version in (3, 4):
        asked = of(key.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxnTopic", name="t", partitions=[0])
        if version == 3:
            request = {"v3_and_below_transactional_id": "x", "v3_and_below_topics": [asked]}
            needed = (WRITE_TXN, WRITE_TOPIC)
        else:
            one = of(
                key.ADD_PARTITIONS_TO_TXN,
                "AddPartitionsToTxnTransaction",
                transactional_id="x",
                topics=[asked],
            )
            request, needed = {"transactions": [one]}, (cluster("CLUSTER_ACTION"),)
        yield Row(key.ADD_PARTITIONS_TO_TXN, version, request, needed, title=f"v{version}")
    request = {"transactional_id": "x", "group_id": "g"}
    yield Row(key.ADD_OFFSETS_TO_TXN, 3, request, (WRITE_TXN, READ_GROUP))
    yield Row(key.END_TXN, 3, {"transactional_id": "x"}, (WRITE_TXN,))
    row = of(key.TXN_OFFSET_COMMIT, "TxnOffsetCommitRequestPartition", partition_index=0)
    commit = of(key.TXN_OFFSET_COMMIT, "TxnOffsetCommitRequestTopic", name="t", partitions=[row])
    request = {"transactional_id": "x", "group_id": "g", "topics": [commit]}
    yield Row(key.TXN_OFFSET_COMMIT, 3, request, (WRITE_TXN, READ_GROUP, READ_TOPIC))
    request = {"transactional_id": "x", "transaction_timeout_ms": 1000}
    request |= {"producer_id": -1, "producer_epoch": -1}
    yield Row(key.INIT_PRODUCER_ID, 4, request, (WRITE_TXN,), title="txn")
    request = {**request, "transactional_id": None}
    needed = (cluster("IDEMPOTENT_WRITE"),)
    yield Row(key.INIT_PRODUCER_ID, 4, request, needed, title="idempotent")
    needed = (topic("WRITE", "any"),)
    yield Row(key.INIT_PRODUCER_ID, 4, request, needed, CLUSTER_CODE, "some topic")
    request = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    needed = ((AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob"),)
    yield Row(key.CREATE_DELEGATION_TOKEN, 3, request, needed)
    request = {"transactional_ids": ["x"]}
    yield Row(key.DESCRIBE_TRANSACTIONS, 0, request, (txn("DESCRIBE"),))


def topic_admin_rows() -> Iterator[Row]:
    key = ApiKey
    wanted = of(key.CREATE_TOPICS, "CreatableTopic", name="made", num_partitions=1)
    wanted.replication_factor = 1
    request = {"topics": [wanted], "timeout_ms": 9000, "validate_only": True}
    needed = (topic("CREATE", "made"), topic("DESCRIBE_CONFIGS", "made"))
    yield Row(key.CREATE_TOPICS, 7, request, needed)
    needed = (cluster("CREATE"), topic("DESCRIBE_CONFIGS", "made"))
    yield Row(key.CREATE_TOPICS, 7, request, needed, TOPIC_CODE, "by the cluster")
    for name in ("t", "no-such"):
        state = of(key.DELETE_TOPICS, "DeleteTopicState", name=name)
        request = {"topics": [state], "timeout_ms": 9000}
        yield Row(key.DELETE_TOPICS, 6, request, (topic("DELETE", name),), title=name)
    row = of(key.DELETE_RECORDS, "DeleteRecordsPartition", partition_index=0)
    wanted = of(key.DELETE_RECORDS, "DeleteRecordsTopic", name="t", partitions=[row])
    yield Row(key.DELETE_RECORDS, 2, {"topics": [wanted]}, (topic("DELETE"),))
    wanted = of(key.CREATE_PARTITIONS, "CreatePartitionsTopic", name="t", count=2)
    request = {"topics": [wanted], "timeout_ms": 9000, "validate_only": True}
    wanted.assignments = None
    yield Row(key.CREATE_PARTITIONS, 3, request, (topic("ALTER"),))


def config_rows() -> Iterator[Row]:
    key = ApiKey
    resources: tuple[tuple[int, str, Callable[[str], Permission]], ...] = (
        (2, "t", topic),
        (4, "", cluster),
        (8, "0", cluster),
        (32, "g", group),
    )
    for kind, name, permission in resources:
        described = of(
            key.DESCRIBE_CONFIGS,
            "DescribeConfigsResource",
            resource_type=kind,
            resource_name=name,
            configuration_keys=None,
        )
        needed = (permission("DESCRIBE_CONFIGS"),)
        yield Row(key.DESCRIBE_CONFIGS, 4, {"resources": [described]}, needed, title=f"{kind}")
        needed = (permission("ALTER_CONFIGS"),)
        for api in (key.ALTER_CONFIGS, key.INCREMENTAL_ALTER_CONFIGS):
            altered = of(
                api, "AlterConfigsResource", resource_type=kind, resource_name=name, configs=[]
            )
            request = {"resources": [altered], "validate_only": True}
            yield Row(api, 1, request, needed, title=f"{kind}")


ROWS = list(rows())


def codes(value: object) -> Iterator[int]:
    """All error codes anywhere in an answer."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from codes(each)
    elif isinstance(value, Struct):
        for name in value.field_names():
            field = getattr(value, name)
            if name.endswith("error_code"):
                yield field
            else:
                yield from codes(field)


async def ask(stage: HandlerStage, key: ApiKey, version: int, request: Message) -> Any:
    """As the dispatcher asks: what was sent is decoded, so that each row can be asked again."""
    api = next(api for api in API_TABLE if api.key is key)
    api.load()
    sent = memoryview(bytes(request.encode(version)))
    stage.connection.session.principal = ALICE
    header = RequestHeader(key, version, 1, "test", 0)
    context = RequestContext(stage.broker, cast(Any, stage.connection), header)
    answer = api.handle(context, api.decode(sent, 0, version))
    if isinstance(answer, Pending) or asyncio.iscoroutine(answer):
        answer = await asyncio.wait_for(_whole(answer), 60)
    return answer


async def _whole(answer: Any) -> Any:
    return await answer


def grant(stage: HandlerStage, *permissions: Permission, host: str = "*") -> None:
    """These, and nothing else."""
    assert stage.broker.authorizer is not None
    authorizer = stage.broker.authorizer.acls.authorizer
    for pattern in tuple(authorizer.patterns()):
        authorizer.put(pattern, frozenset())
    for operation, kind, name in permissions:
        pattern = ResourcePattern(kind, name, PatternType.LITERAL)
        entry = AccessControlEntry(str(ALICE), host, operation, AclPermission.ALLOW)
        authorizer.put(pattern, authorizer.entries(pattern) | {entry})


async def commit_an_offset(stage: HandlerStage) -> None:
    """Makes the group, which is answered for only if it is there."""
    row = next(row for row in ROWS if row.key is ApiKey.OFFSET_COMMIT)
    grant(stage, *row.needs)
    answer = await ask(stage, row.key, row.version, request_class(row.key)(**row.request))
    assert set(codes(answer)) == {ErrorCode.NONE}


def title(row: Row) -> str:
    return f"{row.key.name} {row.title}".strip()


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_an_api_is_refused_without_any_of_its_permissions_and_served_with_all(
    tmp_path: Path, row: Row
) -> None:
    @in_loop
    async def story() -> None:
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            await stage.topic("t")
            await stage.broker.topics.auto_create("__consumer_offsets")
            await stage.broker.topics.auto_create("__transaction_state")
            await commit_an_offset(stage)
            request = request_class(row.key)(**row.request)
            for missing in row.needs:
                grant(stage, *(each for each in row.needs if each != missing))
                refused = set(codes(await ask(stage, row.key, row.version, request))) & DENIED
                assert refused == {row.code or CODES[missing[1]]}, missing
            grant(stage, *row.needs)
            answer = await ask(stage, row.key, row.version, request)
            assert not set(codes(answer)) & DENIED, answer
            grant(stage, *row.needs, host="192.0.2.1")
            answer = await ask(stage, row.key, row.version, request)
            assert set(codes(answer)) & DENIED, "those are for another host"

    story()


def test_every_api_has_a_row() -> None:
    assert {api.key for api in API_TABLE} == {row.key for row in ROWS} | OPEN | FILTERED


def test_no_permission_of_a_client_opens_what_is_for_brokers(tmp_path: Path) -> None:
    """All rights on all topics, groups and transactional ids, and on the cluster all but one."""

    @in_loop
    async def story() -> None:
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        rights = [(AclOperation.ALL, kind, "*") for kind in kinds]
        rights += [
            cluster(each.name)
            for each in AclOperation
            if each not in (AclOperation.CLUSTER_ACTION, AclOperation.ALL)
        ]
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            await stage.topic("t")
            grant(stage, *rights)
            for row in ROWS:
                if row.needs == (cluster("CLUSTER_ACTION"),) and row.key not in (
                    ApiKey.OFFSET_FOR_LEADER_EPOCH,
                    ApiKey.WRITE_TXN_MARKERS,
                ):
                    request = request_class(row.key)(**row.request)
                    answer = await ask(stage, row.key, row.version, request)
                    assert set(codes(answer)) & DENIED, row

    story()
