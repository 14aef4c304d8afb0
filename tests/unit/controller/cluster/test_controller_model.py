"""Random histories of a cluster: whatever happens to brokers and controllers, these hold.

- A partition has at most one leader in an epoch, and epochs only grow.
- A leader was in sync, or eligible, when it was elected; any other only where that is allowed.
- A controller that has lost its place writes nothing.
- What was committed by min.insync.replicas = 2 is on every leader, though one broker loses all its
  data once (KIP-966). No other broker crashes in such a history: a controller cannot tell a crash
  that lost data from one that lost none, and two of them are more than the setting allows for.
- Once it is quiet, every partition with a live replica in sync has a leader, and every live broker
  has been told how things are.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.fake_cluster import FakeCluster
from tidelog.controller import znodes
from tidelog.controller.metadata_store import Create, Operation, SetData
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.types import TopicPartition

BROKERS: Final = (1, 2, 3, 4)
ASSIGNMENT: Final = [[1, 2, 3], [2, 3, 4], [4, 1, 2]]
SAFE, LOOSE = "safe", "loose"
PARTITIONS: Final = [TopicPartition(t, p) for t in (SAFE, LOOSE) for p in range(len(ASSIGNMENT))]
STATE_PATH: Final = re.compile(r"/brokers/topics/(\w+)/partitions/(\d+)/state")

T = TypeVar("T")
BROKER = st.sampled_from(BROKERS)
PARTITION = st.sampled_from(PARTITIONS)


class ClusterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = tempfile.TemporaryDirectory()
        self.paused: set[int] = set()
        self.crashed: set[int] = set()
        # The durability model: offsets 0..n-1 of each partition, and who holds how many of them.
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.held = {(tp, b): 0 for tp in PARTITIONS for b in BROKERS}
        self.data_was_lost = False
        self.states: dict[TopicPartition, znodes.LeaderIsrAndControllerEpoch] = {}
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self.checked = 0
        self.run(self.begin())

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(story)

    async def begin(self) -> None:
        self.cluster = FakeCluster(Path(self.directory.name))
        await self.cluster.start(*BROKERS, strict_min_isr=True)
        configs = {"min.insync.replicas": "2"}
        await self.cluster.create_topic(SAFE, ASSIGNMENT, configs)
        configs["unclean.leader.election.enable"] = "true"
        await self.cluster.create_topic(LOOSE, ASSIGNMENT, configs)

    # What happens

    def running(self) -> list[int]:
        return [b for b in self.cluster.brokers if b not in self.paused]

    @rule(broker=BROKER, settle=st.booleans())
    def broker_dies(self, broker: int, settle: bool) -> None:
        if broker in self.running() and len(self.cluster.brokers) > 1:
            self.run(self.cluster.kill(broker, settle=settle))

    @rule(broker=BROKER, clean=st.booleans(), settle=st.booleans())
    def broker_starts(self, broker: int, clean: bool, settle: bool) -> None:
        if broker not in self.cluster.brokers:
            clean = clean or (self.data_was_lost and broker not in self.crashed)
            if not clean:
                self.crashed.add(broker)
            start = self.cluster.start(
                broker, strict_min_isr=True, clean_shutdown=clean, settle=settle
            )
            self.run(start)

    @precondition(lambda self: not self.data_was_lost)
    @rule(broker=BROKER)
    def broker_loses_its_data(self, broker: int) -> None:
        if broker not in self.cluster.brokers and self.crashed <= {broker}:
            self.data_was_lost = True
            self.crashed.add(broker)
            for partition in PARTITIONS:
                self.held[partition, broker] = 0
            self.run(self.cluster.start(broker, strict_min_isr=True, clean_shutdown=False))

    @rule(broker=BROKER)
    def broker_is_paused(self, broker: int) -> None:
        if broker in self.running() and len(self.running()) > 1:
            self.paused.add(broker)
            self.run(self.cluster.pause(broker))

    @rule(broker=BROKER, partition=PARTITION)
    def paused_broker_wakes(self, broker: int, partition: TopicPartition) -> None:
        if broker in self.paused:
            self.run(self.zombie_tries(broker, partition))
            self.paused.discard(broker)
            self.run(self.cluster.wake(broker, strict_min_isr=True))

    async def zombie_tries(self, broker: int, partition: TopicPartition) -> None:
        controller = self.cluster.controllers[broker]
        if not controller.is_active:
            return
        mark = len(self.cluster.written)
        state = await self.cluster.state(*partition)
        await self.cluster.ask_for_isr(
            partition.topic, state.isr[:1], partition=partition.partition, to=controller
        )
        assert not self.wrote(broker, mark), "a zombie has written"

    def wrote(self, broker: int, mark: int) -> list[Operation]:
        return [operation for by, operation in self.cluster.written[mark:] if by == broker]

    @rule(broker=BROKER)
    def broker_is_cut_off(self, broker: int) -> None:
        self.cluster.cut_off.symmetric_difference_update({broker})
        self.cluster.clock.advance(ms=100)
        self.run(self.cluster.settle())

    @rule(broker=BROKER)
    def broker_shuts_down(self, broker: int) -> None:
        if broker in self.running() and len(self.running()) > 1 and self.in_office():
            self.run(self.cluster.shut_down(broker, to=self.in_office()[0]))
            self.run(self.cluster.kill(broker))

    def in_office(self) -> list[Any]:
        """The controller that is not a zombie."""
        running = (self.cluster.controllers[broker] for broker in self.running())
        return [controller for controller in running if controller.is_active]

    @rule(partition=PARTITION, wanted=st.sets(BROKER))
    def leader_changes_the_in_sync_set(self, partition: TopicPartition, wanted: set[int]) -> None:
        if self.in_office():
            self.run(self.alter_isr(partition, wanted))

    async def alter_isr(self, partition: TopicPartition, wanted: set[int]) -> None:
        await self.cluster.settle()
        state = await self.cluster.state(*partition)
        if state.leader not in self.running():
            return
        replicas = ASSIGNMENT[partition.partition]
        isr = [b for b in replicas if b == state.leader or b in wanted]
        response = await self.cluster.ask_for_isr(
            partition.topic,
            isr,
            partition=partition.partition,
            to=self.in_office()[0],
            recovery=0,
        )
        if (
            response.error_code == ErrorCode.NONE
            and not response.topics[0].partitions[0].error_code
        ):
            for broker in isr:
                self.held[partition, broker] = self.held[partition, state.leader]

    @rule()
    def records_are_committed(self) -> None:
        for partition in PARTITIONS:
            self.run(self.commit(partition))

    async def commit(self, partition: TopicPartition) -> None:
        await self.cluster.settle()
        state = await self.cluster.state(*partition)
        alive = [b for b in state.isr if b in self.running() and b not in self.cluster.cut_off]
        if state.leader not in alive or len(alive) < len(state.isr) or len(alive) < 2:
            return
        self.committed[partition] = self.held[partition, state.leader] + 1
        for broker in state.isr:
            self.held[partition, broker] = self.committed[partition]

    # What holds

    @invariant()
    def leaders_are_legitimate(self) -> None:
        self.check_writes()
        self.check_requests()

    def check_writes(self) -> None:
        written = self.cluster.written
        for _, operation in written[self.checked :]:
            if isinstance(operation, SetData | Create):
                found = STATE_PATH.fullmatch(operation.path)
                if found is not None:
                    partition = TopicPartition(found[1], int(found[2]))
                    self.check_state(partition, znodes.decode_state(operation.data))
        self.checked = len(written)

    def check_state(
        self, partition: TopicPartition, state: znodes.LeaderIsrAndControllerEpoch
    ) -> None:
        before = self.states.get(partition)
        self.states[partition] = state
        assert state.isr, state
        assert set(state.isr) <= set(ASSIGNMENT[partition.partition])
        assert not set(state.isr) & set(state.elr)
        if state.leader >= 0:
            assert state.leader in state.isr
            leader = self.leaders.setdefault((partition, state.leader_epoch), state.leader)
            assert leader == state.leader, "two leaders in one epoch"
        if before is None:
            return
        assert state.leader_epoch >= before.leader_epoch
        assert state.controller_epoch >= before.controller_epoch
        if state.leader in (-1, before.leader):
            return
        assert state.leader_epoch > before.leader_epoch
        # Who led last has its place again when all others turn out to have crashed.
        clean = state.leader in (*before.isr, *before.elr, *before.last_known_elr)
        if partition.topic == SAFE:
            assert clean, (before, state)
            held = self.held[partition, state.leader]
            assert held >= self.committed[partition], "a leader lacks what was committed"
        elif not clean:
            assert state.leader_recovery_state == 1
            self.committed[partition] = min(
                self.committed[partition], self.held[partition, state.leader]
            )

    def check_requests(self) -> None:
        """Brokers hear of one leader an epoch."""
        for broker in self.cluster.brokers.values():
            for request in broker.of_kind(LeaderAndIsrRequest):
                for topic in request.topic_states:
                    for row in topic.partition_states:
                        partition = TopicPartition(topic.topic_name, row.partition_index)
                        if row.leader >= 0:
                            assert self.leaders[partition, row.leader_epoch] == row.leader
            broker.requests.clear()

    def teardown(self) -> None:
        self.run(self.come_to_rest())
        self.leaders_are_legitimate()
        self.run(self.check_rest())
        self.run(self.cluster.close())
        self.runner.close()
        self.directory.cleanup()

    async def come_to_rest(self) -> None:
        self.cluster.cut_off.clear()
        for broker in sorted(self.paused):
            await self.cluster.wake(broker, strict_min_isr=True)
        self.paused.clear()
        for _ in range(10):
            self.cluster.clock.advance(ms=100)
            await self.cluster.settle()

    async def check_rest(self) -> None:
        assert len(self.in_office()) == 1
        live = self.cluster.brokers
        for partition in PARTITIONS:
            state = await self.cluster.state(*partition)
            version = await self.cluster.version(*partition)
            can_be_led = any(b in live for b in (*state.isr, *state.elr))
            assert (state.leader in live) == can_be_led, (partition, state, [*live])
            for broker_id, broker in live.items():
                metadata = broker.metadata[partition]
                assert (
                    metadata.leader,
                    metadata.leader_epoch,
                    metadata.isr,
                    metadata.zk_version,
                ) == (
                    state.leader,
                    state.leader_epoch,
                    state.isr,
                    version,
                ), (broker_id, partition)
                assert broker.live_brokers == live.keys()
                if broker_id in ASSIGNMENT[partition.partition] and state.leader >= 0:
                    assert broker.hosted[partition].leader_epoch == state.leader_epoch
                    assert broker.hosted[partition].leader == state.leader


def test_any_history_of_a_cluster() -> None:
    run_state_machine_as_test(
        ClusterMachine,
        settings=settings(
            max_examples=60,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
