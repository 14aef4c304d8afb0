"""The log.cleaner.* keys as one value."""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.config.broker import BrokerConfig

MAP_BYTES_MAX: Final = (1 << 31) - 1
IO_BUFFER_BYTES_MIN: Final = 4096


class CleanerSettings(NamedTuple):
    is_enabled: bool
    threads: int
    map_bytes: int  # of one thread
    map_load_factor: float
    io_buffer_bytes: int  # of one thread, for reading; as much again for writing
    io_bytes_per_second: float
    backoff_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        threads = config.get_int("log.cleaner.threads")
        share = max(threads, 1)
        return cls(
            is_enabled=config["log.cleaner.enable"] and threads > 0,
            threads=threads,
            map_bytes=min(config["log.cleaner.dedupe.buffer.size"] // share, MAP_BYTES_MAX),
            map_load_factor=config["log.cleaner.io.buffer.load.factor"],
            io_buffer_bytes=max(
                config["log.cleaner.io.buffer.size"] // share // 2, IO_BUFFER_BYTES_MIN
            ),
            io_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
            backoff_ms=config.get_int("log.cleaner.backoff.ms"),
        )
