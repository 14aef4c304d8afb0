"""`Admin`: the calls of `AsyncAdmin` for scripts, with the same names and arguments.

with Admin({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
    print(admin.list_topics())
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.config.client import AdminConfig

P = ParamSpec("P")
R = TypeVar("R")


def blocking(
    call: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Admin, P], R]:
    """The same call, which waits for its outcome."""

    @wraps(call)
    def wait(self: Admin, /, *args: P.args, **keywords: P.kwargs) -> R:
        return self.thread.run(lambda: call(self.admin, *args, **keywords))

    return wait


class Admin:
    """For any number of threads. Close it, or use it in a `with`."""

    def __init__(
        self, config: Mapping[str, object] | AdminConfig | None = None, **keywords: object
    ) -> None:
        self.admin = AsyncAdmin(config, **keywords)
        self.thread = LoopThread.shared()

    @property
    def config(self) -> AdminConfig:
        return self.admin.config

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    close = blocking(AsyncAdmin.close)

    alter_client_quotas = blocking(AsyncAdmin.alter_client_quotas)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    alter_group_offsets = blocking(AsyncAdmin.alter_group_offsets)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    alter_replica_log_dirs = blocking(AsyncAdmin.alter_replica_log_dirs)
    alter_user_scram_credentials = blocking(AsyncAdmin.alter_user_scram_credentials)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    create_acls = blocking(AsyncAdmin.create_acls)
    create_delegation_token = blocking(AsyncAdmin.create_delegation_token)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    create_topics = blocking(AsyncAdmin.create_topics)
    delete_acls = blocking(AsyncAdmin.delete_acls)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    delete_records = blocking(AsyncAdmin.delete_records)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    describe_all_topics = blocking(AsyncAdmin.describe_all_topics)
    describe_client_quotas = blocking(AsyncAdmin.describe_client_quotas)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    describe_delegation_token = blocking(AsyncAdmin.describe_delegation_token)
    describe_features = blocking(AsyncAdmin.describe_features)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    describe_quorum = blocking(AsyncAdmin.describe_quorum)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    describe_user_scram_credentials = blocking(AsyncAdmin.describe_user_scram_credentials)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    end_transactions = blocking(AsyncAdmin.end_transactions)
    expire_delegation_token = blocking(AsyncAdmin.expire_delegation_token)
    fence_producers = blocking(AsyncAdmin.fence_producers)
    incremental_alter_configs = blocking(AsyncAdmin.incremental_alter_configs)
    list_config_resources = blocking(AsyncAdmin.list_config_resources)
    list_group_offsets = blocking(AsyncAdmin.list_group_offsets)
    list_groups = blocking(AsyncAdmin.list_groups)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)
    list_topics = blocking(AsyncAdmin.list_topics)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    remove_group_members = blocking(AsyncAdmin.remove_group_members)
    renew_delegation_token = blocking(AsyncAdmin.renew_delegation_token)
    unregister_broker = blocking(AsyncAdmin.unregister_broker)
    update_features = blocking(AsyncAdmin.update_features)
