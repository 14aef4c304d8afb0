"""What can be wrong with a set of records, each with the code Kafka 3.9.2 answers for it.

    KafkaError
    ├── CorruptRecords        2   sizes or checksum do not hold
    ├── InvalidRecords       87   well-formed bytes that break a rule; may name the records
    │   └── NotOneBatch      87   not one v2 batch: refused before a log is asked for
    ├── InvalidTimestamps    32   a record's timestamp lies outside what the topic allows
    ├── RecordsTooLarge      10   above max.message.bytes, or inflating without bound
    ├── BatchAboveSegment    18   a batch above segment.bytes
    ├── UnsupportedCodec     76   the codec is not allowed in this version of the request
    └── UndecodableRecords   -1   compressed data that does not decompress, an unknown codec, or
        │                         a timestamp below -1 in records that must be rewritten
        └── UnknownCodec     -1   in Produce v3-v6: refused before a log is asked for

`RecordsTooLarge` also stands for compression bombs: the Java producer splits such a batch and sends
the halves, so an honest but extremely compressible batch still gets through; the code for an
invalid record would lose it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.errors import ErrorCode, KafkaError


class CorruptRecords(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class InvalidRecords(KafkaError):
    """`record_errors`: (index in the batch, text) of records at fault, for Produce v8 and later."""

    def __init__(self, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.record_errors = tuple(record_errors)


class NotOneBatch(InvalidRecords):
    pass


class InvalidTimestamps(KafkaError):
    def __init__(self, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(ErrorCode.INVALID_TIMESTAMP, message)
        self.record_errors = tuple(record_errors)


class RecordsTooLarge(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class BatchAboveSegment(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.RECORD_LIST_TOO_LARGE, message)


class UnsupportedCodec(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)


class UndecodableRecords(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class UnknownCodec(UndecodableRecords):
    pass
