"""What a config request may name (a topic, this broker, all brokers, ...), and changes to it.

AlterConfigs and IncrementalAlterConfigs differ only in the edit: the first replaces all overrides
of a resource, the second sets, deletes, appends and subtracts single keys.

Checks of a change, in order, as Kafka 3.9: resource named twice, key named twice, null value,
ALTER_CONFIGS on the topic (29), the group (30) or, for all other types, the cluster (31), resource
type, for a broker its id and for a topic its name, the edit, the configuration it leads to, and
last that the topic exists. A refused key or value is INVALID_CONFIG, but of a broker
INVALID_REQUEST (KAFKA-13609); what cannot change while the broker runs, and all the rest, is
INVALID_REQUEST.

Levels of this broker's loggers change by IncrementalAlterConfigs alone (`broker_loggers.py`).

Unlike Kafka
- Groups have the keys of consumer groups alone: share and streams groups are not served.
- A broker's key that nobody knows is refused (42). Kafka keeps it for plug-ins. There are none
  here, and what is accepted must have an effect.
- Some keys that Kafka changes while it runs are read-only here (42): listeners, thread counts of
  the network and all that nothing acts on. docs/config.md names them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from tidelog.broker.authorized_operations import ALTER_CONFIGS, GROUP, TOPIC
from tidelog.broker.broker_loggers import LevelChange, require_levels, set_levels
from tidelog.broker.requester import asked_by
from tidelog.config.broker import BROKER_TABLE
from tidelog.config.client_metrics import CLIENT_METRICS_TABLE
from tidelog.config.definition import ConfigError, ConfigTable
from tidelog.config.group import GROUP_TABLE
from tidelog.config.topic import TOPIC_TABLE
from tidelog.controller.topic_names import must_be_valid
from tidelog.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext


logger = logging.getLogger(__name__)


class ResourceType(IntEnum):
    """Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


Edit = Callable[[Mapping[str, str], ConfigTable], dict[str, str]]


class ConfigChange(NamedTuple):
    resource_type: int
    resource_name: str
    names: Sequence[str]  # keys it touches
    null_names: Sequence[str]  # those of them that lack the value they need
    edit: Edit
    levels: Callable[[], Sequence[LevelChange]] | None = None  # if it can change those of loggers


class Resource(Protocol):
    """As named in a request."""

    resource_type: int
    resource_name: str


ResourceT = TypeVar("ResourceT", bound=Resource)
RowT = TypeVar("RowT", covariant=True)


class Row(Protocol[RowT]):
    """Makes one row of an answer."""

    def __call__(
        self,
        *,
        error_code: int,
        error_message: str | None,
        resource_type: int,
        resource_name: str,
    ) -> RowT: ...


def denial_or_none(
    context: RequestContext, operation: int, resource_type: int, name: str
) -> KafkaError | None:
    """Why the client may not do this with the configuration of the resource."""
    if resource_type == ResourceType.TOPIC:
        allowed, code = context.may(operation, TOPIC, name), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif resource_type == ResourceType.GROUP:
        allowed, code = context.may(operation, GROUP, name), ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        allowed, code = (
            context.may_on_cluster(operation),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        )
    return None if allowed else KafkaError(code)


async def alter(
    context: RequestContext,
    resources: Sequence[ResourceT],
    change_of: Callable[[ResourceT], ConfigChange],
    row: Row[RowT],
    *,
    validate_only: bool,
) -> list[RowT]:
    """Changes one resource after the other; a row tells how each went."""
    changes = [change_of(resource) for resource in resources]
    named = Counter((change.resource_type, change.resource_name) for change in changes)
    rows = []
    for change in changes:
        repeated = named[change.resource_type, change.resource_name] > 1
        error = await apply_or_error(context, change, validate_only, repeated)
        if error is None and not validate_only:
            logger.info(
                "configuration changed by a client",
                extra={
                    "event": "config-altered",
                    "resource": f"{ResourceType(change.resource_type).name.lower()}/"
                    f"{change.resource_name}",
                    "keys": ",".join(change.names),  # values may be secrets
                    **asked_by(context),
                },
            )
        rows.append(
            row(
                error_code=error.code if error else 0,
                error_message=error.message if error else None,
                resource_type=change.resource_type,
                resource_name=change.resource_name,
            )
        )
    return rows


async def apply_or_error(
    context: RequestContext, change: ConfigChange, validate_only: bool, repeated: bool
) -> KafkaError | None:
    try:
        if repeated:
            raise invalid_request("Each resource must appear at most once.")
        await apply_change(context, change, validate_only)
    except ConfigError as error:
        is_brokers = change.resource_type == ResourceType.BROKER
        code = ErrorCode.INVALID_REQUEST if is_brokers else ErrorCode.INVALID_CONFIG
        return KafkaError(code, str(error))
    except KafkaError as error:
        return error
    return None


async def apply_change(context: RequestContext, change: ConfigChange, validate_only: bool) -> None:
    broker, name = context.broker, change.resource_name
    if len(set(change.names)) < len(change.names):
        raise invalid_request("Error due to duplicate config keys")
    if change.null_names:
        raise invalid_request(f"Null value not supported for: {', '.join(change.null_names)}")
    denial = denial_or_none(context, ALTER_CONFIGS, change.resource_type, name)
    if denial is not None:
        raise denial
    if change.resource_type == ResourceType.TOPIC:
        if not name:
            raise invalid_request("Default topic resources are not allowed.")
        must_be_valid(name)
        await broker.dynamic_config.alter_topic(
            name, lambda before: change.edit(before, TOPIC_TABLE), validate_only=validate_only
        )
    elif change.resource_type == ResourceType.BROKER:
        await broker.dynamic_config.alter_broker(
            this_broker_or_none(name, broker.broker_id),
            lambda before: change.edit(before, BROKER_TABLE),
            validate_only=validate_only,
        )
    elif change.resource_type == ResourceType.GROUP:
        if not name:
            raise invalid_request("Default group resources are not allowed.")
        await broker.dynamic_config.alter_group(
            name, lambda before: change.edit(before, GROUP_TABLE), validate_only=validate_only
        )
    elif change.resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise invalid_request("Subscription name can't be empty")
        await broker.dynamic_config.alter_subscription(
            name,
            lambda before: change.edit(before, CLIENT_METRICS_TABLE),
            validate_only=validate_only,
        )
    elif change.resource_type == ResourceType.BROKER_LOGGER and change.levels is not None:
        must_be_this_broker(name, broker.broker_id)
        levels = change.levels()
        require_levels(levels)
        if not validate_only:
            set_levels(levels)
    else:
        raise unsupported(change.resource_type)


def must_be_this_broker(name: str, broker_id: int) -> None:
    if this_broker_or_none(name, broker_id) is None:
        raise invalid_request("Broker id must not be empty")


def this_broker_or_none(name: str, broker_id: int) -> int | None:
    """The broker that a resource name means; None for the empty name, which means all brokers.

    An id has one spelling, so that a request cannot ask for the same broker under many names.
    """
    if not name:
        return None
    try:
        named = int(name)
        if str(named) != name:
            raise ValueError(name)
    except ValueError:
        raise invalid_request(f"Broker id must be an integer, but it is: {name}") from None
    if named != broker_id:
        raise invalid_request(
            f"Unexpected broker id, expected {broker_id} or empty string, but received {name}"
        )
    return named


def unsupported(resource_type: int) -> KafkaError:
    known = {int(member): member.name for member in ResourceType}
    return invalid_request(
        "Resources of this type have no configuration here that could be so changed or described: "
        f"{known.get(resource_type, resource_type)}."
    )


def invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
