"""Tidelog's assignors against Kafka's own: equal answers for random groups.

Where Kafka's answer is wrong (a partition for a member that does not want the topic, or none at
all because of an exception), tidelog's must be right.
"""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from bench.peers import ApacheKafka
from tests.interop.apache_kafka import kafka_or_skip
from tests.support.assignor_groups import ASSIGNORS, RandomGroup
from tidelog.client.consumer.assignors.assignor import Subscription
from tidelog.client.consumer.assignors.consumer_protocol import decode_subscription
from tidelog.types import TopicPartition

PROGRAM = Path(__file__).parent / "java" / "Assignors.java"
GROUPS = 1000
REBALANCES = 4
TIMEOUT_S = 300

Shares = dict[str, list[TopicPartition]]


class Case(NamedTuple):
    partitions: dict[str, list[frozenset[str]]]
    subscriptions: dict[str, Subscription]
    shares: Shares  # by tidelog
    line: str  # for the program


def cases(assignor: str, count: int) -> list[Case]:
    found = []
    for seed in range(count):
        group = RandomGroup(Random(seed), assignor)
        for _ in range(REBALANCES):
            sent = group.sent_subscriptions()
            subscriptions = {
                member: decode_subscription(data, instance_id)
                for member, (data, instance_id) in sent.items()
            }
            assignments = ASSIGNORS[assignor]().assign(group.partitions, subscriptions)
            shares = {member: list(row.partitions) for member, row in assignments.items()}
            line = line_of(assignor, group.partitions, sent)
            found.append(Case(dict(group.partitions), subscriptions, shares, line))
            group.settle(assignments)
            group.churn()
    return found


def line_of(
    assignor: str,
    partitions: dict[str, list[frozenset[str]]],
    sent: dict[str, tuple[bytes, str | None]],
) -> str:
    members = [
        {
            "member_id": member,
            "group_instance_id": group_instance_id,
            "metadata": base64.b64encode(metadata).decode(),
        }
        for member, (metadata, group_instance_id) in sent.items()
    ]
    racks = {topic: [sorted(each) for each in rows] for topic, rows in partitions.items()}
    return json.dumps({"assignor": assignor, "partitions": racks, "members": members})


def by_kafka(kafka: ApacheKafka, found: list[Case]) -> list[Shares | str]:
    """Its answers, or what it threw."""
    java, *rest = kafka.java()
    done = subprocess.run(
        [java, "-Xmx256m", *rest, str(PROGRAM)],
        input="".join(f"{case.line}\n" for case in found),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == len(found), done.stdout[-3000:]
    return [answer_of(json.loads(line)) for line in lines]


def answer_of(answer: dict[str, object]) -> Shares | str:
    assignment = answer.get("assignment")
    if not isinstance(assignment, dict):
        return str(answer["error"])
    return {
        member: [TopicPartition(topic, partition) for topic, partition in rows]
        for member, rows in assignment.items()
    }


def is_sound(case: Case, shares: Shares) -> bool:
    """Whether nobody has what it does not want and nothing is given twice."""
    given = [row for share in shares.values() for row in share]
    return len(given) == len(set(given)) and all(
        row.topic in case.subscriptions[member].topics
        for member, share in shares.items()
        for row in share
    )


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_thousand_random_groups_get_the_assignments_that_kafka_gives(assignor: str) -> None:
    kafka = kafka_or_skip()
    found = cases(assignor, GROUPS)
    faults = 0
    for case, answer in zip(found, by_kafka(kafka, found), strict=True):
        assert is_sound(case, case.shares), case.line
        if isinstance(answer, str) or not is_sound(case, answer):
            faults += 1
        else:
            assert case.shares == answer, case.line
    assert faults <= (len(found) // 200 if "sticky" in assignor else 0)
