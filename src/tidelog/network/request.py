"""A request between the network layer and whoever handles it: a frame in, one answer out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from tidelog.network.connection import Connection


class FileSlice(Protocol):
    """Part of a file that is sent without being read, such as record.file_records.FileRecords."""

    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...
    def fileno(self) -> int: ...
    def __len__(self) -> int: ...


Part: TypeAlias = "bytes | bytearray | memoryview | FileSlice"

API_KEY_BYTES: Final = 2  # a frame begins with the api key of its request


class FileSend:
    """What is left of a file part; holds the part, and so its file open, until it is sent."""

    __slots__ = ("part", "position", "remaining")

    def __init__(self, part: FileSlice) -> None:
        self.part = part
        self.position = part.position
        self.remaining = part.length


Outgoing: TypeAlias = "bytes | bytearray | memoryview | FileSend"


class Outcome(NamedTuple):
    """An answer as it is sent, its length in front; or nothing, or the end of the connection."""

    parts: list[Outgoing]
    size_bytes: int
    file_bytes: int
    closes: bool = False


NOTHING: Final = Outcome([], 0, 0)
CLOSE: Final = Outcome([], 0, 0, closes=True)


class IncomingRequest:
    """Must be answered exactly once, inside `handle` or later on the broker loop, by `respond`,
    `respond_nothing` or `close`. Answers after the connection has closed go nowhere.
    """

    __slots__ = ("connection", "frame", "outcome", "passed_by", "received_at")

    def __init__(self, connection: Connection, frame: memoryview, received_at: float) -> None:
        self.connection = connection
        self.frame = frame  # writable, without its length; emptied when `handle` returns
        self.received_at = received_at  # clock.monotonic()
        self.outcome: Outcome | None = None  # kept while an earlier request is not answered
        self.passed_by: bytes | None = None  # the api key of requests that need not wait for it

    def let_others_pass(self) -> None:
        """Called inside `handle`: the request has had its effect and its answer comes later, so
        further requests of this connection with the same api key may be handled before that.
        """
        self.passed_by = bytes(self.frame[:API_KEY_BYTES])

    def respond(self, parts: Sequence[Part]) -> None:
        """The parts in turn are the answer; its frame length is put before them."""
        self.connection.answer(self, parts)

    def respond_nothing(self) -> None:
        """For requests without an answer (Produce with acks=0): the next one may come."""
        self.connection.answer_nothing(self)

    def close(self, reason: str) -> None:
        """Closes the connection once earlier answers are sent: the request cannot be answered."""
        self.connection.answer_by_closing(self, reason)


class RequestHandler(Protocol):
    def handle(self, request: IncomingRequest) -> None:
        """Called on the broker loop. An exception closes the connection."""

    def half_closed(self, connection: Connection) -> None:
        """Called on the broker loop: the peer has ended its stream while requests of it wait.

        It may have gone, or wait for its answers: those that can be had early should come now.
        """
