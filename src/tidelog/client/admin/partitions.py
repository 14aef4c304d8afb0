"""Who leads and who holds partitions: elections (KIP-460) and reassignments (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.client.admin.asking import Asking, Found, Result, problem_of
from tidelog.client.errors import ClientError
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tidelog.types import TopicPartition

_UNCLEAN_VERSION: Final = 1


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1  # may lose records: a replica that is not in sync becomes leader


class PartitionReassignment(NamedTuple):
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class PartitionCalls(Asking):
    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        election_type: ElectionType = ElectionType.PREFERRED,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, Result[None]]:
        """Of these partitions, or of all that need it (None). Where nothing had to be done the
        error has the code ELECTION_NOT_NEEDED."""
        at_least = 0 if election_type is ElectionType.PREFERRED else _UNCLEAN_VERSION

        async def elect(
            wanted: list[TopicPartition] | None, left_ms: int
        ) -> dict[TopicPartition, ClientError | None]:
            topics: dict[str, TopicPartitions] = {}
            for name, index in wanted or ():
                topics.setdefault(name, TopicPartitions(topic=name)).partitions.append(index)
            request = ElectLeadersRequest(
                election_type=election_type,
                topic_partitions=None if wanted is None else list(topics.values()),
                timeout_ms=left_ms,
            )
            response = await self.of_controller(request, ElectLeadersResponse, at_least=at_least)
            problem = problem_of("election of leaders", response.error_code)
            if problem is not None:
                raise problem
            return {
                (key := TopicPartition(topic.topic, row.partition_id)): problem_of(
                    f"election in {key}", row.error_code, row.error_message
                )
                for topic in response.replica_election_results
                for row in topic.partition_result
            }

        if partitions is None:
            found = await self.once("elections", lambda left_ms: elect(None, left_ms), timeout)
            return {key: Result(error=problem) for key, problem in found.items()}
        return await self.each("elections", partitions, elect, timeout)

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> dict[TopicPartition, Result[None]]:
        """Begins to move partitions to these brokers, the preferred leader first; None cancels a
        move that is under way."""

        async def step(some: list[TopicPartition], left_ms: int) -> Found[TopicPartition, None]:
            topics: dict[str, ReassignableTopic] = {}
            for key in some:
                wanted = replicas[key]
                topic = topics.setdefault(key.topic, ReassignableTopic(name=key.topic))
                topic.partitions.append(
                    ReassignablePartition(
                        partition_index=key.partition,
                        replicas=None if wanted is None else list(wanted),
                    )
                )
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=left_ms,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=list(topics.values()),
            )
            response = await self.of_controller(
                request,
                AlterPartitionReassignmentsResponse,
                at_least=0 if allow_replication_factor_change else 1,
            )
            problem = problem_of("reassignment", response.error_code, response.error_message)
            if problem is not None:
                raise problem
            return {
                (key := TopicPartition(topic.name, row.partition_index)): problem_of(
                    f"reassignment of {key}", row.error_code, row.error_message
                )
                for topic in response.responses
                for row in topic.partitions
            }

        return await self.each("reassignment", replicas, step, timeout)

    async def list_partition_reassignments(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Moves that are under way, of these partitions or of all."""
        topics: dict[str, ListPartitionReassignmentsTopics] = {}
        for name, index in partitions or ():
            row = topics.setdefault(name, ListPartitionReassignmentsTopics(name=name))
            row.partition_indexes.append(index)
        wanted = None if partitions is None else list(topics.values())

        async def ask(left_ms: int) -> ListPartitionReassignmentsResponse:
            request = ListPartitionReassignmentsRequest(timeout_ms=left_ms, topics=wanted)
            answer = await self.of_controller(request, ListPartitionReassignmentsResponse)
            problem = problem_of("reassignments", answer.error_code, answer.error_message)
            if problem is not None:
                raise problem
            return answer

        response = await self.once("reassignments", ask, timeout)
        return {
            TopicPartition(topic.name, row.partition_index): PartitionReassignment(
                tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
            )
            for topic in response.topics
            for row in topic.partitions
        }
