"""Many members of one classic consumer group, each on a connection of its own.

    no member id --JoinGroup--> id --JoinGroup--> joined --SyncGroup--> synced
                                 ^------- the group rebalances -------|

A member that is told of a rebalance joins again. One that has synced learns of it by a heartbeat,
which it sends when nothing has arrived for a moment. The crowd has settled once the leader's list
holds every member and all of them have their assignments of that generation.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.group_wire import (
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    assignment_of,
    heartbeat_error,
    heartbeat_request,
    join_request,
    joined,
    sync_request,
    synced,
)
from bench.raw_client import RawClient
from bench.wire import BadAnswer

QUIET_S = 0.002
GIVE_UP_S = 120.0


@dataclass(eq=False)
class Member:
    """One connection. `on_answer` is None while no request is outstanding."""

    client: RawClient
    partition: int
    member_id: str = ""
    generation_id: int = -1
    leads: bool = False
    synced_generation_id: int = -1
    on_answer: Callable[[bytes], None] | None = None


class Crowd:
    """The members of one group and the loop that serves them."""

    def __init__(self, clients: list[RawClient], group_id: str, topic: str) -> None:
        self.group_id = group_id
        self.members = [Member(client, place) for place, client in enumerate(clients)]
        self._topic = topic
        self._whole_generation_id = -1  # of which the leader listed every member
        self._selector = selectors.DefaultSelector()
        for member in self.members:
            self._selector.register(member.client.socket, selectors.EVENT_READ, member)

    def close(self) -> None:
        self._selector.close()

    def join(self) -> float:
        """All join a group that is new; seconds until all have their assignments."""
        started = time.perf_counter()
        for member in self.members:
            self._join(member)
        self._settle()
        return time.perf_counter() - started

    def rebalance(self) -> float:
        """The leader joins again, and so the others have to; seconds as above."""
        self._whole_generation_id = -1
        started = time.perf_counter()
        self._join(next(member for member in self.members if member.leads))
        self._ask_for_news()
        self._settle()
        return time.perf_counter() - started

    def heartbeats(self) -> list[bytes]:
        """A request for each member."""
        return [self._heartbeat(member) for member in self.members]

    def _settle(self) -> None:
        give_up_at = time.monotonic() + GIVE_UP_S
        while not self._settled():
            ready = self._selector.select(QUIET_S)
            for key, _ in ready:
                self._serve(key.data)
            if not ready:
                self._ask_for_news()
            if time.monotonic() > give_up_at:
                raise BadAnswer(f"{self.group_id} has not settled after {GIVE_UP_S:.0f} s")

    def _settled(self) -> bool:
        whole = self._whole_generation_id
        return whole >= 0 and all(
            member.synced_generation_id == whole and member.on_answer is None
            for member in self.members
        )

    def _serve(self, member: Member) -> None:
        answer, on_answer = member.client.receive_answer(), member.on_answer
        assert on_answer is not None
        member.on_answer = None
        on_answer(answer)

    def _ask(self, member: Member, request: bytes, on_answer: Callable[[bytes], None]) -> None:
        member.on_answer = on_answer
        member.client.socket.sendall(request)

    def _ask_for_news(self) -> None:
        """Of every member that waits for nothing and is not in a generation of all."""
        for member in self.members:
            settled = member.synced_generation_id == self._whole_generation_id
            if member.on_answer is None and not settled:
                self._beat(member)

    def _beat(self, member: Member) -> None:
        self._ask(member, self._heartbeat(member), lambda answer: self._heard(member, answer))

    def _heartbeat(self, member: Member) -> bytes:
        return heartbeat_request(self.group_id, member.generation_id, member.member_id)

    def _heard(self, member: Member, answer: bytes) -> None:
        if self._refused(heartbeat_error(answer)):
            self._join(member)

    def _join(self, member: Member) -> None:
        request = join_request(self.group_id, member.member_id, self._topic)
        self._ask(member, request, lambda answer: self._joined(member, answer))

    def _joined(self, member: Member, answer: bytes) -> None:
        found = joined(answer)
        member.member_id = found.member_id
        if found.error == MEMBER_ID_REQUIRED or self._refused(found.error):
            self._join(member)
            return
        member.generation_id, member.leads = found.generation_id, found.leads
        assignments = {}
        if found.leads:
            whole = len(found.members) == len(self.members)
            self._whole_generation_id = found.generation_id if whole else -1
            present = set(found.members)
            assignments = {
                other.member_id: assignment_of(self._topic, other.partition)
                for other in self.members
                if other.member_id in present
            }
        request = sync_request(self.group_id, member.generation_id, member.member_id, assignments)
        self._ask(member, request, lambda answer: self._synced(member, answer))

    def _synced(self, member: Member, answer: bytes) -> None:
        error, assignment = synced(answer)
        if self._refused(error):
            self._join(member)
            return
        if assignment != assignment_of(self._topic, member.partition):
            raise BadAnswer(f"{member.member_id} got an assignment of another member")
        member.synced_generation_id = member.generation_id

    @staticmethod
    def _refused(error: int) -> bool:
        """Whether the group rebalances; every other error ends the benchmark."""
        if error not in (0, REBALANCE_IN_PROGRESS):
            raise BadAnswer(f"a member was refused with error code {error}")
        return error == REBALANCE_IN_PROGRESS


@contextmanager
def crowd(port: int, group_id: str, topic: str, count: int) -> Iterator[Crowd]:
    """That many members, connected; they have not joined."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(port)) for _ in range(count)]
        found = Crowd(clients, group_id, topic)
        stack.callback(found.close)
        yield found
