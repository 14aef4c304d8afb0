"""What a broker does beside answering: requests that wait, copies of leaders, syncs, compaction.

`add_duties` tells numbers that are there anyway, by Kafka's names. `add_quotas` tells what clients
with a quota use, a few clients a step, because there may be ten thousand of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.broker.observation.exposition import GAUGE, Page, labels
from tidelog.controller.metadata_store import SessionState
from tidelog.controller.zookeeper_store import ZooKeeperStore
from tidelog.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.broker import Broker
    from tidelog.log.cleaner.log_cleaner import LogCleaner

CLIENTS_A_STEP: Final = 50
SERIES_OF_CLIENT: Final = 2
# Kafka's purgatories, and the requests that wait in each.
PURGATORIES: Final = (
    ("Fetch", (ApiKey.FETCH,)),
    ("Produce", (ApiKey.PRODUCE,)),
    ("Rebalance", (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)),
    ("DeleteRecords", (ApiKey.DELETE_RECORDS,)),
    ("ElectLeader", (ApiKey.ELECT_LEADERS,)),
)
SESSION_CHANGES: Final = (
    ("zookeepersyncconnects_total", SessionState.CONNECTED, "Connections to ZooKeeper."),
    ("zookeeperdisconnects_total", SessionState.DISCONNECTED, "Connections to it that were lost."),
    ("zookeeperexpires_total", SessionState.EXPIRED, "Sessions that it has ended."),
)


def add_duties(page: Page, broker: Broker, waiting: Counter[int], cleaner: LogCleaner) -> None:
    """`waiting`: how many requests of each api key are not answered yet."""
    _add_waiting(page, waiting)
    page.gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Fetch sessions of clients.",
        len(broker.fetch_sessions),
    )
    prefix = "kafka_log_logflushstats_logflushrateandtimems_"
    flushes = broker.logs.flushes
    page.counter(prefix + "count", "Logs that were synced.", flushes.count)
    page.counter(prefix + "sum", "How long that took.", round(flushes.seconds * 1000, 3))
    if broker.cluster is not None:
        _add_fetchers(page, broker.cluster.fetchers.lags(), broker.cluster.fetchers.failed_count)
    if isinstance(broker.store, ZooKeeperStore):
        _add_session(page, broker.store)
    _add_cleaner(page, cleaner, broker.clock.time_ms())


def _add_waiting(page: Page, waiting: Counter[int]) -> None:
    name = "kafka_server_delayedoperationpurgatory_purgatorysize"
    lines = page.family(name, GAUGE, "Requests that wait for others.")
    for purgatory, keys in PURGATORIES:
        count = sum(waiting[key] for key in keys)
        lines.append(f"{name}{labels({'delayedoperation': purgatory})} {count}")


def _add_fetchers(page: Page, lags: Iterator[int], failed_count: int) -> None:
    prefix, label = "kafka_server_replicafetchermanager_", labels({"clientid": "Replica"})
    lines = page.family(prefix + "maxlag", GAUGE, "Records that the slowest copy here lacks.")
    lines.append(f"{prefix}maxlag{label} {max(lags, default=0)}")
    name = prefix + "failedpartitionscount"
    lines = page.family(name, GAUGE, "Partitions whose last fetch from the leader failed.")
    lines.append(f"{name}{label} {failed_count}")


def _add_session(page: Page, store: ZooKeeperStore) -> None:
    for name, state, text in SESSION_CHANGES:
        page.counter(
            f"kafka_server_sessionexpirelistener_{name}", text, store.session_changes[state]
        )
    page.gauge("tidelog_zookeeper_connected", "1: there is a session.", int(store.is_connected))


def _add_cleaner(page: Page, cleaner: LogCleaner, now_ms: int) -> None:
    manager, done = cleaner.manager, cleaner.totals
    prefix = "kafka_log_logcleanermanager_"
    page.gauge(
        prefix + "uncleanable_partitions_count",
        "Logs that cannot be compacted until the next start.",
        len(manager.uncleanable),
    )
    page.gauge(
        prefix + "max_dirty_percent",
        "Of the dirtiest log, when the cleaner last looked.",
        round(manager.max_dirty_ratio * 100),
    )
    if manager.looked_ms is not None:
        page.gauge(
            prefix + "time_since_last_run_ms",
            "Since the cleaner last looked for work.",
            now_ms - manager.looked_ms,
        )
    prefix = "kafka_log_logcleaner_"
    recopied = done.bytes_written / done.bytes_read if done.bytes_read else 0.0
    page.gauge(
        prefix + "cleaner_recopy_percent", "Share of bytes that stay.", round(recopied * 100)
    )
    prefix = "tidelog_log_cleaner_"
    page.counter(prefix + "rounds_total", "Logs compacted.", done.rounds)
    page.counter(prefix + "read_bytes_total", "Bytes read for that.", done.bytes_read)
    page.counter(prefix + "written_bytes_total", "Bytes written for that.", done.bytes_written)
    page.counter(prefix + "seconds_total", "How long that took.", round(done.seconds, 6))


def add_quotas(page: Page, broker: Broker, admits: Callable[[str, int], bool]) -> Iterator[None]:
    """Of clients that have a quota and were seen in the last hour."""
    kinds = (
        ("produce", "byte_rate", "Bytes a second that a client produces.", broker.quotas.produce),
        ("fetch", "byte_rate", "Bytes a second that a client fetches.", broker.quotas.fetch),
        (
            "request",
            "request_time",
            "Per cent of a thread that a client's requests use.",
            broker.quotas.request,
        ),
    )
    for kind, unit, text, quota in kinds:
        rate_name = f"kafka_server_{kind}_{unit}"
        wait_name = f"kafka_server_{kind}_throttle_time"
        rates = page.family(rate_name, GAUGE, text)
        waits = page.family(wait_name, GAUGE, "Milliseconds that it would have to wait now.")
        for number, ((user, client_id), rate) in enumerate(quota.measured()):
            if not admits("client", SERIES_OF_CLIENT):
                continue
            label = labels({"user": user, "client_id": client_id})
            rates.append(f"{rate_name}{label} {rate.measured():.3f}")
            waits.append(f"{wait_name}{label} {rate.debt_s() * 1000:.0f}")
            if number % CLIENTS_A_STEP == 0:
                yield
