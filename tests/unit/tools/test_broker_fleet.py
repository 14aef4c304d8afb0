"""What each broker of `tidelog serve --brokers` is told, what is refused, and who starts again."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import ConfigError
from tidelog.tools.broker_fleet import (
    BrokerFleet,
    RestartPause,
    labelled_json,
    plan_brokers,
)


def config_of(tmp_path: Path, **settings: str) -> BrokerConfig:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig({"log.dirs": str(tmp_path / "data"), **given})


def test_brokers_have_numbers_directories_and_ports_in_a_row(tmp_path: Path) -> None:
    plan = plan_brokers(config_of(tmp_path), 3)
    assert plan.needs_coordination
    assert [own["broker.id"] for own in plan.overrides] == ["0", "1", "2"]
    assert [own["listeners"] for own in plan.overrides] == [
        f"PLAINTEXT://127.0.0.1:{port}" for port in (9092, 9093, 9094)
    ]
    assert plan.overrides[2]["log.dirs"] == str(tmp_path / "data" / "broker-2")
    assert "advertised.listeners" not in plan.overrides[0]
    for own in plan.overrides:
        BrokerConfig({**own, "zookeeper.connect": "127.0.0.1:2181"})


def test_advertised_ports_and_several_directories_go_along(tmp_path: Path) -> None:
    config = BrokerConfig(
        {
            "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "advertised.listeners": "PLAINTEXT://kafka.example:19092",
            "zookeeper.connect": "zk:2181",
        }
    )
    plan = plan_brokers(config, 2)
    assert not plan.needs_coordination
    assert plan.overrides[1]["advertised.listeners"] == "PLAINTEXT://kafka.example:19093"
    assert plan.overrides[1]["log.dirs"] == f"{tmp_path}/a/broker-1,{tmp_path}/b/broker-1"


def test_port_0_becomes_a_free_port_of_each(tmp_path: Path) -> None:
    plan = plan_brokers(config_of(tmp_path, listeners="PLAINTEXT://127.0.0.1:0"), 3)
    ports = {own["listeners"].rpartition(":")[2] for own in plan.overrides}
    assert len(ports) == 3
    assert "0" not in ports


def test_each_broker_serves_its_metrics_on_a_port_of_its_own(tmp_path: Path) -> None:
    settings = {"tidelog_metrics_listener": "http://127.0.0.1:9308"}
    plan = plan_brokers(config_of(tmp_path, **settings), 2)
    told = [BrokerConfig({**own, "zookeeper.connect": "zk:1"}) for own in plan.overrides]
    assert [each.metrics_listener and each.metrics_listener.port for each in told] == [9308, 9309]
    with pytest.raises(ConfigError, match="would share the port 9094"):
        plan_brokers(config_of(tmp_path, tidelog_metrics_listener="http://127.0.0.1:9094"), 3)


@pytest.mark.parametrize(("count", "factor", "min_isr"), [(1, 1, 1), (2, 2, 1), (3, 3, 2)])
def test_internal_topics_have_as_many_replicas_as_there_are_brokers_for(
    tmp_path: Path, count: int, factor: int, min_isr: int
) -> None:
    own = plan_brokers(config_of(tmp_path), count).overrides[0]
    assert own["offsets.topic.replication.factor"] == str(factor)
    assert own["transaction.state.log.min.isr"] == str(min_isr)
    told = config_of(tmp_path, offsets_topic_replication_factor="1")
    assert "offsets.topic.replication.factor" not in plan_brokers(told, count).overrides[0]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"broker_id": "1"}, "broker.id is set"),
        ({"node_id": "1"}, "id is set, and --brokers 3 numbers"),
        ({"process_roles": "broker,controller", "node_id": "1"}, "is set, and --brokers"),
        ({"listeners": "PLAINTEXT://127.0.0.1:65534"}, "there are none above 65535"),
        (
            {
                "listeners": "A://127.0.0.1:9092,B://127.0.0.1:9093",
                "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT",
                "inter_broker_listener_name": "A",
            },
            "A and B would share the port 9093",
        ),
    ],
)
def test_what_cannot_work_is_refused(
    tmp_path: Path, settings: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        plan_brokers(config_of(tmp_path, **settings), 3)


def test_the_directory_of_one_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("")
    with pytest.raises(ConfigError, match="the directory of one broker"):
        plan_brokers(config_of(tmp_path), 2)


def test_pauses_double_up_to_a_minute_and_begin_anew_after_a_steady_run() -> None:
    pause = RestartPause()
    pause.began(0.0)
    assert [pause.ended(1.0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    pause.began(100.0)
    assert pause.due_s is None
    assert pause.ended(159.0) == 60
    pause.began(200.0)
    assert pause.ended(260.0) == 1
    assert pause.due_s == 261.0


class FakeBroker:
    name = "broker 0"

    def __init__(self) -> None:
        self.code: int | None = None
        self.starts = 0

    def exit_code(self) -> int | None:
        return self.code

    def spawn(self, log: object) -> None:
        self.code = None
        self.starts += 1

    def stop(self, timeout_s: float = 0) -> int:
        return self.code or 0


def test_a_broker_that_ended_starts_again_when_its_pause_is_over(tmp_path: Path) -> None:
    plan = plan_brokers(config_of(tmp_path, zookeeper_connect="127.0.0.1:1"), 1)
    fleet = BrokerFleet(plan, {}, (), io.StringIO(), is_json=False)
    broker: Any = FakeBroker()
    fleet.brokers = [broker]
    fleet.look_after(10.0)
    assert broker.starts == 0
    broker.code = -9
    fleet.look_after(11.0)
    fleet.look_after(11.9)
    assert broker.starts == 0
    fleet.look_after(12.0)
    assert broker.starts == 1
    fleet.look_after(13.0)
    assert broker.starts == 1
    broker.code = 1
    fleet.look_after(14.0)
    fleet.look_after(15.9)
    assert broker.starts == 1, "the second pause is longer"
    fleet.look_after(16.0)
    assert broker.starts == 2


def test_json_lines_name_their_broker_and_stay_json() -> None:
    assert json.loads(labelled_json("broker", 3, '{"level":"info"}\n')) == {
        "broker": 3,
        "level": "info",
    }
    assert labelled_json("broker", 3, "Traceback\n") == "Traceback\n"
