"""A group through random events: members of both protocols join, leave, die and restart, the broker
is killed. No record is skipped, no partition has two owners.

TIDELOG_GROUP_EVENTS says how many events (40), TIDELOG_GROUP_SEED which ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from tests.conftest import StartBroker
from tests.integration.test_consumer_groups import WITHIN_S, Feed, make_topic, settled
from tests.integration.test_consumer_protocol import CONFIG
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.group_process import MemberOptions, MemberProcess, consumed, overlaps

EVENTS = int(os.environ.get("TIDELOG_GROUP_EVENTS", "40"))
SEED = int(os.environ.get("TIDELOG_GROUP_SEED", "1"))
EVENTS_BETWEEN_CHECKS = 20
MEMBERS_MAX = 6


class RandomGroup:
    def __init__(
        self, broker: BrokerProcess, feed: Feed, options: MemberOptions, classic_share: float
    ) -> None:
        self._random = Random(SEED)
        self._broker = broker
        self._feed = feed
        self._options = options
        self._classic_share = classic_share
        self.members: list[MemberProcess] = []
        self.live: list[MemberProcess] = []

    def event(self) -> None:
        events = [self._join, self._leave, self._kill, self._restart_static, self._feed.round]
        if self._random.random() < 0.05:
            self._restart_broker()
        elif not self.live:
            self._join()
        else:
            self._random.choice(events)()
        time.sleep(self._random.random() * 0.8)  # the next one comes in the middle of this one

    def check(self) -> None:
        self._feed.round()
        eventually(lambda: consumed(self.members) == self._feed.everything, WITHIN_S)
        eventually(lambda: settled(self.live), WITHIN_S)

    def _start(self, options: MemberOptions) -> None:
        self.members.append(MemberProcess(options))
        self.live.append(self.members[-1])

    def _join(self) -> None:
        if len(self.live) >= MEMBERS_MAX:
            return
        options = self._options
        if self._random.random() < self._classic_share:
            options = replace(options, protocol="classic", strategy="cooperative-sticky")
        elif self._random.random() < 0.3:
            options = replace(options, instance=f"instance-{len(self.members)}")
        self._start(options)

    def _leave(self) -> None:
        if len(self.live) > 1:
            self.live.pop(self._random.randrange(len(self.live))).leave()

    def _kill(self) -> None:
        if len(self.live) > 1:
            self.live.pop(self._random.randrange(len(self.live))).kill()

    def _restart_static(self) -> None:
        for member in self.live:
            if member.options.instance:
                self.live.remove(member)
                member.leave()
                self._start(member.options)
                return

    def _restart_broker(self) -> None:
        self._broker.kill()
        self._broker.start()


@pytest.fixture(params=["consumer", "mixed"])
def group(
    request: pytest.FixtureRequest, start_broker: StartBroker, topic_name: str
) -> Iterator[RandomGroup]:
    broker = start_broker(CONFIG)
    make_topic(broker, topic_name)
    options = MemberOptions(
        "confluent", broker.bootstrap, "g", topic_name, "uniform", 4000, protocol="consumer"
    )
    classic_share = 0.4 if request.param == "mixed" else 0.0
    made = RandomGroup(broker, Feed(broker.bootstrap, topic_name), options, classic_share)
    yield made
    for member in made.members:
        if member.process.poll() is None:
            member.kill()


def test_random_events_skip_no_record_and_share_no_partition(group: RandomGroup) -> None:
    for number in range(1, EVENTS + 1):
        group.event()
        if number % EVENTS_BETWEEN_CHECKS == 0 and group.live:
            group.check()
    for member in tuple(group.live):
        member.leave()
    assert overlaps(group.members) == []
