"""The group coordinator: what the handlers of the group and offset APIs ask.

It finds the shard of a group, checks what Kafka checks before looking at the group (its id;
loading; whether this broker looks after it), and hands on to `membership` (members of classic
groups), `consumer.membership` and `consumer.classic_members` (members of consumer groups),
`removal` (expiry, deletion) or the shard's offsets. Refusals are KafkaErrors unless an answer has a
place of its own for them.

Records of one request are written as one batch (deletions: in batches of a bounded size); offset
commits carry base sequence 0, as Kafka's do. See `runtime` for when an answer may leave.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.group import records, removal
from tidelog.coordinator.group.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from tidelog.coordinator.group.classic.classic_member import UNKNOWN_MEMBER_ID
from tidelog.coordinator.group.classic.classic_membership import (
    ClassicMembership,
    JoinAnswer,
    Joining,
    SyncAnswer,
    random_uuid,
    require_generation,
    require_member,
)
from tidelog.coordinator.group.classic.classic_states import ClassicGroupState
from tidelog.coordinator.group.classic.rebalance import Rebalances, store_error
from tidelog.coordinator.group.consumer import offset_rules
from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup
from tidelog.coordinator.group.results import (
    ConsumerGroupHeartbeatResult,
    JoinGroupResult,
    SyncGroupResult,
)
from tidelog.coordinator.group.settings import ConsumerGroupSettings, GroupSettings
from tidelog.coordinator.group.shard import GroupShard
from tidelog.coordinator.group.tombstone_writer import (
    LOOKS_MAX,
    TOMBSTONES_MAX,
    Piece,
    TombstoneWriter,
)
from tidelog.coordinator.partition_hash import partition_for
from tidelog.coordinator.runtime import SLICE_BYTES_MAX, CoordinatorRuntime
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.record.batch import Codec
from tidelog.slices import SlicedWork
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.group import GroupConfig
    from tidelog.coordinator.group.classic.classic_member import ClassicGroupMember
    from tidelog.coordinator.group.consumer.assignors.spec import Assignor
    from tidelog.coordinator.group.consumer.classic_members import ClassicMembers
    from tidelog.coordinator.group.consumer.consumer_membership import ConsumerMembership, Sender
    from tidelog.coordinator.group.consumer.topics import Topics
    from tidelog.coordinator.group.offsets import CommittedOffset, GroupOffsets
    from tidelog.coordinator.group.shard import AnyGroup
    from tidelog.coordinator.stored_record import PreparedRecords
    from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from tidelog.protocol.messages.heartbeat import HeartbeatRequest
    from tidelog.protocol.messages.sync_group import SyncGroupRequest
    from tidelog.replication.flusher import LogFlusher

logger = logging.getLogger(__name__)

CONSUMER_OFFSETS: Final = "__consumer_offsets"

NewOffset = tuple[str, int, "CommittedOffset"]  # topic, partition

# What a client is told when its commit could not be written.
_COMMIT_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def commit_error(code: ErrorCode) -> ErrorCode:
    return _COMMIT_ERRORS.get(code, code)


class GroupCoordinator:
    """Touched only on the broker loop."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        timer: Timer,
        flusher: LogFlusher,
        topics: Topics,
        new_uuid: Callable[[], str] = random_uuid,
    ) -> None:
        self._clock = clock
        self.runtime = CoordinatorRuntime(
            CONSUMER_OFFSETS,
            records.GROUP_RECORD_TYPES,
            lambda index: GroupShard(index, clock),
            clock=clock,
            timer=timer,
            flusher=flusher,
            load_slice_bytes=min(config.get_int("offsets.load.buffer.size"), SLICE_BYTES_MAX),
            on_loaded=self._loaded,
            on_unloaded=self._unloaded,
        )
        self.work = SlicedWork(clock, timer)
        self.configure(config)
        self._group_configs: dict[str, GroupConfig] = {}  # of groups that have one of their own
        self._rebalances = Rebalances(self.runtime, clock, timer, lambda: self.settings)
        self._membership = ClassicMembership(
            self.runtime, self._rebalances, clock, lambda: self.settings, new_uuid
        )
        self._topics = topics
        self._topics_version = 0  # counts created topics: patterns may stand for more
        self._changed_topics: set[str] = set()  # of which subscribed groups are still to learn
        self._timer = timer
        self._new_uuid = new_uuid

    @cached_property
    def _consumers(self) -> ConsumerMembership:
        from tidelog.coordinator.group.consumer.consumer_membership import ConsumerMembership

        return ConsumerMembership(
            self.runtime,
            self._rebalances,
            self._topics,
            self._clock,
            self._timer,
            lambda: self.settings,
            self._consumer_settings,
            lambda: self._topics_version,
            self._new_uuid,
        )

    @cached_property
    def _classic_members(self) -> ClassicMembers:
        from tidelog.coordinator.group.consumer.classic_members import ClassicMembers

        return ClassicMembers(self.runtime, self._consumers, self._clock, self._new_uuid)

    def configure_group(self, group_id: str, config: GroupConfig | None) -> None:
        """What the group has of its own; it holds from each member's next heartbeat on."""
        if config is None:
            self._group_configs.pop(group_id, None)
        else:
            self._group_configs[group_id] = config

    def _consumer_settings(self, group_id: str) -> ConsumerGroupSettings:
        own = self._group_configs.get(group_id)
        if own is None:
            return self.settings.consumer
        return self.settings.consumer._replace(
            heartbeat_interval_ms=own.heartbeat_interval_ms,
            session_timeout_ms=own.session_timeout_ms,
        )

    def configure(self, config: BrokerConfig) -> None:
        self.settings = GroupSettings.of(config)
        self.runtime.codec = Codec(config.get_int("offsets.topic.compression.codec"))
        self.runtime.write_timeout_ms = config.get_int("offsets.commit.timeout.ms")

    # The topic

    def _loaded(self, shard: GroupShard) -> None:
        for group in tuple(shard.groups.values()):
            if isinstance(group, ConsumerGroup):
                for each in group.members.values():
                    self._consumers.begin_session(group, each)
                continue
            group.committed_generation = group.generation_id
            for member in group.members.values():
                self._rebalances.heard_from(group, member)
            if len(group.members) > self.settings.max_size:
                self._rebalances.prepare(group, "it has more members than group.max.size")

    def _unloaded(self, shard: GroupShard) -> None:
        for group in shard.groups.values():
            if isinstance(group, ConsumerGroup):
                group.die()
            else:
                group.die(self._clock.time_ms(), ErrorCode.NOT_COORDINATOR)

    # Members

    def join_group(self, group_id: str, joining: Joining) -> JoinAnswer:
        try:
            return self._join(self._shard(group_id), group_id, joining)
        except KafkaError as error:
            return JoinGroupResult.failed(store_error(error.code), joining.member_id)

    def _join(self, shard: GroupShard, group_id: str, joining: Joining) -> JoinAnswer:
        group = shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return self._membership.join(shard, group_id, joining)
        self._membership.require_session_timeout(joining)
        if not group.members:
            if joining.member_id != UNKNOWN_MEMBER_ID:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            self.runtime.write(shard.index, removal.consumer_group_tombstones(group))
            return self._membership.join(shard, group_id, joining)
        try:
            answer, flushed = self._classic_members.join(shard, group, joining)
        except KafkaError as error:
            return JoinGroupResult.failed(store_error(error.code), UNKNOWN_MEMBER_ID)
        if flushed is None:
            return answer
        return flushed.map(
            lambda code: (
                JoinGroupResult.failed(store_error(code), UNKNOWN_MEMBER_ID) if code else answer
            )
        )

    def sync_group(self, request: SyncGroupRequest) -> SyncAnswer:
        try:
            group = self._group(request.group_id)
            if isinstance(group, ConsumerGroup):
                return self._classic_members.sync(group, request)
            return self._membership.sync(group, request)
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # Whether the assignment was written is not known yet: the member must rejoin.
                code = ErrorCode.REBALANCE_IN_PROGRESS
            return SyncGroupResult(code)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        try:
            group = self._group(request.group_id)
            sender = (request.member_id, request.group_instance_id, request.generation_id)
            if isinstance(group, ConsumerGroup):
                return self._classic_members.heartbeat(group, *sender)
            return self._membership.heartbeat(group, *sender)
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE  # sessions begin anew when the group is loaded
            return error.code

    def leave_group(
        self, group_id: str, leaving: Sequence[tuple[str, str | None, str | None]]
    ) -> list[ErrorCode]:
        """An outcome for each (member id, instance id, reason)."""
        group = self._shard(group_id).groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            try:
                return self._classic_members.leave(group, leaving)
            except KafkaError as error:
                raise KafkaError(store_error(error.code), error.message) from error
        outcomes = []
        for member_id, group_instance_id, reason in leaving:
            code = ErrorCode.NONE
            try:
                if group is None:
                    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
                self._membership.leave(group, member_id, group_instance_id, reason)
            except KafkaError as error:
                code = error.code
            outcomes.append(code)
        return outcomes

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, sender: Sender
    ) -> ConsumerGroupHeartbeatResult | Pending[ConsumerGroupHeartbeatResult]:
        failed = ConsumerGroupHeartbeatResult.failed
        try:
            if not self.settings.consumer.is_enabled:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            shard = self.runtime.shard_for(request.group_id)
            answer, flushed = self._consumers.heartbeat(shard, request, sender)
        except KafkaError as error:
            return failed(store_error(error.code), error.message)
        if flushed is None:
            return answer
        return flushed.map(lambda code: failed(store_error(code)) if code else answer)

    # Offsets

    def commit_offsets(
        self,
        group_id: str,
        offsets: Sequence[NewOffset],
        *,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        version: int,
        prepared: PreparedRecords | None = None,
    ) -> Pending[ErrorCode] | None:
        """None: committed; else the outcome, for `commit_error`, comes later. `version` is that of
        OffsetCommit; `prepared` are the records of all offsets, if they are many.
        """
        shard = self.runtime.shard_for(group_id)
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self._require_epoch(group, offsets, member_id, generation_id, version)
        elif group is not None:
            member = _committing_member(group, generation_id, member_id, group_instance_id)
            if member is not None:
                self._rebalances.heard_from(group, member)
        elif generation_id >= 0:
            is_modern = version >= offset_rules.FIRST_VERSION_WITH_MEMBER_EPOCH
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND if is_modern else ErrorCode.ILLEGAL_GENERATION
            )
        return self._write_offsets(shard, group_id, offsets, prepared)

    def _require_epoch(
        self,
        group: ConsumerGroup,
        offsets: Sequence[NewOffset],
        member_id: str,
        epoch: int,
        version: int | None,
    ) -> None:
        places = ((topic, partition) for topic, partition, _ in offsets)
        offset_rules.require_commit(group, member_id, epoch, places, self._topics, version=version)

    def commit_transactional_offsets(
        self,
        group_id: str,
        offsets: Sequence[NewOffset],
        *,
        producer_id: int,
        producer_epoch: int,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        prepared: PreparedRecords | None = None,
    ) -> Pending[ErrorCode] | None:
        """They count when the producer's transaction is committed; see `commit_offsets`.

        A producer that says nothing of a member (KIP-447 is newer than transactions) may commit
        for any group.
        """
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        names_member = (
            generation_id >= 0 or member_id != UNKNOWN_MEMBER_ID or group_instance_id is not None
        )
        if group is None and generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if isinstance(group, ConsumerGroup):
            if names_member:
                self._require_transactional_epoch(group, offsets, member_id, generation_id)
        elif group is not None and names_member and not _is_simple(group, generation_id):
            require_member(group, member_id, group_instance_id)
            require_generation(group, generation_id)
        return self._write_offsets(shard, group_id, offsets, prepared, producer_id, producer_epoch)

    def _require_transactional_epoch(
        self, group: ConsumerGroup, offsets: Sequence[NewOffset], member_id: str, epoch: int
    ) -> None:
        try:
            self._require_epoch(group, offsets, member_id, epoch, None)
        except KafkaError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise

    def _write_offsets(
        self,
        shard: GroupShard,
        group_id: str,
        offsets: Sequence[NewOffset],
        prepared: PreparedRecords | None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> Pending[ErrorCode] | None:
        assert prepared is None or len(prepared) == len(offsets)
        batch = prepared or [
            records.offset_commit(group_id, topic, partition, committed)
            for topic, partition, committed in offsets
        ]
        try:
            return self.runtime.write(
                shard.index,
                batch,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=0,
            )
        except KafkaError as error:
            raise KafkaError(commit_error(error.code), error.message) from error

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """Where the offsets of a group are kept, wherever that is led."""
        count = self.runtime.partition_count
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return TopicPartition(CONSUMER_OFFSETS, partition_for(group_id, count))

    def offsets_of(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> GroupOffsets | None:
        """None if the group has none, or is not known. Members of a consumer group name themselves
        and their epoch.
        """
        shard = self.runtime.shard_for(group_id)
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            offset_rules.require_fetch(group, member_id, member_epoch)
        return shard.offsets.get(group_id)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[removal.TopicAndPartition]
    ) -> dict[removal.TopicAndPartition, ErrorCode]:
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state is ClassicGroupState.EMPTY:
            outcomes = dict.fromkeys(partitions, ErrorCode.NONE)
        elif group.protocol_type == CONSUMER_PROTOCOL_TYPE:
            outcomes = {
                partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                if group.is_subscribed_to(partition[0])
                else ErrorCode.NONE
                for partition in partitions
            }
        else:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        doomed = [each for each, code in outcomes.items() if code is ErrorCode.NONE]
        present = shard.offsets.get(group_id)
        there = [] if present is None else [each for each in doomed if present.holds(*each)]
        if doomed:
            # As in Kafka, a consumer group stays until offsets are expired next.
            self._remove(shard, group_id, there, with_group=isinstance(group, ClassicGroup))
        return outcomes

    def _remove(
        self,
        shard: GroupShard,
        group_id: str,
        gone: Iterable[removal.TopicAndPartition],
        *,
        with_group: bool = True,
    ) -> None:
        """And the group, if nothing is left of it."""
        writer = TombstoneWriter(self.runtime, shard)
        for topic, partition in gone:
            writer.add((group_id, topic, (partition,)))
        if with_group:
            writer.add((group_id, None, ()))
        writer.write()

    def topic_created(self, topic: str) -> None:
        self._topics_version += 1
        self.topic_changed(topic)

    def topic_changed(self, topic: str) -> None:
        """Consumer groups that are subscribed to it look at it with their next heartbeat."""
        self._changed_topics.add(topic)
        if len(self._changed_topics) == 1:
            self.work.start(self._mark_stale())

    def _mark_stale(self) -> Iterator[None]:
        """For all topics that have changed by the time this begins."""
        changed, self._changed_topics = self._changed_topics, set()
        looks = 0
        for _, group in self._all_groups():
            looks += 1
            if isinstance(group, ConsumerGroup):
                looks += len(changed)
                if not group.subscription_is_stale and any(
                    group.is_subscribed_to(topic) or topic in group.subscription_metadata
                    for topic in changed
                ):
                    group.subscription_is_stale = True
            if looks > LOOKS_MAX:
                looks = 0
                yield

    def topic_deleted(self, topic: str) -> None:
        """Its offsets go, so that a topic made under the same name starts afresh."""
        self.topic_changed(topic)
        for shard in self.runtime.active_shards():
            group_ids = shard.groups_of_topic(topic)
            if group_ids:
                end_offset = self.runtime.end_offset(shard.index)
                pieces = _pieces_of_topic(shard, group_ids, topic, end_offset)
                self.work.start(TombstoneWriter(self.runtime, shard).run(pieces))

    def expire_offsets(self) -> None:
        now_ms = self._clock.time_ms()
        retention_ms = self.settings.offsets_retention_ms
        for shard in self.runtime.active_shards():
            pieces = _expired_pieces(shard, now_ms, retention_ms)
            removal_steps = TombstoneWriter(self.runtime, shard).run(pieces)
            self.work.repeat(f"expire offsets of {shard.index}", removal_steps)

    async def worked_off(self) -> None:
        """All work that has been put off so far is done."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def last() -> Iterator[None]:
            if not done.done():
                done.set_result(None)
            yield

        self.work.start(last())
        await done

    # Administration

    def list_groups(self) -> list[AnyGroup]:
        return [group for _, group in self._all_groups()]

    @property
    def assignors(self) -> Mapping[str, Assignor]:
        """Of consumer groups, the default first."""
        return self._consumers.assignors

    def group_or_none(self, group_id: str) -> AnyGroup | None:
        return self.runtime.shard_for(group_id).groups.get(group_id)

    def delete_group(self, group_id: str) -> ErrorCode | None:
        """None: some of its offsets are gone, and there are more; ask again."""
        try:
            shard = self.runtime.shard_for(group_id)
            group = shard.groups.get(group_id)
            if group is None:
                return ErrorCode.GROUP_ID_NOT_FOUND
            if isinstance(group, ClassicGroup):
                if group.state is not ClassicGroupState.EMPTY:
                    return ErrorCode.NON_EMPTY_GROUP
                for member_id in tuple(group.pending_members):
                    group.forget_pending(member_id)
            elif group.members:
                return ErrorCode.NON_EMPTY_GROUP
            offsets = shard.offsets.get(group_id)
            if offsets is None:
                self._remove(shard, group_id, ())
                return ErrorCode.NONE
            some = dict.fromkeys(islice(removal.everything(offsets), TOMBSTONES_MAX))
            self._remove(shard, group_id, some)
            if group_id in shard.offsets:
                return None
        except KafkaError as error:
            return commit_error(error.code)
        return ErrorCode.NONE

    # Finding groups

    def _shard(self, group_id: str) -> GroupShard:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self.runtime.shard_for(group_id)

    def _group(self, group_id: str) -> AnyGroup:
        group = self._shard(group_id).groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def _all_groups(self) -> Iterator[tuple[GroupShard, AnyGroup]]:
        for shard in self.runtime.active_shards():
            for group in tuple(shard.groups.values()):
                yield shard, group


def _pieces_of_topic(
    shard: GroupShard, group_ids: Sequence[str], topic: str, end_offset: int
) -> Iterator[Piece]:
    """What was committed from `end_offset` on belongs to a newer topic of that name, and stays."""
    for group_id in group_ids:
        offsets = shard.offsets.get(group_id)
        has_topic = False
        for piece in () if offsets is None else offsets.pieces(topic):
            has_topic = True
            gone = [n for n, committed in piece.items() if committed.log_offset < end_offset]
            yield group_id, topic, gone
        if has_topic:
            yield group_id, None, ()


def _expired_pieces(shard: GroupShard, now_ms: int, retention_ms: int) -> Iterator[Piece]:
    for group_id in tuple(shard.groups):
        offsets = shard.offsets.get(group_id)
        if offsets is not None:
            for topic in tuple(offsets.topics()):
                for piece in offsets.pieces(topic):
                    group = shard.groups.get(group_id)
                    if group is not None:  # it may change between two pieces, and go
                        gone = removal.expired(group, topic, piece, now_ms, retention_ms)
                        # A tombstone would take along what waits for a transaction.
                        gone = [n for n in gone if not offsets.is_unstable(topic, n)]
                        yield group_id, topic, gone
        yield group_id, None, ()


def _is_simple(group: ClassicGroup, generation_id: int) -> bool:
    """Whether the commit comes from outside of a group that has no members."""
    return generation_id < 0 and group.state is ClassicGroupState.EMPTY


def _committing_member(
    group: ClassicGroup, generation_id: int, member_id: str, group_instance_id: str | None
) -> ClassicGroupMember | None:
    """The member that commits; None for a simple consumer, which only an empty group allows."""
    if _is_simple(group, generation_id):
        return None
    if generation_id < 0 and member_id == UNKNOWN_MEMBER_ID and group_instance_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    member = require_member(group, member_id, group_instance_id)
    require_generation(group, generation_id)
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    return member
