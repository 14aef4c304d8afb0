"""Every API this broker serves: one row each, the truth for dispatch, ApiVersions and the docs.

A row names the handler's module. That module and the codec of the request are imported with the
first request, so that start-up pays only for what is used.
"""

from __future__ import annotations

from collections.abc import Coroutine
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.registry import request_class

if TYPE_CHECKING:
    from tidelog.broker.context import Answer, Handler, RequestContext
    from tidelog.pending import Pending
    from tidelog.protocol.message import Message


class Api:
    """A row: the key, the versions served, how a request is decoded and who handles it."""

    __slots__ = (
        "decode",
        "handle",
        "handler_module",
        "in_cluster_only",
        "is_telemetry",
        "key",
        "max_version",
        "min_version",
    )

    def __init__(
        self,
        key: ApiKey,
        min_version: int,
        max_version: int,
        handler_module: str,
        *,
        in_cluster_only: bool = False,
        is_telemetry: bool = False,
    ) -> None:
        self.key = key
        self.min_version = min_version
        self.max_version = max_version
        self.in_cluster_only = in_cluster_only  # what brokers ask each other
        self.is_telemetry = is_telemetry  # not advertised where nobody sees what clients push
        self.handler_module = f"tidelog.broker.handlers.{handler_module}"
        # Both load first, and are replaced by what they load.
        self.decode = self._load_and_decode
        self.handle: Handler = self._load_and_handle

    def load(self) -> None:
        self.decode = request_class(self.key).decode
        self.handle = cast("Handler", import_module(self.handler_module).handle)

    def _load_and_decode(self, buffer: memoryview, position: int, version: int) -> Message:
        self.load()
        return self.decode(buffer, position, version)

    def _load_and_handle(
        self, context: RequestContext, request: Message
    ) -> Answer | Pending[Answer] | Coroutine[Any, Any, Answer]:
        self.load()
        return self.handle(context, request)


API_TABLE: Final = (
    Api(ApiKey.PRODUCE, 0, 13, "produce"),
    Api(ApiKey.FETCH, 0, 18, "fetch"),
    Api(ApiKey.LIST_OFFSETS, 0, 11, "list_offsets"),
    Api(ApiKey.METADATA, 0, 13, "metadata"),
    Api(ApiKey.LEADER_AND_ISR, 0, 7, "leader_and_isr", in_cluster_only=True),
    Api(ApiKey.STOP_REPLICA, 0, 4, "stop_replica", in_cluster_only=True),
    Api(ApiKey.UPDATE_METADATA, 5, 8, "update_metadata", in_cluster_only=True),
    Api(ApiKey.CONTROLLED_SHUTDOWN, 0, 3, "controlled_shutdown", in_cluster_only=True),
    Api(ApiKey.OFFSET_COMMIT, 0, 10, "offset_commit"),
    Api(ApiKey.OFFSET_FETCH, 0, 10, "offset_fetch"),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, "find_coordinator"),
    Api(ApiKey.JOIN_GROUP, 0, 9, "join_group"),
    Api(ApiKey.HEARTBEAT, 0, 4, "heartbeat"),
    Api(ApiKey.LEAVE_GROUP, 0, 5, "leave_group"),
    Api(ApiKey.SYNC_GROUP, 0, 5, "sync_group"),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, "describe_groups"),
    Api(ApiKey.LIST_GROUPS, 0, 5, "list_groups"),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, "no_security"),
    Api(ApiKey.API_VERSIONS, 0, 4, "api_versions"),
    Api(ApiKey.CREATE_TOPICS, 0, 7, "create_topics"),
    Api(ApiKey.DELETE_TOPICS, 0, 6, "delete_topics"),
    Api(ApiKey.DELETE_RECORDS, 0, 2, "delete_records"),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, "init_producer_id"),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4, "offset_for_leader_epoch"),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, "add_partitions_to_txn"),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, "add_offsets_to_txn"),
    Api(ApiKey.END_TXN, 0, 5, "end_txn"),
    Api(ApiKey.WRITE_TXN_MARKERS, 0, 2, "write_txn_markers"),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, "txn_offset_commit"),
    Api(ApiKey.DESCRIBE_ACLS, 0, 3, "describe_acls"),
    Api(ApiKey.CREATE_ACLS, 0, 3, "create_acls"),
    Api(ApiKey.DELETE_ACLS, 0, 3, "delete_acls"),
    Api(ApiKey.DESCRIBE_CONFIGS, 0, 4, "describe_configs"),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, "alter_configs"),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 0, 2, "alter_replica_log_dirs"),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 0, 5, "describe_log_dirs"),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2, "no_security"),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, "create_partitions"),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, 0, 3, "create_delegation_token"),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, 0, 2, "renew_delegation_token"),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, 0, 2, "expire_delegation_token"),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, 0, 3, "describe_delegation_token"),
    Api(ApiKey.DELETE_GROUPS, 0, 2, "delete_groups"),
    Api(ApiKey.ELECT_LEADERS, 0, 2, "elect_leaders"),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "incremental_alter_configs"),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, "alter_partition_reassignments"),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, "list_partition_reassignments"),
    Api(ApiKey.OFFSET_DELETE, 0, 0, "offset_delete"),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, "describe_client_quotas"),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, "alter_client_quotas"),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, "describe_user_scram_credentials"),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, "alter_user_scram_credentials"),
    Api(ApiKey.ALTER_PARTITION, 0, 3, "alter_partition", in_cluster_only=True),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "describe_cluster"),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, "describe_producers"),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, "describe_transactions"),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, "list_transactions"),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, "consumer_group_heartbeat"),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, "consumer_group_describe"),
    Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, "get_telemetry_subscriptions", is_telemetry=True),
    Api(ApiKey.PUSH_TELEMETRY, 0, 0, "push_telemetry", is_telemetry=True),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, "list_config_resources"),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "describe_topic_partitions"),
)


def served(*, in_cluster: bool) -> list[Api]:
    return [api for api in API_TABLE if in_cluster or not api.in_cluster_only]
