"""How a broker joins the cluster: cluster id, controller, its own registration.

All of it happens once, at start-up, before requests are served. A lone broker is a cluster by
itself (`join_cluster`); one of several finds theirs (`find_cluster`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.config.listeners import Endpoint
from tidelog.controller import znodes
from tidelog.controller.metadata_store import (
    Create,
    MetadataStore,
    NodeExists,
    Operation,
    SetData,
)
from tidelog.errors import StartupError
from tidelog.types import Uuid


class InconsistentClusterId(StartupError):
    """The data directory belongs to another cluster than the metadata store."""


class JoinedCluster(NamedTuple):
    cluster_id: str
    controller_id: int
    controller_epoch: int


def find_cluster(store: MetadataStore, known_cluster_id: str | None) -> str:
    """The id of the cluster in the store, which is founded if there is none yet.

    Several brokers may do this at once: what another one has made meanwhile is as good.
    """
    for path in znodes.PERSISTENT_PATHS:
        _make(store, Create(path, make_parents=True))
    founded = known_cluster_id or str(Uuid.random())
    _make(store, Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(founded), make_parents=True))
    stored = _data_or_none(store, znodes.CLUSTER_ID)
    assert stored is not None
    cluster_id = znodes.decode_cluster_id(stored)
    if known_cluster_id not in (None, cluster_id):
        raise InconsistentClusterId(
            f"the log directories belong to cluster {known_cluster_id}, "
            f"the metadata store to cluster {cluster_id}"
        )
    return cluster_id


def _make(store: MetadataStore, operation: Create) -> None:
    if _data_or_none(store, operation.path) is None:
        with suppress(NodeExists):
            store.multi_now([operation])


def generate_broker_id(store: MetadataStore, reserved_max: int) -> int:
    """A number that no other broker has: the version of /brokers/seqid, above those reserved."""
    outcome = store.multi_now([SetData(znodes.BROKER_SEQUENCE_ID, b"")])[0]
    assert isinstance(outcome, int)
    return reserved_max + outcome


def join_cluster(
    store: MetadataStore, broker_id: int, clock: Clock, *, known_cluster_id: str | None = None
) -> JoinedCluster:
    """Makes what is missing and claims the controller's place if it is free, in one multi.

    known_cluster_id is the data directory's. An empty store takes it over, so that a directory
    keeps its cluster id when it comes from an Apache Kafka.
    """
    operations: list[Operation] = [
        Create(path, make_parents=True)
        for path in znodes.PERSISTENT_PATHS
        if _data_or_none(store, path) is None
    ]
    stored = _data_or_none(store, znodes.CLUSTER_ID)
    if stored is None:
        cluster_id = known_cluster_id or str(Uuid.random())
        operations.append(
            Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id), make_parents=True)
        )
    else:
        cluster_id = znodes.decode_cluster_id(stored)
        if known_cluster_id not in (None, cluster_id):
            raise InconsistentClusterId(
                f"the log directories belong to cluster {known_cluster_id}, "
                f"the metadata store to cluster {cluster_id}"
            )
    controller = _data_or_none(store, znodes.CONTROLLER)
    epoch_data = _data_or_none(store, znodes.CONTROLLER_EPOCH)
    epoch = znodes.decode_controller_epoch(epoch_data) if epoch_data is not None else 0
    if controller is not None:
        controller_id = znodes.decode_controller(controller)
    else:
        controller_id = broker_id
        epoch += 1
        operations += _claim_controller(broker_id, epoch, epoch_data is None, clock.time_ms())
    if operations:
        store.multi_now(operations)
    return JoinedCluster(cluster_id, controller_id, epoch)


def _claim_controller(
    broker_id: int, epoch: int, first: bool, timestamp_ms: int
) -> list[Operation]:
    encoded = znodes.encode_controller_epoch(epoch)
    return [
        Create(znodes.CONTROLLER_EPOCH, encoded)
        if first
        else SetData(znodes.CONTROLLER_EPOCH, encoded),
        Create(
            znodes.CONTROLLER, znodes.encode_controller(broker_id, timestamp_ms), ephemeral=True
        ),
    ]


def register_broker(
    store: MetadataStore,
    broker_id: int,
    endpoints: Sequence[Endpoint],
    clock: Clock,
    *,
    rack: str | None = None,
) -> int:
    """The broker epoch: the zxid that made the registration, as in Kafka."""
    path = znodes.broker_path(broker_id)
    data = znodes.encode_broker(endpoints, timestamp_ms=clock.time_ms(), rack=rack)
    store.multi_now([Create(path, data, ephemeral=True)])
    return next(store.subtree(path))[2].czxid


def _data_or_none(store: MetadataStore, path: str) -> bytes | None:
    return next((data for _, data, _ in store.subtree(path)), None)
