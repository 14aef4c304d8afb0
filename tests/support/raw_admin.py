"""Configs described and changed, records deleted, over one raw connection: codes and rows as
answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka.protocol.admin import (
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

from tests.support.raw_client import RawClient

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Changes = Sequence[tuple[str, int, str | None]]


def describe(
    client: RawClient, kind: int, name: str, keys: Sequence[str] | None = None
) -> tuple[int, dict[str, Any]]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind,
        resource_name=name,
        configuration_keys=None if keys is None else list(keys),
    )
    request = DescribeConfigsRequest(
        version=3, resources=[resource], include_synonyms=True, include_documentation=True
    )
    (result,) = client.call(request).results
    return result.error_code, {row.name: row for row in result.configs}


def value_of(client: RawClient, topic: str, key: str) -> str | None:
    value: str | None = describe(client, TOPIC, topic, [key])[1][key].value
    return value


def incremental(
    client: RawClient, kind: int, name: str, changes: Changes, *, validate_only: bool = False
) -> int:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    rows = [
        resource.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    request = IncrementalAlterConfigsRequest(
        version=1,
        resources=[resource(resource_type=kind, resource_name=name, configs=rows)],
        validate_only=validate_only,
    )
    return int(client.call(request).responses[0].error_code)


def delete_before(
    client: RawClient, topic: str, offset: int, partition: int = 0
) -> tuple[int, int]:
    """DeleteRecords of one partition: error code and low watermark."""
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    row = kind.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        version=1, topics=[kind(name=topic, partitions=[row])], timeout_ms=20_000
    )
    answer = client.call(request).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark
