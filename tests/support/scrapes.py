"""Scrapes of a broker without a network: a collector, and its samples by name."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from tests.support.handlers import HandlerStage
from tidelog.broker.observation.collector import Collector
from tidelog.log.cleaner.log_cleaner import LogCleaner
from tidelog.network.processor import Counters

SAMPLE = re.compile(
    r'^[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-z_]+="([^"\\\n]|\\[\\"n])*",?)*\})? -?[0-9.e+-]+$'
)


def collector_of(stage: HandlerStage, waiting: Counter[int] | None = None) -> Collector:
    broker = stage.broker
    network = SimpleNamespace(counters=Counters(), processors=(), connections=())
    cleaner = LogCleaner(
        broker.logs,
        lambda *_: None,
        broker.config,
        loop=asyncio.get_running_loop(),
        clock=broker.clock,
    )
    return Collector(broker, cast(Any, network), lambda: waiting or Counter(), cleaner)


def samples(page: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in "".join(page).splitlines():
        if not line.startswith("#"):
            assert SAMPLE.match(line), line
            name, _, value = line.rpartition(" ")
            assert name not in found, f"{name} is told twice"
            found[name] = float(value)
    return found
