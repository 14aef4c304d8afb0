"""One scrape: every family of metrics, made from the broker's state on its loop, in small steps.

Names and labels are those that dashboards for Kafka know: what the JMX exporter's usual rules make
of Kafka's beans (`kafka_server_*`, `kafka_network_*`, `kafka_controller_*`, `kafka_log_*`,
`kafka_coordinator_*`), those of kafka_exporter (`kafka_brokers`, `kafka_topic_*`,
`kafka_consumergroup_*`), `process_*` and `python_*`. What neither has is `tidelog_*`.

In a cluster each broker tells of its own: `kafka_topic_partition_*` of the partitions it leads,
`kafka_consumergroup_*` of the groups it coordinates. So a sum over brokers counts nothing
twice. `kafka_brokers`, `kafka_topic_partitions` and the `global*` counts are the same on each.

Series that grow with topics, partitions and groups are bounded by `tidelog.metrics.series.max`: a
topic, group or partition that would exceed it is left out, and counted in
`tidelog_metrics_left_out`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from tidelog.broker.observation.duty_metrics import add_duties, add_quotas
from tidelog.broker.observation.exposition import COUNTER, GAUGE, SUMMARY, Page, escaped, labels
from tidelog.broker.observation.group_lag import age_s, members_of
from tidelog.broker.observation.idle_share import idle_share_of
from tidelog.broker.observation.process_metrics import add_process
from tidelog.broker.observation.request_metrics import Histogram
from tidelog.controller.cluster.partition_state_machine import UNCLEAN
from tidelog.errors import ErrorCode
from tidelog.network.channel import CloseReason
from tidelog.protocol.api_keys import ApiKey
from tidelog.replication.traffic import Traffic
from tidelog.types import NO_LEADER

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.coordinator.group.group import Group
    from tidelog.coordinator.group.offsets import GroupOffsets
    from tidelog.log.cleaner.log_cleaner import LogCleaner
    from tidelog.network.socket_server import SocketServer
    from tidelog.replication.partition import Partition

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
QUANTILE_NAMES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
PARTITIONS_A_STEP: Final = 50
OFFSETS_A_STEP: Final = 50
SERIES_OF_TOPIC: Final = 8
SERIES_OF_PARTITION: Final = 14
SERIES_OF_OFFSET: Final = 3
RUNNING: Final = 3  # Kafka's BrokerState
AGES_MAX: Final = 1_000  # partitions of groups whose oldest unread record is looked up in a scrape
GROUP_STATES: Final = (
    "preparingrebalance",
    "completingrebalance",
    "stable",
    "dead",
    "empty",
    "assigning",
    "reconciling",
)
TRAFFIC: Final = (
    ("messagesin_total", "messages_in", "Records that were appended."),
    ("bytesin_total", "bytes_in", "Bytes of batches that were appended."),
    ("bytesout_total", "bytes_out", "Bytes of batches that consumers fetched."),
    ("totalproducerequests_total", "appends", "Batches that were to be appended."),
    ("failedproducerequests_total", "failed_appends", "Batches that a log refused."),
    ("totalfetchrequests_total", "reads", "Reads of partitions for consumers."),
    ("failedfetchrequests_total", "failed_reads", "Reads of partitions that failed."),
)


class Collector:
    """Touched only on the broker loop."""

    def __init__(
        self,
        broker: Broker,
        network: SocketServer,
        waiting_by_api: Callable[[], Counter[int]],
        cleaner: LogCleaner,
    ) -> None:
        self._broker = broker
        self._network = network
        self._waiting_by_api = waiting_by_api
        self._cleaner = cleaner
        self._loop_idle = idle_share_of([threading.get_ident()])
        idents = [each.thread_ident() for each in network.processors]
        apart = [ident for ident in idents if ident is not None]
        self._network_idle = idle_share_of(apart) if apart else None  # None: as the loop
        self.scrapes = 0
        self.scrape_s = 0.0  # of the last one: from its begin to its end

    async def collect(self) -> list[str]:
        """The text of the page, in pieces: joining megabytes is left to another thread."""
        clock, slices = self._broker.clock, self._broker.slices
        began = clock.monotonic()
        page = Page()
        for _ in self.steps(page):
            await slices.breathe()
        text: list[str] = []
        for piece in page.pieces():
            text.append(piece)
            await slices.breathe()
        self.scrapes += 1
        self.scrape_s = clock.monotonic() - began
        return text

    def steps(self, page: Page) -> Iterator[None]:
        budget = _Budget(self._broker.config.get_int("tidelog.metrics.series.max"))
        self._add_broker(page)
        self._add_network(page)
        self._add_idle_shares(page)
        yield
        self._add_requests(page)
        yield
        self._add_cluster(page)
        yield
        add_duties(page, self._broker, self._waiting_by_api(), self._cleaner)
        yield
        yield from self._add_traffic(page, budget)
        yield from _Groups(self._broker, page, budget).steps()
        yield from self._add_partitions(page, budget)
        yield from add_quotas(page, self._broker, budget.admits)
        yield from self._add_client_metrics(page)
        left_out = page.family(
            "tidelog_metrics_left_out",
            GAUGE,
            "Topics, groups, partitions and clients without series.",
        )
        for kind, count in budget.left_out.items():
            left_out.append(f"tidelog_metrics_left_out{labels({'kind': kind})} {count}")
        add_process(page)

    def _add_client_metrics(self, page: Page) -> Iterator[None]:
        manager = self._broker.client_metrics
        if manager is None:
            return
        prefix = "kafka_server_client_metrics_"
        page.gauge(prefix + "instance_count", "Clients that push.", manager.instance_count)
        page.counter(
            prefix + "unknown_subscription_request_count",
            "Pushes for subscriptions that have changed.",
            manager.unknown_subscriptions,
        )
        page.counter(prefix + "throttle_count", "Requests that came early.", manager.throttled)
        page.counter(prefix + "plugin_export_count", "Pushes taken.", manager.exports)
        page.counter(prefix + "plugin_error_count", "Malformed pushes.", manager.export_errors)
        yield from manager.pushed.add_to(page)

    # The broker

    def _add_broker(self, page: Page) -> None:
        broker = self._broker
        page.gauge("kafka_server_kafkaserver_brokerstate", "3: it serves.", RUNNING)
        log_dirs = broker.logs.directories
        offline = len(log_dirs) - len(log_dirs.online)
        page.gauge(
            "kafka_log_logmanager_offlinelogdirectorycount", "Log directories offline.", offline
        )
        replicas = broker.replicas
        leaders = under_replicated = under_min_isr = at_min_isr = 0
        for partition in replicas:
            if partition.is_leader:
                leaders += 1
                under_replicated += len(partition.isr) < len(partition.replicas)
                minimum = partition.log.config.min_insync_replicas
                under_min_isr += len(partition.isr) < minimum
                at_min_isr += len(partition.isr) == minimum
        alter_partition = None if broker.cluster is None else broker.cluster.alter_partition_manager
        shrinks = 0 if alter_partition is None else alter_partition.isr_shrinks
        expands = 0 if alter_partition is None else alter_partition.isr_expands
        prefix = "kafka_server_replicamanager_"
        page.gauge(prefix + "leadercount", "Partitions led here.", leaders)
        page.gauge(prefix + "partitioncount", "Replicas hosted here.", len(replicas))
        page.gauge(prefix + "offlinereplicacount", "Replicas here offline.", len(replicas.offline))
        page.gauge(
            prefix + "underreplicatedpartitions",
            "Partitions led here with replicas out of sync.",
            under_replicated,
        )
        page.gauge(
            prefix + "underminisrpartitioncount",
            "Partitions led here below min.insync.replicas.",
            under_min_isr,
        )
        page.gauge(
            prefix + "atminisrpartitioncount",
            "Partitions led here with just min.insync.replicas.",
            at_min_isr,
        )
        page.counter(prefix + "isrshrinks_total", "In-sync sets that became smaller.", shrinks)
        page.counter(prefix + "isrexpands_total", "In-sync sets that became larger.", expands)
        page.counter("tidelog_metrics_scrapes_total", "Scrapes before this one.", self.scrapes)
        page.gauge(
            "tidelog_metrics_last_scrape_seconds", "How long the last one took.", self.scrape_s
        )

    def _add_network(self, page: Page) -> None:
        counters = self._network.counters
        prefix = "kafka_network_socketserver_"
        page.gauge(prefix + "connections", "Open connections.", counters.connections)
        page.counter(
            prefix + "connections_accepted_total", "Connections accepted.", counters.accepted
        )
        page.counter(prefix + "requests_total", "Frames handled.", counters.requests)
        page.counter(prefix + "bytesin_total", "Bytes received.", counters.bytes_in)
        page.counter(prefix + "bytesout_total", "Bytes sent.", counters.bytes_out)
        page.counter(
            prefix + "sendfilebytes_total",
            "Bytes sent from files without being read.",
            counters.sendfile_bytes,
        )
        page.gauge(
            prefix + "expiredconnectionskilledcount",
            "Connections closed because they were idle.",
            counters.closed_by[CloseReason.IDLE],
        )
        name = prefix + "connections_closed_total"
        lines = page.family(name, COUNTER, "Connections closed, by reason.")
        for reason, count in counters.closed_by.items():
            lines.append(f"{name}{labels({'reason': reason.value})} {count}")

        name = "kafka_server_socket_server_metrics_connection_count"
        lines = page.family(name, GAUGE, "Open connections, by listener.")
        by_listener = Counter(each.session.listener_name for each in self._network.connections)
        for listener, count in sorted(by_listener.items()):
            lines.append(f"{name}{labels({'listener': listener})} {count}")

    def _add_idle_shares(self, page: Page) -> None:
        if self._loop_idle is None:
            return
        now = self._broker.clock.monotonic()
        of_loop = self._loop_idle.read(now)
        of_network = of_loop if self._network_idle is None else self._network_idle.read(now)
        if of_loop is not None:
            page.gauge(
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
                "Share of time, 0 to 1, in which the broker loop used no processor.",
                round(of_loop, 4),
            )
        if of_network is not None:
            page.gauge(
                "kafka_network_socketserver_networkprocessoravgidle_percent",
                "The same of the network threads.",
                round(of_network, 4),
            )

    def _add_requests(self, page: Page) -> None:
        prefix = "kafka_network_requestmetrics_"
        requests = page.family(prefix + "requests_total", COUNTER, "Requests, by API and version.")
        errors = page.family(prefix + "errors_total", COUNTER, "Errors in answers, by API.")
        times = [
            ("total", "Time from receiving a request to its answer."),
            ("requestqueue", "Time until a request was handled; of one request in 8."),
            ("local", "Time a request was handled; of one request in 8."),
            ("remote", "Time a request waited for others; of one request in 8."),
            ("responsesend", "Time until its answer was in the socket; of one request in 8."),
        ]
        families = [page.family(f"{prefix}{name}timems", SUMMARY, text) for name, text in times]
        metrics = self._broker.request_metrics
        for key, api in metrics.by_key.items():
            if not any(api.by_version):
                continue
            request = api_name(key)
            for version, count in enumerate(api.by_version):
                if count:
                    label = labels({"request": request, "version": version})
                    requests.append(f"{prefix}requests_total{label} {count}")
            for code, count in sorted(api.errors.items()):
                label = labels({"request": request, "error": ErrorCode.of(code).name})
                errors.append(f"{prefix}errors_total{label} {count}")
            histograms = (api.total, api.queue, api.local, api.remote, api.send)
            for (name, _), lines, histogram in zip(times, families, histograms, strict=True):
                _add_summary(lines, f"{prefix}{name}timems", request, histogram)
        metrics.maybe_turn(self._broker.clock.monotonic())

    def _add_cluster(self, page: Page) -> None:
        broker = self._broker
        topics = broker.topics.topics
        listener = broker.config.inter_broker_listener_name
        nodes = broker.metadata.nodes(listener)
        partition_count = leaderless = not_preferred = 0
        for image in topics.values():
            partition_count += len(image.partitions)
            for row in image.partitions:
                leaderless += row.leader == NO_LEADER
                not_preferred += row.leader != row.replicas[0] if row.replicas else 0
        leaderless += sum(1 for place in broker.replicas.offline if place[0] in topics)
        prefix = "kafka_controller_kafkacontroller_"
        active = int(broker.may_administer_topics)
        page.gauge(prefix + "activecontrollercount", "1: this broker is the controller.", active)
        page.gauge(prefix + "offlinepartitionscount", "Partitions without a leader.", leaderless)
        page.gauge(prefix + "globaltopiccount", "Topics.", len(topics))
        page.gauge(prefix + "globalpartitioncount", "Partitions.", partition_count)
        page.gauge(
            prefix + "preferredreplicaimbalancecount",
            "Partitions that another than the preferred replica leads.",
            not_preferred,
        )
        elections = Counter[str]() if broker.controller is None else broker.controller.elections
        prefix = "kafka_controller_controllerstats_"
        page.counter(
            prefix + "uncleanleaderelections_total",
            "Leaders elected that were not in sync, while this broker was the controller.",
            elections[UNCLEAN],
        )
        page.counter(
            prefix + "leaderelectionrateandtimems_count",
            "Leaders elected while this broker was the controller.",
            elections.total(),
        )
        page.gauge("kafka_brokers", "Brokers that live.", len(nodes))
        lines = page.family("kafka_broker_info", GAUGE, "A broker that lives; the value is its id.")
        for node in nodes:
            label = labels({"id": node.broker_id, "address": f"{node.host}:{node.port}"})
            lines.append(f"kafka_broker_info{label} {node.broker_id}")

    # Topics and partitions

    def _add_traffic(self, page: Page, budget: _Budget) -> Iterator[None]:
        by_topic: dict[str, Traffic] = {}
        total = Traffic()
        total.add(self._broker.replicas.past_traffic)
        partitions = iter(tuple(self._broker.replicas))
        while chunk := tuple(islice(partitions, PARTITIONS_A_STEP * 4)):
            for partition in chunk:
                topic = partition.topic_partition.topic
                traffic = by_topic.get(topic)
                if traffic is None:
                    traffic = by_topic[topic] = Traffic()
                traffic.add(partition.traffic)
            yield
        for traffic in by_topic.values():
            total.add(traffic)
        prefix = "kafka_server_brokertopicmetrics_"
        page.counter(prefix + "replicationbytesin_total", "From leaders.", total.bytes_replicated)
        page.counter(
            prefix + "replicationbytesout_total",
            "To followers.",
            self._broker.replicas.replication_bytes_out,
        )
        families = [
            (page.family(prefix + name, COUNTER, text), prefix + name, attribute)
            for name, attribute, text in TRAFFIC
        ]
        for lines, name, attribute in families:
            lines.append(f"{name} {getattr(total, attribute)}")
        counts = page.family("kafka_topic_partitions", GAUGE, "Partitions of a topic.")
        for number, (topic, image) in enumerate(tuple(self._broker.topics.topics.items())):
            if not budget.admits("topic", SERIES_OF_TOPIC):
                continue
            label = f'{{topic="{escaped(topic)}"}} '
            counts.append(f"kafka_topic_partitions{label}{len(image.partitions)}")
            traffic = by_topic.get(topic)
            if traffic is not None:
                for lines, name, attribute in families:
                    lines.append(f"{name}{label}{getattr(traffic, attribute)}")
            if number % PARTITIONS_A_STEP == 0:
                yield

    def _add_partitions(self, page: Page, budget: _Budget) -> Iterator[None]:
        families = _PartitionFamilies(page)
        partitions = iter(tuple(self._broker.replicas))
        while chunk := tuple(islice(partitions, PARTITIONS_A_STEP)):
            families.add([p for p in chunk if budget.admits("partition", SERIES_OF_PARTITION)])
            yield


class _Budget:
    def __init__(self, series: int) -> None:
        self._series = series
        self.left_out = {"topic": 0, "group": 0, "partition": 0, "client": 0}

    def admits(self, kind: str, series: int) -> bool:
        if series > self._series:
            self.left_out[kind] += 1
            return False
        self._series -= series
        return True


class _PartitionFamilies:
    """The families with the most series. Thousands of partitions are told of in a few
    milliseconds, so one line of code writes one line of text, and nothing is called for it.
    """

    def __init__(self, page: Page) -> None:
        def gauge(name: str, text: str) -> list[str]:
            return page.family(name, GAUGE, text)

        self._size = gauge("kafka_log_log_size", "Bytes of a replica's segments.")
        self._end = gauge("kafka_log_log_logendoffset", "The next offset of a replica.")
        self._start = gauge("kafka_log_log_logstartoffset", "The first offset of a replica.")
        self._segments = gauge("kafka_log_log_numlogsegments", "Segments of a replica.")
        self._current = gauge(
            "kafka_topic_partition_current_offset", "High watermark of a partition led here."
        )
        self._oldest = gauge("kafka_topic_partition_oldest_offset", "Its first offset.")
        self._leader = gauge("kafka_topic_partition_leader", "Its leader, this broker.")
        self._preferred = gauge(
            "kafka_topic_partition_leader_is_preferred", "1: the preferred replica leads."
        )
        self._replicas = gauge("kafka_topic_partition_replicas", "Its replicas.")
        self._in_sync = gauge("kafka_topic_partition_in_sync_replica", "Those in sync.")
        self._under = gauge(
            "kafka_topic_partition_under_replicated_partition", "1: some are not in sync."
        )
        self._count = gauge("kafka_cluster_partition_replicascount", "Its replicas.")
        self._at_min = gauge(
            "kafka_cluster_partition_atminisr", "1: just min.insync.replicas are in sync."
        )
        self._under_min = gauge(
            "kafka_cluster_partition_underminisr", "1: fewer than that are in sync."
        )

    def add(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            topic, index = partition.topic_partition
            label = f'{{topic="{topic}",partition="{index}"}} '
            log = partition.log
            start, segments = log.log_start_offset, log.segments
            size = segments[0].size if len(segments) == 1 else log.size_bytes
            self._size.append(f"kafka_log_log_size{label}{size}")
            self._end.append(f"kafka_log_log_logendoffset{label}{log.log_end_offset}")
            self._start.append(f"kafka_log_log_logstartoffset{label}{start}")
            self._segments.append(f"kafka_log_log_numlogsegments{label}{len(segments)}")
            if not partition.is_leader:
                continue
            replicas, in_sync = len(partition.replicas), len(partition.isr)
            leader, is_under = partition.leader_id, int(in_sync < replicas)
            preferred = int(replicas > 0 and partition.replicas[0] == leader)
            self._current.append(f"kafka_topic_partition_current_offset{label}{log.high_watermark}")
            self._oldest.append(f"kafka_topic_partition_oldest_offset{label}{start}")
            self._leader.append(f"kafka_topic_partition_leader{label}{leader}")
            self._preferred.append(f"kafka_topic_partition_leader_is_preferred{label}{preferred}")
            self._replicas.append(f"kafka_topic_partition_replicas{label}{replicas}")
            self._in_sync.append(f"kafka_topic_partition_in_sync_replica{label}{in_sync}")
            self._under.append(f"kafka_topic_partition_under_replicated_partition{label}{is_under}")
            minimum = log.config.min_insync_replicas
            self._count.append(f"kafka_cluster_partition_replicascount{label}{replicas}")
            self._at_min.append(f"kafka_cluster_partition_atminisr{label}{int(in_sync == minimum)}")
            self._under_min.append(
                f"kafka_cluster_partition_underminisr{label}{int(in_sync < minimum)}"
            )


class _Groups:
    """The groups and transactions that this broker coordinates. Of a partition of which it hosts no
    replica the lag is not known here.
    """

    def __init__(self, broker: Broker, page: Page, budget: _Budget) -> None:
        self._broker = broker
        self._page = page
        self._budget = budget
        self._now_ms = broker.clock.time_ms()
        self._ages_left = AGES_MAX

        def gauge(name: str, text: str) -> list[str]:
            return page.family(f"kafka_consumergroup_{name}", GAUGE, text)

        self._members = gauge("members", "Members of a group.")
        self._offset = gauge("current_offset", "Committed offset of a group.")
        self._offset_sum = gauge("current_offset_sum", "Their sum for a topic.")
        self._lag = gauge("lag", "Records between that and the high watermark.")
        self._lag_sum = gauge("lag_sum", "Their sum for a topic.")
        self._lag_s = gauge("lag_seconds", "Age of the oldest record that is not read.")

    def steps(self) -> Iterator[None]:
        states: Counter[str] = Counter()
        offset_count = 0
        for shard in tuple(self._broker.groups.runtime.active_shards()):
            for group in tuple(shard.groups.values()):
                states[group.state_name.replace("_", "").lower()] += 1
                offsets = shard.offsets.get(group.group_id)
                offset_count += 0 if offsets is None else len(offsets)
                yield from self._add(group, offsets)
        prefix = "kafka_coordinator_group_groupmetadatamanager_"
        page = self._page
        page.gauge(prefix + "numgroups", "Groups coordinated here.", states.total())
        page.gauge(prefix + "numoffsets", "Their committed offsets.", offset_count)
        for state in GROUP_STATES:
            page.gauge(f"{prefix}numgroups{state}", f"Those that are {state}.", states[state])
        name = "tidelog_transactions"
        lines = page.family(name, GAUGE, "Transactional ids coordinated here, by state.")
        transactions: Counter[str] = Counter()
        for part in tuple(self._broker.transactions.runtime.active_shards()):
            transactions.update(each.state.name for each in part.transactions.values())
            yield
        for state, count in sorted(transactions.items()):
            lines.append(f"{name}{labels({'state': state.lower()})} {count}")

    def _add(self, group: Group, offsets: GroupOffsets | None) -> Iterator[None]:
        rows = [] if offsets is None else list(offsets)
        topics = {topic for topic, _, _ in rows}
        series = 1 + SERIES_OF_OFFSET * len(rows) + 2 * len(topics)
        if not self._budget.admits("group", series):
            return
        name = escaped(group.group_id)
        of_group = f'consumergroup="{name}"'
        self._members.append(f"kafka_consumergroup_members{{{of_group}}} {members_of(group)}")
        sums: Counter[str] = Counter()
        lags: Counter[str] = Counter()
        for number, (topic, index, committed) in enumerate(rows):
            label = f'{{{of_group},topic="{escaped(topic)}",partition="{index}"}} '
            self._offset.append(f"kafka_consumergroup_current_offset{label}{committed.offset}")
            sums[topic] += committed.offset
            partition = self._broker.replicas.get(topic, index)
            if partition is not None:
                lag = max(partition.log.high_watermark - committed.offset, 0)
                lags[topic] += lag
                self._lag.append(f"kafka_consumergroup_lag{label}{lag}")
                self._add_age(label, partition, committed.offset, lag)
            if number % OFFSETS_A_STEP == 0:
                yield
        for topic, offset_sum in sums.items():
            label = f'{{{of_group},topic="{escaped(topic)}"}} '
            self._offset_sum.append(f"kafka_consumergroup_current_offset_sum{label}{offset_sum}")
            if topic in lags:
                self._lag_sum.append(f"kafka_consumergroup_lag_sum{label}{lags[topic]}")
        yield

    def _add_age(self, label: str, partition: Partition, offset: int, lag: int) -> None:
        """A look into the log for each that lags, as a fetch would have."""
        seconds: float | None = 0.0
        if lag:
            if not self._ages_left:
                return
            self._ages_left -= 1
            seconds = age_s(partition, offset, self._now_ms)
        if seconds is not None:
            self._lag_s.append(f"kafka_consumergroup_lag_seconds{label}{seconds:.3f}")


def api_name(key: int) -> str:
    """As Kafka names a request in its metrics: ListOffsets."""
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))


def _add_summary(lines: list[str], name: str, request: str, histogram: Histogram) -> None:
    if not histogram.count:
        return
    quantiles = histogram.quantiles_ms(QUANTILES)
    for quantile, value in zip(QUANTILE_NAMES, quantiles or (), strict=quantiles is not None):
        label = labels({"request": request, "quantile": quantile})
        lines.append(f"{name}{label} {value:.3f}")
    label = labels({"request": request})
    lines.append(f"{name}_sum{label} {histogram.total_us / 1000:.3f}")
    lines.append(f"{name}_count{label} {histogram.count}")
