"""kafka-log-dirs: --describe prints the log directories of brokers as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.frame import (
    KafkaTool,
    ToolFailed,
    bootstrap_server,
    broker_words,
    config_file,
    java_exception,
    require_server,
    wrong_usage,
)

if TYPE_CHECKING:
    from tidelog.client.admin.brokers import LogDirDescription


@click.command("kafka-log-dirs", cls=KafkaTool)
@bootstrap_server
@config_file("--command-config")
@click.option("--describe", is_flag=True, help="REQUIRED.")
@click.option("--topic-list", default="", metavar="T1,T2", help="All by default.")
@click.option("--broker-list", default="", metavar="0,1", help="All by default.")
@pass_session
def command(session: Session, describe: bool, topic_list: str, broker_list: str) -> int:
    """Print the log directories of brokers."""
    from tidelog.client.errors import ClientError

    require_server(session)
    if not describe:
        raise wrong_usage('Missing required argument "[describe]"')
    topics = {name for name in topic_list.split(",") if name}
    texts = [part for part in broker_list.split(",") if part]
    if not all(text.isascii() and text.isdigit() for text in texts):
        raise ToolFailed(f'For input string: "{broker_list}"')
    try:
        with session.plain_admin() as admin:
            there = [node.id for node in admin.describe_cluster().nodes]
            wanted = [int(text) for text in texts] or there
            unknown = [each for each in wanted if each not in there]
            if unknown:
                raise ToolFailed(
                    "ERROR: The given brokers do not exist from --broker-list: "
                    f"{_joined(unknown)}. Current existent brokers: {_joined(there)}"
                )
            print("Querying brokers for log directories information")
            found = {key: result.get() for key, result in admin.describe_log_dirs(wanted).items()}
    except ClientError as error:
        raise ToolFailed(broker_words(error)) from error
    print(f"Received log directory information from brokers {_joined(wanted)}")
    print(as_json(found, topics))
    return 0


def _joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def as_json(brokers: dict[int, dict[str, LogDirDescription]], topics: set[str]) -> str:
    rows = [
        {
            "broker": broker_id,
            "logDirs": [_directory(path, each, topics) for path, each in directories.items()],
        }
        for broker_id, directories in brokers.items()
    ]
    return json.dumps({"brokers": rows, "version": 1}, separators=(",", ":"))


def _directory(path: str, directory: LogDirDescription, topics: set[str]) -> dict[str, Any]:
    partitions = [
        {
            "partition": str(place),
            "size": replica.size_bytes,
            "offsetLag": replica.offset_lag,
            "isFuture": replica.is_future,
        }
        for place, replica in directory.replicas.items()
        if not topics or place.topic in topics
    ]
    error = None
    if directory.error is not None:
        error = java_exception(directory.error.code.name)
    return {"partitions": partitions, "error": error, "logDir": path}
