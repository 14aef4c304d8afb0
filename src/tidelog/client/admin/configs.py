"""Configurations of topics, brokers, groups and client metrics.

A broker's own configuration and its loggers are asked of that broker, everything else of any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from tidelog.client.admin.asking import Asking, Found, Result, problem_of
from tidelog.client.errors import ClientError, UnsupportedByBroker
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.message import Message
from tidelog.protocol.messages import alter_configs, incremental_alter_configs
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from tidelog.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

T = TypeVar("T")
M = TypeVar("M", bound=Message)

ANY_BROKER: Final = -1
_SYNONYMS_VERSION: Final = 1
_DOCUMENTATION_VERSION: Final = 3
_TYPES_VERSION: Final = 1


class ConfigResourceType(IntEnum):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ConfigResourceType:
        return cls.UNKNOWN


class ConfigResource(NamedTuple):
    """A broker is named by its id; an empty name is the default of all brokers."""

    type: ConfigResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(default)'}"


class ConfigSource(IntEnum):
    UNKNOWN = -1
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """`value` is None where it is secret. `type` has the numbers of `config.definition`."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: int
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


class AlterOp(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AlterConfig(NamedTuple):
    """One change of a configuration; APPEND and SUBTRACT are for lists."""

    name: str
    value: str | None = None
    op: AlterOp = AlterOp.SET


class ConfigCalls(Asking):
    async def describe_configs(
        self,
        resources: Iterable[ConfigResource] | Mapping[ConfigResource, Iterable[str] | None],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, Result[dict[str, ConfigEntry]]]:
        """All entries by name, or only those that a mapping names."""
        names: dict[ConfigResource, list[str] | None] = (
            {key: None if some is None else list(some) for key, some in resources.items()}
            if isinstance(resources, Mapping)
            else dict.fromkeys(resources)
        )

        async def ask(
            node_id: int, some: list[ConfigResource]
        ) -> Found[ConfigResource, dict[str, ConfigEntry]]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=each.type,
                        resource_name=each.name,
                        configuration_keys=names[each],
                    )
                    for each in some
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            at_least = _DOCUMENTATION_VERSION if include_documentation else 0
            at_least = at_least or (_SYNONYMS_VERSION if include_synonyms else 0)
            response = await self._of(node_id, request, DescribeConfigsResponse, at_least)
            found: dict[ConfigResource, dict[str, ConfigEntry] | ClientError] = {}
            for row in response.results:
                key = ConfigResource(ConfigResourceType(row.resource_type), row.resource_name)
                problem = problem_of(f"configuration of {key}", row.error_code, row.error_message)
                found[key] = problem or {entry.name: _entry(entry, key) for entry in row.configs}
            return found

        return await self.each("configurations", names, self._by_place(ask), timeout)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfig]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, Result[None]]:
        """Changes what is named and leaves the rest (brokers from 2.3)."""
        wanted = {key: list(some) for key, some in changes.items()}

        async def ask(node_id: int, some: list[ConfigResource]) -> Found[ConfigResource, None]:
            request = incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=[
                    incremental_alter_configs.AlterConfigsResource(
                        resource_type=each.type,
                        resource_name=each.name,
                        configs=[
                            incremental_alter_configs.AlterableConfig(
                                name=change.name, config_operation=change.op, value=change.value
                            )
                            for change in wanted[each]
                        ],
                    )
                    for each in some
                ],
                validate_only=validate_only,
            )
            await self._must_offer_increments(node_id)
            kind = incremental_alter_configs.IncrementalAlterConfigsResponse
            response = await self._of(node_id, request, kind)
            return _altered(response.responses)

        return await self.each("change of configurations", wanted, self._by_place(ask), timeout)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, Result[None]]:
        """Replaces whole configurations: what is not named goes back to its default."""

        async def ask(node_id: int, some: list[ConfigResource]) -> Found[ConfigResource, None]:
            request = alter_configs.AlterConfigsRequest(
                resources=[
                    alter_configs.AlterConfigsResource(
                        resource_type=each.type,
                        resource_name=each.name,
                        configs=[
                            alter_configs.AlterableConfig(name=name, value=value)
                            for name, value in configs[each].items()
                        ],
                    )
                    for each in some
                ],
                validate_only=validate_only,
            )
            response = await self._of(node_id, request, alter_configs.AlterConfigsResponse)
            return _altered(response.responses)

        return await self.each("change of configurations", configs, self._by_place(ask), timeout)

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = (), *, timeout: float | None = None
    ) -> list[ConfigResource]:
        """What has, or could have, a configuration (brokers from 3.7 for CLIENT_METRICS alone, from
        4.1 for all types)."""
        wanted = list(types)
        is_old = wanted == [ConfigResourceType.CLIENT_METRICS]

        async def ask(_: int) -> ListConfigResourcesResponse:
            request = ListConfigResourcesRequest(
                resource_types=[] if is_old else list(map(int, wanted))
            )
            answer = await self.of_any(
                request,
                ListConfigResourcesResponse,
                at_most=0 if is_old else None,
                at_least=0 if is_old else _TYPES_VERSION,
            )
            problem = problem_of("the list of configurations", answer.error_code)
            if problem is not None:
                raise problem
            return answer

        response = await self.once("the list of configurations", ask, timeout)
        return sorted(
            ConfigResource(ConfigResourceType(row.resource_type), row.resource_name)
            for row in response.config_resources
        )

    def _by_place(
        self, ask: Callable[[int, list[ConfigResource]], Awaitable[Found[ConfigResource, T]]]
    ) -> Callable[[list[ConfigResource], int], Awaitable[Found[ConfigResource, T]]]:
        async def step(resources: list[ConfigResource], _: int) -> Found[ConfigResource, T]:
            by_place: dict[int, list[ConfigResource]] = {}
            for each in resources:
                by_place.setdefault(_place(each), []).append(each)
            return await self.of_brokers(by_place, ask)

        return step

    async def _of(self, node_id: int, request: Message, kind: type[M], at_least: int = 0) -> M:
        if node_id == ANY_BROKER:
            return await self.of_any(request, kind, at_least=at_least)
        return await self.of_broker(node_id, request, kind, at_least=at_least)

    async def _must_offer_increments(self, node_id: int) -> None:
        if node_id != ANY_BROKER and node_id not in self.cluster.metadata.brokers:
            await self.cluster.refresh(())
        place = await self.cluster.any_node() if node_id == ANY_BROKER else node_id
        versions = await self.cluster.versions(place)
        if versions.version_or_none(ApiKey.INCREMENTAL_ALTER_CONFIGS) is None:
            raise UnsupportedByBroker(
                f"broker {versions.broker} cannot change single settings (Kafka before 2.3); "
                "alter_configs replaces whole configurations"
            )


def _place(resource: ConfigResource) -> int:
    is_of_broker = resource.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
    if is_of_broker and resource.name.isascii() and resource.name.isdigit():
        return int(resource.name)
    return ANY_BROKER


def _altered(
    rows: Iterable[
        alter_configs.AlterConfigsResourceResponse
        | incremental_alter_configs.AlterConfigsResourceResponse
    ],
) -> dict[ConfigResource, ClientError | None]:
    found: dict[ConfigResource, ClientError | None] = {}
    for row in rows:
        key = ConfigResource(ConfigResourceType(row.resource_type), row.resource_name)
        found[key] = problem_of(f"configuration of {key}", row.error_code, row.error_message)
    return found


def _entry(row: DescribeConfigsResourceResult, resource: ConfigResource) -> ConfigEntry:
    source = ConfigSource(row.config_source)
    if source is ConfigSource.UNKNOWN:
        source = _source_before_1_1(row.is_default, resource)
    return ConfigEntry(
        row.name,
        row.value,
        source,
        row.read_only,
        row.is_sensitive,
        row.config_type,
        tuple(
            ConfigSynonym(each.name, each.value, ConfigSource(each.source)) for each in row.synonyms
        ),
        row.documentation,
    )


def _source_before_1_1(is_default: bool, resource: ConfigResource) -> ConfigSource:
    if is_default:
        return ConfigSource.DEFAULT
    if resource.type is ConfigResourceType.TOPIC:
        return ConfigSource.DYNAMIC_TOPIC
    if resource.type is ConfigResourceType.BROKER:
        return ConfigSource.STATIC_BROKER
    return ConfigSource.UNKNOWN
