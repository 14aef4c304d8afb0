"""Becoming the controller: /controller is free, and /controller_epoch grows by one, in one multi.

Who loses the race finds /controller there, or the epoch changed, and is told ControllerMoved.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.clock import Clock
from tidelog.controller import znodes
from tidelog.controller.cluster.fence import ControllerMoved
from tidelog.controller.metadata_store import (
    BadVersion,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    SetData,
)

INITIAL_EPOCH: Final = 0


class Claim(NamedTuple):
    epoch: int
    epoch_version: int  # of /controller_epoch: what the fence checks


async def claim_controller(store: MetadataStore, broker_id: int, clock: Clock) -> Claim:
    epoch, version = await _current_epoch(store)
    claim = Claim(epoch + 1, version + 1)
    controller = znodes.encode_controller(broker_id, clock.time_ms())
    try:
        await store.multi(
            [
                Create(znodes.CONTROLLER, controller, ephemeral=True),
                SetData(
                    znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(claim.epoch), version
                ),
            ]
        )
    except (NodeExists, BadVersion) as error:
        if not await _is_ours(store, claim):
            raise ControllerMoved from error
    return claim


async def _current_epoch(store: MetadataStore) -> tuple[int, int]:
    try:
        data, stat = await store.get(znodes.CONTROLLER_EPOCH)
    except NoNode:
        try:
            encoded = znodes.encode_controller_epoch(INITIAL_EPOCH)
            await store.create(znodes.CONTROLLER_EPOCH, encoded)
        except NodeExists:
            pass
        data, stat = await store.get(znodes.CONTROLLER_EPOCH)
    return znodes.decode_controller_epoch(data), stat.version


async def _is_ours(store: MetadataStore, claim: Claim) -> bool:
    """Whether the claim has gone through after all, its answer having been lost."""
    try:
        _, controller = await store.get(znodes.CONTROLLER)
    except NoNode:
        return False
    _, epoch = await store.get(znodes.CONTROLLER_EPOCH)
    return controller.ephemeral_owner == store.session_id and epoch.version == claim.epoch_version
