"""The keys that tokens are checked with: when they are read, and what if they cannot be."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tests.support.oauth_provider import claims_of, ec_key, jwks, rsa_key, signed
from tidelog.broker.security.refreshing_key_set import EXPEDITED_S
from tidelog.broker.security.token_validators import TokenValidators
from tidelog.config.broker import BrokerConfig
from tidelog.errors import StartupError
from tidelog.sasl.oauth.access_token import InvalidToken

LISTENER = "SASL_PLAINTEXT"
REFRESH_MS = 60_000


class Stage:
    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.path = path / "keys.json"
        self.path.write_bytes(jwks(rsa_key()))
        config = BrokerConfig(
            {
                "listeners": f"PLAINTEXT://127.0.0.1:1,{LISTENER}://127.0.0.1:2",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": f"file://{self.path}",
                "sasl.oauthbearer.jwks.endpoint.refresh.ms": str(REFRESH_MS),
                "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "0",
            }
        )
        self.validators = TokenValidators(config, clock=self.clock, timer=self.clock)

    def start(self) -> None:
        self.validators.load()
        self.validators.start()

    def is_good(self, number: int) -> bool:
        """Whether a token of that key is."""
        now = self.clock.time_ms() / 1000
        try:
            self.validators[LISTENER].validate(
                signed(claims_of("alice", now, aud=None), rsa_key(number))
            )
        except InvalidToken:
            return False
        return True

    async def settle(self) -> None:
        """Until what is being read is read."""
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await task


@in_loop
async def test_an_unknown_key_has_the_set_read_at_most_once_in_a_while(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.start()
    stage.path.write_bytes(jwks(rsa_key(), rsa_key(1)))
    assert not stage.is_good(1)
    await stage.settle()
    assert stage.is_good(1)
    stage.path.write_bytes(jwks(rsa_key(2)))
    for _ in range(3):
        assert not stage.is_good(2)
        await stage.settle()
    stage.clock.advance(ms=int(EXPEDITED_S * 1000))
    assert not stage.is_good(2)
    await stage.settle()
    assert stage.is_good(2)
    assert not stage.is_good(1), "the key was withdrawn"
    stage.validators.close()


@in_loop
async def test_the_set_is_read_by_the_clock_until_the_broker_stops(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.start()
    for number in (1, 2):
        stage.path.write_bytes(jwks(rsa_key(number)))
        stage.clock.advance(ms=REFRESH_MS)
        await stage.settle()
        assert stage.is_good(number)
    stage.validators.close()
    stage.path.write_bytes(jwks(rsa_key(3)))
    stage.clock.advance(ms=2 * REFRESH_MS)
    await stage.settle()
    assert not stage.is_good(3)


@in_loop
async def test_the_old_keys_stay_while_there_are_no_new_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path)
    stage.start()
    for damage in (b"no keys", b'{"keys":[]}', None):
        if damage is None:
            stage.path.unlink()
        else:
            stage.path.write_bytes(damage)
        stage.clock.advance(ms=REFRESH_MS)
        await stage.settle()
        assert stage.is_good(0)
    assert caplog.text.count("the old keys stay") == 3
    stage.validators.close()


@pytest.mark.parametrize("text", [b"", b"{}", b'{"keys":[]}', None])
def test_without_keys_there_is_no_start(tmp_path: Path, text: bytes | None) -> None:
    stage = Stage(tmp_path)
    if text is None:
        stage.path.unlink()
    else:
        stage.path.write_bytes(text)
    with pytest.raises(StartupError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url=file"):
        stage.validators.load()


def test_other_kinds_of_keys_may_be_in_the_set(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.path.write_bytes(jwks(ec_key(), rsa_key()))
    stage.validators.load()
    assert stage.is_good(0)
