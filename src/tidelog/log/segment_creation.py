"""New segments, as the topic's configuration wants them."""

from __future__ import annotations

from tidelog.config.topic import LogConfig
from tidelog.log.log_host import LogHost
from tidelog.log.segment import LogSegment


def new_segment(directory: str, base_offset: int, config: LogConfig, host: LogHost) -> LogSegment:
    return LogSegment.create(
        directory,
        base_offset,
        index_interval_bytes=config.index_interval_bytes,
        created_ms=host.clock.time_ms(),
        jitter_ms=roll_jitter_ms(config, host),
        preallocate_bytes=config.segment_bytes if config.preallocate else 0,
    )


def roll_jitter_ms(config: LogConfig, host: LogHost) -> int:
    """So that the segments of many partitions do not all roll at once."""
    if config.segment_jitter_ms <= 0:
        return 0
    return host.random.randrange(min(config.segment_jitter_ms, config.segment_ms))
