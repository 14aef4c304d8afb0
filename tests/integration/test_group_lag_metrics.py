"""The lag that is scraped equals the lag that is asked for, while a group moves."""

from __future__ import annotations

import pytest

from tests.conftest import StartBroker
from tests.integration.test_metrics import LISTENER, get, url_of, value
from tests.support.moving_group import MovingGroup, group_in_a_new_topic, scraped_lags

PAUSES = 25
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}
SUM = 'kafka_consumergroup_lag_sum{consumergroup="moving",topic="orders"}'


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_scraped_lag_is_the_true_one_at_every_pause(
    start_broker: StartBroker, protocol: str
) -> None:
    served = start_broker({**LISTENER, **QUICK})
    url = url_of(served) + "/metrics"
    seen: set[tuple[tuple[str, int], int]] = set()
    sizes = set()
    with group_in_a_new_topic({"bootstrap.servers": served.bootstrap}, protocol) as moving:
        for number in range(PAUSES):
            with moving.pause_after_a_move():
                lags = moving.lags()
                page = get(url)
                assert scraped_lags([page]) == lags, f"pause {number}"
                assert value(page, SUM) == sum(lags.values()), f"pause {number}"
                sizes.add(moving.member_count())
            seen |= set(lags.items())
    assert {index for (_, index), _ in seen} == set(range(MovingGroup.PARTITIONS))
    assert len({lag for _, lag in seen}) > 5, "it moved"
    assert len(sizes) > 2, "members came and went"
