"""`meta.properties` of a log directory: whose data this is.

Version 0 is that of a Kafka over ZooKeeper (broker.id, cluster.id) and the one written here;
version 1, KRaft's (node.id, cluster.id, directory.id), is read and left as it is.
All directories of a broker must agree with each other and with the broker's own ids.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.log.directory.checkpoints import replace_file
from tidelog.log.log_errors import CorruptMetaProperties
from tidelog.types import Uuid

FILE_NAME: Final = "meta.properties"


class MetaProperties(NamedTuple):
    broker_id: int
    cluster_id: str
    version: int = 0
    directory_id: Uuid | None = None  # KRaft's name of the directory


def read_meta_properties(log_dir: str) -> MetaProperties | None:
    path = f"{log_dir}/{FILE_NAME}"
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptMetaProperties(f"{path} cannot be read: {error}") from error
    return _parse(path, text)


def _parse(path: str, text: str) -> MetaProperties:
    fields = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith(("#", "!")):
            fields[key.strip()] = value.strip().replace("\\", "")
    id_key = {"0": "broker.id", "1": "node.id"}.get(fields.get("version", ""))
    if id_key is None:
        raise CorruptMetaProperties(f"{path}: version is {fields.get('version')!r}, not 0 or 1")
    cluster_id = fields.get("cluster.id", "")
    broker_id = fields.get(id_key, "")
    if not broker_id.isdecimal():
        raise CorruptMetaProperties(f"{path}: {id_key} is {broker_id!r}, not a number")
    if not cluster_id:
        raise CorruptMetaProperties(f"{path}: cluster.id is missing")
    directory_id = _directory_id(path, fields.get("directory.id"))
    return MetaProperties(int(broker_id), cluster_id, int(fields["version"]), directory_id)


def _directory_id(path: str, text: str | None) -> Uuid | None:
    try:
        return None if text is None else Uuid.parse(text)
    except ValueError as error:
        raise CorruptMetaProperties(f"{path}: directory.id is {text!r}, not a uuid") from error


def write_meta_properties(log_dir: str, properties: MetaProperties, now_ms: int) -> None:
    date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000))
    lines = (
        "#",
        f"#{date}",
        f"cluster.id={properties.cluster_id}",
        "version=0",
        f"broker.id={properties.broker_id}",
        "",
    )
    replace_file(f"{log_dir}/{FILE_NAME}", "\n".join(lines).encode())


def reconcile(
    log_dirs: Sequence[str], broker_id: int, cluster_id: str, now_ms: int
) -> MetaProperties:
    """Check every directory against the ids, and mark the ones that are new."""
    wanted = MetaProperties(broker_id, cluster_id)
    found = {log_dir: read_meta_properties(log_dir) for log_dir in log_dirs}
    for log_dir, properties in found.items():
        if properties is None:
            continue
        if properties.broker_id != broker_id:
            raise CorruptMetaProperties(
                f"{log_dir} belongs to broker.id {properties.broker_id}, but this is {broker_id}"
            )
        if properties.cluster_id != cluster_id:
            raise CorruptMetaProperties(
                f"{log_dir} belongs to cluster {properties.cluster_id}, but this is {cluster_id}"
            )
    for log_dir, properties in found.items():
        if properties is None:
            write_meta_properties(log_dir, wanted, now_ms)
    return wanted
