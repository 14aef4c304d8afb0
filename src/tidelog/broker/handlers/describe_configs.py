"""DescribeConfigs v0-v4: the configuration of topics, groups, brokers and this broker's loggers.

Behaviour
- A topic or this broker: every key, with its value, where that comes from, its type and (if asked
  for) its synonyms and documentation. The broker "" lists only what was set for all brokers while
  they ran. Internal keys are listed only where set.
- configuration_keys picks keys, null or empty all; unknown ones are left out without an error.
- A consumer group, known or not: its keys, over the broker's values for all groups.
- This broker's loggers, with the levels in force.
- A subscription to metrics of clients: its keys, over the defaults. One that is not known has the
  defaults, as in Kafka 4.3; Kafka 3.9 has no row for it, and no error either.
- Values of passwords are null. The message of a success, and of an unknown topic, is empty.
Checks, in order: DESCRIBE_CONFIGS on the topic (29), the group (30) or, for all other types, the
cluster (31), resource type, then topic name valid and topic known, or broker id this one.
Versions: v1 sources and synonyms instead of is_default (KIP-226), v3 types and documentation
(KIP-569), v4 flexible.
Unlike Kafka
- A resource named more than once gets one row, with the keys of all places: an answer must not be
  many times its request.
- v0 tells which values are defaults. Kafka 3.9 says of none that it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.broker.authorized_operations import DESCRIBE_CONFIGS
from tidelog.broker.broker_loggers import describe_loggers
from tidelog.broker.bulky_answers import EncodedAnswer, encode_apart
from tidelog.broker.config_resource import (
    ResourceType,
    denial_or_none,
    invalid_request,
    must_be_this_broker,
    this_broker_or_none,
    unsupported,
)
from tidelog.broker.context import RequestContext
from tidelog.config.description import Entry, Source
from tidelog.controller.topic_names import must_be_valid
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

RESOURCES_PER_SLICE: Final = 10


async def handle(
    context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | EncodedAnswer:
    response = DescribeConfigsResponse()
    for each in distinct(request.resources):
        await context.broker.slices.breathe()
        response.results.append(await describe(context, request, each))
    if len(response.results) > RESOURCES_PER_SLICE:
        return await encode_apart(context, response)
    return response


def distinct(resources: Iterable[DescribeConfigsResource]) -> Iterable[DescribeConfigsResource]:
    """Each resource once: a small request must not ask for the same large answer many times."""
    found: dict[tuple[int, str], DescribeConfigsResource] = {}
    for resource in resources:
        first = found.setdefault((resource.resource_type, resource.resource_name), resource)
        if first is resource:
            continue
        if first.configuration_keys and resource.configuration_keys:
            first.configuration_keys += resource.configuration_keys
        else:
            first.configuration_keys = None
    return found.values()


async def describe(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        entries = await entries_of(context, resource)
    except KafkaError as error:
        result.error_code = error.code
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            result.error_message = error.message
        return result
    picked = set(resource.configuration_keys or ())
    result.configs = [
        row(entry, request, context.api_version)
        for entry in entries
        if not picked or entry.name in picked
    ]
    return result


async def entries_of(context: RequestContext, resource: DescribeConfigsResource) -> list[Entry]:
    dynamic_config, name = context.broker.dynamic_config, resource.resource_name
    denial = denial_or_none(context, DESCRIBE_CONFIGS, resource.resource_type, name)
    if denial is not None:
        raise denial
    if resource.resource_type == ResourceType.TOPIC:
        must_be_valid(name)
        context.broker.topics.must_get(name)
        return await dynamic_config.describe_topic(name)
    if resource.resource_type == ResourceType.BROKER:
        if this_broker_or_none(name, context.broker.broker_id) is None:
            return dynamic_config.layers.describe_broker_defaults()
        return dynamic_config.layers.describe_broker()
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        must_be_this_broker(name, context.broker.broker_id)
        return describe_loggers()
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise invalid_request("Group name must not be empty")
        return await dynamic_config.describe_group(name)
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise invalid_request("Client metrics subscription name must not be empty")
        return await dynamic_config.describe_subscription(name)
    raise unsupported(resource.resource_type)


def row(
    entry: Entry, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=version == 0 and entry.source is Source.DEFAULT,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.type,
        # A logger has an empty one, asked for or not.
        documentation=entry.doc if request.include_documentation or entry.doc == "" else None,
    )
