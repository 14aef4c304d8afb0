"""The log directories of a broker, and log managers over them, one after the other."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.support.clock import FakeClock
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import LogConfig
from tidelog.log.log_manager import LogManager


def close_abruptly(manager: LogManager) -> None:
    """Gives its directories free and writes nothing, as if the process had been killed."""
    manager._logs.clear()
    manager.directories.unlock()


class LogBroker:
    """Starts managers over the same directories, one after the other."""

    def __init__(self, root: Path, directories: int = 1) -> None:
        self.paths = [root / f"data{number}" for number in range(directories)]
        self.clock = FakeClock()
        self.manager: LogManager | None = None

    def start(self, config: LogConfig | None = None) -> LogManager:
        log_config = config or LogConfig()
        self.manager = LogManager(
            self.paths,
            broker_config=BrokerConfig(),
            default_log_config=log_config,
            clock=self.clock,
            random=Random(1),
        )
        self.manager.start(lambda _: log_config)
        return self.manager

    def restart(self, config: LogConfig | None = None) -> LogManager:
        assert self.manager is not None
        self.manager.shutdown()
        return self.start(config)

    def kill_and_start(self, config: LogConfig | None = None) -> LogManager:
        assert self.manager is not None
        close_abruptly(self.manager)
        return self.start(config)
