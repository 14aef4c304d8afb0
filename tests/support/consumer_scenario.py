"""Stories of consumer groups (KIP-848) as text: commands above a rule, what came of them below.

    topics t=4 u=2            they exist; again with other counts: they have more partitions
    delete-topic t
    join a topics=t           ConsumerGroupHeartbeat with epoch 0
    beat a                    a heartbeat with what the client owns; options as of join
    full a topics=t           a heartbeat that says everything again
    leave a, leave a away     epoch -1, and -2
    cjoin c topics=t          JoinGroup of a member of the classic protocol (and again with its id)
    csync c, cbeat c, cleave c
    commit a t-0=5            OffsetCommit; `commit - t-0=5` of a simple consumer
    fetch a t-0               OffsetFetch
    forget a                  the client forgets member id, epoch and partitions: its process died
    advance 3000              milliseconds pass
    restart                   the broker restarts: a new coordinator reads the log
    delete-group, show

A client does at once what it is told: partitions that an answer takes away are no longer owned in
its next heartbeat, unless that has `owns=` of its own (a list, `none`, or `null`). Options of join
and beat: topics, regex, assignor, instance, id, epoch, timeout, version, owns. Options of cjoin:
topics, instance, protocols, session, rebalance, version, type, owns. `with key=value ...` in the
first line configures the broker. A file is rewritten with TIDELOG_REWRITE_SCENARIOS=1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from tests.support.fake_topics import FakeTopics
from tests.support.group_scenario import show as show_classic
from tests.support.group_stage import GroupStage
from tests.support.new_offsets import new_offset
from tests.support.pending import unexpected
from tidelog.coordinator.group.classic.classic_group_membership import Joining
from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup
from tidelog.coordinator.group.consumer.consumer_group_member import Held, Partitions
from tidelog.coordinator.group.consumer.consumer_group_membership import Sender
from tidelog.coordinator.group.results import (
    ConsumerGroupHeartbeatResult,
    JoinGroupResult,
    SyncGroupResult,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from tidelog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.sync_group import SyncGroupRequest
from tidelog.types import Uuid

GROUP = "g"
Options = Mapping[str, str]
Response = TypeVar("Response")
Place = tuple[str, int]


class ConsumerClient:
    """What a client remembers of its group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.epoch = -1
        self.instance_id: str | None = None
        self.owned: list[Place] = []
        self.protocol_name: str | None = None


class ConsumerScenario:
    def __init__(self, directory: Path, text: str, *, flush_messages: int | None = None) -> None:
        head, _, self._body = text.partition("\n\n")
        lines = [line for line in head.splitlines() if line.startswith("with")]
        options = dict(pair.split("=") for line in lines for pair in line.split()[1:])
        self._head = head
        self.topics = FakeTopics()
        self.stage = GroupStage(
            directory, options, topics=self.topics, flush_messages=flush_messages
        )
        self.clients: dict[str, ConsumerClient] = {}
        self.said: list[str] = []

    def run(self) -> str:
        """The whole text, with what came of each block."""
        blocks = [self._head]
        for block in self._body.strip().split("\n\n"):
            commands = block.partition("----")[0].strip().splitlines()
            self.said = []
            for command in commands:
                self.do(command)
            blocks.append("\n".join([*commands, "----", *self.said]))
        return "\n\n".join(blocks) + "\n"

    def do(self, command: str) -> None:
        if command.startswith("#"):
            return
        verb, *rest = command.split()
        words = [word for word in rest if "=" not in word]
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        run: Callable[[list[str], Options], None] = getattr(self, "_" + verb.replace("-", "_"))
        run(words, options)

    def client(self, name: str) -> ConsumerClient:
        return self.clients.setdefault(name, ConsumerClient(name))

    def _say(self, text: str) -> None:
        self.said.append(text)

    # The consumer protocol

    def _join(self, words: list[str], options: Options) -> None:
        client = self.client(words[0])
        client.owned = []
        if not client.member_id and options.get("version", "1") != "0":
            client.member_id = client.name
        self._heartbeat(client, {"epoch": "0", "timeout": "10000", "owns": "none", **options})

    def _beat(self, words: list[str], options: Options) -> None:
        self._heartbeat(self.client(words[0]), options)

    def _full(self, words: list[str], options: Options) -> None:
        self._heartbeat(self.client(words[0]), {"timeout": "10000", **options})

    def _leave(self, words: list[str], options: Options) -> None:
        epoch = "-2" if "away" in words else "-1"
        self._heartbeat(self.client(words[0]), {"epoch": epoch, "owns": "null", **options})

    def _heartbeat(self, client: ConsumerClient, options: Options) -> None:
        client.instance_id = options.get("instance", client.instance_id)
        topics = options.get("topics")
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.get("group", GROUP),
            member_id=options.get("id", client.member_id),
            member_epoch=int(options.get("epoch", client.epoch)),
            instance_id=client.instance_id,
            rebalance_timeout_ms=int(options.get("timeout", "-1")),
            subscribed_topic_names=None if topics is None else [t for t in topics.split(",") if t],
            subscribed_topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
            topic_partitions=self._owned_rows(client, options.get("owns")),
        )
        makes_member_id = int(options.get("version", "1")) >= 1
        sender = Sender(makes_member_id, client.name, "/127.0.0.1")
        answer = self.stage.groups.consumer_group_heartbeat(request, sender)
        _then(answer, lambda response: self._answered(client, response))

    def _owned_rows(self, client: ConsumerClient, text: str | None) -> list[TopicPartitions] | None:
        if text == "null":
            return None
        places = client.owned if text is None else list(_places(text))
        rows: dict[str, list[int]] = {}
        for topic, partition in places:
            rows.setdefault(topic, []).append(partition)
        return [
            TopicPartitions(topic_id=self.topics.topics[topic].topic_id, partitions=numbers)
            for topic, numbers in rows.items()
            if topic in self.topics.topics
        ]

    def _answered(self, client: ConsumerClient, response: ConsumerGroupHeartbeatResult) -> None:
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._say(f"{client.name} {code.name}")
            return
        client.member_id = response.member_id or ""
        client.epoch = response.member_epoch
        text = f"{client.name} epoch={client.epoch}"
        if response.assignment is not None:
            held = {each: frozenset(numbers) for each, numbers in response.assignment.items()}
            client.owned = self.places(held)
            text += f" owns {_shown(client.owned)}"
        self._say(text)

    def places(self, partitions: Partitions | Held) -> list[Place]:
        """By name; topics that are gone have a question mark for one."""
        by_id = self.topics.by_id
        return sorted(
            (by_id[topic_id].name if topic_id in by_id else "?", number)
            for topic_id, numbers in partitions.items()
            for number in numbers
        )

    # The classic protocol

    def _cjoin(self, words: list[str], options: Options) -> None:
        client = self.client(words[0])
        client.instance_id = options.get("instance", client.instance_id)
        owned = list(_places(options["owns"])) if "owns" in options else []
        metadata = subscription(options.get("topics", "t").split(","), owned)
        if "cut" in options:
            metadata = metadata[: int(options["cut"])]
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
            rebalance_timeout_ms=int(options.get("rebalance", "20000")),
            protocol_type=options.get("type", "consumer"),
            protocols=[(name, metadata) for name in names],
        )
        answer = self.stage.groups.join_group(GROUP, joining)
        _then(answer, lambda response: self._cjoined(client, response))

    def _cjoined(self, client: ConsumerClient, response: JoinGroupResult) -> None:
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
        if code is not ErrorCode.NONE:
            self._say(f"{client.name} join {code.name}")
            return
        client.member_id = response.member_id
        client.epoch = response.generation_id
        client.protocol_name = response.protocol_name
        leads = " leads" if response.leader == response.member_id else ""
        self._say(f"{client.name} joined generation={response.generation_id}{leads}")

    def _csync(self, words: list[str], options: Options) -> None:
        client = self.client(words[0])
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=int(options.get("epoch", client.epoch)),
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type=options.get("type", "consumer"),
            protocol_name=options.get("protocol", client.protocol_name),
        )
        answer = self.stage.groups.sync_group(request)
        _then(answer, lambda response: self._csynced(client, response))

    def _csynced(self, client: ConsumerClient, response: SyncGroupResult) -> None:
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._say(f"{client.name} sync {code.name}")
            return
        client.owned = assignment_places(response.assignment)
        self._say(f"{client.name} synced {_shown(client.owned)}")

    def _cbeat(self, words: list[str], options: Options) -> None:
        for name in words:
            client = self.client(name)
            request = HeartbeatRequest(
                group_id=GROUP,
                generation_id=int(options.get("epoch", client.epoch)),
                member_id=client.member_id,
                group_instance_id=client.instance_id,
            )
            self._say(f"{name} beat {self.stage.groups.heartbeat(request).name}")

    def _cleave(self, words: list[str], options: Options) -> None:
        client = self.client(words[0])
        member_id = options.get("id", client.member_id)
        instance_id = options.get("instance", client.instance_id)
        outcome = self.stage.groups.leave_group(GROUP, [(member_id, instance_id, None)])
        self._say(f"{words[0]} leave {outcome[0].name}")

    # Offsets

    def _commit(self, words: list[str], options: Options) -> None:
        client = self.client(words[0])
        now_ms = self.stage.clock.time_ms()
        offsets = [
            new_offset(*next(_places(place)), int(offset), -1, "", now_ms)
            for place, offset in options.items()
            if place not in ("epoch", "version")
        ]
        try:
            self.stage.groups.commit_offsets(
                GROUP,
                offsets,
                generation_id=int(options.get("epoch", client.epoch)),
                member_id=client.member_id,
                group_instance_id=None,
                knows_member_epochs=int(options.get("version", "9")) >= 9,
            )
        except KafkaError as error:
            self._say(f"{words[0]} commit {error.code.name}")
        else:
            self._say(f"{words[0]} commit NONE")

    def _fetch(self, words: list[str], options: Options) -> None:
        client = self.client(words[0])
        member_id = client.member_id or None
        epoch = int(options.get("epoch", client.epoch))
        try:
            offsets = self.stage.groups.offsets_of(GROUP, member_id, epoch)
        except KafkaError as error:
            self._say(f"{words[0]} fetch {error.code.name}")
            return
        found = [None if offsets is None else offsets.get(*next(_places(w))) for w in words[1:]]
        text = " ".join("none" if each is None else str(each.offset) for each in found)
        self._say(f"{words[0]} fetch {text}")

    # The world

    def _topics(self, words: list[str], options: Options) -> None:
        for name, count in options.items():
            if name in self.topics.topics:
                self.topics.grow(name, int(count))
                self.stage.groups.topic_changed(name)
            else:
                self.topics.make(name, int(count))
                self.stage.groups.topic_created(name)

    def _delete_topic(self, words: list[str], options: Options) -> None:
        self.topics.delete(words[0])
        self.stage.groups.topic_deleted(words[0])

    def _forget(self, words: list[str], options: Options) -> None:
        for name in words:
            self.clients.pop(name, None)

    def _advance(self, words: list[str], options: Options) -> None:
        self.stage.clock.advance(ms=int(words[0]))

    def _restart(self, words: list[str], options: Options) -> None:
        self.stage.restart()

    def _expire(self, words: list[str], options: Options) -> None:
        self.stage.groups.expire_offsets()

    def _delete_group(self, words: list[str], options: Options) -> None:
        while (code := self.stage.groups.delete_group(GROUP)) is None:
            pass
        self._say(f"delete {code.name}")

    def _delete_offsets(self, words: list[str], options: Options) -> None:
        outcomes = self.stage.groups.delete_offsets(GROUP, [next(_places(w)) for w in words])
        for (topic, partition), code in outcomes.items():
            self._say(f"delete {topic}-{partition} {code.name}")

    def _show(self, words: list[str], options: Options) -> None:
        for line in show(self, self.stage):
            self._say(line)


def show(scenario: ConsumerScenario, stage: GroupStage) -> Iterator[str]:
    """All that the log holds of the group."""
    group = stage.groups.group_or_none(GROUP)
    if not isinstance(group, ConsumerGroup):
        yield from ("no group",) if group is None else show_classic_group(stage)
        return
    yield f"{group.state.value} epoch={group.group_epoch} target={group.target_epoch}"
    for regex, resolved in sorted(group.patterns.items()):
        yield f"  {regex} is {','.join(sorted(resolved.topics)) or 'nothing'}"
    for member in sorted(group.members.values()):
        target = group.target.get(member.member_id, {})
        text = f"  {member.member_id} epoch={member.member_epoch} {member.state.name}"
        text += f" owns {_shown(scenario.places(member.assigned))}"
        if member.revoking:
            text += f" revoking {_shown(scenario.places(member.revoking))}"
        if scenario.places(target) != scenario.places(member.assigned):
            text += f" target {_shown(scenario.places(target))}"
        if member.instance_id is not None:
            text += f" instance={member.instance_id}"
        if member.classic is not None:
            text += " classic"
        yield text
    for topic, partition, committed in stage.groups.offsets_of(GROUP) or ():
        yield f"  {topic}-{partition} at {committed.offset}"


def show_classic_group(stage: GroupStage) -> Iterator[str]:
    group = stage.classic_or_none(GROUP)
    assert group is not None
    first, *_ = show_classic(stage, GROUP) if not group.members else ("",)
    yield first or f"classic {group.state.value} generation={group.generation_id}"
    for member in group.members.values():
        yield f"  {member.member_id}: {_shown(assignment_places(member.assignment))}"
    for topic, partition, committed in stage.groups.offsets_of(GROUP) or ():
        yield f"  {topic}-{partition} at {committed.offset}"


def subscription(topics: list[str], owned: list[Place], version: int = 1) -> bytes:
    rows: dict[str, list[int]] = {}
    for topic, partition in owned:
        rows.setdefault(topic, []).append(partition)
    message = ConsumerProtocolSubscription(
        topics=topics,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in rows.items()
        ],
    )
    return version.to_bytes(2, "big") + bytes(message.encode(version))


def assignment_places(data: bytes) -> list[Place]:
    if not data:
        return []
    version = int.from_bytes(data[:2], "big")
    message = ConsumerProtocolAssignment.decode(memoryview(data), 2, version)
    return sorted(
        (row.topic, number) for row in message.assigned_partitions for number in row.partitions
    )


def held(partitions: Mapping[Uuid, Mapping[int, int]]) -> set[tuple[Uuid, int]]:
    return {(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers}


def _places(text: str) -> Iterator[Place]:
    for word in text.split(","):
        if word != "none":
            topic, _, partition = word.rpartition("-")
            yield topic, int(partition)


def _shown(places: list[Place]) -> str:
    return ",".join(f"{topic}-{number}" for topic, number in places) or "nothing"


def _then(answer: Response | Pending[Response], callback: Callable[[Response], None]) -> None:
    if isinstance(answer, Pending):
        answer.then(callback, unexpected)
    else:
        callback(answer)
