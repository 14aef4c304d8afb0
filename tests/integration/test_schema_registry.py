"""The client of a schema registry: what it asks for, keeps and retries, and bad answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.schema_registry import FakeRegistry, running_registry
from tidelog.spark.codecs.errors import RegistryError, UnknownSchema
from tidelog.spark.codecs.schema_registry import (
    ANSWER_BYTES_MAX,
    CACHED_SCHEMAS_MAX,
    REFERENCES_MAX,
    UNKNOWN_FOR_S,
    SchemaRegistry,
    registry_settings,
)

pytestmark = pytest.mark.integration

UNAVAILABLE = 503, {"error_code": 50003, "message": "no leader"}


class Clock:
    """Sleeps at once."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    def now(self) -> float:
        return self.now_s


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with running_registry() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


def client(fake: FakeRegistry, clock: Clock, **keys: str) -> SchemaRegistry:
    given = {name.replace("_", "."): text for name, text in keys.items()}
    settings = registry_settings({"schema.registry.url": fake.url, **given})
    return SchemaRegistry(settings, clock.sleep, clock.now)


def test_a_schema_is_asked_for_once(fake: FakeRegistry, clock: Clock) -> None:
    number = fake.add("orders-value", '"string"')
    registry = client(fake, clock)
    assert registry.schema(number) == registry.schema(number)
    assert registry.schema(number).text == '"string"'
    assert fake.requests == [f"GET /schemas/ids/{number}"]


def test_the_cache_is_bounded(fake: FakeRegistry, clock: Clock) -> None:
    registry = client(fake, clock)
    for number in range(CACHED_SCHEMAS_MAX + 5):
        registry._schemas[-number, ""] = registry_schema()
    number = fake.add("orders-value", '"string"')
    registry.schema(number)
    assert len(registry._schemas) == CACHED_SCHEMAS_MAX


def registry_schema() -> Any:
    from tidelog.spark.codecs.schema_registry import RegisteredSchema

    return RegisteredSchema("AVRO", '"string"')


def test_an_unknown_id_is_asked_for_again_after_a_while(fake: FakeRegistry, clock: Clock) -> None:
    registry = client(fake, clock)
    for _ in range(3):
        with pytest.raises(UnknownSchema, match=r"schema id 1 is not in the registry"):
            registry.schema(1)
    assert len(fake.requests) == 1
    fake.add("orders-value", '"string"')
    clock.now_s += UNKNOWN_FOR_S
    assert registry.schema(1).text == '"string"'


def test_a_registry_that_comes_back_is_waited_for(fake: FakeRegistry, clock: Clock) -> None:
    number = fake.add("orders-value", '"string"')
    fake.answers[f"/schemas/ids/{number}"] = [
        UNAVAILABLE,
        (500, b"<html>"),
        (429, {}),
        (200, {"schema": '"string"'}),
    ]
    assert client(fake, clock).schema(number).text == '"string"'
    assert len(clock.pauses) == 3
    assert clock.pauses == sorted(clock.pauses)


def test_a_registry_that_stays_away_is_an_error_and_no_unknown_schema(
    fake: FakeRegistry, clock: Clock
) -> None:
    fake.answers["/schemas/ids/1"] = [UNAVAILABLE]
    with pytest.raises(RegistryError, match=r"does not answer after 3 tries: 503 no leader; is it"):
        client(fake, clock, max_retries="2").schema(1)
    assert len(fake.requests) == 3


def test_a_registry_that_is_not_there_is_an_error(fake: FakeRegistry, clock: Clock) -> None:
    with running_registry() as gone:
        pass
    registry = client(gone, clock, max_retries="1")
    with pytest.raises(RegistryError, match=rf"{gone.url}: does not answer after 2 tries"):
        registry.schema(1)


def test_the_next_address_is_tried(fake: FakeRegistry, clock: Clock) -> None:
    number = fake.add("orders-value", '"string"')
    with running_registry() as gone:
        pass
    settings = registry_settings({"schema.registry.url": f"{gone.url}, {fake.url}"})
    registry = SchemaRegistry(settings, clock.sleep, clock.now)
    assert registry.schema(number).text == '"string"'


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((200, b"<html>hello</html>"), "an answer is no JSON; is this a schema registry"),
        ((200, b"[" * 200_000), "an answer is no JSON"),
        ((200, b'"' + b"x" * ANSWER_BYTES_MAX + b'"'), "an answer has more than"),
        ((200, []), "the answer for schema id 1 is no schema"),
        ((200, {"schema": 7}), "the answer for schema id 1 is no schema"),
        ((200, {"schema": "x", "references": [{}]}), "the answer for schema id 1 is no schema"),
        ((401, {"message": "Unauthorized"}), "refused GET /schemas/ids/1: 401 Unauthorized"),
        ((404, {"error_code": 40401, "message": "no subject"}), "404 no subject"),
        ((302, b"http://127.0.0.1:1/elsewhere"), "refused GET /schemas/ids/1: 302"),
    ],
)
def test_answers_that_are_no_schema_are_errors(
    fake: FakeRegistry, clock: Clock, answer: Any, told: str
) -> None:
    fake.answers["/schemas/ids/1"] = [answer]
    with pytest.raises(RegistryError, match=told):
        client(fake, clock).schema(1)


def test_references_that_go_round_are_an_error(fake: FakeRegistry, clock: Clock) -> None:
    def refers(name: str) -> list[dict[str, Any]]:
        return [{"name": name, "subject": name, "version": 1}]

    fake.add("a", "{}", references=refers("b"))
    fake.add("b", "{ }", references=refers("a"))
    registry = client(fake, clock)
    with pytest.raises(RegistryError, match=r"go round in a circle: b -> a -> b"):
        registry.references(registry.schema(1))


def test_too_many_references_are_an_error(fake: FakeRegistry, clock: Clock) -> None:
    many = [{"name": f"n{n}", "subject": "s", "version": 1} for n in range(REFERENCES_MAX + 1)]
    fake.add("s", '"string"')
    number = fake.add("big", "{}", references=many)
    registry = client(fake, clock)
    with pytest.raises(RegistryError, match=rf"more than {REFERENCES_MAX} references"):
        registry.references(registry.schema(number))


def test_references_come_after_what_they_need(fake: FakeRegistry, clock: Clock) -> None:
    fake.add("c", '"int"')
    fake.add("b", '"long"', references=[{"name": "c", "subject": "c", "version": 1}])
    number = fake.add(
        "a",
        '"string"',
        references=[
            {"name": "b", "subject": "b", "version": 1},
            {"name": "c", "subject": "c", "version": 1},
        ],
    )
    registry = client(fake, clock)
    found = registry.references(registry.schema(number))
    assert found == [("c", '"int"'), ("b", '"long"')]


def test_a_schema_is_registered_or_looked_up(fake: FakeRegistry, clock: Clock) -> None:
    looking = client(fake, clock, auto_register_schemas="false")
    with pytest.raises(RegistryError, match=r"refused POST /subjects/a%2Fb-value: 404 Schema not"):
        looking.written("a/b-value", "AVRO", '"string"')
    made = client(fake, clock).written("a/b-value", "AVRO", '"string"')
    assert looking.written("a/b-value", "AVRO", '"string"').id == made.id == 1
    assert list(fake.subjects) == ["a/b-value"]


def test_the_password_goes_to_the_registry_and_into_no_message(clock: Clock) -> None:
    with running_registry("shop:secret") as fake:
        number = fake.add("orders-value", '"string"')
        keys = {"basic_auth_user_info": "shop:secret"}
        assert client(fake, clock, **keys).schema(number).text == '"string"'
        with pytest.raises(RegistryError) as told:
            client(fake, clock, basic_auth_user_info="shop:wrong-secret").schema(number)
    assert "401 Unauthorized" in str(told.value)
    assert "secret" not in f"{told.value} {client(fake, clock, **keys)!r}"
