"""The console against Apache Kafka 3.9 and 4.3: every page over HTTP, with what Kafka holds."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote
from urllib.request import urlopen

import pytest
from starlette.routing import Match, Route

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from tests.interop.apache_kafka import kafka_or_skip, running
from tests.support.broker_process import TIDELOG, dies_with_us
from tests.support.console_client import ConsoleClient, parsed_events
from tests.support.eventually import eventually
from tidelog.client import (
    AclBinding,
    AclOperation,
    Admin,
    Consumer,
    NewTopic,
    Producer,
    QuotaEntity,
    ResourceType,
    ScramMechanism,
    ScramUpsertion,
    TopicPartition,
)

PATIENCE_S = 120
KAFKA = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
OPEN_LONG = {"transactional.id": "payments", "transaction.timeout.ms": "900000"}
# What each page must say. Kafka tells no events, and there are no pipelines.
PAGES: Final = {
    "/": ["Overview", "Brokers 1 controller 1", "Under-replicated 0"],
    "/brokers": ["Broker 1 controller 127.0.0.1:"],
    "/brokers/1?q=log.retention": ["Log directories", "online", "log.retention.ms"],
    "/brokers/1/configs/log.retention.hours": ["Value 168", "From default"],
    "/events": ["No broker tells of any event"],
    "/explain": ["A consumer group"],
    "/explain?kind=partition&topic=orders&partition=1": ["orders-1", "leads in epoch 0"],
    "/explain?kind=group&group=billing": ["billing", "Empty"],
    "/explain?kind=txn&id=payments": ["payments"],
    "/topics?internal=1": ["orders 2 1", "ledger 1 1", "__consumer_offsets internal 1 1"],
    "/topics/+new": ["New topic"],
    "/topics/orders": ["Records 6", "0 1 1 1 0 3 3", "1 1 1 1 0 3 3"],
    "/topics/orders/configs": ["retention.ms", "1234567", "set for this topic"],
    "/topics/orders/configs/retention.ms": ["Value 1234567", "From set for this topic"],
    "/topics/orders/partitions": ["It has 2 partitions"],
    "/topics/orders/empty": ["Delete records"],
    "/topics/orders/delete": ["Delete the topic"],
    "/messages": ["orders"],
    "/messages?topic=orders": ["6 records", '{"id": 0}', '{"id": 5}', "That is all."],
    "/messages?topic=orders&filter=value.id+%3D%3D+4": ["1 record found", '{"id": 4}'],
    "/messages?topic=__consumer_offsets": ["billing", "orders"],
    "/messages/+tail?topic=orders": ["Live: orders"],
    "/messages/+record?topic=orders&partition=1&offset=2": ["Record 2 of partition 1", '"id": 5'],
    "/messages/+bytes?topic=orders&partition=1&offset=2&part=value": ['{"id": 5}'],
    "/messages/+export?topic=orders": ['"offset":2'],
    "/messages/+produce?topic=orders": ["Produce to orders"],
    "/messages/+import?topic=orders": ["Import into orders"],
    "/pipelines": ["The console was given no project"],
    "/pipelines/letters?topic=orders": ["Dead letters of orders"],
    "/segments": ["orders-0 1", "orders-1 1", "__consumer_offsets-0 1"],
    "/segments/log?dir=0&folder=orders-1": ["orders-1", "1 segment"],
    "/segments/map?dir=0&folder=orders-1&segment=0": ["Records 3", "Damaged 0"],
    "/segments/batch?dir=0&folder=orders-1&segment=0&position=0": ["Offsets 0 to ", '{"id": 1}'],
    "/segments/entries?dir=0&folder=orders-1&segment=0&kind=index": ["index"],
    "/segments/check?dir=0&folder=orders-1": ["No damage."],
    "/groups": ["billing Empty unknown 5", "alive Stable unknown"],
    "/groups/one?group=billing": ["Empty", "broker 1", "orders-0 1 3 2", "orders-1 0 3 3"],
    "/groups/one?group=alive": ["Stable", "reader-7", "orders-0", "orders-1"],
    "/transactions": ["payments Ongoing"],
    "/transactions/one?id=payments": ["Ongoing", "ledger-0 0 Producers"],
    "/transactions/producers?topic=ledger&partition=0": ["Producers of ledger-0", "1 producer"],
    "/transactions/hanging": ["There are none."],
    "/transactions/abort?topic=ledger&partition=0&offset=0": ["Abort a transaction in ledger-0"],
    "/acls": ["User:carol ALLOW READ TOPIC invoices LITERAL"],
    "/users": ["bob SCRAM-SHA-256 4,096 iterations"],
    "/quotas": ["alice", "producer_byte_rate 1,000"],
    "/settings": ["metadata.version", "allowed by --write"],
}
LIVE: Final = {
    "/overview/live": "facts",
    "/topics/+live": "rows",
    "/topics/orders/live": "partitions",
    "/groups/live": "groups",
    "/groups/one/live?group=billing": "lag",
    "/events/live": "events",
    "/messages/+live?topic=orders": "counts",
}
# Nothing of a cluster is on them, or there is no pipeline to show.
LEFT_OUT: Final = {"/login", "/pipelines/one", "/pipelines/one/live", "/static/{digest}/{name}"}


@pytest.fixture(scope="module", params=[KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def console(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a console beside a Kafka that holds what PAGES tells of."""
    data: Path = tmp_path_factory.mktemp("kafka") / "data"
    with running(kafka_or_skip(request.param), data, KAFKA) as kafka:
        bootstrap = f"127.0.0.1:{kafka.port}"
        properties = {"bootstrap.servers": bootstrap}
        with Admin(properties) as admin:
            _fill(admin, properties)
            live = Consumer(
                properties, group_id="alive", client_id="reader-7", auto_offset_reset="earliest"
            )
            open_one = Producer({**properties, **OPEN_LONG})
            command = [*TIDELOG, "console", "-b", bootstrap, "--listen", "http://127.0.0.1:0"]
            command += ["--write", "--logs", str(data)]
            process = subprocess.Popen(dies_with_us(command), stdout=subprocess.PIPE, text=True)
            try:
                live.subscribe(["orders"])
                eventually(lambda: bool(live.poll(timeout=1.0)))
                open_one.init_transactions()
                open_one.begin_transaction()
                open_one.send("ledger", b"open").result()
                assert process.stdout is not None
                yield process.stdout.readline().split("console=")[1].split()[0]
                open_one.abort_transaction()
            finally:
                process.kill()
                process.communicate()
                open_one.close()
                live.close()


def _fill(admin: Admin, properties: dict[str, str]) -> None:
    orders = NewTopic("orders", 2, 1, configs={"retention.ms": "1234567"})
    for made in admin.create_topics([orders, NewTopic("ledger", 1, 1)]).values():
        made.get()
    with Producer(properties) as producer:
        for number in range(6):
            producer.send("orders", b'{"id": %d}' % number, partition=number % 2)
    places = {TopicPartition("orders", 0): 1, TopicPartition("orders", 1): 0}
    for committed in admin.alter_group_offsets("billing", places).values():
        committed.get()
    carol = AclBinding(ResourceType.TOPIC, "invoices", "User:carol", AclOperation.READ)
    assert admin.create_acls([carol])[carol].is_ok
    bob = ScramUpsertion("bob", ScramMechanism.SCRAM_SHA_256, "secret")
    assert admin.alter_user_scram_credentials([bob])["bob"].is_ok
    alice = QuotaEntity.of({"user": "alice"})
    assert admin.alter_client_quotas({alice: {"producer_byte_rate": 1000.0}})[alice].is_ok
    # The broker knows of these once its metadata log has come around.
    eventually(lambda: admin.describe_acls() == [carol])
    eventually(lambda: "bob" in admin.describe_user_scram_credentials())
    eventually(lambda: alice in admin.describe_client_quotas())


def words_of(url: str) -> str:
    """What a reader sees; anything but 200 raises."""
    with urlopen(url, timeout=PATIENCE_S) as answer:
        assert answer.status == 200
        text = answer.read().decode()
        if not answer.headers["content-type"].startswith("text/html"):
            return text
    main = re.sub(r"<[^>]*>", " ", text.partition("<main")[2])
    return " ".join(html.unescape(main).split())


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows_what_kafka_holds(console: str, path: str) -> None:
    words = words_of(console + path)
    assert not [each for each in PAGES[path] if each not in words], words


@pytest.mark.parametrize("path", LIVE)
def test_a_live_part_is_told_of_kafka(console: str, path: str) -> None:
    told = b""
    with urlopen(console + path, timeout=PATIENCE_S) as stream:
        while not (events := parsed_events(told.decode())):
            told += stream.readline()
    name, data = events[0]
    assert name == "parts", data
    assert LIVE[path] in json.loads(data)


def test_every_page_of_the_console_is_among_them() -> None:
    asked = [unquote(path.partition("?")[0]) for path in (*PAGES, *LIVE)]
    with ConsoleClient() as client:
        for route in client.app.routes:
            assert isinstance(route, Route)
            if "GET" in (route.methods or ()) and route.path not in LEFT_OUT:
                scopes = [{"type": "http", "method": "GET", "path": path} for path in asked]
                assert any(route.matches(scope)[0] == Match.FULL for scope in scopes), route.path
