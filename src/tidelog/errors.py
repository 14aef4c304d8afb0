"""Kafka's error codes in one table, and the exception that carries one to the edge of a handler."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Name, code, whether a client may retry, and what it means."""

    retriable: bool
    text: str

    def __new__(cls, code: int, retriable: bool, text: str) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.text = text
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member of a code that came over the wire; UNKNOWN_SERVER_ERROR for an unknown one."""
        member = cls._value2member_map_.get(code, cls.UNKNOWN_SERVER_ERROR)
        assert isinstance(member, cls)
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "The server experienced an unexpected error."
    NONE = 0, False, ""
    OFFSET_OUT_OF_RANGE = 1, False, "The requested offset lies outside the log."
    CORRUPT_MESSAGE = (
        2,
        True,
        "The records fail their checksum, have an invalid size or are otherwise corrupt.",
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker does not host the topic-partition."
    INVALID_FETCH_SIZE = 4, False, "The requested fetch size is invalid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = (
        6,
        True,
        "This broker is not the leader (or, for reads, no replica) of the partition.",
    )
    REQUEST_TIMED_OUT = 7, True, "The request timed out."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available for the partition."
    MESSAGE_TOO_LARGE = (
        10,
        False,
        "The request holds a record batch larger than the server accepts.",
    )
    STALE_CONTROLLER_EPOCH = 11, False, "The controller has moved to another broker."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata of the committed offset is too large."
    NETWORK_EXCEPTION = 13, True, "The server disconnected before an answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is loading and cannot serve yet."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator asked for."
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "The topic name is not valid, or the operation is not allowed on it.",
    )
    RECORD_LIST_TOO_LARGE = 18, False, "The records are larger than the log's segment size."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than the topic requires."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The records were appended, but to fewer in-sync replicas than required.",
    )
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, False, "The group generation is not valid."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member's protocols do not fit those of the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "The session timeout lies outside the range the broker allows.",
    )
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: a rejoin is needed."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset commit is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not authorised for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not authorised for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not authorised for the cluster."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp lies outside the allowed range."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The SASL mechanism is not supported."
    ILLEGAL_SASL_STATE = 34, False, "The request is not valid in the present SASL state."
    UNSUPPORTED_VERSION = 35, False, "The version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic with this name already exists."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "The replication factor is below 1 or above the number of brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "The configuration is not valid."
    NOT_CONTROLLER = 41, True, "This broker is not the controller."
    INVALID_REQUEST = 42, False, "The request is malformed or contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        False,
        "The message format of the log does not support the request.",
    )
    POLICY_VIOLATION = 44, False, "The request violates a policy."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The broker received an out-of-order sequence number."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The broker received a duplicate sequence number."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer epoch is older than the broker's."
    INVALID_TXN_STATE = 48, False, "The transaction is in a state that does not allow this."
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        False,
        "The producer id does not belong to the transactional id.",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        False,
        "The transaction timeout exceeds what the broker allows.",
    )
    CONCURRENT_TRANSACTIONS = 51, True, "Another operation on this transaction is under way."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "A newer transaction coordinator has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not authorised for the transactional id."
    SECURITY_DISABLED = 54, False, "Security features are disabled."
    OPERATION_NOT_ATTEMPTED = (
        55,
        False,
        "The operation was not attempted, because one in the same batch failed.",
    )
    KAFKA_STORAGE_ERROR = 56, True, "The log directory of the partition failed."
    LOG_DIR_NOT_FOUND = 57, False, "The log directory is not in the configuration."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker has no state for this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, False, "A partition reassignment is in progress."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The delegation token is not known."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal does not own the delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation tokens cannot be asked for on this channel.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not authorised for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, False, "The group is not empty."
    GROUP_ID_NOT_FOUND = 69, False, "The group id is not known."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The fetch session is not known."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The epoch of the fetch session is not valid."
    LISTENER_NOT_FOUND = (
        72,
        True,
        "The leader has no listener that matches the one the request came by.",
    )
    TOPIC_DELETION_DISABLED = 73, False, "Topic deletion is disabled."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch of the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch of the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        False,
        "The client does not support the compression type of the records.",
    )
    STALE_BROKER_EPOCH = 77, False, "The broker epoch has changed."
    OFFSET_NOT_AVAILABLE = 78, True, "The high watermark has not caught up after a leader election."
    MEMBER_ID_REQUIRED = 79, False, "The member needs an id before it can join."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has its maximum number of members."
    FENCED_INSTANCE_ID = 82, False, "Another member with the same group.instance.id has taken over."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No eligible leader is available."
    ELECTION_NOT_NEEDED = 84, True, "No leader election is needed."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No partition reassignment is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic."
    INVALID_RECORD = 87, False, "A record failed the broker's validation."
    UNSTABLE_OFFSET_COMMIT = 88, True, "There are offsets of an open transaction."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The throttling quota is exceeded."
    PRODUCER_FENCED = 90, False, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, False, "The resource is not known."
    DUPLICATE_RESOURCE = 92, False, "The resource is named twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential is not acceptable."
    INCONSISTENT_VOTER_SET = 94, False, "The voter sets do not agree."
    INVALID_UPDATE_VERSION = 95, False, "The update version is not valid."
    FEATURE_UPDATE_FAILED = 96, False, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "The snapshot is not known."
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This broker does not know the topic id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "The broker id is in use."
    BROKER_ID_NOT_REGISTERED = 102, False, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic id of the log does not match that of the request."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id does not match."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "The transactional id is not known."
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        True,
        "The fetch session mixed requests with and without topic ids.",
    )
    INELIGIBLE_REPLICA = 107, False, "The new in-sync set names a replica that is not eligible."
    NEW_LEADER_ELECTED = 108, False, "The change of the in-sync set led to a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset lies in tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The member epoch is fenced."
    UNRELEASED_INSTANCE_ID = 111, False, "Another member still holds the instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The assignor is not supported by the group."
    STALE_MEMBER_EPOCH = 113, False, "The member epoch is stale."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request reached an endpoint of the wrong type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "The endpoint type is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "The controller id is not known."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The subscription id of the metrics request is not known."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, False, "The controller considered the broker registration invalid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction must be aborted."
    INVALID_RECORD_STATE = 121, False, "The record is in a state that does not allow this."
    SHARE_SESSION_NOT_FOUND = 122, True, "The share session is not known."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The epoch of the share session is not valid."
    FENCED_STATE_EPOCH = 124, False, "The state epoch of the share coordinator is fenced."
    INVALID_VOTER_KEY = 125, False, "The voter key does not match."
    DUPLICATE_VOTER = 126, False, "The voter is already in the set."
    VOTER_NOT_FOUND = 127, False, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client must bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The topology epoch is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The limit of share sessions is reached."


class KafkaError(Exception):
    """A failure that has a Kafka error code; handlers turn it into a field of the response."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.text)
        self.code = code
        self.message = message or code.text


class StartupError(Exception):
    """The broker cannot start; the message is what the operator reads."""
