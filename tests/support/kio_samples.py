"""Requests of the APIs that kafka-python does not know, written and read by kio, another stranger.

Each sample is harmless, as those of `request_samples` are: the member and the group are nobody's.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.index import load_entity_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

MISSING_GROUP = "no-such-group"


@dataclass(frozen=True)
class KioSample:
    api_key: int
    api: str  # kio's name of it
    version: int
    fields: dict[str, Any]
    is_readable: bool = True  # kio refuses the timestamp -1, which Kafka sends with an error

    def frame(self, correlation_id: int, client_id: str) -> bytes:
        """What follows the frame's length."""
        request: Any = load_entity_schema(self.api, self.version, EntityType.request)
        header = request.__header_schema__(
            request_api_key=self.api_key,
            request_api_version=self.version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
        buffer = io.BytesIO()
        entity_writer(type(header))(buffer, header)
        entity_writer(request)(buffer, request(**self.fields))
        return buffer.getvalue()

    def response(self, frame: bytes) -> Any:
        """The answer, every byte of which was read."""
        response: Any = load_entity_schema(self.api, self.version, EntityType.response)
        _, header_size = entity_reader(response.__header_schema__)(frame, 0)
        answer, size = entity_reader(response)(frame, header_size)
        assert header_size + size == len(frame)
        return answer


def kio_samples() -> Iterator[KioSample]:
    for version in (0, 1):
        nobody = {"group_id": MISSING_GROUP, "member_id": "nobody", "member_epoch": 7}
        nobody["topic_partitions"] = None
        yield KioSample(68, "consumer_group_heartbeat", version, nobody)
        described = {"group_ids": (MISSING_GROUP,), "include_authorized_operations": False}
        yield KioSample(69, "consumer_group_describe", version, described)
    yield from _token_samples()
    yield from _telemetry_samples()


def _telemetry_samples() -> Iterator[KioSample]:
    """Of a client without an id, so that nothing is kept of it."""
    nobody = UUID(int=0)
    yield KioSample(71, "get_telemetry_subscriptions", 0, {"client_instance_id": nobody})
    pushed = {"subscription_id": 0, "terminating": True, "compression_type": 0, "metrics": b""}
    yield KioSample(72, "push_telemetry", 0, {"client_instance_id": nobody, **pushed})


def _token_samples() -> Iterator[KioSample]:
    """From v1 on: kio knows no older ones."""
    day = timedelta(days=1)
    for version in (1, 2, 3):
        created: dict[str, Any] = {"renewers": (), "max_lifetime": day}
        if version > 2:
            created |= {"owner_principal_type": "User", "owner_principal_name": "nobody"}
        yield KioSample(38, "create_delegation_token", version, created, is_readable=False)
        yield KioSample(41, "describe_delegation_token", version, {"owners": None})
    for version in (1, 2):
        renewed = {"hmac": b"none", "renew_period": day}
        yield KioSample(39, "renew_delegation_token", version, renewed, is_readable=False)
        expired = {"hmac": b"none", "expiry_time_period": day}
        yield KioSample(40, "expire_delegation_token", version, expired, is_readable=False)
