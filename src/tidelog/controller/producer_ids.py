"""Producer ids that are never handed out twice: blocks of 1000, claimed in the metadata store.

A broker claims the next block at /latest_producer_id_block by a conditional write and hands its
ids out from memory; what is left of a block is lost when the broker stops.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.controller import znodes
from tidelog.controller.metadata_store import (
    BadVersion,
    MetadataStore,
    NodeExists,
    NoNode,
    StoreError,
)
from tidelog.controller.znodes import ProducerIdBlock
from tidelog.errors import ErrorCode, KafkaError

BLOCK_SIZE: Final = 1000


class ProducerIds:
    """Touched only on the broker's loop; any number of callers may wait for the same block."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._last = -1  # of the block in hand
        self._floor = 0  # no id below this is handed out
        self._claim: asyncio.Task[None] | None = None

    def start_above(self, producer_id: int) -> None:
        """For ids found in the logs of a directory whose metadata is not here."""
        self._floor = max(self._floor, producer_id + 1)
        self._next = max(self._next, self._floor)

    async def next(self) -> int:
        while self._next > self._last:
            if self._claim is None:
                self._claim = asyncio.get_running_loop().create_task(self._claim_block())
            try:
                await asyncio.shield(self._claim)
            except StoreError as error:
                raise KafkaError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "No producer id block was to be had."
                ) from error
        self._next += 1
        return self._next - 1

    async def _claim_block(self) -> None:
        try:
            block = await self._claimed_block()
            self._next, self._last = block.first, block.last
        finally:
            self._claim = None

    async def _claimed_block(self) -> ProducerIdBlock:
        while True:
            try:
                data, stat = await self._store.get(znodes.PRODUCER_ID_BLOCK)
            except NoNode:
                data, stat = b"", None
            latest = znodes.decode_producer_id_block(data)
            first = max(latest.last + 1 if latest else 0, self._floor)
            block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
            encoded = znodes.encode_producer_id_block(block)
            try:
                if stat is None:
                    await self._store.create(znodes.PRODUCER_ID_BLOCK, encoded)
                else:
                    await self._store.set(znodes.PRODUCER_ID_BLOCK, encoded, stat.version)
            except (BadVersion, NodeExists, NoNode):
                continue
            return block
