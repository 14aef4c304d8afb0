"""What a decision says to the brokers."""

from __future__ import annotations

from tidelog.config.listeners import Endpoint
from tidelog.controller.cluster.controller_broker_request_batch import (
    ControllerBrokerRequestBatch,
    Sender,
    control_requests,
)
from tidelog.controller.cluster.controller_context import (
    BrokerRegistration,
    ControllerContext,
    TopicSettings,
)
from tidelog.types import TopicPartition


def test_a_topic_that_goes_in_the_same_decision_is_not_told_of() -> None:
    context = ControllerContext(1, TopicSettings())
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")
    context.brokers[1] = BrokerRegistration(10, (endpoint,))
    batch = ControllerBrokerRequestBatch()
    batch.tell_replicas([1], TopicPartition("gone", 0))
    assert control_requests(batch, context, Sender(1, "PLAINTEXT")) == {}
