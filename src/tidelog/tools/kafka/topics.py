"""kafka-topics: --create, --alter, --list, --describe and --delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.frame import is_given
from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.frame import (
    IncludeList,
    KafkaTool,
    ToolFailed,
    bootstrap_server,
    broker_words,
    config_file,
    require_server,
    wrong_usage,
)
from tidelog.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from tidelog.client.admin.configs import ConfigEntry
    from tidelog.client.admin.topics import PartitionDescription, TopicDescription
    from tidelog.client.blocking.admin import Admin

ACTIONS: Final = ("list", "describe", "create", "alter", "delete")
REPLICATION_FACTOR_MAX: Final = (1 << 15) - 1
NO_LEADER: Final = -1
NO_ACTION: Final = (
    "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
)
REPORTS: Final = (
    "under_replicated_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
    "unavailable_partitions",
)


@click.command("kafka-topics", cls=KafkaTool)
@bootstrap_server
@config_file("--command-config")
@click.option("--list", "list", is_flag=True, help="List all topics.")
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--alter", is_flag=True, help="Add partitions to topics.")
@click.option("--describe", is_flag=True, help="Show details of topics.")
@click.option("--topic", metavar="TOPIC", shell_complete=complete_topics, help="Or a regex.")
@click.option("--topic-id", metavar="ID", help="The topic to describe.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="For --create.")
@click.option("--delete-config", multiple=True, metavar="NAME", help="Use kafka-configs.")
@click.option("--partitions", type=int, metavar="N", help="The cluster's default.")
@click.option("--replication-factor", type=int, metavar="N", help="The cluster's default.")
@click.option("--replica-assignment", metavar="1:2,2:3,...", help="Brokers of each partition.")
@click.option("--under-replicated-partitions", is_flag=True, help="Only these, for --describe.")
@click.option("--unavailable-partitions", is_flag=True, help="Only these, for --describe.")
@click.option("--under-min-isr-partitions", is_flag=True, help="Only these, for --describe.")
@click.option("--at-min-isr-partitions", is_flag=True, help="Only these, for --describe.")
@click.option("--topics-with-overrides", is_flag=True, help="Only topics with settings.")
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no error.")
@click.option("--if-not-exists", is_flag=True, help="A topic that is there is no error.")
@click.option("--exclude-internal", is_flag=True, help="Leave out internal topics.")
@click.option("--partition-size-limit-per-response", type=int, metavar="N")
@pass_session
def command(session: Session, **flags: Any) -> int:
    """Create, delete, describe, or change a topic."""
    given = [action for action in ACTIONS if flags[action]]
    if len(given) != 1:
        raise wrong_usage(NO_ACTION)
    (action,) = given
    if session.bootstrap_server is None:
        raise ToolFailed("--bootstrap-server must be specified")
    require_server(session)
    _require_sensible(action, flags)
    from tidelog.client.errors import ClientError

    try:
        with session.plain_admin() as admin:
            _DO[action](admin, flags)
    except (ClientError, ToolFailed) as error:
        print(f"Error while executing topic command : {broker_words(error)}")
        return 1
    return 0


def _require_sensible(action: str, flags: Mapping[str, Any]) -> None:
    if action not in ("list", "describe") and flags["topic"] is None:
        raise wrong_usage('Missing required argument "[topic]"')
    if action == "alter" and flags["partitions"] is None:
        raise wrong_usage('Missing required argument "[partitions]"')
    for flag, actions in (
        ("configs", ("create",)),
        ("replication_factor", ("create",)),
        ("replica_assignment", ("create", "alter")),
        ("partitions", ("create", "alter")),
        ("if_not_exists", ("create",)),
        ("if_exists", ("alter", "delete", "describe")),
        ("exclude_internal", ("list", "describe")),
        *((report, ("describe",)) for report in REPORTS),
        ("topics_with_overrides", ("describe",)),
    ):
        if is_given(flags[flag]) and action not in actions:
            name = "config" if flag == "configs" else flag.replace("_", "-")
            raise wrong_usage(f'Option "[{name}]" can\'t be used with option "[{action}]"')
    if flags["delete_config"]:
        raise wrong_usage(
            'Option "[delete-config]" can\'t be used with option "[bootstrap-server]"'
        )
    if action == "create" and flags["replica_assignment"]:
        for flag in ("partitions", "replication_factor"):
            if flags[flag] is not None:
                name = flag.replace("_", "-")
                raise wrong_usage(
                    f'Option "[replica-assignment]" can\'t be used with option "[{name}]"'
                )


# Actions


def _create(admin: Admin, flags: Mapping[str, Any]) -> None:
    from tidelog.client.admin.topics import LEFT_TO_BROKER, NewTopic
    from tidelog.errors import ErrorCode

    name = flags["topic"]
    if "." in name or "_" in name:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore "
            "('_') could collide. To avoid issues it is best to use either, but not both."
        )
    factor, partitions = flags["replication_factor"], flags["partitions"]
    if factor is not None and not 1 <= factor <= REPLICATION_FACTOR_MAX:
        raise ToolFailed(
            f"The replication factor must be between 1 and {REPLICATION_FACTOR_MAX} inclusive"
        )
    if partitions is not None and partitions < 1:
        raise ToolFailed("The partitions must be greater than 0")
    topic = NewTopic(
        name,
        LEFT_TO_BROKER if partitions is None else partitions,
        LEFT_TO_BROKER if factor is None else factor,
        parse_replica_assignment(flags["replica_assignment"] or ""),
        _configs_to_add(flags["configs"]),
    )
    error = admin.create_topics([topic], retry_on_quota_violation=False)[name].error
    if error is None:
        print(f"Created topic {name}.")
    elif not (flags["if_not_exists"] and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
        raise error


def parse_replica_assignment(text: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for index, brokers in enumerate(text.split(",") if text else ()):
        parts = [part.strip() for part in brokers.split(":")]
        if not all(part.isascii() and part.isdigit() for part in parts):
            raise ToolFailed(f'For input string: "{brokers}"')
        numbers = [int(part) for part in parts]
        doubled = sorted({number for number in numbers if numbers.count(number) > 1})
        if doubled:
            raise ToolFailed(
                "Partition replica lists may not contain duplicate entries: "
                f"{','.join(map(str, doubled))}"
            )
        if found and len(numbers) != len(found[0]):
            raise ToolFailed(f"Partition {index} has different replication factor: {numbers}")
        found[index] = numbers
    return found


def _configs_to_add(pairs: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not value.strip():
            raise ToolFailed(
                "requirement failed: Invalid topic config: all configs to be added must be in the "
                'format "key=val".'
            )
        found[key.strip()] = value.strip()
    return found


def _names(admin: Admin, flags: Mapping[str, Any]) -> list[str]:
    """Of topics that --topic names, or of all."""
    exclude = flags["exclude_internal"]
    wanted = IncludeList(flags["topic"] if flags["topic"] is not None else ".*")
    listed = admin.list_topics(include_internal=not exclude)
    return [each.name for each in listed if wanted.allows(each.name, exclude_internal=exclude)]


def _require_found(found: Sequence[object], flags: Mapping[str, Any]) -> None:
    if flags["topic"] and not flags["if_exists"] and not found:
        raise ToolFailed(f"Topic '{flags['topic']}' does not exist as expected")


def _list(admin: Admin, flags: Mapping[str, Any]) -> None:
    print("\n".join(_names(admin, flags)))


def _alter(admin: Admin, flags: Mapping[str, Any]) -> None:
    from tidelog.client.admin.topics import NewPartitions

    names = _names(admin, flags)
    _require_found(names, flags)
    if not names:
        return
    wanted: dict[str, NewPartitions | int] = dict.fromkeys(names, flags["partitions"])
    assigned = parse_replica_assignment(flags["replica_assignment"] or "")
    if assigned:
        for name, result in admin.describe_topics(names).items():
            there = len(result.get().partitions)
            wanted[str(name)] = NewPartitions(
                flags["partitions"], [assigned[index] for index in sorted(assigned)[there:]]
            )
    for grown in admin.create_partitions(wanted, retry_on_quota_violation=False).values():
        grown.get()


def _delete(admin: Admin, flags: Mapping[str, Any]) -> None:
    names = _names(admin, flags)
    _require_found(names, flags)
    for result in admin.delete_topics(names, retry_on_quota_violation=False).values():
        result.get()


# describe


def _describe(admin: Admin, flags: Mapping[str, Any]) -> None:
    from tidelog.client.admin.configs import ConfigResource, ConfigResourceType

    keys: Sequence[str | Uuid]
    if flags["topic_id"]:
        wanted = Uuid.parse(flags["topic_id"])
        keys = [wanted] if wanted in {each.topic_id for each in _listed(admin, flags)} else []
        if not keys and not flags["if_exists"]:
            raise ToolFailed(f"TopicId '{flags['topic_id']}' does not exist as expected")
    else:
        keys = _names(admin, flags)
        _require_found(keys, flags)
    if not keys:
        return
    limit = flags["partition_size_limit_per_response"] or 2_000
    topics = [each.get() for each in admin.describe_topics(keys, partition_limit=limit).values()]
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics]
    configs = admin.describe_configs(resources)
    live = {node.id for node in admin.describe_cluster().nodes}
    moving = _reassignments(admin, topics)
    for topic, resource in zip(topics, resources, strict=True):
        _print_topic(topic, configs[resource].get(), moving, live, flags)


def _listed(admin: Admin, flags: Mapping[str, Any]) -> Sequence[Any]:
    return admin.list_topics(include_internal=not flags["exclude_internal"])


def _reassignments(
    admin: Admin, topics: Sequence[TopicDescription]
) -> Mapping[TopicPartition, Any]:
    """As Kafka's tool, does without where the broker does not say."""
    from tidelog.client.errors import NotAuthorized, UnsupportedByBroker

    places = [
        TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions
    ]
    try:
        return admin.list_partition_reassignments(places)
    except (NotAuthorized, UnsupportedByBroker):
        return {}


def _factor(partition: PartitionDescription, moving: Any) -> int:
    """Without the replicas that a reassignment adds."""
    if moving is not None and set(partition.replicas) & {
        *moving.adding_replicas,
        *moving.removing_replicas,
    }:
        return len(moving.replicas) - len(moving.adding_replicas)
    return len(partition.replicas)


def _print_topic(
    topic: TopicDescription,
    entries: Mapping[str, ConfigEntry],
    moving: Mapping[TopicPartition, Any],
    live: set[int],
    flags: Mapping[str, Any],
) -> None:
    partitions = sorted(topic.partitions)
    has_report = any(flags[report] for report in REPORTS)
    set_here = [entry for entry in entries.values() if not entry.is_default]
    if not has_report and partitions and (set_here or not flags["topics_with_overrides"]):
        first = partitions[0]
        factor = _factor(first, moving.get(TopicPartition(topic.name, first.partition)))
        named = f"\tTopicId: {topic.topic_id}" if any(topic.topic_id) else ""
        configs = ",".join(f"{entry.name}={entry.value or ''}" for entry in set_here)
        print(
            f"Topic: {topic.name}{named}\tPartitionCount: {len(partitions)}"
            f"\tReplicationFactor: {factor}\tConfigs: {configs}"
        )
    if flags["topics_with_overrides"]:
        return
    min_isr = int(entries["min.insync.replicas"].value or 1) if entries else 1
    for partition in partitions:
        change = moving.get(TopicPartition(topic.name, partition.partition))
        checks = {
            "under_replicated_partitions": _factor(partition, change) > len(partition.isr),
            "unavailable_partitions": partition.leader_id not in live,
            "under_min_isr_partitions": partition.leader_id == NO_LEADER
            or len(partition.isr) < min_isr,
            "at_min_isr_partitions": len(partition.isr) == min_isr,
        }
        if not has_report or any(flags[name] and found for name, found in checks.items()):
            print(partition_line(topic.name, partition, change))


def partition_line(topic: str, partition: PartitionDescription, change: Any) -> str:
    def ids(numbers: Sequence[int] | None) -> str:
        return "N/A" if numbers is None else ",".join(map(str, numbers))

    leader = "none" if partition.leader_id == NO_LEADER else str(partition.leader_id)
    moves = ""
    if change is not None:
        moves = (
            f"\tAdding Replicas: {ids(change.adding_replicas)}"
            f"\tRemoving Replicas: {ids(change.removing_replicas)}"
        )
    return (
        f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {ids(partition.replicas)}\tIsr: {ids(partition.isr)}{moves}"
        f"\tElr: {ids(partition.eligible_leader_replicas)}"
        f"\tLastKnownElr: {ids(partition.last_known_elr)}"
    )


_DO: Final = {
    "create": _create,
    "alter": _alter,
    "list": _list,
    "describe": _describe,
    "delete": _delete,
}
