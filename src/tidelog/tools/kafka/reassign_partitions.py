"""kafka-reassign-partitions: --generate, --execute, --verify, --cancel and --list."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.errors import KafkaError
from tidelog.tools.cli.frame import is_given
from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.delete_records import read_text
from tidelog.tools.kafka.frame import (
    KafkaTool,
    ToolFailed,
    bootstrap_server,
    broker_words,
    config_file,
    wrong_usage,
)
from tidelog.tools.reassignment import (
    BadReassignment,
    DirState,
    PartitionState,
    clear_throttles,
    current_replicas,
    dir_states,
    format_moves,
    parse_moves,
    parse_topics,
    replicas_of,
    require_brokers,
    set_log_dirs_throttle,
    set_throttles,
    states_of,
    throttles_for,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.brokers import TopicPartitionReplica
    from tidelog.client.blocking.admin import Admin

ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
NEEDED: Final = {
    "generate": ("topics_to_move_json_file", "broker_list"),
    "execute": ("reassignment_json_file",),
    "verify": ("reassignment_json_file",),
    "cancel": ("reassignment_json_file",),
    "list": (),
}
ALLOWED: Final = {
    "generate": ("disable_rack_aware",),
    "execute": ("additional", "throttle", "replica_alter_log_dirs_throttle", "timeout"),
    "verify": ("preserve_throttles",),
    "cancel": ("preserve_throttles", "timeout"),
    "list": (),
}
EXISTING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to "
    "override this and create a new partition assignment in addition to the existing one. The "
    "--additional flag can also be used to change the throttle by resubmitting the current "
    "reassignment."
)
RUN_VERIFY: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
    "throttle is removed."
)
NO_THROTTLE: Final = -1
MOVE_RETRY_S: Final = 0.1


@click.command("kafka-reassign-partitions", cls=KafkaTool)
@bootstrap_server
@config_file("--command-config")
@click.option("--generate", is_flag=True, help="Propose a reassignment.")
@click.option("--execute", is_flag=True, help="Begin it.")
@click.option("--verify", is_flag=True, help="Show how far it is.")
@click.option("--cancel", is_flag=True, help="Stop it.")
@click.option("--list", "list", is_flag=True, help="List what is under way.")
@click.option("--topics-to-move-json-file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--reassignment-json-file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--broker-list", metavar="0,1,2")
@click.option("--disable-rack-aware", is_flag=True)
@click.option("--throttle", type=int, metavar="BYTES/S")
@click.option("--replica-alter-log-dirs-throttle", type=int, metavar="BYTES/S")
@click.option("--additional", is_flag=True)
@click.option("--preserve-throttles", is_flag=True)
@click.option("--timeout", type=int, metavar="MS", help="Default: 10000.")
@pass_session
def command(session: Session, **flags: Any) -> int:
    """Move topic partitions between replicas."""
    from tidelog.client.errors import ClientError

    given = [action for action in ACTIONS if flags[action]]
    if len(given) != 1:
        names = ", ".join(f"--{action}" for action in ACTIONS)
        raise wrong_usage(f"Command must include exactly one action: {names}")
    (action,) = given
    if session.bootstrap_server is None:
        raise wrong_usage("Please specify --bootstrap-server")
    _require_sensible(action, flags)
    try:
        with session.plain_admin() as admin:
            _DO[action](admin, flags)
    except (BadReassignment, KafkaError, ClientError) as error:
        print(f"Error: {broker_words(error)}")
        return 1
    except ToolFailed as error:
        print(error)
        return 1
    return 0


def _require_sensible(action: str, flags: Mapping[str, Any]) -> None:
    for flag in NEEDED[action]:
        if flags[flag] is None:
            raise wrong_usage(f'Missing required argument "[{flag.replace("_", "-")}]"')
    permitted = {action, *NEEDED[action], *ALLOWED[action]}
    for flag, value in flags.items():
        if is_given(value) and flag not in permitted:
            name = flag.replace("_", "-")
            raise wrong_usage(f'Option "[{name}]" can\'t be used with action "[{action}]"')


# generate


def _generate(admin: Admin, flags: Mapping[str, Any]) -> None:
    from tidelog.controller.placement import PlacementBroker, place_new_topic

    brokers = broker_list(flags["broker_list"])
    topics = parse_topics(read_text(flags["topics_to_move_json_file"]))
    current = current_replicas(admin, topics)
    use_racks = not flags["disable_rack_aware"]
    nodes = [
        PlacementBroker(node.id, node.rack if use_racks else None)
        for node in admin.describe_cluster().nodes
        if node.id in brokers
    ]
    without = sum(node.rack is None for node in nodes)
    if use_racks and without not in (0, len(nodes)):
        raise BadReassignment(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information."
        )
    proposed: dict[TopicPartition, list[int]] = {}
    for topic in topics:
        replicas = [current[each] for each in sorted(current) if each.topic == topic]
        placed = place_new_topic(nodes, len(replicas), len(replicas[0]), random.randrange)
        for index, row in enumerate(placed):
            proposed[TopicPartition(topic, index)] = row
    print(f"Current partition replica assignment\n{format_moves(current)}\n")
    print(f"Proposed partition reassignment configuration\n{format_moves(proposed)}")


def broker_list(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise BadReassignment(f'For input string: "{text}"')
    numbers = [int(part) for part in parts]
    doubled = [number for number, count in Counter(numbers).items() if count > 1]
    if doubled:
        raise BadReassignment(f"Broker list contains duplicate entries: {doubled}")
    return numbers


# execute


def _execute(admin: Admin, flags: Mapping[str, Any]) -> None:
    wanted = parse_moves(read_text(flags["reassignment_json_file"]))
    under_way = admin.list_partition_reassignments()
    if under_way and not flags["additional"]:
        raise ToolFailed(EXISTING)
    require_brokers(admin, wanted.replicas)
    current = replicas_of(admin, wanted.replicas)
    print(
        f"Current partition replica assignment\n\n{format_moves(current)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    rate = flags["throttle"] if flags["throttle"] is not None else NO_THROTTLE
    dirs_rate = flags["replica_alter_log_dirs_throttle"]
    dirs_rate = NO_THROTTLE if dirs_rate is None else dirs_rate
    if rate >= 0 or dirs_rate >= 0:
        print(RUN_VERIFY)
    if rate >= 0:
        set_throttles(admin, throttles_for(under_way, wanted.replicas, current), rate)
        print(f"The inter-broker throttle limit was set to {rate} B/s")
    if dirs_rate >= 0:
        set_log_dirs_throttle(admin, {each.broker_id for each in wanted.log_dirs}, dirs_rate)
        print(f"The replica-alter-dir throttle limit was set to {dirs_rate} B/s")
    results = admin.alter_partition_reassignments(wanted.replicas)
    errors = {each: result.error for each, result in results.items() if result.error is not None}
    if errors:
        lines = [f"{each}: {broker_words(errors[each])}" for each in sorted(errors)]
        raise ToolFailed("\n".join(["Error reassigning partition(s):", *lines]))
    names = ",".join(map(str, sorted(wanted.replicas)))
    plural = "" if len(wanted.replicas) == 1 else "s"
    print(f"Successfully started partition reassignment{plural} for {names}")
    _move_dirs(admin, wanted.log_dirs, flags["timeout"])


def _move_dirs(
    admin: Admin, wanted: Mapping[TopicPartitionReplica, str], timeout_ms: int | None
) -> None:
    """A replica that is not on its broker yet is asked for again."""
    from tidelog.errors import ErrorCode

    pending = dict(wanted)
    deadline = time.monotonic() + (10_000 if timeout_ms is None else timeout_ms) / 1_000
    while pending:
        for replica, result in sorted(admin.alter_replica_log_dirs(pending).items()):
            error = result.error
            if error is not None and error.code is ErrorCode.REPLICA_NOT_AVAILABLE:
                continue
            if error is not None:
                raise BadReassignment(f"Failed to alter dir for {_name(replica)}")
            path = pending.pop(replica)
            print(
                f"Successfully started moving log directory to {path} for replica "
                f"{replica.topic}-{replica.partition} with broker {replica.broker_id} "
            )
        if pending and time.monotonic() >= deadline:
            names = ",".join(_name(each) for each in sorted(pending))
            plural = "" if len(pending) == 1 else "s"
            raise ToolFailed(
                f"Timed out before log directory move{plural} could be started for: {names}"
            )
        if pending:
            time.sleep(MOVE_RETRY_S)


def _name(replica: TopicPartitionReplica) -> str:
    return f"{replica.topic}-{replica.partition}-{replica.broker_id}"


# verify


def _verify(admin: Admin, flags: Mapping[str, Any]) -> None:
    wanted = parse_moves(read_text(flags["reassignment_json_file"]))
    states, some_under_way = states_of(admin, wanted.replicas)
    print("Status of partition reassignment:")
    for partition, state in states.items():
        print(state_line(partition, state))
    dirs = dir_states(admin, wanted.log_dirs) if wanted.log_dirs else {}
    lines = [
        dir_line(replica, wanted.log_dirs[replica], dirs[replica])
        for replica in sorted(dirs, key=lambda each: (each.broker_id, each.topic, each.partition))
    ]
    print("\n".join(lines))
    are_moving = any(state.future is not None for state in dirs.values())
    if not some_under_way and not are_moving and not flags["preserve_throttles"]:
        _clear(admin, wanted.replicas)


def state_line(partition: TopicPartition, state: PartitionState) -> str:
    if not state.is_done:
        return f"Reassignment of partition {partition} is still in progress."
    if state.current == state.target:
        return f"Reassignment of partition {partition} is completed."
    current, target = (",".join(map(str, each)) for each in (state.current, state.target))
    return (
        f"There is no active reassignment of partition {partition}, but replica set is {current} "
        f"rather than {target}."
    )


def dir_line(replica: TopicPartitionReplica, target: str, state: DirState) -> str:
    name = f"{replica.topic}-{replica.partition}"
    if state.current is None:
        return (
            f"Partition {name} is not found in any live log dir on broker {replica.broker_id}. "
            "There is likely an offline log directory on the broker."
        )
    if state.future == target:
        return f"Reassignment of replica {_name(replica)} is still in progress."
    if state.future is not None:
        return (
            f"Partition {name} on broker {replica.broker_id} is being moved to log dir "
            f"{state.future} instead of {target}."
        )
    if state.current == target:
        return f"Reassignment of replica {_name(replica)} completed successfully."
    return (
        f"Partition {name} on broker {replica.broker_id} is not being moved from log dir "
        f"{state.current} to {target}."
    )


def _clear(admin: Admin, wanted: Mapping[TopicPartition, list[int]]) -> None:
    brokers = {node.id for node in admin.describe_cluster().nodes}
    brokers |= {each for replicas in wanted.values() for each in replicas}
    topics = sorted({each.topic for each in wanted})
    numbers = ",".join(map(str, sorted(brokers)))
    print(f"Clearing broker-level throttles on broker{'' if len(brokers) == 1 else 's'} {numbers}")
    print(
        f"Clearing topic-level throttles on topic{'' if len(topics) == 1 else 's'} "
        f"{','.join(topics)}"
    )
    clear_throttles(admin, topics, brokers)


# cancel and list


def _cancel(admin: Admin, flags: Mapping[str, Any]) -> None:
    wanted = parse_moves(read_text(flags["reassignment_json_file"]))
    under_way = admin.list_partition_reassignments()
    chosen = [each for each in sorted(wanted.replicas) if each in under_way]
    if chosen:
        nothing: dict[TopicPartition, None] = dict.fromkeys(chosen)
        results = admin.alter_partition_reassignments(nothing)
        errors = {each: result.error for each, result in results.items() if result.error}
        if errors:
            lines = [f"{each}: {broker_words(errors[each])}" for each in sorted(errors)]
            plural = "" if len(errors) == 1 else "s"
            head = f"Error cancelling partition reassignment{plural} for:"
            raise ToolFailed("\n".join([head, *lines]))
        plural = "" if len(chosen) == 1 else "s"
        names = ",".join(map(str, chosen))
        print(f"Successfully cancelled partition reassignment{plural} for: {names}")
    else:
        print("None of the specified partition reassignments are active.")
    _cancel_dirs(admin, list(wanted.log_dirs))
    if not flags["preserve_throttles"]:
        _clear(admin, wanted.replicas)


def _cancel_dirs(admin: Admin, replicas: list[TopicPartitionReplica]) -> None:
    """A move is called off by moving the replica to where it is."""
    states = dir_states(admin, replicas) if replicas else {}
    moving = {
        replica: state.current
        for replica, state in states.items()
        if state.future is not None and state.current is not None
    }
    if moving:
        _move_dirs(admin, moving, None)
    else:
        print("None of the specified partition moves are active.")


def _list(admin: Admin, flags: Mapping[str, Any]) -> None:
    under_way = admin.list_partition_reassignments()
    if not under_way:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for partition, move in sorted(under_way.items()):
        text = f"{partition}: replicas: {_numbers(move.replicas)}."
        if move.adding_replicas:
            text += f" adding: {_numbers(move.adding_replicas)}."
        if move.removing_replicas:
            text += f" removing: {_numbers(move.removing_replicas)}."
        print(text)


def _numbers(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


_DO: Final = {
    "generate": _generate,
    "execute": _execute,
    "verify": _verify,
    "cancel": _cancel,
    "list": _list,
}
