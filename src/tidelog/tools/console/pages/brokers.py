"""Brokers: where they are, what they lead and hold, their disks and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.client.admin.configs import ConfigResource, ConfigResourceType
from tidelog.client.errors import ClientError
from tidelog.tools.console.clients import clients_of
from tidelog.tools.console.cluster_watch import health, watch_of
from tidelog.tools.console.config_entries import (
    SOURCES,
    change_entry,
    entries_of,
    matching,
    show_entry,
)
from tidelog.tools.console.page import link, render
from tidelog.tools.console.pages.overview import disks_of

NAVIGATION: Final = ("Brokers", "/brokers")
REPLICAS_SHOWN: Final = 50


async def show_list(request: Request) -> Response:
    watch = watch_of(request)
    cluster = await watch.cluster()
    topics = await watch.topics()
    try:
        disks = {row.broker_id: row for row in disks_of(await watch.disks())}
        untold = ""
    except ClientError as error:
        disks, untold = {}, str(error)
    return render(
        request,
        "brokers/list.html",
        found=cluster,
        health=health(topics),
        disks=disks,
        untold=untold,
        metrics=[
            (url, await watch.metrics(url)) for url in request.app.state.settings.metrics_urls
        ],
    )


async def show_one(request: Request) -> Response:
    watch = watch_of(request)
    broker_id = _broker_id(request)
    cluster = await watch.cluster()
    node = next((each for each in cluster.nodes if each.id == broker_id), None)
    if node is None:
        raise HTTPException(404)
    topics = await watch.topics()
    folders: object = {}
    untold = ""
    try:
        answer = (await watch.disks()).get(broker_id)
        if isinstance(answer, ClientError):
            untold = str(answer)
        else:
            folders = answer or {}
    except ClientError as error:
        untold = str(error)
    replicas = sorted(
        (
            (replica.size_bytes, place.topic, place.partition, replica, path)
            for path, folder in (folders.items() if isinstance(folders, dict) else ())
            for place, replica in folder.replicas.items()
        ),
        key=lambda row: (-row[0], row[1], row[2]),
    )
    words, only_set = request.query_params.get("q", ""), "set" in request.query_params
    return render(
        request,
        "brokers/one.html",
        node=node,
        is_controller=cluster.controller is not None and cluster.controller.id == broker_id,
        health=health(topics),
        folders=folders,
        untold=untold,
        replicas=replicas[:REPLICAS_SHOWN],
        replica_count=len(replicas),
        entries=matching(
            await entries_of(clients_of(request), _resource(broker_id)), words, only_set=only_set
        ),
        words=words,
        only_set=only_set,
        sources=SOURCES,
        base=link("brokers", str(broker_id), "configs"),
    )


async def show_config(request: Request) -> Response:
    broker_id = _broker_id(request)
    back = link("brokers", str(broker_id))
    name = request.path_params["name"]
    return await show_entry(request, _resource(broker_id), name, back, f"Broker {broker_id}")


async def change_config(request: Request) -> Response:
    broker_id = _broker_id(request)
    name = request.path_params["name"]
    back = link("brokers", str(broker_id))
    return await change_entry(request, _resource(broker_id), name, back)


def _broker_id(request: Request) -> int:
    broker_id: int = request.path_params["broker"]
    return broker_id


def _resource(broker_id: int) -> ConfigResource:
    return ConfigResource(ConfigResourceType.BROKER, str(broker_id))


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/brokers", show_list),
    Route("/brokers/{broker:int}", show_one),
    Route("/brokers/{broker:int}/configs/{name}", show_config),
    Route("/brokers/{broker:int}/configs/{name}", change_config, methods=["POST"]),
)
