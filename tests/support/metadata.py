"""Metadata for tests: stores and catalogues in a directory, and a loop to run a story in."""

from __future__ import annotations

import asyncio
import errno
import functools
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, ParamSpec

import pytest

from tests.support.clock import FakeClock
from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.metadata_store import MetadataStore
from tidelog.controller.placement import PlacementBroker
from tidelog.controller.registration import join_cluster
from tidelog.controller.topics import TopicCatalogue
from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import TopicPartition

P = ParamSpec("P")

DEFAULT_SETTINGS: Final[Mapping[str, object]] = {
    "num.partitions": 1,
    "default.replication.factor": 1,
    "offsets.topic.num.partitions": 50,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.segment.bytes": 104857600,
    "transaction.state.log.num.partitions": 50,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.segment.bytes": 104857600,
}


def in_loop(story: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a test that is a coroutine function in a loop of its own."""

    @functools.wraps(story)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(story(*args, **kwargs))

    return run


@contextmanager
def refused(code: ErrorCode) -> Iterator[pytest.ExceptionInfo[KafkaError]]:
    with pytest.raises(KafkaError) as raised:
        yield raised
    assert raised.value.code is code


def no_space(*_arguments: object, **_keywords: object) -> None:
    """In place of a call that writes."""
    raise OSError(errno.ENOSPC, "No space left on device")


def open_store(directory: Path) -> EmbeddedStore:
    return EmbeddedStore.open(directory, clock=FakeClock())


def open_catalogue(
    store: MetadataStore,
    *,
    broker_id: int = 0,
    settings: Mapping[str, object] = DEFAULT_SETTINGS,
    other_brokers: tuple[int, ...] = (),
) -> TopicCatalogue:
    """Joins the cluster and does what a broker does when it starts."""
    membership = join_cluster(store, broker_id, FakeClock())
    catalogue = TopicCatalogue(store, broker_id, settings=settings, random_below=lambda bound: 0)
    catalogue.brokers = [PlacementBroker(i) for i in sorted((broker_id, *other_brokers))]
    catalogue.controller_epoch = membership.controller_epoch
    catalogue.load()
    catalogue.start_broker_epoch()
    return catalogue


def contents(store: MetadataStore, path: str = "/") -> dict[str, bytes]:
    return {below: data for below, data, _ in store.subtree(path)}


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """What old tools ask to elect leaders for, and old brokers say has another in-sync set."""
    rows = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return json.dumps({"version": 1, "partitions": rows}).encode()
