"""The group coordinator: what the handlers of the group and offset APIs ask.

It finds the shard of a group, checks what Kafka checks before looking at the group (its id;
loading; whether this broker looks after it), and hands on to the group itself (`group`), to
`offset_removal` (expiry, deletion), to the shard's offsets, or to who answers members:

    of classic groups                                 classic_group_membership
    of consumer groups, by the consumer protocol      consumer_group_membership
    of consumer groups, by the classic protocol       classic_protocol_members

Refusals are KafkaErrors unless an answer has a place of its own for them.

Records of one request are written as one batch (deletions: in batches of a bounded size); offset
commits carry base sequence 0, as Kafka's do. See `runtime` for when an answer may leave.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tidelog.coordinator.group.classic.classic_group_membership import (
    ClassicGroupMembership,
    JoinAnswer,
    Joining,
    SyncAnswer,
    random_uuid,
)
from tidelog.coordinator.group.classic.rebalance import Rebalances
from tidelog.coordinator.group.group import UNKNOWN_MEMBER_ID, GroupType
from tidelog.coordinator.group.offset_removal import (
    LOOKS_MAX,
    TOMBSTONES_MAX,
    TombstoneWriter,
    everything,
    expired_pieces,
    pieces_of_topic,
)
from tidelog.coordinator.group.offsets import OffsetCommitter, commit_payload
from tidelog.coordinator.group.results import (
    ConsumerGroupHeartbeatResult,
    JoinGroupResult,
    SyncGroupResult,
    commit_error,
    member_error,
)
from tidelog.coordinator.group.settings import ConsumerGroupSettings, GroupSettings
from tidelog.coordinator.group.shard import GROUP_RECORD_TYPES, GroupShard
from tidelog.coordinator.runtime import (
    SLICE_BYTES_MAX,
    CoordinatorRuntime,
    partition_for,
    unwritable,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.errors import EncodeError
from tidelog.record.batch import Codec
from tidelog.slices import SlicedWork
from tidelog.types import CONSUMER_OFFSETS, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.group import GroupConfig
    from tidelog.coordinator.group.classic.classic_group_membership import Leaving, MemberRequests
    from tidelog.coordinator.group.consumer.assignors import Assignor
    from tidelog.coordinator.group.consumer.classic_protocol_members import ClassicProtocolMembers
    from tidelog.coordinator.group.consumer.consumer_group_membership import (
        ConsumerGroupMembership,
        Sender,
    )
    from tidelog.coordinator.group.group import Group, TopicAndPartition, Topics
    from tidelog.coordinator.group.offsets import GroupOffsets, NewOffset, OffsetRecords
    from tidelog.coordinator.group.shard import G
    from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from tidelog.protocol.messages.heartbeat import HeartbeatRequest
    from tidelog.protocol.messages.sync_group import SyncGroupRequest
    from tidelog.replication.flusher import LogFlusher

logger = logging.getLogger(__name__)

REMOVAL_RETRY_S: Final = 1.0


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
            GROUP_RECORD_TYPES,
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
        self._membership = ClassicGroupMembership(
            self.runtime, self._rebalances, clock, lambda: self.settings, new_uuid
        )
        self._topics = topics
        self._topics_version = 0  # counts created topics: patterns may stand for more
        self._changed_topics: set[str] = set()  # of which subscribed groups are still to learn
        # Whose offsets are still to go, by partition, with where its log ended when the topic went.
        self._deleted_topics: dict[int, dict[str, int]] = {}
        self._to_remove_again: set[GroupShard] = set()  # those that a timer stands for
        self._timer = timer
        self._new_uuid = new_uuid
        # Imported and made when needed.
        self._consumer_membership: ConsumerGroupMembership | None = None
        self._classic_members: ClassicProtocolMembers | None = None

    @property
    def _consumers(self) -> ConsumerGroupMembership:
        if self._consumer_membership is None:
            from tidelog.coordinator.group.consumer.consumer_group_membership import (
                ConsumerGroupMembership,
            )

            self._consumer_membership = ConsumerGroupMembership(
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
        return self._consumer_membership

    @property
    def _classic_protocol_members(self) -> ClassicProtocolMembers:
        if self._classic_members is None:
            from tidelog.coordinator.group.consumer.classic_protocol_members import (
                ClassicProtocolMembers,
            )

            self._classic_members = ClassicProtocolMembers(
                self.runtime, self._membership, self._consumers, self._clock, self._new_uuid
            )
        return self._classic_members

    def _requests_to(self, group: Group) -> MemberRequests[Any]:
        """Who answers members of the classic protocol in a group of this kind."""
        if group.type is GroupType.CLASSIC:
            return self._membership
        assert group.type is GroupType.CONSUMER, group.type
        return self._classic_protocol_members

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
            self._requests_to(group).loaded(group)
        self._remove_deleted(shard)

    def _unloaded(self, shard: GroupShard) -> None:
        for group in shard.groups.values():
            group.die(self._clock.time_ms(), ErrorCode.NOT_COORDINATOR)

    # Members

    def join_group(self, group_id: str, joining: Joining) -> JoinAnswer:
        try:
            shard = self._shard(group_id)
            group = shard.groups.get(group_id) or shard.classic_or_new(group_id)
            return self._requests_to(group).join(shard, group, joining)
        except KafkaError as error:
            return JoinGroupResult.failed(member_error(error.code), joining.member_id)

    def sync_group(self, request: SyncGroupRequest) -> SyncAnswer:
        try:
            group = self._group(request.group_id)
            return self._requests_to(group).sync(group, request)
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # Whether the assignment was written is not known yet: the member must rejoin.
                code = ErrorCode.REBALANCE_IN_PROGRESS
            return SyncGroupResult(code)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        try:
            group = self._group(request.group_id)
            return self._requests_to(group).heartbeat(
                group, request.member_id, request.group_instance_id, request.generation_id
            )
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE  # sessions begin anew when the group is loaded
            return error.code

    def leave_group(self, group_id: str, leaving: Sequence[Leaving]) -> list[ErrorCode]:
        """An outcome for each."""
        group = self._shard(group_id).groups.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        return self._requests_to(group).leave(group, leaving)

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
            return failed(member_error(error.code), error.message)
        if flushed is None:
            return answer
        return flushed.map(lambda code: failed(member_error(code)) if code else answer)

    # Offsets

    def commit_offsets(
        self,
        group_id: str,
        offsets: list[NewOffset],
        *,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        knows_member_epochs: bool,
        records: OffsetRecords | None = None,
    ) -> Pending[ErrorCode] | None:
        """None: committed; else the outcome, for `commit_error`, comes later. `records` are those
        of all offsets, if they are encoded already.
        """
        shard = self.runtime.shard_for(group_id)
        group = shard.groups.get(group_id)
        if group is not None:
            committer = OffsetCommitter(
                member_id, group_instance_id, generation_id, knows_member_epochs
            )
            group.require_commit(committer, offsets, self._topics)
            group.note_commit(member_id)
        elif generation_id >= 0:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND
                if knows_member_epochs
                else ErrorCode.ILLEGAL_GENERATION
            )
        return self._write_offsets(shard, group_id, offsets, records)

    def commit_transactional_offsets(
        self,
        group_id: str,
        offsets: list[NewOffset],
        *,
        producer_id: int,
        producer_epoch: int,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        records: OffsetRecords | None = None,
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
        if group is not None and names_member:
            committer = OffsetCommitter(
                member_id,
                group_instance_id,
                generation_id,
                knows_member_epochs=True,
                in_transaction=True,
            )
            group.require_commit(committer, offsets, self._topics)
        return self._write_offsets(shard, group_id, offsets, records, producer_id, producer_epoch)

    def _write_offsets(
        self,
        shard: GroupShard,
        group_id: str,
        offsets: list[NewOffset],
        records: OffsetRecords | None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> Pending[ErrorCode] | None:
        if not offsets:
            return None
        try:
            if records is None:
                payload = commit_payload(group_id, offsets)
            else:
                assert records.count == len(offsets)
                payload = records.payload()
            return self.runtime.write_payload(
                shard.index,
                payload,
                len(offsets),
                self._clock.time_ms(),
                lambda shard, offset: shard.replay_commit(group_id, offsets, offset, producer_id),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=0,
            )
        except EncodeError as error:
            refusal = unwritable(error)
            raise KafkaError(commit_error(refusal.code), refusal.message) from error
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
        if group is not None:
            group.require_fetch(member_id, member_epoch)
        return shard.offsets.get(group_id)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicAndPartition]
    ) -> dict[TopicAndPartition, ErrorCode]:
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.require_offset_deletion()
        outcomes = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if group.is_subscribed_to(partition[0])
            else ErrorCode.NONE
            for partition in partitions
        }
        doomed = [each for each, code in outcomes.items() if code is ErrorCode.NONE]
        present = shard.offsets.get(group_id)
        there = [] if present is None else [each for each in doomed if present.holds(*each)]
        if doomed:
            self._remove(shard, group_id, there, with_group=group.goes_with_deleted_offsets)
        return outcomes

    def _remove(
        self,
        shard: GroupShard,
        group_id: str,
        gone: Iterable[TopicAndPartition],
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
            looks += 1 + group.topics_changed(changed)
            if looks > LOOKS_MAX:
                looks = 0
                yield

    def topic_deleted(self, topic: str) -> None:
        """Its offsets go, so that a topic made under the same name starts afresh: at once, or when
        their partition has been loaded, or takes the tombstones.
        """
        self.topic_changed(topic)
        if topic == self.runtime.topic:  # nothing is left that would have to go
            self._deleted_topics.clear()
            return
        for index, end_offset in self.runtime.hosted_ends():
            self._deleted_topics.setdefault(index, {})[topic] = end_offset
        for shard in self.runtime.active_shards():
            self._remove_deleted(shard)

    def _remove_deleted(self, shard: GroupShard) -> None:
        deleted = self._deleted_topics.get(shard.index, {})
        for topic, end_offset in tuple(deleted.items()):
            if shard.groups_of_topic(topic):
                removal_steps = self._remove_topic(shard, topic, end_offset)
                self.work.repeat(f"remove {topic} of {shard.index} to {end_offset}", removal_steps)
            else:
                self._topic_removed(shard, topic, end_offset)

    def _remove_topic(self, shard: GroupShard, topic: str, end_offset: int) -> Iterator[None]:
        pieces = pieces_of_topic(shard, shard.groups_of_topic(topic), topic, end_offset)
        if (yield from TombstoneWriter(self.runtime, shard).run(pieces)):
            self._topic_removed(shard, topic, end_offset)
        elif shard not in self._to_remove_again:
            self._to_remove_again.add(shard)
            self._timer.call_later(REMOVAL_RETRY_S, partial(self._remove_again, shard))

    def _remove_again(self, shard: GroupShard) -> None:
        self._to_remove_again.remove(shard)
        if self.runtime.is_serving(shard.index, shard):
            self._remove_deleted(shard)

    def _topic_removed(self, shard: GroupShard, topic: str, end_offset: int) -> None:
        """Unless it has been made and deleted again meanwhile."""
        deleted = self._deleted_topics.get(shard.index, {})
        if deleted.get(topic) == end_offset:
            del deleted[topic]

    def expire_offsets(self) -> None:
        now_ms = self._clock.time_ms()
        retention_ms = self.settings.offsets_retention_ms
        for shard in self.runtime.active_shards():
            pieces = expired_pieces(shard, now_ms, retention_ms)
            removal_steps = TombstoneWriter(self.runtime, shard).run(pieces)
            self.work.repeat(f"expire offsets of {shard.index}", removal_steps)

    async def worked_off(self) -> None:
        """All work that has been put off so far is done, also what waits for a load."""
        await self.runtime.loads_over()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def last() -> Iterator[None]:
            if not done.done():
                done.set_result(None)
            yield

        self.work.start(last())
        await done

    # Administration

    def list_groups(self) -> list[Group]:
        return [group for _, group in self._all_groups()]

    @property
    def assignors(self) -> Mapping[str, Assignor]:
        """Of consumer groups, the default first."""
        return self._consumers.assignors

    def group_or_none(self, group_id: str) -> Group | None:
        return self.runtime.shard_for(group_id).groups.get(group_id)

    def of_kind_or_none(self, kind: type[G], group_id: str) -> G | None:
        """None as well for a group of another kind."""
        return self.runtime.shard_for(group_id).of_kind(kind, group_id)

    def delete_group(self, group_id: str) -> ErrorCode | None:
        """None: some of its offsets are gone, and there are more; ask again."""
        try:
            shard = self.runtime.shard_for(group_id)
            group = shard.groups.get(group_id)
            if group is None:
                return ErrorCode.GROUP_ID_NOT_FOUND
            group.require_deletion()
            group.stop_expecting()
            offsets = shard.offsets.get(group_id)
            if offsets is None:
                self._remove(shard, group_id, ())
                return ErrorCode.NONE
            some = dict.fromkeys(islice(everything(offsets), TOMBSTONES_MAX))
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

    def _group(self, group_id: str) -> Group:
        group = self._shard(group_id).groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def _all_groups(self) -> Iterator[tuple[GroupShard, Group]]:
        for shard in self.runtime.active_shards():
            for group in tuple(shard.groups.values()):
                yield shard, group
