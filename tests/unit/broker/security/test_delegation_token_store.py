"""Delegation tokens in the metadata store, and brokers that share it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tidelog.broker.security import token_znodes
from tidelog.broker.security.delegation_tokens import DelegationTokens
from tidelog.broker.security.token_znodes import TokenInformation
from tidelog.config.broker import BrokerConfig
from tidelog.controller.announcements import EXPIRATION_MS
from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.metadata_store import (
    BadVersion,
    Create,
    Operation,
    StoreUnavailable,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.network.session import Principal
from tidelog.sasl.mechanism import SaslRefusal
from tidelog.sasl.scram import PretendedCredentials, ScramClient, ScramServer
from tidelog.sasl.scram_credential import ScramMechanism

ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))
SCRAM = ScramMechanism.SCRAM_SHA_256
HOUR_MS = 3_600_000
CONFIG = BrokerConfig(
    {
        "delegation.token.max.lifetime.ms": str(10 * HOUR_MS),
        "delegation.token.expiry.time.ms": str(2 * HOUR_MS),
    }
)


class Member:
    """One broker's view of the store."""

    def __init__(self, store: EmbeddedStore, clock: FakeClock, secret_key: str = "hush") -> None:
        self.store = store.new_session()
        self.tokens = DelegationTokens(self.store, secret_key, CONFIG, clock=clock, timer=clock)
        self.tokens.load()

    async def close(self) -> None:
        self.tokens.announcements.close()
        await self.store.close()

    def log_in(
        self, token_id: str, secret: bytes, mechanism: ScramMechanism = SCRAM
    ) -> ScramServer:
        """As a client does; SaslRefusal if it fails."""
        password = base64.b64encode(secret).decode()
        client = ScramClient(mechanism, token_id, password, is_token=True)
        server = ScramServer(
            mechanism,
            lambda _: None,
            PretendedCredentials(b""),
            find_token=lambda name: self.tokens.credential_or_none(mechanism, name),
        )
        challenge = b""
        while not client.is_complete:
            response = client.evaluate(challenge)
            if not client.is_complete:
                challenge = server.evaluate(response)
        return server


class Cluster:
    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.store = EmbeddedStore.open(path, clock=self.clock)
        self.one, self.two = (Member(self.store, self.clock) for _ in range(2))
        for member in (self.one, self.two):
            member.tokens.announcements.start()

    @property
    def tokens(self) -> DelegationTokens:
        return self.one.tokens

    async def create(self, **more: int) -> tuple[TokenInformation, bytes]:
        lifetime_ms = more.get("lifetime_ms", -1)
        token = await self.tokens.create(ALICE, ALICE, [BOB], lifetime_ms)
        return token, self.tokens.hmac_of(token.token_id)

    async def spread(self) -> None:
        """Until the other broker has heard of all changes."""
        for _ in range(5_000):
            await asyncio.sleep(0.005)
            if dict(self._known(self.one)) == dict(self._known(self.two)):
                return
        raise AssertionError("the brokers do not agree")

    def _known(self, member: Member) -> Sequence[tuple[str, TokenInformation]]:
        return [(token.token_id, token) for token in member.tokens.all()]

    async def close(self) -> None:
        await self.one.close()
        await self.two.close()
        await self.store.close()


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> int:
    return error.value.code


@in_loop
async def test_a_token_logs_in_as_its_owner_until_it_expires(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    token, secret = await cluster.create()
    assert len(token.token_id) == 22
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        server = cluster.one.log_in(token.token_id, secret, mechanism)
        assert (server.user_or_none, server.is_token_authenticated) == ("alice", True)
        assert server.credential_expires_at_ms == token.expiry_timestamp
    cluster.clock.advance(ms=2 * HOUR_MS)
    cluster.one.log_in(token.token_id, secret)
    cluster.clock.advance(ms=1)
    with pytest.raises(SaslRefusal, match="no user or token"):
        cluster.one.log_in(token.token_id, secret)
    await cluster.close()


@in_loop
async def test_a_wrong_hmac_or_id_is_refused_in_the_same_words(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    token, secret = await cluster.create()
    for token_id, proof in ((token.token_id, secret[:-1] + b"x"), ("nothing", secret)):
        with pytest.raises(SaslRefusal) as raised:
            cluster.one.log_in(token_id, proof)
        assert raised.value.told is None
    await cluster.close()


@in_loop
async def test_a_token_is_no_password_and_a_password_no_token(tmp_path: Path) -> None:
    """Without the extension the id is the name of a user, and there is none."""
    cluster = Cluster(tmp_path)
    token, secret = await cluster.create()
    client = ScramClient(SCRAM, token.token_id, base64.b64encode(secret).decode())
    server = ScramServer(
        SCRAM,
        lambda _: None,
        PretendedCredentials(b""),
        find_token=lambda name: cluster.tokens.credential_or_none(SCRAM, name),
    )
    with pytest.raises(SaslRefusal):
        server.evaluate(client.evaluate(server.evaluate(client.evaluate(b""))))
    await cluster.close()


@in_loop
async def test_a_token_lives_as_long_as_is_asked_for_within_bounds(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    now_ms = cluster.clock.time_ms()
    for asked_ms, max_ms, expiry_ms in (
        (-1, 10 * HOUR_MS, 2 * HOUR_MS),
        (0, 10 * HOUR_MS, 2 * HOUR_MS),
        (HOUR_MS, HOUR_MS, HOUR_MS),
        (5 * HOUR_MS, 5 * HOUR_MS, 2 * HOUR_MS),
        (1 << 62, 10 * HOUR_MS, 2 * HOUR_MS),
    ):
        token, _ = await cluster.create(lifetime_ms=asked_ms)
        assert token.max_timestamp == now_ms + max_ms
        assert token.expiry_timestamp == now_ms + expiry_ms
    await cluster.close()


@in_loop
async def test_a_token_made_at_one_broker_is_good_at_the_other(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    token, secret = await cluster.create()
    await cluster.spread()
    assert cluster.two.log_in(token.token_id, secret).user_or_none == "alice"
    renewed = await cluster.two.tokens.renew(BOB, secret, 3 * HOUR_MS)
    await cluster.spread()
    assert [each.expiry_timestamp for each in cluster.tokens.all()] == [renewed]
    await cluster.tokens.expire(ALICE, secret, -1)
    await cluster.spread()
    with pytest.raises(SaslRefusal):
        cluster.two.log_in(token.token_id, secret)
    with pytest.raises(KafkaError) as raised:
        await cluster.two.tokens.renew(BOB, secret, -1)
    assert code_of(raised) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    await cluster.close()


@in_loop
async def test_tokens_outlive_the_broker_and_another_secret_ends_them(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    token, secret = await cluster.create()
    again = Member(cluster.store, cluster.clock)
    assert again.log_in(token.token_id, secret).user_or_none == "alice"
    other = Member(cluster.store, cluster.clock, "another secret")
    with pytest.raises(SaslRefusal):
        other.log_in(token.token_id, secret)
    await again.close()
    await other.close()
    await cluster.close()


class TestRenewal:
    def test_it_is_bounded_by_the_longest_life(self, tmp_path: Path) -> None:
        @in_loop
        async def story() -> None:
            cluster = Cluster(tmp_path)
            token, secret = await cluster.create()
            cluster.clock.advance(ms=HOUR_MS)
            now_ms = cluster.clock.time_ms()
            for period_ms, expected_ms in (
                (-1, now_ms + 2 * HOUR_MS),
                (5 * HOUR_MS, now_ms + 5 * HOUR_MS),
                (1 << 62, token.max_timestamp),
                (0, now_ms),
            ):
                assert await cluster.tokens.renew(ALICE, secret, period_ms) == expected_ms
            await cluster.close()

        story()

    def test_it_is_for_owner_and_renewers_and_good_tokens(self, tmp_path: Path) -> None:
        @in_loop
        async def story() -> None:
            cluster = Cluster(tmp_path)
            _, secret = await cluster.create()
            await cluster.tokens.renew(BOB, secret, -1)
            for change in (cluster.tokens.renew, cluster.tokens.expire):
                with pytest.raises(KafkaError) as raised:
                    await change(EVE, secret, -1)
                assert code_of(raised) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
                with pytest.raises(KafkaError) as raised:
                    await change(ALICE, b"unknown", -1)
                assert code_of(raised) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
            cluster.clock.advance(ms=2 * HOUR_MS + 1)
            for change in (cluster.tokens.renew, cluster.tokens.expire):
                with pytest.raises(KafkaError) as raised:
                    await change(ALICE, secret, 1000)
                assert code_of(raised) == ErrorCode.DELEGATION_TOKEN_EXPIRED
            assert await cluster.tokens.expire(ALICE, secret, -1) == cluster.clock.time_ms()
            await cluster.close()

        story()


@in_loop
async def test_expired_tokens_are_removed_everywhere(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.create(lifetime_ms=1000)
    kept, _ = await cluster.create()
    cluster.clock.advance(ms=1001)
    await cluster.tokens.remove_expired()
    await cluster.spread()
    assert [token.token_id for token in cluster.two.tokens.all()] == [kept.token_id]
    assert await cluster.store.children(token_znodes.TOKENS) == [kept.token_id]
    await cluster.close()


@in_loop
async def test_a_token_that_was_renewed_meanwhile_is_not_removed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    token, secret = await cluster.create()
    await cluster.spread()
    cluster.two.tokens.announcements.close()
    await cluster.tokens.renew(ALICE, secret, 5 * HOUR_MS)
    cluster.clock.advance(ms=3 * HOUR_MS)
    await cluster.two.tokens.remove_expired()  # it has not heard of the renewal
    assert await cluster.store.children(token_znodes.TOKENS) == [token.token_id]
    await cluster.close()


@in_loop
async def test_a_change_that_meets_another_begins_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    _, secret = await cluster.create()
    multi = cluster.one.store.multi
    calls = 0

    async def contended(operations: Sequence[Operation]) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            asyncio.get_running_loop().call_later(0.01, lambda: cluster.clock.advance(ms=1000))
            raise BadVersion("somebody was faster")
        return await multi(operations)

    cluster.one.store.multi = contended  # type: ignore[method-assign, assignment]
    await cluster.tokens.renew(ALICE, secret, 5 * HOUR_MS)
    assert calls == 2
    await cluster.close()


@in_loop
async def test_a_store_that_fails_is_told(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)

    async def unavailable(_: object) -> object:
        raise StoreUnavailable("gone")

    cluster.one.store.multi = unavailable  # type: ignore[method-assign, assignment]
    with pytest.raises(KafkaError) as raised:
        await cluster.create()
    assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    assert list(cluster.tokens.all()) == []
    await cluster.close()


@in_loop
async def test_a_new_session_reads_everything_anew(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    gone, secret = await cluster.create()
    await cluster.spread()
    cluster.two.tokens.announcements.close()
    await cluster.tokens.expire(ALICE, secret, -1)
    made, _ = await cluster.create()
    for name in await cluster.store.children(token_znodes.CHANGES):
        await cluster.store.delete(f"{token_znodes.CHANGES}/{name}")  # too old to be kept
    cluster.two.tokens.announcements.start()
    cluster.two.tokens.announcements.session_began()
    await cluster.spread()
    assert {token.token_id for token in cluster.two.tokens.all()} == {made.token_id}
    assert gone.token_id != made.token_id
    await cluster.close()


@in_loop
async def test_old_announcements_are_removed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.create()
    await cluster.spread()
    cluster.clock.advance(ms=EXPIRATION_MS + 60_000)
    await cluster.create()
    await cluster.spread()
    for member in (cluster.one, cluster.two):
        await member.tokens.announcements.caught_up()
    assert len(await cluster.store.children(token_znodes.CHANGES)) == 1
    await cluster.close()


@in_loop
async def test_nobody_can_use_a_token_that_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(tmp_path)
    token, _ = await cluster.create()
    other = token._replace(owner=Principal("Group", "admin"), token_id="group")
    texts = {
        "damaged": b"{",
        "newer": json.dumps({"version": 4}).encode(),
        "renamed": token_znodes.encode(token),
        "group": token_znodes.encode(other),
    }
    for name, text in texts.items():
        await cluster.store.multi([Create(token_znodes.path_of(name), text)])
    again = Member(cluster.store, cluster.clock)
    for name in texts:
        with pytest.raises(SaslRefusal):
            again.log_in(name, again.tokens.hmac_of(name))
    assert caplog.text.count("nobody can use it") == 3
    await again.close()
    await cluster.close()


class TestZnodes:
    TOKEN = TokenInformation(
        "AAAAAAAAAAAAAAAAAAAAAA",
        Principal("User", "CN=alice, O=x"),
        BOB,
        (BOB, EVE),
        1,
        3,
        2,
    )

    def test_it_is_written_as_kafka_writes_it(self) -> None:
        assert json.loads(token_znodes.encode(self.TOKEN)) == {
            "version": 3,
            "owner": "User%3ACN%3Dalice%2C%20O%3Dx",
            "tokenRequester": "User%3Abob",
            "renewers": ["User%3Abob", "User%3Aeve"],
            "issueTimestamp": 1,
            "maxTimestamp": 3,
            "expiryTimestamp": 2,
            "tokenId": "AAAAAAAAAAAAAAAAAAAAAA",
        }
        assert token_znodes.decode(token_znodes.encode(self.TOKEN)) == self.TOKEN

    def test_tokens_of_old_kafkas_have_no_requester(self) -> None:
        value = json.loads(token_znodes.encode(self.TOKEN))
        del value["tokenRequester"]
        read = token_znodes.decode(json.dumps({**value, "version": 1}).encode())
        assert read == self.TOKEN._replace(requester=self.TOKEN.owner)

    @pytest.mark.parametrize(
        "change",
        [
            {"version": 0},
            {"version": 4},
            {"version": None},
            {"owner": "alice"},
            {"owner": None},
            {"renewers": [7]},
            {"expiryTimestamp": "2"},
            {"maxTimestamp": True},
        ],
    )
    def test_anything_else_is_refused(self, change: dict[str, object]) -> None:
        value = {**json.loads(token_znodes.encode(self.TOKEN)), **change}
        with pytest.raises(ValueError, match=r"not a|unknown version"):
            token_znodes.decode(json.dumps(value).encode())
