"""What a write asks of ZooKeeper before it is sent."""

from __future__ import annotations

from typing import Any

from tidelog.controller import znodes
from tidelog.controller.metadata_store import Create, NoNode
from tidelog.controller.zookeeper.connect_string import Chroot
from tidelog.controller.zookeeper.jute import Exists, GetChildren
from tidelog.controller.zookeeper.write_steps import Expanded, with_parents

PARTITIONS = znodes.partitions_path("t")


def states(count: int) -> list[Create]:
    return [Create(znodes.state_path("t", n), b"{}", make_parents=True) for n in range(count)]


def expanded(
    operations: list[Create], nodes: dict[str, list[str]]
) -> tuple[list[Expanded], list[Any]]:
    """With what was asked on the way; nodes are the ones that are there, with their children."""
    steps = with_parents(operations, Chroot(""))
    asked: list[Any] = []
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            request = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as done:
            return done.value, asked
        asked.append(request)
        answer, error = None, None
        if isinstance(request, GetChildren):
            if request.path in nodes:
                answer = nodes[request.path]
            else:
                error = NoNode(request.path)
        elif isinstance(request, Exists):
            answer = object() if request.path in nodes else None


def made(found: list[Expanded]) -> list[str]:
    return [each.operation.path for each in found if not each.asked]


def test_parents_of_a_new_topics_partitions_are_asked_for_at_once() -> None:
    found, asked = expanded(states(1_000), {"/brokers/topics/t": []})
    assert len(asked) == 3
    assert made(found) == [PARTITIONS, *(f"{PARTITIONS}/{n}" for n in range(1_000))]


def test_those_that_are_there_are_not_made_again() -> None:
    nodes = {"/brokers/topics/t": ["partitions"], PARTITIONS: ["0", "2"]}
    found, asked = expanded(states(10), nodes)
    assert len(asked) == 2
    assert made(found) == [f"{PARTITIONS}/{n}" for n in (1, *range(3, 10))]


def test_few_are_asked_for_one_by_one() -> None:
    """The topics of a cluster are many: their names are not read to find one."""
    found, asked = expanded(states(1), {"/brokers/topics/t": ["partitions"]})
    assert all(isinstance(request, Exists) for request in asked)
    assert made(found) == [PARTITIONS, f"{PARTITIONS}/0"]
