"""kafka-delete-records: deletes records before offsets that a JSON file gives."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.frame import (
    KafkaTool,
    ToolFailed,
    bootstrap_server,
    config_file,
    require_server,
    wrong_usage,
)
from tidelog.types import TopicPartition


@click.command("kafka-delete-records", cls=KafkaTool)
@bootstrap_server
@config_file("--command-config")
@click.option(
    "--offset-json-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='REQUIRED: {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}',
)
@pass_session
def command(session: Session, offset_json_file: Path | None) -> int:
    """Delete records of partitions before given offsets."""
    require_server(session)
    if offset_json_file is None:
        raise wrong_usage('Missing required argument "[offset-json-file]"')
    goals = parse_offsets(read_text(offset_json_file))
    with session.admin() as admin:
        print("Executing records delete operation")
        results = admin.delete_records(goals)
        print("Records delete operation completed:")
        for partition, result in results.items():
            if result.error is not None:
                print(f"partition: {partition}\terror: {result.error}")
            else:
                print(f"partition: {partition}\tlow_watermark: {result.get()}")
    return 0


def read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ToolFailed(f"Unable to read {path}: {error}") from None


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    try:
        data = json.loads(text)
    except ValueError:
        raise ToolFailed("The input string is not a valid JSON") from None
    if not isinstance(data, dict):
        raise ToolFailed("Expected JSON object, received " + json.dumps(data))
    version = data.get("version", 1)
    if version != 1:
        raise ToolFailed(f"Not supported version field value {version}")
    if not isinstance(data.get("partitions"), list):
        raise ToolFailed("Missing partitions field")
    goals: dict[TopicPartition, int] = {}
    doubled: list[TopicPartition] = []
    for row in data["partitions"]:
        partition, offset = parse_row(row)
        if partition in goals:
            doubled.append(partition)
        goals[partition] = offset
    if doubled:
        names = ",".join(map(str, dict.fromkeys(doubled)))
        raise ToolFailed(f"Offset json file contains duplicate topic partitions: {names}")
    return goals


def parse_row(row: object) -> tuple[TopicPartition, int]:
    if isinstance(row, dict):
        topic, partition, offset = (row.get(name) for name in ("topic", "partition", "offset"))
        if isinstance(topic, str) and isinstance(partition, int) and isinstance(offset, int):
            return TopicPartition(topic, partition), offset
    raise ToolFailed(f"A partition has a topic, a partition and an offset, not {json.dumps(row)}")
