"""Tests that leave a client open, or work on the thread of the blocking clients, fail.

Such a client would go on behind the tests that follow and could disturb them. What was open before
a test, for instance a client of its module, is not its business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import wraps
from typing import Any
from weakref import WeakSet

import pytest

from tests.support.eventually import eventually
from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.network.cluster import Cluster

_made: WeakSet[Cluster] = WeakSet()


def pytest_configure(config: pytest.Config) -> None:
    make = Cluster.__init__

    @wraps(make)
    def make_and_note(self: Cluster, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        _made.add(self)

    Cluster.__init__ = make_and_note  # type: ignore[method-assign]


def open_clusters() -> set[Cluster]:
    """Of the clients that have been used and not closed."""
    return {each for each in list(_made) if each._surroundings is not None and not each.is_closed}


@pytest.fixture(autouse=True)
def clients_are_closed() -> Iterator[None]:
    before = open_clusters()
    yield
    left = [each.config.text("client.id") for each in open_clusters() - before]
    assert not left, f"the test leaves clients open, with client.id {left}"
    if not before:
        eventually(lambda: not _tasks_of_blocking_clients())


def _tasks_of_blocking_clients() -> set[asyncio.Task[Any]]:
    thread = LoopThread._shared
    return set() if thread is None else asyncio.all_tasks(thread.loop)
