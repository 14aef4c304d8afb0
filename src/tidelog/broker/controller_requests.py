"""What the handlers of the controller's requests share: who may give orders, and one at a time.

A request is meant for one life of this broker (its broker epoch) and comes from one controller (its
controller epoch). One for an earlier life, or from a controller that has been replaced, is refused:
STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import NO_BROKER_EPOCH

if TYPE_CHECKING:
    from tidelog.broker.cluster import Cluster
    from tidelog.broker.context import RequestContext


def must_be_in_cluster(context: RequestContext) -> Cluster:
    """A lone broker takes no orders."""
    cluster = context.broker.cluster
    if cluster is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker is not part of a cluster.")
    return cluster


def must_obey(cluster: Cluster, controller_epoch: int, broker_epoch: int) -> None:
    must_still_hold(cluster, controller_epoch, broker_epoch)
    cluster.controller_epoch = controller_epoch
    cluster.heard_from_controller(broker_epoch)


def must_still_hold(cluster: Cluster, controller_epoch: int, broker_epoch: int) -> None:
    """While an order is carried out, this broker may begin another life."""
    if broker_epoch != NO_BROKER_EPOCH and broker_epoch < cluster.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    if controller_epoch < cluster.controller_epoch:
        raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
