"""The active controller: all that a broker does from being elected controller to losing its place.

Events come from watches, from the answers of brokers, from timers and from requests. For each, the
controller reads what it needs from the store, lets a pure function decide (the modules that say
"decisions"), and carries the decision out before the next event (`controller_event_manager.py`). An
active controller takes what it knows with it when it loses its place.

`on_failover` is its first decision, once it knows what the store says. All brokers learn of each
other. Replicas and partitions get their states; brokers that are gone leave the in-sync sets, and
partitions without a leader get one where there is somebody to elect. Then the controller continues
what its predecessor may have left half done: reassignments, deletions, elections asked for.

A broker may have died and come back while there was no controller. The zxids tell: a member of an
in-sync set whose registration is younger than the last write of the set is not the one that was in
it. It is taken out, as if its death had been seen; Kafka would let it go on under its old epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from tidelog.clock import Timer, TimerHandle
from tidelog.controller import znodes
from tidelog.controller.cluster import (
    alter_partition,
    broker_changes,
    partition_reassignment,
    partition_state_machine,
    replica_state_machine,
    topic_changes,
    topic_deletion,
)
from tidelog.controller.cluster.cluster_reader import ClusterReader, Watchers
from tidelog.controller.cluster.controller_broker_request_batch import Request, Sender
from tidelog.controller.cluster.controller_channel_manager import (
    ControllerChannelManager,
    PeerDirectory,
)
from tidelog.controller.cluster.controller_context import ControllerContext, Replica
from tidelog.controller.cluster.controller_event_manager import ControllerEventManager, Event
from tidelog.controller.cluster.controller_store import (
    Conflict,
    ControllerRegistration,
    ControllerStore,
)
from tidelog.controller.cluster.decision_draft import DecisionDraft
from tidelog.controller.cluster.decision_executor import DecisionExecutor
from tidelog.controller.cluster.settings_reader import Settings, SettingsReader
from tidelog.controller.metadata_store import (
    Create,
    Delete,
    EventType,
    MetadataStore,
    SetData,
    WatchedEvent,
    Watcher,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

FIRST_BALANCE_CHECK_S: Final = 5.0
P = ParamSpec("P")
T = TypeVar("T")


class FailoverState(NamedTuple):
    """What the store says besides the context."""

    state_zxids: Mapping[TopicPartition, int]  # of the last write of each state node
    topics_to_delete: Collection[str] = ()
    # Of /admin/reassign_partitions.
    reassignments: Mapping[TopicPartition, Sequence[int]] = MappingProxyType({})
    preferred_elections: Collection[TopicPartition] = ()


def on_failover(draft: DecisionDraft, failover: FailoverState) -> None:
    draft.requests.introduce_brokers()
    topic_deletion.recall(draft, failover.topics_to_delete)
    topic_changes.end_stale_eligibility(draft, list(draft.state.leadership))
    _absorb_missed_restarts(draft, failover.state_zxids)
    replica_state_machine.start(draft)
    partition_state_machine.start(draft)
    started = partition_reassignment.start_all(draft, failover.reassignments)
    partition_reassignment.resume(draft, draft.state.reassigning - started)
    topic_deletion.resume(draft)
    partition_state_machine.elect_preferred(draft, failover.preferred_elections)


def _absorb_missed_restarts(
    draft: DecisionDraft, state_zxids: Mapping[TopicPartition, int]
) -> None:
    brokers = draft.state.brokers
    for partition, zxid in state_zxids.items():
        state = draft.state.leadership.get(partition)
        if state is None:
            continue  # gone since it was read
        restarted = [
            Replica(partition, broker_id)
            for broker_id in (*state.isr, *state.elr)
            if broker_id in brokers and brokers[broker_id].epoch > zxid
        ]
        for replica in replica_state_machine.leaders_last(draft, restarted):
            replica_state_machine.leave_isr(draft, replica)
            broker_changes.weigh_restart(draft, replica)


class ActiveController:
    """Touched only on the broker's loop."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        registration: ControllerRegistration,
        *,
        settings: Settings,
        peers: PeerDirectory,
        timer: Timer,
        queue: ControllerEventManager,
        elections: Counter[str],
    ) -> None:
        self.over = False
        self._settings = settings
        self._timer = timer
        self._queue = queue
        self._store = ControllerStore(store, registration.epoch_version, timer)
        self._topic_settings = SettingsReader(self._store, broker_id, settings)
        self.context = ControllerContext(
            registration.epoch,
            self._topic_settings.defaults,
            deletion_enabled=settings["delete.topic.enable"],
        )
        listener_name = settings.inter_broker_listener_name
        self._channels = ControllerChannelManager(
            peers,
            listener_name=listener_name,
            timeout_s=settings["controller.socket.timeout.ms"] / 1000,
            timer=timer,
            answered=self._answered,
        )
        self._executor = DecisionExecutor(
            self.context, self._store, self._channels, Sender(broker_id, listener_name), elections
        )
        self._watchers = self._make_watchers()
        self._reader = ClusterReader(self._store, self._watchers)
        self._balance_check: TimerHandle | None = None

    async def begin(self) -> None:
        """Raises ControllerMoved if the place is lost meanwhile."""
        await self._make_missing_nodes()
        await self._drop_old_notifications()
        failover = await self._read_cluster()
        await self._decide(on_failover, failover)
        await self._finish_admin_nodes(failover)
        if self._settings["auto.leader.rebalance.enable"]:
            self._schedule_auto_leader_rebalance(FIRST_BALANCE_CHECK_S)

    @property
    def is_half_done(self) -> bool:
        """The store has a decision that brokers were not told of, because that failed."""
        return self._executor.is_half_done

    def end(self) -> None:
        self.over = True
        self._channels.close()
        if self._balance_check is not None:
            self._balance_check.cancel()

    # Beginning

    async def _make_missing_nodes(self) -> None:
        feature = Create(znodes.FEATURE, znodes.encode_no_features())
        wanted = [*(Create(p, make_parents=True) for p in znodes.PERSISTENT_PATHS), feature]
        there = await asyncio.gather(*(self._store.exists(node.path) for node in wanted))
        for node, found in zip(wanted, there, strict=True):
            if not found:
                with suppress(Conflict):  # somebody else has made it
                    await self._store.write([node])

    async def _drop_old_notifications(self) -> None:
        """The failover reads everything that they announce."""
        for read in (self._reader.isr_change_notifications, self._reader.log_dir_events):
            paths, _ = await read()
            await self._delete(paths)

    async def _read_cluster(self) -> FailoverState:
        context, reader = self.context, self._reader
        context.brokers.update(await reader.brokers())
        names = await reader.topic_names()
        await self._topic_settings.changes(self._watchers.config_changes)
        self._topic_settings.changes_taken_in()
        await self._read_broker_settings()
        context.topic_settings.update(await self._topic_settings.read_topics(names))
        for name, topic in (await reader.topics(names)).items():
            context.put_topic(name, topic.topic_id, topic.version, topic.assignments)
        zxids = await reader.leadership(context)
        deletions = await reader.deletions()
        if not context.deletion_enabled:
            await self._delete([znodes.delete_topic_path(name) for name in deletions])
            deletions = []
        return FailoverState(
            zxids,
            deletions,
            await reader.reassignments() or {},
            await reader.preferred_elections() or (),
        )

    async def _finish_admin_nodes(self, failover: FailoverState) -> None:
        gone = [name for name in failover.topics_to_delete if name not in self.context.topics]
        await self._delete([znodes.delete_topic_path(name) for name in gone])
        await self._trim_reassignments()
        if failover.preferred_elections:
            await self._delete([znodes.PREFERRED_REPLICA_ELECTION])

    # Watches

    def _make_watchers(self) -> Watchers:
        return Watchers(
            brokers=self._watcher("brokers changed", self._brokers_changed),
            broker=self._broker_watched,
            topics=self._watcher("topics changed", self._topics_changed),
            topic=self._topic_watched,
            deletions=self._watcher("deletions asked for", self._deletions_asked_for),
            isr_change_notifications=self._watcher("in-sync sets changed", self._isr_changed),
            log_dir_events=self._watcher("log directories failed", self._log_dirs_failed),
            config_changes=self._watcher("configuration changed", self._configuration_changed),
            reassignments=self._watcher("reassignments asked for", self._reassignments_asked_for),
            preferred_election=self._watcher("elections asked for", self._elections_asked_for),
        )

    def _watcher(self, name: str, handle: Callable[[], Awaitable[None]]) -> Watcher:
        def fired(_event: WatchedEvent) -> None:
            self._put(name, handle)

        return fired

    def _broker_watched(self, event: WatchedEvent) -> None:
        if event.type is EventType.CHANGED:
            broker_id = int(event.path.rpartition("/")[2])
            self._put(f"broker {broker_id} moved", partial(self._broker_moved, broker_id))

    def _topic_watched(self, event: WatchedEvent) -> None:
        if event.type is EventType.CHANGED:
            name = event.path.rpartition("/")[2]
            self._put(f"partitions of {name} changed", partial(self._partitions_changed, name))

    def _put(
        self, name: str, handle: Callable[[], Awaitable[None]], retry_key: Hashable = None
    ) -> None:
        """Tried again until it is done: nobody tells it twice. The key is the name, if none is
        given, in which case the event must say all by its name.
        """

        async def run() -> None:
            if not self.over:
                await handle()

        if not self.over:
            self._queue.put(Event(name, run, retry_key=(self, retry_key or name)))

    def _put_answer(self, broker_id: int, handle: Callable[[], Awaitable[None]]) -> None:
        """Not tried again for the next life of the broker, which is asked anew."""
        life, tried = self._life_of(broker_id), False

        async def run() -> None:
            nonlocal tried
            if not tried or self._life_of(broker_id) == life:
                tried = True
                await handle()

        self._put("a broker answered", run, retry_key=run)

    def _life_of(self, broker_id: int) -> int | None:
        broker = self.context.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    # Brokers

    async def _brokers_changed(self) -> None:
        changes = broker_changes.compare(self.context, await self._reader.brokers())
        if changes.gone or changes.come:
            logger.info(
                "brokers changed",
                extra={"event": "brokers-changed", "gone": changes.gone, "come": [*changes.come]},
            )
        if changes.gone:
            await self._decide(broker_changes.brokers_gone, changes.gone)
        if changes.come:
            await self._decide(broker_changes.brokers_come, changes.come)

    async def _broker_moved(self, broker_id: int) -> None:
        known, now = self.context.brokers.get(broker_id), await self._reader.broker(broker_id)
        if known is not None and now is not None and now.epoch == known.epoch and now != known:
            await self._decide(broker_changes.broker_moved, broker_id, now)

    async def controlled_shutdown(self, broker_id: int, epoch: int) -> list[TopicPartition]:
        """The partitions that the broker still leads. Raises KafkaError."""
        logger.info("a broker is shutting down", extra={"broker": broker_id})
        return await self._decide(broker_changes.shut_down, broker_id, epoch)

    async def answered_by_all(self, within_s: float) -> None:
        """Until the brokers have done what they were told, or the time is over."""
        await self._channels.answered_by_all(within_s)

    # Topics

    async def _topics_changed(self) -> None:
        names = await self._reader.topic_names()
        gone = self.context.topics.keys() - set(names)
        fresh = [name for name in names if name not in self.context.topics]
        settings = await self._topic_settings.read_topics(fresh)
        new = {
            name: topic._replace(settings=settings.get(name))
            for name, topic in (await self._reader.topics(fresh)).items()
        }
        if new or gone:
            await self._decide(topic_changes.topics_changed, new, gone)
        # One that is new may have been on its way out before it was seen.
        if new:
            await self._deletions_asked_for()

    async def _partitions_changed(self, name: str) -> None:
        topic = await self._reader.topic(name)
        if topic is not None and name in self.context.topics:
            await self._decide(topic_changes.partitions_changed, name, topic)

    async def _configuration_changed(self) -> None:
        named = await self._topic_settings.changes(self._watchers.config_changes)
        if any(entity.startswith("brokers/") for entity in named):
            await self._read_broker_settings()
            self._topic_settings.forget_all_but(self.context.topics)
            self.context.topic_settings.update(self._topic_settings.with_overrides())
            await self._decide(topic_changes.defaults_changed)
        topics = [
            entity.removeprefix("topics/") for entity in named if entity.startswith("topics/")
        ]
        known = sorted(name for name in topics if name in self.context.topics)
        if known:
            settings = {name: await self._topic_settings.read_topic(name) for name in known}
            await self._decide(topic_changes.settings_changed, settings)
        self._topic_settings.changes_taken_in()

    async def _read_broker_settings(self) -> None:
        await self._topic_settings.read_brokers()
        self.context.default_settings = self._topic_settings.defaults
        self.context.dynamic_min_isr = self._topic_settings.dynamic_min_isr

    async def _deletions_asked_for(self) -> None:
        names = await self._reader.deletions()
        if not self.context.deletion_enabled:
            await self._delete([znodes.delete_topic_path(name) for name in names])
            return
        known = [name for name in names if name in self.context.topics]
        unknown = [name for name in names if name not in self.context.topics]
        if unknown:
            # One of them may have been made just now, its event still waiting.
            there = set(await self._reader.topic_names())
            gone = [znodes.delete_topic_path(name) for name in unknown if name not in there]
            await self._delete(gone)
        fresh = [name for name in known if name not in self.context.topics_to_delete]
        if fresh:
            await self._decide(topic_deletion.enqueue, fresh)

    def is_to_be_deleted(self, topic: str) -> bool:
        return self.context.is_to_be_deleted(topic)

    # In-sync sets

    async def alter_partition(
        self, request: AlterPartitionRequest, version: int
    ) -> AlterPartitionResponse:
        response = await self._decide(alter_partition.alter_partitions, request, version)
        named = set(alter_partition.partitions_named(self.context, request, version))
        waiting = self.context.reassigning & named
        if waiting:
            completed = partial(self._complete_reassignments, waiting)
            self._put("in-sync sets of moving partitions changed", completed, retry_key=completed)
        return response

    async def _isr_changed(self) -> None:
        """Leaders of old have written in-sync sets themselves."""
        paths, named = await self._reader.isr_change_notifications()
        known = [partition for partition in named if partition in self.context.leadership]
        await self._executor.refresh(known)
        await self._decide(lambda draft: draft.requests.tell_everyone(known))
        await self._complete_reassignments(known)
        await self._delete(paths)

    # Log directories

    async def _log_dirs_failed(self) -> None:
        paths, broker_ids = await self._reader.log_dir_events()
        await self._decide(broker_changes.ask_again, broker_ids)
        await self._delete(paths)

    # Reassignments

    async def _reassignments_asked_for(self) -> None:
        wanted = await self._reader.reassignments()
        if wanted is None:
            return
        await self._decide(partition_reassignment.start_all, wanted)
        await self._trim_reassignments()

    async def alter_reassignments(
        self,
        targets: dict[TopicPartition, list[int] | None],
        *,
        same_factor: bool,
    ) -> dict[TopicPartition, KafkaError | None]:
        results: dict[TopicPartition, KafkaError | None] = {}
        for topic_partition, target in targets.items():
            try:
                await self._decide(
                    partition_reassignment.alter,
                    topic_partition,
                    target,
                    same_factor=same_factor,
                )
                results[topic_partition] = None
            except KafkaError as error:
                results[topic_partition] = error
        started = {tp for tp, error in results.items() if error is None}
        await self._trim_reassignments(superseded=started)
        return results

    async def _complete_reassignments(self, partitions: Collection[TopicPartition]) -> None:
        before = set(self.context.reassigning)
        if not before.intersection(partitions):
            return
        await self._decide(partition_reassignment.complete_where_possible, partitions)
        if self.context.reassigning != before:
            await self._trim_reassignments()

    async def _trim_reassignments(self, superseded: Collection[TopicPartition] = ()) -> None:
        """Takes out of /admin/reassign_partitions what is done, superseded or impossible."""
        asked = await self._reader.reassignments()
        if asked is None:
            return
        left = {
            partition: target
            for partition, target in asked.items()
            if partition in self.context.reassigning
            and partition not in superseded
            and self.context.assignments[partition].target == target
        }
        if not left:
            await self._delete([znodes.REASSIGN_PARTITIONS])
            await self._reader.reassignments()  # leaves a watch for the next
        elif left != asked:
            encoded = znodes.encode_reassignment(left)
            # When it is gone meanwhile, there is nothing to take out of it.
            with suppress(Conflict):
                await self._store.write([SetData(znodes.REASSIGN_PARTITIONS, encoded)])

    # Elections

    async def _elections_asked_for(self) -> None:
        wanted = await self._reader.preferred_elections()
        if wanted is None:
            return
        await self._decide(partition_state_machine.elect_preferred, wanted)
        await self._delete([znodes.PREFERRED_REPLICA_ELECTION])
        await self._reader.preferred_elections()  # leaves a watch for the next

    async def elect_leaders(
        self, partitions: Collection[TopicPartition] | None, election_type: int
    ) -> dict[TopicPartition, KafkaError | None]:
        """All partitions if none are named."""
        wanted = list(self.context.assignments) if partitions is None else partitions
        return await self._decide(partition_state_machine.elect_leaders, wanted, election_type)

    def _schedule_auto_leader_rebalance(self, delay_s: float) -> None:
        # Not tried again when it fails: the next check comes by itself.
        event = Event("leader balance", self._auto_leader_rebalance)
        self._balance_check = self._timer.call_later(delay_s, partial(self._queue.put, event))

    async def _auto_leader_rebalance(self) -> None:
        if self.over:
            return
        self._schedule_auto_leader_rebalance(
            self._settings["leader.imbalance.check.interval.seconds"]
        )
        percentage = self._settings["leader.imbalance.per.broker.percentage"]
        await self._decide(partition_state_machine.elect_preferred_where_imbalanced, percentage)

    # Answers of brokers

    def _answered(self, broker_id: int, request: Request, response: Any) -> None:
        if response.error_code != ErrorCode.NONE:
            logger.warning(
                "a broker refuses a request of the controller",
                extra={
                    "broker": broker_id,
                    "request": type(request).__name__,
                    "error": ErrorCode.of(response.error_code).name,
                },
            )
        if isinstance(request, StopReplicaRequest):
            self._stop_answered(broker_id, request, response)
        elif isinstance(request, LeaderAndIsrRequest) and not response.error_code:
            self._hosting_answered(broker_id, response)

    def _hosting_answered(self, broker_id: int, response: LeaderAndIsrResponse) -> None:
        errors = {
            TopicPartition(name, row.partition_index): ErrorCode.of(row.error_code)
            for topic in response.topics
            if (name := self.context.topic_names.get(topic.topic_id)) is not None
            for row in topic.partition_errors
        }
        if self.context.offline_dirs.get(broker_id) or any(errors.values()):
            decide = partial(self._decide, broker_changes.hosting_answered, broker_id, errors)
            self._put_answer(broker_id, decide)

    def _stop_answered(
        self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> None:
        """Concerns replicas that were to be deleted with their topic."""
        asked = {
            TopicPartition(topic.topic_name, row.partition_index)
            for topic in request.topic_states
            if topic.topic_name in self.context.deletion_started
            for row in topic.partition_states
            if row.delete_partition
        }
        failed = set(asked) if response.error_code else set()
        for row in response.partition_errors:
            if row.error_code:
                failed.add(TopicPartition(row.topic_name, row.partition_index))
        if asked:
            handle = partial(self._deletion_answered, broker_id, asked - failed, asked & failed)
            self._put_answer(broker_id, handle)

    async def _deletion_answered(
        self, broker_id: int, deleted: set[TopicPartition], failed: set[TopicPartition]
    ) -> None:
        def decide(draft: DecisionDraft) -> None:
            topic_deletion.replicas_failed(draft, [Replica(tp, broker_id) for tp in sorted(failed)])
            topic_deletion.replicas_deleted(
                draft, [Replica(tp, broker_id) for tp in sorted(deleted)]
            )

        await self._decide(decide)

    # Carrying out

    async def _decide(
        self,
        decide: Callable[Concatenate[DecisionDraft, P], T],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        return await self._executor.carry_out(lambda draft: decide(draft, *arguments, **named))

    async def _delete(self, paths: Collection[str]) -> None:
        """Those of the nodes that are there."""
        there = await asyncio.gather(*(self._store.exists(path) for path in paths))
        present = [path for path, found in zip(paths, there, strict=True) if found]
        if not present:
            return
        try:
            await self._store.write([Delete(path) for path in present])
        except Conflict:
            await self._delete(present)
