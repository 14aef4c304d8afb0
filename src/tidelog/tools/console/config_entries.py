"""Settings of topics and brokers as the console shows and changes them.

An entry shows its value, where it comes from, and what it means. Secret values are never told by a
cluster, and shown as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tidelog.client.admin.configs import (
    AlterConfig,
    AlterOp,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from tidelog.client.errors import UnsupportedByBroker
from tidelog.tools.console.clients import Clients, clients_of
from tidelog.tools.console.page import field_of, render, told

SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC: "set for this topic",
    ConfigSource.DYNAMIC_BROKER: "set for this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "set for all brokers",
    ConfigSource.STATIC_BROKER: "the broker's file",
    ConfigSource.DEFAULT: "default",
    ConfigSource.DYNAMIC_BROKER_LOGGER: "logger",
    ConfigSource.CLIENT_METRICS: "subscription",
    ConfigSource.GROUP: "set for this group",
    ConfigSource.UNKNOWN: "unknown",
}


async def entries_of(clients: Clients, resource: ConfigResource) -> list[ConfigEntry]:
    """What is set comes first. Brokers before Kafka 2.6 tell no documentation."""
    try:
        answer = await clients.admin.describe_configs(
            [resource], include_synonyms=True, include_documentation=True
        )
    except UnsupportedByBroker:
        answer = await clients.admin.describe_configs([resource])
    result = answer[resource]
    if isinstance(result.error, UnsupportedByBroker):
        result = (await clients.admin.describe_configs([resource]))[resource]
    return sorted(result.get().values(), key=lambda each: (not is_set(each), each.name))


def is_set(entry: ConfigEntry) -> bool:
    """Whether somebody has set it, for this resource or for its brokers."""
    return entry.source not in (ConfigSource.DEFAULT, ConfigSource.UNKNOWN)


def matching(entries: Iterable[ConfigEntry], words: str, *, only_set: bool) -> list[ConfigEntry]:
    """Those that have all the words in their name, value or documentation."""
    wanted = words.lower().split()
    return [
        each
        for each in entries
        if (not only_set or is_set(each))
        and all(
            word in f"{each.name} {each.value or ''} {each.documentation or ''}".lower()
            for word in wanted
        )
    ]


async def show_entry(
    request: Request, resource: ConfigResource, name: str, back: str, crumb: str
) -> Response:
    """The page of one setting: what it is, and a form to change it."""
    found = [each for each in await entries_of(clients_of(request), resource) if each.name == name]
    return render(
        request,
        "configs/entry.html",
        entry=found[0] if found else None,
        name=name,
        resource=resource,
        back=back,
        crumb=crumb,
        sources=SOURCES,
        is_own=bool(found) and is_own(found[0], resource),
    )


def is_own(entry: ConfigEntry, resource: ConfigResource) -> bool:
    """Whether it is set for this very resource, so that it can be taken back."""
    return entry.source in (
        ConfigSource.DYNAMIC_TOPIC,
        ConfigSource.DYNAMIC_BROKER,
        ConfigSource.GROUP,
    ) or (resource.name == "" and entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER)


async def change_entry(
    request: Request, resource: ConfigResource, name: str, back: str
) -> Response:
    """Sets a value, or takes it back. A value may be empty, and blanks around it are its own."""
    if field_of(request, "do") == "reset":
        change = AlterConfig(name, None, AlterOp.DELETE)
        said = f"{name} is back to what holds otherwise."
    else:
        value = request.scope["tidelog.form"].get("value", [""])[0]
        change = AlterConfig(name, value)
        said = f"{name} is now {value or 'empty'}."
    answer = await clients_of(request).admin.incremental_alter_configs({resource: [change]})
    answer[resource].get()
    return told(request, back, said)
