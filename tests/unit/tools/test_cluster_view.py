"""The frames of `tidelog top`."""

from __future__ import annotations

import pytest

from tidelog.client.admin.groups import GroupMember
from tidelog.tools.cluster_view import BrokerMetrics, Look, Sort, frame, metrics_of
from tidelog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 0)
URL = "http://127.0.0.1:9308/metrics"


def a_look(at_s: float, orders: int, clicks: int, read: int) -> Look:
    found = Look(at_s, "cluster", 1, {1: "127.0.0.1:9092"})
    found.topics = {"orders": 1, "clicks": 1}
    found.topic_count, found.group_count = 2, 1
    found.ends = {ORDERS: orders, CLICKS: clicks}
    found.states, found.members = {"billing": "Stable"}, {"billing": 2}
    found.committed = {"billing": {ORDERS: read}}
    return found


def words_of(lines: list[str], first: str) -> list[str]:
    return next(line.split() for line in lines if line.startswith(first))


def test_rates_and_lag_come_from_two_looks() -> None:
    lines = frame(a_look(12.0, 300, 50, 260), a_look(10.0, 100, 50, 200))
    assert words_of(lines, "orders") == ["orders", "1", "300", "100"]
    assert words_of(lines, "clicks") == ["clicks", "1", "50", "0"]
    assert words_of(lines, "billing") == ["billing", "Stable", "2", "40", "30"]


def test_groups_have_their_health_where_it_is_known() -> None:
    now, before = a_look(12.0, 300, 50, 260), a_look(10.0, 100, 50, 200)
    lines = frame(now, before, health={"billing": "WARN"})
    assert words_of(lines, "billing") == ["billing", "Stable", "WARN", "2", "40", "30"]
    assert words_of(frame(now, before, health={}), "billing")[2] == "-"
    assert max(map(len, lines)) <= 80


def test_a_look_knows_who_has_a_partition() -> None:
    now = a_look(12.0, 300, 50, 260)
    member = GroupMember("m-1", None, "app", "/127.0.0.1", (ORDERS,))
    now.owners = {"billing": {ORDERS: member}}
    (row,) = now.partition_lags("billing")
    assert (row.partition, row.lag, row.owner) == (ORDERS, 40, member)


def test_a_first_look_has_no_rates() -> None:
    lines = frame(a_look(12.0, 300, 50, 260), None)
    assert words_of(lines, "orders") == ["orders", "1", "300", "-"]


def test_the_busiest_come_first_or_the_names_in_order() -> None:
    now, before = a_look(12.0, 300, 50, 260), a_look(10.0, 100, 50, 200)

    def topics(sort: Sort) -> list[str]:
        lines = frame(now, before, sort=sort)
        return [line.split()[0] for line in lines if line.startswith(("orders", "clicks"))]

    assert topics(Sort.BUSIEST) == ["orders", "clicks"]
    assert topics(Sort.NAME) == ["clicks", "orders"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 12), (40, 8), (200, 60)])
def test_a_frame_fits_whatever_there_is(width: int, height: int) -> None:
    now = a_look(12.0, 300, 50, 260)
    for number in range(100):
        name = f"{'long-' * 20}{number}"
        now.topics[name] = 1
        now.brokers[number] = f"{'host.' * 20}:{number}"
        now.states[name], now.members[name] = "PreparingRebalance", 1
        now.committed[name] = {}
    now.metrics = [BrokerMetrics(1, 2, 3, None, 4.5)]
    lines = frame(now, None, width=width, height=height, metrics_urls=[URL])
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    if height >= 24:
        assert sum("more" in line for line in lines) == 3


def test_a_name_cannot_control_the_terminal() -> None:
    now = a_look(12.0, 300, 50, 260)
    now.states["\x1b[2J evil"], now.members["\x1b[2J evil"] = "Stable", 0
    assert "\x1b" not in "".join(frame(now, None))


def test_metrics_are_read_and_a_broker_without_answer_is_told_of() -> None:
    page = (
        "# TYPE kafka_server_brokertopicmetrics_bytesin_total counter\n"
        "kafka_server_brokertopicmetrics_bytesin_total 4096\n"
        'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 4000\n'
        "kafka_network_socketserver_requests_total 30\n"
        'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 2.5\n'
    )
    found = metrics_of(page)
    assert (found.bytes_in, found.requests, found.produce_p99_ms) == (4096, 30, 2.5)
    assert found.fetch_p99_ms is None
    now, before = a_look(12.0, 1, 1, 1), a_look(10.0, 1, 1, 1)
    now.metrics, before.metrics = [found, None], [BrokerMetrics(2048, 0, 10, None, None), None]
    lines = frame(now, before, metrics_urls=["http://a", "http://b"])
    row = words_of(lines, "http://a")
    assert row[1] == "1.0" or row[1].startswith("1")
    assert words_of(lines, "http://b")[1:] == ["no", "answer"]
