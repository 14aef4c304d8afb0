"""Where a client gets its tokens, and when it gets another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.oauth_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    OAuthProvider,
    claims_of,
    signed,
    unsecured,
)
from tidelog.config.oauth import Endpoint, OAuthLogin, RefreshSettings
from tidelog.sasl.oauth.endpoint_client import EndpointClient, EndpointFailed
from tidelog.sasl.oauth.token_source import (
    AccessToken,
    TokenRefused,
    TokenSource,
    TokenUnavailable,
    refresh_at_ms,
)

NOW = 1_700_000_000
MINUTE_MS = 60_000
KEY = "sasl.oauthbearer.token.endpoint.url"


def endpoint(url: str, **more: Any) -> Endpoint:
    return Endpoint(KEY, url, 10, 1_000, 20_000, 20_000, {})._replace(**more)


def of_provider(provider: OAuthProvider, **more: Any) -> OAuthLogin:
    login = OAuthLogin(endpoint(provider.token_url), CLIENT_ID, CLIENT_SECRET)
    return login._replace(**more)


def get(source: TokenSource) -> AccessToken:
    return asyncio.run(source.token())


def made_by(*tokens: Callable[[], object]) -> tuple[TokenSource, FakeClock]:
    left = list(tokens)
    clock = FakeClock(NOW * 1000)
    login = OAuthLogin(provider=lambda: left.pop(0)(), refresh=RefreshSettings(0.8, 0.0, 60, 300))
    return TokenSource(login, clock), clock


def token(minutes: float = 60, **claims: Any) -> str:
    return unsecured(claims_of("alice", NOW, exp=int(NOW + minutes * 60), **claims))


def failing() -> object:
    raise OSError("the vault is locked")


class TestEndpoint:
    def test_it_asks_with_the_clients_credentials(self) -> None:
        with OAuthProvider() as provider:
            found = get(TokenSource(of_provider(provider, scope="read write")))
            (form,) = provider.asked_for_tokens
        assert form == {"grant_type": ["client_credentials"], "scope": ["read write"]}
        assert found.value.count(".") == 2
        assert found.value not in repr(found)

    def test_a_wrong_secret_is_final_and_is_not_shown(self) -> None:
        with OAuthProvider() as provider:
            login = of_provider(provider, client_secret="hush")
            with pytest.raises(TokenRefused, match=r"status 401.*invalid_client") as raised:
                get(TokenSource(login))
            assert len(provider.asked_for_tokens) == 1
        assert "hush" not in str(raised.value) + repr(login)

    def test_a_provider_that_is_down_is_tried_again_and_named(self) -> None:
        with OAuthProvider() as provider:
            provider.is_down = True
            with pytest.raises(TokenUnavailable, match="status 503") as raised:
                get(TokenSource(of_provider(provider)))
            assert not isinstance(raised.value, TokenRefused)
            assert len(provider.asked_for_tokens) > 1
            assert provider.token_url in str(raised.value)

    def test_a_provider_that_is_not_there_is_named(self) -> None:
        with OAuthProvider() as provider:
            login = of_provider(provider)
        with pytest.raises(TokenUnavailable, match="cannot be reached"):
            get(TokenSource(login))

    def test_pauses_double_and_end(self) -> None:
        now, pauses = [0.0], []

        def sleep(seconds: float) -> None:
            pauses.append(round(seconds, 3))
            now[0] += seconds

        client = EndpointClient(
            endpoint("http://127.0.0.1:1/", retry_backoff_ms=100, retry_backoff_max_ms=1_000),
            sleep=sleep,
            monotonic=lambda: now[0],
        )
        with pytest.raises(EndpointFailed):
            client.get_patiently()
        assert pauses == [0.1, 0.2, 0.4]


class TestFile:
    def test_it_is_read_again_when_the_token_is_old(self, tmp_path: Path) -> None:
        path = tmp_path / "a token"
        path.write_text(token(10) + "\n")
        clock = FakeClock(NOW * 1000)
        login = OAuthLogin(endpoint(f"file://{tmp_path}/a%20token"))
        source = TokenSource(login, clock)
        assert get(source).value == token(10)
        path.write_text(token(60))
        assert get(source).value == token(10)
        clock.advance(ms=9 * MINUTE_MS)
        assert get(source).value == token(60)

    def test_one_that_is_missing_or_no_token_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        login = OAuthLogin(endpoint(f"file://{path}"))
        with pytest.raises(TokenRefused, match="No such file"):
            get(TokenSource(login))
        path.write_text("not a token")
        with pytest.raises(TokenRefused, match="characters that no token has"):
            get(TokenSource(login))
        path.write_text("opaque")
        with pytest.raises(TokenRefused, match="cannot be read"):
            get(TokenSource(login))


class TestProvider:
    def test_it_returns_a_text_or_a_token(self) -> None:
        source, _ = made_by(lambda: token())
        assert get(source).value == token()
        given = AccessToken("opaque", NOW * 1000 + MINUTE_MS, {"traceId": "7"})
        source, _ = made_by(lambda: given)
        assert get(source) == given

    @pytest.mark.parametrize(
        ("made", "match"),
        [
            (lambda: 7, "returned int"),
            (lambda: "", "is empty"),
            (lambda: "x\x01auth=y", "characters"),
            (lambda: AccessToken("x", NOW * 2000, {"auth": "y"}), "extension"),
            (lambda: AccessToken("x", NOW * 2000, {"a": "\x01"}), "extension"),
            (lambda: unsecured({"sub": "alice"}), "does not say when it ends"),
        ],
    )
    def test_what_is_no_token_is_refused(self, made: Callable[[], object], match: str) -> None:
        with pytest.raises(TokenRefused, match=match):
            get(made_by(made)[0])

    def test_one_that_fails_is_said_so(self) -> None:
        with pytest.raises(TokenUnavailable, match="the vault is locked"):
            get(made_by(failing)[0])

    def test_one_that_has_expired_is_not_sent(self) -> None:
        with pytest.raises(TokenUnavailable, match="has expired, 60 s ago"):
            get(made_by(lambda: token(-1))[0])

    @pytest.mark.parametrize("name", ["no.such.module:f", "json:no_such", "json:__name__"])
    def test_a_name_without_a_function_is_refused(self, name: str) -> None:
        with pytest.raises(TokenRefused, match=name):
            get(TokenSource(OAuthLogin(provider=name)))

    def test_it_may_be_named(self) -> None:
        source = TokenSource(OAuthLogin(provider=f"{__name__}:an_hour"))
        assert get(source).value.startswith("ey")


def an_hour() -> str:
    return signed(claims_of("alice"))


class TestRefresh:
    def test_a_token_serves_until_its_window_ends(self) -> None:
        source, clock = made_by(lambda: token(60), lambda: token(120))
        get(source)
        clock.advance(ms=48 * MINUTE_MS - 1)
        assert get(source).value == token(60)
        clock.advance(ms=1)
        assert get(source).value == token(120)

    def test_the_old_one_serves_while_no_new_one_is_to_be_had(self) -> None:
        source, clock = made_by(lambda: token(60), failing, failing, lambda: token(120))
        get(source)
        clock.advance(ms=59 * MINUTE_MS)
        assert get(source).value == token(60)
        clock.advance(ms=MINUTE_MS)
        with pytest.raises(TokenUnavailable):
            get(source)
        assert get(source).value == token(120)

    def test_one_that_was_refused_is_not_used_again(self) -> None:
        source, _ = made_by(lambda: token(60), lambda: token(61))
        get(source)
        source.forget()
        assert get(source).value == token(61)

    def test_logins_at_the_same_time_get_one_token(self) -> None:
        async def story() -> None:
            source, _ = made_by(lambda: token(60))
            found = await asyncio.gather(*(source.token() for _ in range(5)))
            assert {each.value for each in found} == {token(60)}

        asyncio.run(story())

    @pytest.mark.parametrize(
        ("began", "ends", "expected"),
        [
            (0, 3_600, 2_880),  # 80 % of an hour
            (-600, 3_000, 2_280),  # of which ten minutes are over
            (0, 1_000, 700),  # not in the last 300 s
            (0, 400, 100),
            (-3_000, 400, 60),  # not in the first 60 s
            (0, 300, 240),  # too short for both
            (0, 10, 8),
        ],
    )
    def test_the_moment_is_kafkas(self, began: int, ends: int, expected: int) -> None:
        settings = RefreshSettings(0.8, 0.0, 60, 300)
        found = refresh_at_ms(settings, began * 1000, 0, ends * 1000)
        assert found == expected * 1000
