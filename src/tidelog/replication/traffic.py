"""What went in and out of a partition while this broker hosts it: plain integers.

The path of every request adds to them, so there is nothing else here. A scrape reads them
(`broker/observation/`). They start at 0 with the process. A Traffic is written on the broker loop
only.
"""

from __future__ import annotations


class Traffic:
    __slots__ = (
        "appends",
        "bytes_in",
        "bytes_out",
        "bytes_replicated",
        "failed_appends",
        "failed_reads",
        "messages_in",
        "reads",
    )

    def __init__(self) -> None:
        self.appends = 0  # batches that clients and coordinators sent here
        self.messages_in = 0
        self.bytes_in = 0
        self.failed_appends = 0
        self.reads = 0  # of consumers; a fetch that waits reads more than once
        self.bytes_out = 0  # to consumers
        self.bytes_replicated = 0  # from the leader, as a follower
        self.failed_reads = 0

    def add(self, other: Traffic) -> None:
        self.appends += other.appends
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.failed_appends += other.failed_appends
        self.reads += other.reads
        self.bytes_out += other.bytes_out
        self.bytes_replicated += other.bytes_replicated
        self.failed_reads += other.failed_reads
