"""Metadata logs of KRaft made by hand, for what the recorded ones of Apache Kafka do not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidelog.acls import AclBinding
from tidelog.controller.kraft.cluster_image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from tidelog.controller.kraft.metadata_log import ControlType, MetadataLog
from tidelog.protocol.message import Message
from tidelog.protocol.messages.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from tidelog.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    PartitionRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from tidelog.protocol.primitives import encode_uvarint
from tidelog.record.builder import batch_of
from tidelog.types import Uuid

NOW_MS = 1_700_000_000_000


def framed(message: Message, version: int | None = None) -> bytes:
    version = message.MAX_VERSION if version is None else version
    return raw_record(message.RECORD_TYPE, version, bytes(message.encode(version)))


def raw_record(record_type: int, version: int, body: bytes, *, frame_version: int = 1) -> bytes:
    numbers = (frame_version, record_type, version)
    return b"".join(map(encode_uvarint, numbers)) + body


def topic(
    name: str,
    topic_id: Uuid,
    replicas: Sequence[Sequence[int]] = ((1,),),
    *,
    directories: Sequence[Uuid] | None = None,
    leader_epoch: int = 0,
    **configs: str,
) -> list[bytes]:
    """The records that make a topic; configs with underscores for dots."""
    rows = [framed(TopicRecord(name=name, topic_id=topic_id))]
    for number, brokers in enumerate(replicas):
        partition = PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=list(brokers),
            isr=list(brokers),
            leader=brokers[0],
            leader_epoch=leader_epoch,
            partition_epoch=0,
            directories=list(directories or ()),
        )
        rows.append(framed(partition))
    for key, value in configs.items():
        rows.append(config(name, key.replace("_", "."), value))
    return rows


def config(name: str, key: str, value: str | None, kind: int = TOPIC_RESOURCE) -> bytes:
    return framed(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))


def broker_config(name: str, key: str, value: str | None) -> bytes:
    return config(name, key, value, BROKER_RESOURCE)


def acl_record(entry_id: Uuid, binding: AclBinding) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=entry_id,
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def scram_record(user: str, mechanism: int, iterations: int = 4096) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=b"salt",
        stored_key=b"stored",
        server_key=b"server",
        iterations=iterations,
    )


def quota_record(
    entity: Mapping[str, str | None], key: str, value: float, *, remove: bool = False
) -> ClientQuotaRecord:
    """The entity by its types; the name None is the default."""
    rows = [EntityData(entity_type=each, entity_name=name) for each, name in entity.items()]
    return ClientQuotaRecord(entity=rows, key=key, value=value, remove=remove)


class KraftLogFolder:
    """`__cluster_metadata-0` below a log directory; batches are appended to its last segment."""

    def __init__(self, log_dir: Path) -> None:
        self.path = log_dir / "__cluster_metadata-0"
        self.path.mkdir(parents=True)
        self.next_offset = 0
        self.segment = self._segment_at(0)

    def _segment_at(self, offset: int) -> Path:
        return self.path / f"{offset:020d}.log"

    def roll(self) -> None:
        self.segment = self._segment_at(self.next_offset)

    def append(self, *values: bytes) -> None:
        records: list[Any] = [(None, value, (), NOW_MS) for value in values]
        self._write(batch_of(records, base_offset=self.next_offset, leader_epoch=1), len(values))

    def elect(self, voters: Sequence[int] = (1,)) -> None:
        change = LeaderChangeMessage(
            leader_id=1, voters=[LeaderChangeMessageVoter(voter_id=each) for each in voters]
        )
        value = bytes(change.encode(0))
        self._write(
            control_batch([(ControlType.LEADER_CHANGE, value)], base_offset=self.next_offset), 1
        )

    def _write(self, batch: bytearray, count: int) -> None:
        with self.segment.open("ab") as file:
            file.write(batch)
        self.next_offset += count

    def snapshot(self, end_offset: int, *values: bytes, has_footer: bool = True) -> Path:
        """A file that says it stands for all records below the offset."""
        content = control_batch([(ControlType.SNAPSHOT_HEADER, b"\0\0" + bytes(8) + b"\0")])
        records: list[Any] = [(None, value, (), NOW_MS) for value in values]
        if records:
            content += batch_of(records, base_offset=1)
        if has_footer:
            content += control_batch(
                [(ControlType.SNAPSHOT_FOOTER, b"\0\0\0")], base_offset=1 + len(records)
            )
        path = self.path / f"{end_offset:020d}-{1:010d}.checkpoint"
        path.write_bytes(content)
        return path

    def image(self) -> ClusterImage:
        return image_of(self.path)


def control_batch(
    records: Sequence[tuple[ControlType, bytes]], *, base_offset: int = 0
) -> bytearray:
    rows: list[Any] = [
        (b"\0\0" + kind.to_bytes(2, "big"), value, (), NOW_MS) for kind, value in records
    ]
    return batch_of(rows, base_offset=base_offset, leader_epoch=1, is_control=True)


def image_of(folder: Path) -> ClusterImage:
    image = ClusterImage()
    image.replay(MetadataLog(folder).records())
    return image
