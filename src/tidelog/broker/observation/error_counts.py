"""Which errors an answer carries: its own, and those of its rows.

Produce and Fetch count theirs where they make them. For all other answers the dispatcher asks here;
ROWS says where an answer has rows with errors. After ROWS_MAX of them no further topic is looked
at, so that a long answer costs little more than a short one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.observation.request_metrics import ApiMetrics

ROWS_MAX: Final = 100
COUNTED_BY_HANDLER: Final = frozenset((int(ApiKey.PRODUCE), int(ApiKey.FETCH)))
ROWS: Final[dict[int, tuple[str, ...]]] = {
    ApiKey.LIST_OFFSETS: ("topics", "partitions"),
    ApiKey.METADATA: ("topics",),
    ApiKey.OFFSET_COMMIT: ("topics", "partitions"),
    ApiKey.TXN_OFFSET_COMMIT: ("topics", "partitions"),
    ApiKey.OFFSET_FETCH: ("groups",),
    ApiKey.FIND_COORDINATOR: ("coordinators",),
    ApiKey.CREATE_TOPICS: ("topics",),
    ApiKey.DELETE_TOPICS: ("responses",),
    ApiKey.CREATE_PARTITIONS: ("results",),
    ApiKey.DELETE_RECORDS: ("topics", "partitions"),
    ApiKey.DESCRIBE_GROUPS: ("groups",),
    ApiKey.DELETE_GROUPS: ("results",),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("groups",),
    ApiKey.DESCRIBE_CONFIGS: ("results",),
    ApiKey.ALTER_CONFIGS: ("responses",),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("responses",),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("topics", "partitions"),
    ApiKey.DESCRIBE_PRODUCERS: ("topics", "partitions"),
    ApiKey.DESCRIBE_TRANSACTIONS: ("transaction_states",),
}


def count_errors(metrics: ApiMetrics, api_key: int, answer: Any) -> None:
    code = getattr(answer, "error_code", 0)
    if code:
        metrics.failed(code)
        return
    path = ROWS.get(api_key)
    if path is None:
        return
    looked_at = 0
    for outer in getattr(answer, path[0], None) or ():
        for row in (outer,) if len(path) == 1 else getattr(outer, path[1]):
            if row.error_code:
                metrics.failed(row.error_code)
            looked_at += 1
        if looked_at >= ROWS_MAX:
            return
