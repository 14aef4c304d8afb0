"""A producer of transaction.version 2 (KIP-890) whose markers take long: it begins its next
transaction, with the epoch that EndTxn has given it, before the last marker is written.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.cluster.conftest import StartCluster
from tests.support.cluster import ClusterProcess, read_all
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.record.builder import batch_of

pytestmark = pytest.mark.integration

TRANSACTION = 1  # the kind of coordinator
SETTINGS = {
    # The decision must not wait for the broker that is stopped, nor may that be thrown out.
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "zookeeper.session.timeout.ms": "60000",
}


class VersionTwoProducer:
    """Sends what it is told to, once, and takes over the epochs that it is given."""

    def __init__(self, cluster: ClusterProcess, transactional_id: str) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self.coordinator_id = -1
        eventually(self._finds_its_coordinator, within_s=60)
        eventually(self._is_initialized, within_s=60)

    def _ask(self, broker_id: int, request: Any, version: int, response: type[Any]) -> Any:
        with RawClient(self._cluster.brokers[broker_id].bootstrap) as client:
            return client.ask(request, version, response)

    def _finds_its_coordinator(self) -> bool:
        request = FindCoordinatorRequest(
            key_type=TRANSACTION, coordinator_keys=[self._transactional_id]
        )
        (found,) = self._ask(1, request, 4, FindCoordinatorResponse).coordinators
        self.coordinator_id = found.node_id
        return bool(found.error_code == 0)

    def _is_initialized(self) -> bool:
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=60_000
        )
        answer = self._ask(self.coordinator_id, request, 4, InitProducerIdResponse)
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        return bool(answer.error_code == 0)

    def send(self, partition: int, value: bytes) -> ErrorCode:
        """One record, the first of its transaction in the partition."""
        batch = batch_of(
            [(None, value, (), 0)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        row = PartitionProduceData(index=partition, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name="t", partition_data=[row])],
        )
        leader_id = partition + 1
        answer = self._ask(leader_id, request, 12, ProduceResponse)
        return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)

    def end(self, *, committed: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        answer = self._ask(self.coordinator_id, request, 5, EndTxnResponse)
        if answer.error_code == 0:
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode.of(answer.error_code)


def test_the_next_transaction_begins_and_ends_while_markers_are_missing(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(SETTINGS)
    cluster.assign_topic("t", [[1], [2], [3]], min_insync_replicas="1")
    producer = VersionTwoProducer(cluster, "etl")
    here = producer.coordinator_id - 1
    there = (here + 1) % 3
    slow = cluster.brokers[there + 1]

    def sent(partition: int, value: bytes) -> bool:
        code = producer.send(partition, value)
        assert code is ErrorCode.NONE or code.retriable  # clients send again
        return code is ErrorCode.NONE

    def ended(committed: bool) -> bool:
        code = producer.end(committed=committed)
        assert code in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS)  # clients ask again
        return code is ErrorCode.NONE

    for partition in (here, there):
        eventually(lambda place=partition: sent(place, b"first"), within_s=60)  # type: ignore[misc]
    slow.signal(signal.SIGSTOP)
    try:
        assert producer.end(committed=True) is ErrorCode.NONE
        assert producer.producer_epoch == 1
        assert producer.send(here, b"second") is ErrorCode.NOT_ENOUGH_REPLICAS
        assert producer.end(committed=False) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert producer.end(committed=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    finally:
        slow.signal(signal.SIGCONT)
    eventually(lambda: ended(False), within_s=60)
    assert producer.producer_epoch == 2
    eventually(lambda: sent(here, b"third"), within_s=60)
    eventually(lambda: ended(True), within_s=60)

    def committed_values() -> list[bytes]:
        rows = read_all(cluster, "t", 3, **{"isolation.level": "read_committed"})
        return sorted(value for _, _, value in rows)

    eventually(lambda: committed_values() == [b"first", b"first", b"third"], within_s=60)
