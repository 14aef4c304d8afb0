"""Whether a partition may take records of a transaction (KIP-890).

A partition without an open transaction of the producer asks the coordinator first, so that no late
request opens a transaction that nobody ends. What happens then depends on the request's version:

    Produce    TxnOffsetCommit   the coordinator
    v0-v10     v0-v3             verifies; a partition not added is 48 INVALID_TXN_STATE
    v11        v4                verifies; 120 TRANSACTION_ABORTABLE
    v12+       v5+               adds the partition (transaction.version 2)

PRODUCER_FENCED, which old clients do not expect here, becomes INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.coordinator.txn.coordinator import TransactionCoordinator
    from tidelog.pending import Pending
    from tidelog.types import TopicPartition


class Admission(Enum):
    VERIFY_FOR_OLD_CLIENT = 0
    VERIFY = 1
    ADD = 2

    @classmethod
    def of(cls, version: int, first_verifying: int) -> Admission:
        """`first_verifying` is the first version that knows TRANSACTION_ABORTABLE."""
        if version < first_verifying:
            return cls.VERIFY_FOR_OLD_CLIENT
        return cls.VERIFY if version == first_verifying else cls.ADD


class Admitted(NamedTuple):
    refused: dict[TopicPartition, ErrorCode]
    written: Pending[ErrorCode] | None  # to be waited for before anything is appended


def admit(
    coordinator: TransactionCoordinator,
    admission: Admission,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
) -> Admitted:
    try:
        if admission is Admission.ADD:
            written = coordinator.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions
            )
            return Admitted({}, written)
        if not coordinator.settings.verifies_partitions:
            return Admitted({}, None)
        missing = coordinator.partitions_missing(
            transactional_id, producer_id, producer_epoch, partitions
        )
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return Admitted(dict.fromkeys(partitions, code), None)
    not_added = (
        ErrorCode.INVALID_TXN_STATE
        if admission is Admission.VERIFY_FOR_OLD_CLIENT
        else ErrorCode.TRANSACTION_ABORTABLE
    )
    return Admitted(dict.fromkeys(missing, not_added), None)
