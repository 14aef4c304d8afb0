"""kafka-leader-election: elects preferred leaders, or any replica where there is no leader."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.delete_records import read_text
from tidelog.tools.kafka.frame import (
    KafkaTool,
    ToolFailed,
    bootstrap_server,
    config_file,
    java_words,
)
from tidelog.types import TopicPartition


@click.command("kafka-leader-election", cls=KafkaTool)
@bootstrap_server
@config_file("--admin.config")
@click.option("--path-to-json-file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--topic", metavar="TOPIC")
@click.option("--partition", type=int, metavar="N", help="REQUIRED with --topic.")
@click.option("--all-topic-partitions", is_flag=True)
@click.option(
    "--election-type",
    type=click.Choice(("preferred", "unclean"), case_sensitive=False),
    help="REQUIRED.",
)
@pass_session
def command(
    session: Session,
    path_to_json_file: Path | None,
    topic: str | None,
    partition: int | None,
    all_topic_partitions: bool,
    election_type: str | None,
) -> int:
    """Elect leaders of partitions."""
    from tidelog.client.admin.partitions import ElectionType
    from tidelog.client.errors import NotAuthorized, RequestTimedOut

    missing = [
        name
        for name, value in (
            ("bootstrap-server", session.bootstrap_server),
            ("election-type", election_type),
        )
        if value is None
    ]
    if missing:
        raise ToolFailed(f"Missing required option(s): {', '.join(missing)}")
    if sum((topic is not None, all_topic_partitions, path_to_json_file is not None)) != 1:
        raise ToolFailed(
            "One and only one of the following options is required: topic, all-topic-partitions, "
            "path-to-json-file"
        )
    if topic is not None and partition is None:
        raise ToolFailed("Missing required option(s): partition")
    if topic is None and partition is not None:
        raise ToolFailed("Option partition is only allowed if topic is used")
    wanted: list[TopicPartition] | None = None
    if path_to_json_file is not None:
        wanted = parse_partitions(read_text(path_to_json_file))
    elif topic is not None and partition is not None:
        wanted = [TopicPartition(topic, partition)]
    assert election_type is not None
    kind = ElectionType[election_type.upper()]
    try:
        with session.plain_admin() as admin:
            results = admin.elect_leaders(wanted, kind)
    except RequestTimedOut:
        print("Timeout waiting for election results")
        raise ToolFailed("Timeout waiting for election results") from None
    except NotAuthorized:
        print("Not authorized to perform leader election")
        raise ToolFailed("Not authorized to perform leader election") from None
    return _print({each: result.error for each, result in results.items()}, kind.name)


def _print(results: dict[TopicPartition, Exception | None], kind: str) -> int:
    done, needless, failed = [], [], {}
    for partition, error in results.items():
        if error is None:
            done.append(str(partition))
        elif getattr(getattr(error, "code", None), "name", "") == "ELECTION_NOT_NEEDED":
            needless.append(str(partition))
        else:
            failed[partition] = error
    if done:
        print(f"Successfully completed leader election ({kind}) for partitions {', '.join(done)}")
    if needless:
        print(f"Valid replica already elected for partitions {', '.join(needless)}")
    for partition, error in failed.items():
        print(
            f"Error completing leader election ({kind}) for partition: {partition}: "
            f"{java_words(error)}"
        )
    if failed:
        raise ToolFailed(f"{len(failed)} replica(s) could not be elected")
    return 0


def parse_partitions(text: str) -> list[TopicPartition]:
    """Of `{"partitions": [{"topic": "foo", "partition": 1}]}`."""
    try:
        data = json.loads(text)
    except ValueError:
        raise ToolFailed("Replica election data is empty") from None
    rows = data.get("partitions") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise ToolFailed('Replica election data is missing "partitions" field')
    found = []
    for row in rows:
        topic = row.get("topic") if isinstance(row, dict) else None
        partition = row.get("partition") if isinstance(row, dict) else None
        if not isinstance(topic, str) or not isinstance(partition, int):
            raise ToolFailed(f"A partition has a topic and a partition, not {json.dumps(row)}")
        found.append(TopicPartition(topic, partition))
    doubled = sorted({each for each in found if found.count(each) > 1})
    if doubled:
        names = ", ".join(map(str, doubled))
        raise ToolFailed(f"Replica election data contains duplicate partitions: [{names}]")
    return found
