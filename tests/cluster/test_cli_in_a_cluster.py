"""`tidelog reassign`, `elect` and `cluster health` where there are several brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.conftest import StartCluster
from tests.support.command_line import User
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

WITHIN_S = 90.0


def test_replicas_move_leaders_are_elected_and_health_is_told(
    start_cluster: StartCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = start_cluster()
    user = User(cluster.bootstrap, capsys, monkeypatch)
    brokers = sorted(cluster.brokers)
    user.types("topic", "create", "moved", "-p", "4", "-r", "2")
    user.types("produce", "moved", stdin="".join(f"{number}\n" for number in range(1_000)))
    eventually(lambda: user.tries("cluster", "health")[0] == 0, WITHIN_S)

    # Off the last broker, with a throttle, which is gone at the end.
    last = brokers[-1]
    file = tmp_path / "moves.json"
    file.write_text(user.types("reassign", "plan", "moved", "--without", str(last)))
    moves = json.loads(file.read_text())["partitions"]
    assert moves
    assert all(last not in row["replicas"] for row in moves)
    user.types("reassign", "execute", str(file), "--throttle", "50000000")

    eventually(lambda: user.tries("reassign", "verify", str(file))[0] == 0, WITHIN_S)
    (page,) = user.rows("topic", "describe", "moved")
    assert page["configs"] == {}
    assert all(last not in row["replicas"] for row in page["partition_list"])
    assert len(user.lines("consume", "moved", "-e")) == 1_000

    # The same tool under Kafka's name sees the same.
    shown = user.kafka("reassign-partitions", "--verify", "--reassignment-json-file", str(file))
    assert shown[1].endswith("is completed.")
    assert user.kafka("reassign-partitions", "--list") == ["No partition reassignments found."]

    # A broker goes and comes back: leaders stay away from it until they are elected.
    victim = page["partition_list"][0]["replicas"][0]
    cluster.brokers[victim].kill()

    def is_unhealthy() -> bool:
        # A broker that is gone but still named is waited for.
        code, printed = user.tries("--timeout", "3s", "-o", "json", "cluster", "health")
        return code == 1 and bool(printed) and json.loads(printed)["brokers_gone"] == [victim]

    eventually(is_unhealthy, WITHIN_S)
    cluster.brokers[victim].start()
    eventually(lambda: user.tries("cluster", "health")[0] == 0, WITHIN_S)
    user.tries("elect", "moved")
    eventually(lambda: leaders_are_preferred(user), WITHIN_S)
    assert {row["outcome"] for row in user.rows("elect", "moved")} == {"not needed"}


def leaders_are_preferred(user: User) -> bool:
    (page,) = user.rows("topic", "describe", "moved")
    return all(row["leader"] == row["replicas"][0] for row in page["partition_list"])
