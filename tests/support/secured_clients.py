"""One story for clients that must log in: each writes records to a new topic and reads them back.

A client is given the settings of its own library: how it gets as far as the login is the same for
every mechanism.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.eventually import eventually
from tests.support.sasl_broker import SaslBroker
from tidelog.client import Admin, Consumer, NewTopic, Producer

VALUES = [f"record {number}".encode() for number in range(20)]
TIMEOUT_S = 60
Settings = Mapping[str, Any]


def librdkafka_keys(broker: SaslBroker) -> dict[str, Any]:
    keys = {"bootstrap.servers": broker.bootstrap, "security.protocol": broker.protocol.lower()}
    if broker.authority is not None:
        keys["ssl.ca.location"] = str(broker.authority.path)
    return keys


def kafka_python_keys(broker: SaslBroker) -> dict[str, Any]:
    keys = {"bootstrap_servers": broker.bootstrap, "security_protocol": broker.protocol}
    if broker.authority is not None:
        keys["ssl_cafile"] = str(broker.authority.path)
    return keys


def aiokafka_keys(broker: SaslBroker) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": broker.protocol,
    }
    if broker.authority is not None:
        keys["ssl_context"] = ssl.create_default_context(cafile=broker.authority.path)
    return keys


def tidelog(settings: Settings, topic: str) -> list[Any]:
    with Admin(settings) as admin:
        admin.create_topics([NewTopic(topic)])[topic].get()
    with Producer(settings) as producer:
        for value in VALUES:
            producer.send(topic, value=value)
        producer.flush()
    with Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        return _until_all(lambda: [record.value for record in consumer.poll(1.0)])


def confluent_kafka(settings: Settings, topic: str) -> list[Any]:
    import confluent_kafka as ck
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin import NewTopic as CkNewTopic

    admin = AdminClient(dict(settings))
    admin.poll(0)  # serves oauth_cb, without which nothing is sent
    admin.create_topics([CkNewTopic(topic, 1)])[topic].result(TIMEOUT_S)
    producer = ck.Producer(dict(settings))
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = ck.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        return _until_all(lambda: [each.value() for each in consumer.consume(len(VALUES), 1.0)])
    finally:
        consumer.close()


def kafka_python(settings: Settings, topic: str) -> list[Any]:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewTopic as KpNewTopic

    admin = KafkaAdminClient(**settings)
    admin.create_topics([KpNewTopic(topic, 1, 1)])
    admin.close()
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush()
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **settings
    )
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    return found


def aiokafka(settings: Settings, topic: str) -> list[Any]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin import NewTopic as AkNewTopic

    async def story() -> list[Any]:
        admin = AIOKafkaAdminClient(**settings)
        await admin.start()
        try:
            made = await admin.create_topics([AkNewTopic(topic, 1, 1)])
            assert made.topic_errors[0][1] == 0
        finally:
            await admin.close()
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(asyncio.wait_for(story(), 2 * TIMEOUT_S))


def kcat(settings: Settings, topic: str) -> list[Any]:
    """It changes nothing of a cluster but can list its topics."""
    options = [f"-X{name}={value}" for name, value in settings.items()]

    def run(*arguments: str, records: bytes = b"") -> bytes:
        command = ["kcat", "-q", *options, *arguments]
        done = subprocess.run(
            command, input=records, capture_output=True, timeout=TIMEOUT_S, check=True
        )
        return done.stdout

    run("-P", "-t", topic, records=b"\n".join(VALUES))
    assert topic.encode() in run("-L")
    found = run("-C", "-t", topic, "-o", "beginning", "-c", str(len(VALUES)))
    return found.split(b"\n")[:-1]


def _until_all(more: Callable[[], list[Any]]) -> list[Any]:
    found: list[Any] = []

    def has_all() -> bool:
        found.extend(more())
        return len(found) >= len(VALUES)

    eventually(has_all)
    return found
