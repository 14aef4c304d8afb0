"""The sender: takes what is due from the accumulator and the transaction manager to the brokers.

All work is done in turns. A turn is short, runs on the event loop with the producer's lock held,
and is due when a batch was begun, an answer came, a connection opened, metadata changed, or a time
is up that an earlier turn saw coming. Each turn
1. settles sequences, and asks for a producer id or sends the next transactional request,
2. drains batches for every broker that is connected and has room, and puts requests on the wire,
   until a megabyte is sent,
3. fails the batches whose delivery.timeout.ms is over, in the queue or in flight, and those that
   could not be compressed,
4. sets a timer for whatever comes next.

A broker gets a request when fewer than max.in.flight.requests.per.connection are unanswered, so
a batch leaves the accumulator as late as possible. An answer, or its absence, decides over each
batch of the request:

    written, or known already (46)        acknowledged
    too large (10), several records       split in two, sent again
    an error that may pass, no answer     back into its queue, at most `retries` times
    anything else                         failed
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import (
    BrokerRefused,
    ClientError,
    Closed,
    ConnectionFailed,
    RequestTimedOut,
    UnreadableAnswer,
    UnsupportedByBroker,
    refused,
)
from tidelog.client.network.backoff import Backoff, may_pass
from tidelog.client.network.cluster import Purpose
from tidelog.client.network.coordinators import CoordinatorKind
from tidelog.client.network.metadata import LeaderAndEpoch, Node
from tidelog.client.network.versions import LAST_BY_NAME
from tidelog.client.producer.batch import ProducerBatch
from tidelog.client.producer.delivery import NO_OFFSET
from tidelog.clock import pause
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.record.batch import NO_TIMESTAMP, BatchHeader, Codec
from tidelog.record.columns import part_of
from tidelog.supervisor import report
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

if TYPE_CHECKING:
    from tidelog.client.network.cluster import Cluster
    from tidelog.client.network.connection import Connection
    from tidelog.client.producer.accumulator import RecordAccumulator
    from tidelog.client.producer.transaction_manager import TransactionManager
    from tidelog.client.producer.transaction_requests import TransactionRequest
    from tidelog.clock import TimerHandle
    from tidelog.config.client import ProducerConfig
    from tidelog.protocol.message import Message

# After so many bytes the event loop may do something else before the next turn.
TURN_BYTES: Final = 1024 * 1024
# The last version of Produce that leaves it to AddPartitionsToTxn to add partitions.
PRODUCE_V1_TRANSACTIONS: Final = 11
ZSTD_VERSION: Final = 7
V2_FORMAT_VERSION: Final = 3
BUMP_VERSION: Final = 3

# Metadata may be wrong about the partition after these.
_LEADER_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class _Broker:
    """What the sender knows of one broker."""

    __slots__ = ("connecting", "connection", "in_flight", "node_id", "problem", "throttled_until")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.in_flight = 0
        self.throttled_until = 0.0  # the broker asked for a pause until then (KIP-219)
        self.problem: ClientError | None = None  # why it could not be reached

    @property
    def is_connected(self) -> bool:
        return self.connection is not None and self.connection.is_open


class Sender:
    """Started on the event loop that it then belongs to."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: RecordAccumulator,
        transactions: TransactionManager | None,
        config: ProducerConfig,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._transactions = transactions
        self._acks = config.acks
        self._retries = config.integer("retries")
        self._request_timeout_ms = config.integer("request.timeout.ms")
        self._in_flight_max = config.in_flight_max
        self._keeps_order_by_muting = self._in_flight_max == 1
        self._retry_backoff = Backoff.of(config, "retry.backoff.ms")
        self._brokers: dict[int, _Broker] = {}
        self._request_task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_turn_due = False  # it is scheduled; read and written from any thread
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0
        self._is_stopped = False
        self._idle_waiters: list[asyncio.Future[None]] = []
        self.on_turn: Callable[[], object] | None = None  # told after every turn

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.wake()

    def wake(self) -> None:
        """Has a turn run soon; from any thread."""
        if self._is_turn_due or self._loop is None or self._is_stopped:
            return
        self._is_turn_due = True
        self._loop.call_soon_threadsafe(self._turn)

    async def stop(self) -> None:
        """Ends the turns and fails every batch that is incomplete."""
        self._is_stopped = True
        tasks = [broker.connecting for broker in self._brokers.values()]
        left = [task for task in (*tasks, self._request_task) if task is not None]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        if self._timer is not None:
            self._timer.cancel()
        error = Closed("the producer was closed before the record was acknowledged")
        with self._accumulator.lock:
            if self._transactions is not None:
                self._transactions.close(error)
            self._accumulator.fail_all(error)
        self._run_callbacks()
        self._tell_idle()

    async def idle(self) -> None:
        """Waits until every batch and every transactional request is done."""
        while not self._is_stopped and self._has_work():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            self.wake()
            await waiter

    def _has_work(self) -> bool:
        return self._accumulator.has_incomplete or (
            self._transactions is not None
            and self._transactions.has_ongoing_transaction
            and (self._transactions.has_requests or self._request_task is not None)
        )

    # A turn

    def _turn(self) -> None:
        self._is_turn_due = False
        if self._is_stopped:
            return
        now = self._cluster.clock.monotonic()
        with self._accumulator.lock:
            if self._transactions is None or self._transact(self._transactions):
                next_turn_s = self._send_batches(now)
            else:
                next_turn_s = self._retry_backoff.longest_ms / 1000
            self._fail_hopeless(now)
            next_turn_s = min(next_turn_s, self._accumulator.next_expiry - now)
        self._set_timer(now, max(0.0, next_turn_s))
        self._run_callbacks()
        if self.on_turn is not None:
            self.on_turn()
        if self._idle_waiters and not self._has_work():
            self._tell_idle()

    def _tell_idle(self) -> None:
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _set_timer(self, now: float, delay_s: float) -> None:
        due_at = now + delay_s
        if self._timer is not None:
            if self._timer_at <= due_at:
                return
            self._timer.cancel()
            self._timer = None
        if delay_s != float("inf"):
            self._timer_at = due_at
            self._timer = self._cluster.timer.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._turn()

    def _run_callbacks(self) -> None:
        due = self._accumulator.take_callbacks_due()
        if due:
            assert self._loop is not None
            self._loop.call_soon(self._call_back, _callbacks_of(due))

    def _call_back(self, calls: list[Callable[[], object]]) -> None:
        """Runs callbacks. The event loop reports one that raises, and the others run all the
        same."""
        try:
            while calls:
                calls.pop(0)()
        finally:
            if calls:
                assert self._loop is not None
                self._loop.call_soon(self._call_back, calls)

    # Transactions

    def _transact(self, transactions: TransactionManager) -> bool:
        """Advances the transaction. Returns whether batches may be sent."""
        transactions.maybe_resolve_sequences()
        if transactions.has_fatal_error:
            assert transactions.last_error is not None
            self._accumulator.fail_all(transactions.last_error)
            return False
        unauthorized = transactions.forget_authorization_error()
        if unauthorized is not None:
            self._accumulator.fail_all(unauthorized)
            return False
        if self._accumulator.has_incomplete:
            transactions.maybe_renew_idempotent_producer()
        if self._request_task is None:
            if transactions.has_abortable_error or transactions.is_aborting:
                self._accumulator.fail_unsent(
                    transactions.last_error or ClientError("the transaction was aborted")
                )
            request = transactions.next_request(self._accumulator.has_incomplete)
            if request is not None:
                assert self._loop is not None
                self._request_task = self._loop.create_task(self._perform(request))
                report(f"sending {request.name}", self._request_task)
        return not transactions.has_fatal_error

    async def _perform(self, request: TransactionRequest) -> None:
        try:
            if request.attempts:
                await pause(self._cluster.timer, self._backoff_s(request))
            await self._perform_once(request)
        finally:
            self._request_task = None
            self.wake()

    def _backoff_s(self, request: TransactionRequest) -> float:
        wait_s = self._retry_backoff.wait_s(request.attempts - 1)
        return wait_s if request.backoff_max_s is None else min(wait_s, request.backoff_max_s)

    async def _perform_once(self, request: TransactionRequest) -> None:
        lock = self._accumulator.lock
        try:
            connection = await self._coordinator_of(request)
            with lock:
                message = request.message()
            version = connection.versions.version(ApiKey(message.API_KEY), request.at_most)
            response = await connection.send(message, version)
        except (ConnectionFailed, RequestTimedOut, UnreadableAnswer):
            with lock:
                request.lost()
        except Closed:
            return
        except UnsupportedByBroker as problem:
            with lock:
                request.fatal(problem)
        except ClientError as problem:
            with lock:
                if may_pass(problem):
                    request.lost()
                else:
                    request.coordinator_refused(problem)
        else:
            with lock:
                request.take_answer(response)

    async def _coordinator_of(self, request: TransactionRequest) -> Connection:
        cluster = self._cluster
        manager = request.manager
        if not request.needs_coordinator:
            return await cluster.connect(await cluster.any_node())
        kind, key = CoordinatorKind.TRANSACTION, manager.transactional_id
        if request.group_id is not None:
            kind, key = CoordinatorKind.GROUP, request.group_id
        assert key is not None
        if request.must_find_coordinator:
            cluster.forget_coordinator(kind, key)
            request.must_find_coordinator = False
        node_id = await cluster.coordinator(kind, key)
        connection = await cluster.connect(node_id, Purpose.COORDINATION)
        if kind is CoordinatorKind.TRANSACTION:
            versions = connection.versions
            bump = versions.version_or_none(ApiKey.INIT_PRODUCER_ID, at_least=BUMP_VERSION)
            with self._accumulator.lock:
                manager.coordinator_bumps_epochs = bump is not None
                manager.see_features(
                    versions.features_epoch, versions.features.get("transaction.version", 0)
                )
        return connection

    # Batches out

    def _send_batches(self, now: float) -> float:
        """Sends what is due. Returns the seconds until more may be due."""
        accumulator = self._accumulator
        sent_bytes = 0
        while True:
            check = accumulator.ready(now)
            if check.unknown_leaders:
                self._cluster.refresh_soon()
            wait_s = check.next_check_s
            able: list[int] = []
            for node_id in check.nodes:
                broker = self._broker(node_id)
                if now < broker.throttled_until:
                    wait_s = min(wait_s, broker.throttled_until - now)
                can_take = self._can_take(broker, now)
                accumulator.note_node(node_id, now, can_take=can_take)
                if can_take:
                    able.append(node_id)
            drained = accumulator.drain(able, now) if able else {}
            if not drained:
                return wait_s
            for node_id, batches in drained.items():
                self._send(self._brokers[node_id], batches, now)
                sent_bytes += sum(batch.size for batch in batches)
            if sent_bytes > TURN_BYTES:
                self.wake()
                return wait_s

    def _broker(self, node_id: int) -> _Broker:
        broker = self._brokers.get(node_id)
        if broker is None:
            broker = self._brokers[node_id] = _Broker(node_id)
        return broker

    def _can_take(self, broker: _Broker, now: float) -> bool:
        if now < broker.throttled_until or broker.in_flight >= self._in_flight_max:
            return False
        if broker.is_connected:
            return True
        if broker.connecting is None:
            assert self._loop is not None
            broker.connecting = self._loop.create_task(self._connect(broker))
            report("connecting to a leader", broker.connecting)
        return False

    async def _connect(self, broker: _Broker) -> None:
        try:
            broker.connection = await self._cluster.connect(broker.node_id)
            broker.problem = None
        except Closed:
            return
        except ClientError as problem:
            broker.problem = problem
            self._cluster.refresh_soon()
            # The cluster paces connecting to a broker; an error that it did not wait for is paced
            # here.
            await pause(self._cluster.timer, self._retry_backoff.wait_s(0))
        finally:
            broker.connecting = None
            self.wake()

    def _send(self, broker: _Broker, batches: list[ProducerBatch], now: float) -> None:
        connection = broker.connection
        assert connection is not None, broker.node_id
        if self._keeps_order_by_muting:
            for batch in batches:
                self._accumulator.mute(batch.partition)
        names: dict[Uuid, str] = {}
        try:
            version = self._version(connection, batches)
            topics = self._topic_data(batches, version, names)
        except UnsupportedByBroker as problem:
            for batch in batches:
                self._fail(batch, problem, is_sequence_free=False)
            return
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            topic_data=topics,
        )
        if self._acks == 0:
            sent = connection.send(request, version, expects_answer=False)
            self._take_unanswered(batches, sent, now)
            return
        broker.in_flight += 1
        answer = connection.send(request, version)
        answer.add_done_callback(partial(self._answered, broker, batches, names))

    @property
    def _transactional_id(self) -> str | None:
        return None if self._transactions is None else self._transactions.transactional_id

    def _version(self, connection: Connection, batches: list[ProducerBatch]) -> int:
        at_most: int | None = None
        transactions = self._transactions
        if transactions is not None and transactions.is_transactional and not transactions.is_v2:
            at_most = PRODUCE_V1_TRANSACTIONS
        else:
            metadata = self._cluster.metadata
            if any(metadata.topic_id(batch.partition.topic) == ZERO_UUID for batch in batches):
                at_most = LAST_BY_NAME[ApiKey.PRODUCE]
        at_least = V2_FORMAT_VERSION if transactions is not None else 0
        version = connection.versions.version(ApiKey.PRODUCE, at_most, at_least)
        if self._accumulator.settings.codec == Codec.ZSTD and version < ZSTD_VERSION:
            raise UnsupportedByBroker(
                f"broker {connection.broker} does not know compression.type=zstd: it offers "
                f"PRODUCE up to version {version}, needed is {ZSTD_VERSION}"
            )
        return version

    def _topic_data(
        self, batches: list[ProducerBatch], version: int, names: dict[Uuid, str]
    ) -> list[TopicProduceData]:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, partition = batch.partition
            topic = topics.get(name)
            if topic is None:
                topic_id = self._cluster.metadata.topic_id(name)
                names[topic_id] = name
                topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
                topics[name] = topic
            assert batch.data is not None, batch
            records: bytearray | bytes = batch.data
            if version < V2_FORMAT_VERSION:
                records = _as_messages(batch.data, self._accumulator.settings.codec)
            topic.partition_data.append(PartitionProduceData(index=partition, records=records))
        return list(topics.values())

    # Answers

    def _take_unanswered(
        self, batches: list[ProducerBatch], sent: asyncio.Future[Message], now: float
    ) -> None:
        """acks=0: what went into the socket counts as written."""
        problem = sent.exception() if sent.done() else None
        for batch in batches:
            if isinstance(problem, ClientError):
                self._lost(batch, problem, now)
            else:
                self._complete(batch, NO_OFFSET, NO_TIMESTAMP)
            if self._keeps_order_by_muting:
                self._accumulator.unmute(batch.partition)

    def _answered(
        self,
        broker: _Broker,
        batches: list[ProducerBatch],
        names: dict[Uuid, str],
        answer: asyncio.Future[Message],
    ) -> None:
        broker.in_flight -= 1
        if self._is_stopped:
            return
        now = self._cluster.clock.monotonic()
        with self._accumulator.lock:
            problem = Closed("cancelled") if answer.cancelled() else answer.exception()
            if problem is None:
                response = answer.result()
                assert isinstance(response, ProduceResponse), response
                if response.throttle_time_ms > 0:
                    broker.throttled_until = now + response.throttle_time_ms / 1000
                self._take_response(batches, names, response, now)
            else:
                assert isinstance(problem, ClientError), problem
                for batch in batches:
                    self._lost(batch, problem, now)
            if self._keeps_order_by_muting:
                for batch in batches:
                    self._accumulator.unmute(batch.partition)
        self._turn()

    def _take_response(
        self,
        batches: list[ProducerBatch],
        names: dict[Uuid, str],
        response: ProduceResponse,
        now: float,
    ) -> None:
        unanswered = {batch.partition: batch for batch in batches}
        moved: list[tuple[TopicPartition, LeaderAndEpoch]] = []
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for row in topic.partition_responses:
                batch = unanswered.pop(TopicPartition(name, row.index), None)
                if batch is None:
                    continue
                self._take_row(batch, row, now)
                leader = row.current_leader
                if leader is not None and leader.leader_id >= 0 and leader.leader_epoch >= 0:
                    news = LeaderAndEpoch(leader.leader_id, leader.leader_epoch)
                    moved.append((batch.partition, news))
        if moved:
            metadata = self._cluster.metadata
            metadata.learn_nodes(
                Node(row.node_id, row.host, row.port, row.rack) for row in response.node_endpoints
            )
            for partition, news in moved:
                if news.leader_id in metadata.brokers:
                    metadata.learn_leader(partition, news)
        for batch in unanswered.values():
            problem = UnreadableAnswer(f"the answer to PRODUCE leaves out {batch.partition}")
            self._lost(batch, problem, now)

    def _take_row(self, batch: ProducerBatch, row: PartitionProduceResponse, now: float) -> None:
        code = ErrorCode.of(row.error_code)
        if code == ErrorCode.NONE:
            self._complete(batch, row.base_offset, row.log_append_time_ms)
            return
        if code in _LEADER_ERRORS:
            self._cluster.refresh_soon()
        if batch.outcome.is_done:
            return
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.records_count > 1:
            self._accumulator.split(batch)
            return
        problem = refused(
            f"write of {batch.records_count} records to {batch.partition}",
            row.error_code,
            row.error_message,
        )
        batch.last_problem = problem
        if self._has_tries_left(batch) and self._is_worth_a_retry(batch, code, row):
            self._put_back_or_expire(batch, now)
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._complete(batch, NO_OFFSET, NO_TIMESTAMP)
        else:
            record_errors = _record_errors(batch, row, problem)
            is_sequence_free = batch.attempts < self._retries
            self._fail(batch, problem, record_errors, is_sequence_free=is_sequence_free)
            if not is_sequence_free:
                # An earlier try may have written it. Kafka's producer goes on with a gap here.
                self._mark_unresolved(batch)

    def _has_tries_left(self, batch: ProducerBatch) -> bool:
        return batch.attempts < self._retries

    def _is_worth_a_retry(
        self, batch: ProducerBatch, code: ErrorCode, row: PartitionProduceResponse
    ) -> bool:
        if self._transactions is None:
            return code.retriable
        return self._transactions.sequences.can_retry(batch, code, row.log_start_offset)

    def _lost(self, batch: ProducerBatch, problem: ClientError, now: float) -> None:
        """No answer came, so the broker may or may not have written the batch."""
        if batch.outcome.is_done:
            return
        batch.last_problem = problem
        is_final = isinstance(problem, UnsupportedByBroker | Closed | BrokerRefused)
        if is_final or not self._has_tries_left(batch):
            self._fail(batch, problem, is_sequence_free=False)
            self._mark_unresolved(batch)
        else:
            self._put_back_or_expire(batch, now)

    def _put_back_or_expire(self, batch: ProducerBatch, now: float) -> None:
        if now < batch.deadline:
            self._accumulator.put_back(batch, now)
        else:
            self._fail_expired(batch)

    # The end of batches

    def _complete(self, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> None:
        if self._transactions is not None:
            self._transactions.sequences.completed(batch, base_offset)
        self._accumulator.complete(batch, base_offset, append_time_ms)

    def _fail(
        self,
        batch: ProducerBatch,
        problem: ClientError,
        record_errors: dict[int, ClientError] | None = None,
        *,
        is_sequence_free: bool,
    ) -> None:
        if self._accumulator.fail(batch, problem, record_errors) and self._transactions is not None:
            self._transactions.batch_failed(batch, problem, is_sequence_free=is_sequence_free)

    def _mark_unresolved(self, batch: ProducerBatch) -> None:
        if self._transactions is not None and batch.has_sequence:
            self._transactions.sequences.mark_unresolved(batch)

    def _fail_hopeless(self, now: float) -> None:
        for batch, problem in self._accumulator.take_not_compressed():
            # Its records were never sent in any form that a broker took.
            self._fail(batch, problem, is_sequence_free=True)
        for batch in self._accumulator.expired(now):
            if batch.last_problem is None and batch.data is None:
                batch.last_problem = self._why_unsent(batch)
            self._fail_expired(batch)

    def _fail_expired(self, batch: ProducerBatch) -> None:
        self._fail(batch, self._accumulator.expiry_error(batch), is_sequence_free=False)
        self._mark_unresolved(batch)

    def _why_unsent(self, batch: ProducerBatch) -> ClientError | None:
        leader = self._cluster.metadata.leader_or_none(batch.partition)
        if leader is None:
            return refused(f"partition {batch.partition}", ErrorCode.LEADER_NOT_AVAILABLE)
        broker = self._brokers.get(leader.leader_id)
        return None if broker is None else broker.problem


def _callbacks_of(batches: list[ProducerBatch]) -> list[Callable[[], object]]:
    calls: list[Callable[[], object]] = []
    for batch in batches:
        for index, timestamp, call in batch.callbacks:
            metadata = batch.metadata_of(index, timestamp)
            calls.append(partial(call, metadata, batch.error_of(index)))
        batch.callbacks = []
    return calls


def _record_errors(
    batch: ProducerBatch, row: PartitionProduceResponse, problem: BrokerRefused
) -> dict[int, ClientError] | None:
    """Where the broker says which records it does not take (KIP-467), the others are told so."""
    if not row.record_errors:
        return None
    others = BrokerRefused(
        f"write to {batch.partition}: the batch has another record that the broker does not take",
        problem.code,
    )
    told: dict[int, ClientError] = dict.fromkeys(range(batch.records_count), others)
    for each in row.record_errors:
        if each.batch_index in told:
            detail = each.batch_index_error_message or row.error_message
            told[each.batch_index] = refused(
                f"record for {batch.partition}", row.error_code, detail
            )
    return told


def _as_messages(data: bytearray, codec: Codec) -> bytes | bytearray:
    """A batch in the format of brokers before 0.11, which knows no headers."""
    from tidelog.record.legacy import messages_of

    header = BatchHeader(data)
    part = part_of(memoryview(data), header.attributes, 0, header.records_count)
    return messages_of(part, 1, codec, 0)
