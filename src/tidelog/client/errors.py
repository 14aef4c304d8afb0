"""What the client raises; every message names the broker, topic or partition at fault.

    ClientError
    ├── ConnectionFailed         a broker cannot be reached, or hung up
    ├── TlsFailed                no TLS with a broker: one refuses the other, or it speaks no TLS
    ├── RequestTimedOut          no answer, or no progress, in the time allowed
    │   └── BufferExhausted      no room in buffer.memory within max.block.ms
    ├── UnsupportedByBroker      the broker offers no usable version of an API
    ├── UnreadableAnswer         an answer that is no valid message or has the wrong number
    ├── CorruptRecordsFetched    records that fail their checksum or cannot be decoded
    ├── InvalidRow               a row that no broker would take (topic, partition, column type)
    ├── Serialization            a serializer or deserializer failed
    ├── IllegalState             a call that the state of the client does not allow
    │   └── Closed               the client is closed
    ├── Interrupted              another thread woke a blocking call (`wakeup`)
    ├── NoOffsetForPartition     no committed offset, and auto.offset.reset=none
    ├── LogTruncation            records that were read have gone from the log since
    └── BrokerRefused            a broker answered with an error code, in `code`
        ├── UnknownTopic         3, 100, 103: no such topic or partition, or another of that name
        ├── OffsetOutOfRange     1: a range that the log does not hold
        ├── NotAuthorized        29, 30, 31, 53, 65
        ├── AuthenticationFailed 33, 34, 58: the broker, or the client, does not know the other
        ├── MessageTooLarge      10, 18
        ├── OutOfOrderSequence   45, 59: the broker has lost what this producer wrote before
        ├── ProducerFenced       47, 90: a newer producer has the same transactional id
        ├── TransactionAbortable 120: the transaction can only be aborted
        ├── RebalanceInProgress  27: the group is rebalancing
        ├── UnknownMember        22, 25, 110, 113: the group does not count this member any more
        ├── FencedInstance       82: another member has the same group.instance.id
        ├── CommitFailed         the member was out of its group before its offsets were committed
        └── CommitRefused        an offset commit that the group's coordinator does not take

All of them survive pickling: they are made of a message and a code.
"""

from __future__ import annotations

from tidelog.errors import ErrorCode


class ClientError(Exception):
    """Root of the client's errors. `code` is NONE unless a broker gave one, and `broker_message` is
    then what the broker said, without what the client says about it."""

    broker_message: str | None = None

    def __init__(self, message: str, code: int = ErrorCode.NONE) -> None:
        super().__init__(message, int(code))
        self.message = message
        self.code = error_code(code)

    def __str__(self) -> str:
        return self.message


class ConnectionFailed(ClientError):
    pass


class TlsFailed(ClientError):
    pass


class RequestTimedOut(ClientError):
    pass


class BufferExhausted(RequestTimedOut):
    pass


class UnsupportedByBroker(ClientError):
    pass


class UnreadableAnswer(ClientError):
    pass


class CorruptRecordsFetched(ClientError):
    pass


class InvalidRow(ClientError):
    pass


class Serialization(ClientError):
    pass


class IllegalState(ClientError):
    pass


class Closed(IllegalState):
    pass


class Interrupted(ClientError):
    pass


class NoOffsetForPartition(ClientError):
    pass


class LogTruncation(ClientError):
    pass


class BrokerRefused(ClientError):
    pass


class UnknownTopic(BrokerRefused):
    pass


class OffsetOutOfRange(BrokerRefused):
    pass


class NotAuthorized(BrokerRefused):
    pass


class AuthenticationFailed(BrokerRefused):
    pass


class MessageTooLarge(BrokerRefused):
    pass


class OutOfOrderSequence(BrokerRefused):
    pass


class ProducerFenced(BrokerRefused):
    pass


class TransactionAbortable(BrokerRefused):
    pass


class RebalanceInProgress(BrokerRefused):
    pass


class UnknownMember(BrokerRefused):
    pass


class FencedInstance(BrokerRefused):
    pass


class CommitFailed(BrokerRefused):
    pass


class CommitRefused(BrokerRefused):
    pass


_CLASSES = {
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopic,
    ErrorCode.INCONSISTENT_TOPIC_ID: UnknownTopic,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationFailed,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationFailed,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationFailed,
    ErrorCode.MESSAGE_TOO_LARGE: MessageTooLarge,
    ErrorCode.RECORD_LIST_TOO_LARGE: MessageTooLarge,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequence,
    ErrorCode.UNKNOWN_PRODUCER_ID: OutOfOrderSequence,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFenced,
    ErrorCode.PRODUCER_FENCED: ProducerFenced,
    ErrorCode.TRANSACTION_ABORTABLE: TransactionAbortable,
    ErrorCode.REBALANCE_IN_PROGRESS: RebalanceInProgress,
    ErrorCode.UNKNOWN_MEMBER_ID: UnknownMember,
    ErrorCode.ILLEGAL_GENERATION: UnknownMember,
    ErrorCode.FENCED_MEMBER_EPOCH: UnknownMember,
    ErrorCode.STALE_MEMBER_EPOCH: UnknownMember,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstance,
}


_BY_CODE = {int(code): code for code in ErrorCode}


def error_code(code: int) -> ErrorCode:
    """The code by name; one that this client does not know counts as an unknown server error."""
    return _BY_CODE.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def refused(what: str, code: int, detail: str | None = None) -> BrokerRefused:
    """The error for a code that a broker answered; `what` says what was asked and of whom."""
    known = error_code(code)
    name = known.name if known == code else f"error {code}"
    words = detail or known.text
    error = _CLASSES.get(known, BrokerRefused)(f"{what}: {name}: {words}", code)
    error.broker_message = words
    return error
