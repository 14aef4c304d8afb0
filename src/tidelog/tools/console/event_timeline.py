"""The timeline of events: what the brokers tell at /events, filtered, as rows for a page.

An event is about a subject (a partition, a group, a transactional id, ...) and has a kind, by which
a reader may choose. Names and fields are as the brokers tell them; a name that is not known here is
of the kind `other`, so a newer broker's events show too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tidelog.tools.explain.events import Event

ROWS_MAX: Final = 500
VALUE_MAX: Final = 300


class Kind(StrEnum):
    BROKERS = "brokers"
    ELECTIONS = "elections"
    ISR = "in-sync sets"
    GROUPS = "groups"
    TRANSACTIONS = "transactions"
    TOPICS = "topics"
    LOGS = "logs"
    SETTINGS = "settings"
    CLIENTS = "clients"
    OTHER = "other"


KINDS: Final[Mapping[str, Kind]] = {
    name: kind
    for kind, names in {
        Kind.BROKERS: (
            "broker-started broker-stopping broker-stopped brokers-changed loop-stalled logs-loaded"
        ),
        Kind.ELECTIONS: (
            "controller-elected controller-resigned leader-elected leader-missing "
            "partition-leading partition-following"
        ),
        Kind.ISR: "isr-shrinking isr-expanding isr-changed",
        Kind.GROUPS: "rebalance-began rebalance-ended group-epoch-raised member-left members-left",
        Kind.TRANSACTIONS: "transaction-timed-out producer-fenced",
        Kind.TOPICS: (
            "topic-created topic-auto-created topic-deleted topic-removed partitions-added"
        ),
        Kind.LOGS: (
            "log-dir-recovery log-dir-offline partition-offline log-truncated segments-deleted "
            "records-deleted log-cleaned"
        ),
        Kind.SETTINGS: (
            "config-altered topic-config-changed broker-config-changed group-config-changed "
            "client-metrics-config-changed quotas-changed"
        ),
        Kind.CLIENTS: "request-refused client-refused client-throttled slow-request",
    }.items()
    for name in names.split()
}
# What an event may be about, the most telling first.
SUBJECTS: Final = (
    "partition",
    "group",
    "transactional_id",
    "topic",
    "subscription",
    "resource",
    "entity",
    "path",
    "connection",
    "client",
)
# By which the brokers filter what they tell.
FILTERED: Final = ("partition", "topic", "group", "transactional_id", "producer_id")
TROUBLE: Final = frozenset(
    {
        "leader-missing",
        "isr-shrinking",
        "log-dir-offline",
        "partition-offline",
        "transaction-timed-out",
        "request-refused",
        "client-refused",
        "loop-stalled",
    }
)
_NOT_SHOWN: Final = frozenset({"time", "level", "logger", "msg", "event", "broker"})


class Row(NamedTuple):
    at_ms: int
    broker_id: int | None
    name: str
    kind: Kind
    message: str
    subject: str  # the name of the field, empty if it is about none
    about: str
    fields: tuple[tuple[str, str], ...]  # the others

    @property
    def is_trouble(self) -> bool:
        return self.name in TROUBLE


class EventFilter(NamedTuple):
    """Empty fields let everything pass. `text` is looked for in everything that a row shows."""

    kind: str = ""
    name: str = ""
    broker_id: int | None = None
    text: str = ""

    def passes(self, row: Row) -> bool:
        if self.kind and row.kind != self.kind:
            return False
        if self.name and row.name != self.name:
            return False
        if self.broker_id is not None and row.broker_id != self.broker_id:
            return False
        wanted = self.text.casefold()
        return not wanted or any(wanted in shown.casefold() for shown in _texts(row))


def _texts(row: Row) -> Iterator[str]:
    yield row.name
    yield row.message
    yield row.about
    for name, value in row.fields:
        yield f"{name}={value}"


def row_of(event: Event) -> Row:
    subject = next((name for name in SUBJECTS if event.text(name)), "")
    return Row(
        event.at_ms,
        event.broker_id,
        event.name,
        KINDS.get(event.name, Kind.OTHER),
        event.text("msg"),
        subject,
        event.text(subject)[:VALUE_MAX] if subject else "",
        tuple(
            (str(name)[:VALUE_MAX], event.text(name)[:VALUE_MAX])
            for name in event.fields
            if name not in _NOT_SHOWN and name != subject
        ),
    )


def rows_of(
    events: Sequence[Event], wanted: EventFilter, rows_max: int = ROWS_MAX
) -> tuple[list[Row], int]:
    """The last ones that pass, the newest first, and how many older ones are left out."""
    passed = [row for row in map(row_of, events) if wanted.passes(row)]
    return passed[::-1][:rows_max], max(len(passed) - rows_max, 0)
