"""Operations and resource types as the numbers that handlers ask an authorizer with.

And the sets of operations that make sense for a resource: Metadata, DescribeCluster, DescribeGroups
and others report those of them that the client may do. Bit n of a set stands for operation n.
"""

from __future__ import annotations

from typing import Final

# `tidelog.acls` has the enumerations; compiled modules take in these numbers.
READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
CLUSTER_ACTION: Final = 9
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12
CREATE_TOKENS: Final = 13
DESCRIBE_TOKENS: Final = 14

TOPIC: Final = 2
GROUP: Final = 3
CLUSTER: Final = 4
TRANSACTIONAL_ID: Final = 5
DELEGATION_TOKEN: Final = 6
USER: Final = 7

NOT_REQUESTED: Final = -(2**31)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(
    READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
)
CLUSTER_OPERATIONS: Final = _bits(
    CREATE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
)
GROUP_OPERATIONS: Final = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
GROUP_OPERATIONS_WITHOUT_CONFIGS: Final = _bits(READ, DELETE, DESCRIBE)  # up to Kafka 3.9
