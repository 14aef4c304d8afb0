"""What a decision says to the brokers."""

from __future__ import annotations

from tidelog.controller.cluster.context import BrokerRegistration, ClusterContext
from tidelog.controller.cluster.control_requests import Sender, control_requests
from tidelog.controller.cluster.request_plan import RequestPlan
from tidelog.controller.cluster.topic_settings import TopicSettings
from tidelog.controller.znodes import Endpoint
from tidelog.types import TopicPartition


def test_a_topic_that_goes_in_the_same_decision_is_not_told_of() -> None:
    context = ClusterContext(1, TopicSettings())
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")
    context.brokers[1] = BrokerRegistration(10, (endpoint,))
    plan = RequestPlan()
    plan.tell_replicas([1], TopicPartition("gone", 0))
    assert control_requests(plan, context, Sender(1, "PLAINTEXT")) == {}
