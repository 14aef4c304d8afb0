"""Kafka in your tests: brokers that start in no time, and obey.

    from tidelog.testing import Broker

    with Broker() as broker:
        topic = broker.create_topic("orders")
        ...
        broker.expect("orders").exactly_once(keys=range(100))

`pytest_plugin` has fixtures for pytest, `containers` a stand-in for testcontainers' KafkaContainer.
"""

from tidelog.testing.broker import Broker, BrokerClock, NeedsProcess, Paused, Snapshot
from tidelog.testing.cluster import Cluster
from tidelog.testing.expectation import Expectation
from tidelog.testing.topic import NotWritten, Topic, expect

__all__ = [
    "Broker",
    "BrokerClock",
    "Cluster",
    "Expectation",
    "NeedsProcess",
    "NotWritten",
    "Paused",
    "Snapshot",
    "Topic",
    "expect",
]
