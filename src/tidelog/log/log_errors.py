"""What can go wrong in a log, as seen by its callers.

KafkaError
├── OffsetOutOfRange          1   the offset lies below log start or above log end
├── StorageError             56   an I/O error; nothing half-written stays behind
├── UnexpectedAppendOffset   -1   a follower was given batches that do not continue its log
├── OutOfOrderSequence       45
├── InvalidProducerEpoch     47
├── InvalidTxnState          48
└── CoordinatorFenced        52
StartupError
├── DirectoryLocked               another process holds the .lock of a log directory
├── StrayFolder                   a folder that is no topic-partition
├── CorruptMetaProperties
└── CorruptCheckpoint
Exception
├── CleaningAborted               how a cleaning ends before its time
└── CannotClean
"""

from __future__ import annotations

from tidelog.errors import ErrorCode, KafkaError, StartupError


class OffsetOutOfRange(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


class StorageError(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class UnexpectedAppendOffset(KafkaError):
    """`first_offset` lets the fetcher restart an empty log there."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class OutOfOrderSequence(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)


class InvalidProducerEpoch(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_PRODUCER_EPOCH, message)


class InvalidTxnState(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, message)


class CoordinatorFenced(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)


class DirectoryLocked(StartupError):
    pass


class StrayFolder(StartupError):
    pass


class CorruptMetaProperties(StartupError):
    pass


class CorruptCheckpoint(StartupError):
    pass


class CleaningAborted(Exception):
    """The log was deleted, truncated or taken offline, or the cleaner stops: nothing is wrong."""


class CannotClean(Exception):
    """The log holds what the cleaner cannot read; it stays as it is."""
