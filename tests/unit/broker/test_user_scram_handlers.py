"""AlterUserScramCredentials and DescribeUserScramCredentials, as Kafka 3.9 checks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.config_broker import ConfigBroker
from tests.support.metadata import in_loop
from tidelog.broker.handlers import alter_user_scram_credentials, describe_user_scram_credentials
from tidelog.controller import znodes
from tidelog.controller.znodes import desanitized, sanitized
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tidelog.sasl.scram_credential import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
Row = tuple[str, int, str | None]


def upsertion(
    name: str = "alice", mechanism: int = SHA_256, iterations: int = 4096, salt: bytes = b"salt"
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=b"s" * 32,
    )


def deletion(name: str = "alice", mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(
    broker: ConfigBroker, *wanted: ScramCredentialDeletion | ScramCredentialUpsertion
) -> list[Row]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in wanted if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in wanted if isinstance(each, ScramCredentialUpsertion)],
    )
    response = await alter_user_scram_credentials.handle(broker.context(0), request)
    response.encode(0)
    return [(row.user, row.error_code, row.error_message) for row in response.results]


async def describe(broker: ConfigBroker, *names: str) -> dict[str, list[tuple[int, int]] | int]:
    request = DescribeUserScramCredentialsRequest(
        users=[UserName(name=name) for name in names] if names else None
    )
    response = await describe_user_scram_credentials.handle(broker.context(0), request)
    response.encode(0)
    return {
        row.user: row.error_code
        or [(info.mechanism, info.iterations) for info in row.credential_infos]
        for row in response.results
    }


@in_loop
async def test_a_credential_is_stored_as_kafka_stores_it(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    assert await alter(broker, upsertion(), upsertion("bob", SHA_512, 8192)) == [
        ("alice", 0, None),
        ("bob", 0, None),
    ]
    data, _ = await broker.store.get("/config/users/alice")
    kept = ScramCredential.of_salted_password(SHA_256, b"s" * 32, b"salt", 4096)
    assert znodes.decode_config(data) == {"SCRAM-SHA-256": kept.to_text()}
    assert broker.dynamic_config.scram_credential_or_none(SHA_256, "alice") == kept
    assert broker.dynamic_config.scram_credential_or_none(SHA_512, "alice") is None
    assert await describe(broker) == {"alice": [(1, 4096)], "bob": [(2, 8192)]}
    await broker.close()

    broker = ConfigBroker(tmp_path)
    assert broker.dynamic_config.scram_credential_or_none(SHA_256, "alice") == kept
    await broker.close()


@in_loop
async def test_a_deleted_credential_is_no_longer_good(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await alter(broker, upsertion(), upsertion(mechanism=SHA_512))
    assert await alter(broker, deletion()) == [("alice", 0, None)]
    assert broker.dynamic_config.scram_credential_or_none(SHA_256, "alice") is None
    assert await describe(broker) == {"alice": [(2, 4096)]}
    assert await alter(broker, deletion(mechanism=SHA_512)) == [("alice", 0, None)]
    assert await describe(broker) == {}
    await broker.close()


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        ((upsertion(""),), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ((deletion(""),), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ((upsertion(iterations=4095),), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ((upsertion(iterations=16385),), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (
            (upsertion(salt=b""),),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Salt and salted password must not be empty",
        ),
        (
            (upsertion(mechanism=0),),
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "Unknown SCRAM mechanism",
        ),
        ((deletion(mechanism=3),), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (
            (upsertion(), upsertion()),
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        ),
        (
            (deletion(), upsertion()),
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        ),
        (
            (deletion(), upsertion(mechanism=SHA_512)),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_what_kafka_refuses_changes_nothing_of_the_user(
    tmp_path: Path,
    wanted: tuple[ScramCredentialDeletion | ScramCredentialUpsertion, ...],
    code: ErrorCode,
    message: str,
) -> None:
    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        rows = await alter(broker, *wanted, upsertion("bob"))
        assert (wanted[0].name, code, message) in rows
        assert ("bob", 0, None) in rows
        assert await describe(broker) == {"bob": [(1, 4096)]}
        await broker.close()

    story()


@in_loop
async def test_users_that_are_asked_for_must_have_a_credential(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await alter(broker, upsertion(), upsertion("bob"))
    assert await describe(broker, "alice", "nobody", "bob", "bob", "") == {
        "alice": [(1, 4096)],
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "bob": ErrorCode.DUPLICATE_RESOURCE,
        "": ErrorCode.RESOURCE_NOT_FOUND,
    }
    await broker.close()


NAMES = {
    "alice": "alice",
    "CN=a, O=b": "CN%3Da%2C%20O%3Db",
    "a/b*c~d+e": "a%2Fb%2Ac%7Ed%2Be",
    "josé.x-y_z": "jos%C3%A9.x-y_z",
    "<default>": "%3Cdefault%3E",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_are_sanitized_as_kafka_does(tmp_path: Path, name: str) -> None:
    assert sanitized(name) == NAMES[name]
    assert desanitized(NAMES[name]) == name

    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        await alter(broker, upsertion(name))
        assert await describe(broker) == {name: [(1, 4096)]}
        await broker.close()

    story()


@in_loop
async def test_a_name_that_no_store_can_hold_is_an_error_of_its_own(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    ((user, code, _),) = await alter(broker, upsertion(".."))
    assert (user, code) == ("..", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    await broker.close()


@in_loop
async def test_a_stored_credential_that_is_not_readable_is_good_for_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = ConfigBroker(tmp_path)
    texts = {"SCRAM-SHA-256": "salt=hush"}
    await broker.store.create("/config/users/alice", znodes.encode_config(texts), make_parents=True)
    await broker.dynamic_config.client_announced("users", "alice")
    assert broker.dynamic_config.scram_credential_or_none(SHA_256, "alice") is None
    assert await describe(broker, "alice") == {"alice": ErrorCode.UNKNOWN_SERVER_ERROR}
    assert "not readable" in caplog.text
    assert "hush" not in caplog.text
    await broker.close()


@in_loop
async def test_what_another_broker_changes_is_taken_over(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    kept = ScramCredential(b"salt", b"stored", b"server", 4096)
    texts = {"SCRAM-SHA-512": kept.to_text()}
    await broker.store.create(
        "/config/users/CN%3Da", znodes.encode_config(texts), make_parents=True
    )
    await broker.dynamic_config.client_announced("users", "CN%3Da")
    assert broker.dynamic_config.scram_credential_or_none(SHA_512, "CN=a") == kept
    await broker.store.set("/config/users/CN%3Da", znodes.encode_config({}))
    await broker.dynamic_config.client_announced("users", "CN%3Da/clients/app")
    assert broker.dynamic_config.scram_credential_or_none(SHA_512, "CN=a") == kept
    await broker.dynamic_config.client_announced("users", "CN%3Da")
    assert broker.dynamic_config.scram_credential_or_none(SHA_512, "CN=a") is None
    await broker.close()
