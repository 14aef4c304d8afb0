"""Stories of groups as text: commands above a rule, what came of them below.

    join a session=10000        JoinGroup (first without an id, later with the one that was given)
    sync a a=p0 b=p1            SyncGroup; the leader's has assignments
    beat a, leave a             Heartbeat, LeaveGroup
    commit a t-0=5              OffsetCommit of a member; `commit - t-0=5` of a simple consumer
    reborn a                    the client forgets its member id, as when its process restarts
    advance 3000                milliseconds pass
    restart                     the broker restarts: a new coordinator reads the log
    expire                      the duty that looks for expired offsets runs
    delete-group, delete-offsets t-0, delete-topic t
    show                        the group: state, members with their assignments, offsets

`with key=value ...` in the first line configures the broker. Options of join: version, session,
rebalance (ms), protocols (a,b), type, instance, topics (of the subscription), id. Any answer that
arrives while a block runs is below its rule, in the order of arrival. A file is rewritten with
TIDELOG_REWRITE_SCENARIOS=1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tests.support.group_stage import GroupStage
from tests.support.new_offsets import new_offset
from tests.support.pending import unexpected
from tidelog.coordinator.group.classic.classic_group_membership import Joining
from tidelog.coordinator.group.results import JoinGroupResult, SyncGroupResult
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

GROUP = "g"
Response = TypeVar("Response")
REWRITE = os.environ.get("TIDELOG_REWRITE_SCENARIOS") == "1"


def subscription(*topics: str) -> bytes:
    body = ConsumerProtocolSubscription(topics=list(topics)).encode(0)
    return bytes(2) + bytes(body)


class ScenarioClient:
    """What a client remembers of its group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation_id = -1
        self.instance_id: str | None = None


class GroupScenario:
    def __init__(self, directory: Path, text: str) -> None:
        head, _, self._body = text.partition("\n\n")
        lines = [line for line in head.splitlines() if not line.startswith("#")]
        options = dict(pair.split("=") for line in lines for pair in line.split()[1:])
        self._head = head
        self.stage = GroupStage(directory, options)
        self._clients: dict[str, ScenarioClient] = {}
        self._output: list[str] = []

    def run(self) -> str:
        """The whole text, with what came of each block."""
        blocks = [self._head]
        for block in self._body.strip().split("\n\n"):
            commands = block.partition("----")[0].strip().splitlines()
            self._output = []
            for command in commands:
                self._run(command)
            blocks.append("\n".join([*commands, "----", *self._output]))
        return "\n\n".join(blocks) + "\n"

    def _run(self, command: str) -> None:
        if command.startswith("#"):
            return
        verb, *rest = command.split()
        words = [word for word in rest if "=" not in word]
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        run: Callable[[list[str], dict[str, str]], None] = getattr(
            self, "_" + verb.replace("-", "_")
        )
        run(words, options)

    def _client(self, name: str) -> ScenarioClient:
        return self._clients.setdefault(name, ScenarioClient(name))

    def _name_of(self, member_id: str) -> str:
        return member_id or "-"

    def _say(self, text: str) -> None:
        self._output.append(text)

    # Requests

    def _join(self, words: list[str], options: dict[str, str]) -> None:
        client = self._client(words[0])
        client.instance_id = options.get("instance", client.instance_id)
        metadata = subscription(*options.get("topics", "t").split(","))
        names = options.get("protocols", "range").split(",")
        version = int(options.get("version", "9"))
        joining = Joining(
            requires_known_member_id=version >= 4,
            supports_skipping_assignment=version >= 9,
            member_id=options.get("id", client.member_id),
            group_instance_id=client.instance_id,
            client_id=client.name,
            client_host="/127.0.0.1",
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "60000")),
            protocol_type=options.get("type", "consumer"),
            protocols=[(name, metadata) for name in names if name],
        )
        answer = self.stage.groups.join_group(GROUP, joining)
        _then(answer, lambda response: self._joined(client, response))

    def _joined(self, client: ScenarioClient, response: JoinGroupResult) -> None:
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
        if code is not ErrorCode.NONE:
            self._say(f"{client.name} join {code.name} id={self._name_of(response.member_id)}")
            return
        client.member_id = response.member_id
        client.generation_id = response.generation_id
        text = (
            f"{client.name} joined id={response.member_id} generation={response.generation_id} "
            f"protocol={response.protocol_name} leader={response.leader}"
        )
        if response.members:
            text += f" members={','.join(member.member_id for member in response.members)}"
        if response.skip_assignment:
            text += " skip-assignment"
        self._say(text)

    def _sync(self, words: list[str], options: dict[str, str]) -> None:
        client = self._client(words[0])
        rows = [
            SyncGroupRequestAssignment(
                member_id=self._client(name).member_id, assignment=value.encode()
            )
            for name, value in options.items()
            if name != "generation"
        ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=int(options.get("generation", client.generation_id)),
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            assignments=rows,
        )
        answer = self.stage.groups.sync_group(request)
        _then(answer, lambda response: self._synced(client, response))

    def _synced(self, client: ScenarioClient, response: SyncGroupResult) -> None:
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            self._say(f"{client.name} synced {response.assignment.decode() or '(nothing)'}")
        else:
            self._say(f"{client.name} sync {code.name}")

    def _beat(self, words: list[str], options: dict[str, str]) -> None:
        for name in words:
            client = self._client(name)
            request = HeartbeatRequest(
                group_id=GROUP,
                generation_id=int(options.get("generation", client.generation_id)),
                member_id=client.member_id,
                group_instance_id=client.instance_id,
            )
            self._say(f"{name} beat {self.stage.groups.heartbeat(request).name}")

    def _leave(self, words: list[str], options: dict[str, str]) -> None:
        for name in words:
            client = self._client(name)
            member_id = options.get("id", client.member_id)
            instance_id = options.get("instance", client.instance_id)
            outcome = self.stage.groups.leave_group(GROUP, [(member_id, instance_id, None)])
            self._say(f"{name} leave {outcome[0].name}")

    def _commit(self, words: list[str], options: dict[str, str]) -> None:
        client = self._client(words[0])
        now_ms = self.stage.clock.time_ms()
        offsets = [
            new_offset(*_topic_partition(place), int(offset), -1, "", now_ms)
            for place, offset in options.items()
            if place != "version"
        ]
        try:
            self.stage.groups.commit_offsets(
                GROUP,
                offsets,
                generation_id=client.generation_id,
                member_id=client.member_id,
                group_instance_id=client.instance_id,
                knows_member_epochs=int(options.get("version", "8")) >= 9,
            )
        except KafkaError as error:
            self._say(f"{words[0]} commit {error.code.name}")
        else:
            self._say(f"{words[0]} commit NONE")

    # Administration

    def _delete_group(self, words: list[str], options: dict[str, str]) -> None:
        while (code := self.stage.groups.delete_group(GROUP)) is None:
            pass
        self._say(f"delete {code.name}")

    def _delete_offsets(self, words: list[str], options: dict[str, str]) -> None:
        places = [_topic_partition(word) for word in words]
        try:
            outcomes = self.stage.groups.delete_offsets(GROUP, places)
        except KafkaError as error:
            self._say(f"delete {error.code.name}")
            return
        for (topic, partition), code in outcomes.items():
            self._say(f"delete {topic}-{partition} {code.name}")

    def _delete_topic(self, words: list[str], options: dict[str, str]) -> None:
        self.stage.groups.topic_deleted(words[0])

    # The world

    def _reborn(self, words: list[str], options: dict[str, str]) -> None:
        for name in words:
            instance_id = self._client(name).instance_id
            self._clients[name] = ScenarioClient(name)
            self._clients[name].instance_id = instance_id

    def _advance(self, words: list[str], options: dict[str, str]) -> None:
        self.stage.clock.advance(ms=int(words[0]))

    def _restart(self, words: list[str], options: dict[str, str]) -> None:
        self.stage.restart()

    def _expire(self, words: list[str], options: dict[str, str]) -> None:
        self.stage.groups.expire_offsets()

    def _show(self, words: list[str], options: dict[str, str]) -> None:
        for line in show(self.stage, GROUP):
            self._say(line)


def show(stage: GroupStage, group_id: str) -> Iterator[str]:
    group = stage.classic_or_none(group_id)
    if group is None:
        yield "no group"
        return
    yield (
        f"{group.state.value} generation={group.generation_id} "
        f"protocol={group.protocol_name} leader={group.leader_id}"
    )
    for member in group.members.values():
        instance = "" if member.group_instance_id is None else f" ({member.group_instance_id})"
        yield f"  {member.member_id}{instance}: {member.assignment.decode() or '(nothing)'}"
    for topic, partition, committed in stage.groups.offsets_of(group_id) or ():
        yield f"  {topic}-{partition} at {committed.offset}"


def _topic_partition(text: str) -> tuple[str, int]:
    topic, _, partition = text.rpartition("-")
    return topic, int(partition)


def _then(answer: Response | Pending[Response], callback: Callable[[Response], None]) -> None:
    if isinstance(answer, Pending):
        answer.then(callback, unexpected)
    else:
        callback(answer)
