"""The console's gate: hosts, sessions, tokens, logins, headers, and what needs --write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.console_client import ConsoleClient
from tidelog.config.definition import ConfigError
from tidelog.tools.console import access
from tidelog.tools.console.access import Access, Login, path_of_console
from tidelog.tools.console.clients import properties_of
from tidelog.tools.console.settings import (
    ConsoleSettings,
    Listener,
    LoginMode,
    parse_listener,
)

NOBODY_ASKS = {"bootstrap.servers": "127.0.0.1:1"}
SASL = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
}
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";'
PASSWORD = "a long password"


@dataclass
class Seconds:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def console() -> Iterator[ConsoleClient]:
    with ConsoleClient() as client:
        yield client


@pytest.fixture
def guarded() -> Iterator[ConsoleClient]:
    with ConsoleClient(user="ada", password=PASSWORD) as client:
        yield client


def test_every_answer_has_the_security_headers(console: ConsoleClient) -> None:
    for path in ("/login", "/settings/none", "/static/x/none.js"):
        headers = console.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1:8080", True),
        ("localhost:8080", True),
        ("[::1]:8080", True),
        ("10.1.2.3", True),
        ("console.localhost", True),
        ("attacker.example", False),
        ("127.0.0.1.attacker.example:8080", False),
        ("localhost.attacker.example", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(
    console: ConsoleClient, host: str, is_own: bool
) -> None:
    console.host = host
    assert (console.get("/login").status == 421) is not is_own


def test_a_host_name_that_was_given_is_known() -> None:
    with ConsoleClient(host_names=frozenset({"console.example"})) as console:
        console.host = "CONSOLE.example:8080"
        assert console.get("/login").status != 421


def test_the_session_is_a_signed_cookie_that_scripts_cannot_read(console: ConsoleClient) -> None:
    cookie = console.get("/login").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "set-cookie" not in console.get("/login").headers, "it is kept"
    name, value = next(iter(console.cookies.items()))
    console.cookies[name] = value[:-1] + ("0" if value[-1] != "0" else "1")
    assert "set-cookie" in console.get("/login").headers, "a forged one counts for nothing"


def test_a_link_on_another_site_does_not_end_the_session(console: ConsoleClient) -> None:
    """The browser leaves out the strict cookie, and must not be given a new one for that."""
    link = {"sec-fetch-mode": "navigate", "sec-fetch-site": "cross-site"}
    answer = console.get("/login", link)
    assert 'http-equiv="refresh"' in answer.text
    assert "set-cookie" not in answer.headers
    console.get("/login", {**link, "sec-fetch-site": "same-origin"})
    assert "refresh" not in console.get("/login", link).text, "with a cookie it is a page"


def test_a_post_without_the_token_of_its_session_is_refused(console: ConsoleClient) -> None:
    assert console.post("/logout").status == 303
    assert console.post("/logout", csrf="").status == 403
    assert console.post("/logout", csrf="é").status == 403
    other = ConsoleClient()
    assert console.post("/logout", csrf=other.csrf_token()).status == 403
    other.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://attacker.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_post_from_another_site_is_refused(
    console: ConsoleClient, headers: dict[str, str]
) -> None:
    assert console.post("/logout", headers=headers).status == 403


def test_a_post_from_the_console_itself_passes(console: ConsoleClient) -> None:
    own = {"origin": f"http://{console.host}", "sec-fetch-site": "same-origin"}
    assert console.post("/logout", headers=own).status == 303


def test_only_posts_that_read_pass_without_write(console: ConsoleClient) -> None:
    """Also to paths that no page has: nothing can be forgotten."""
    for path in ("/topics/+new", "/topics/orders/delete", "/nothing/here"):
        answer = console.post(path)
        assert answer.status == 403
        assert "read-only" in answer.words
    assert console.post("/settings/theme", theme="dark").status == 303


def test_other_methods_are_refused(console: ConsoleClient) -> None:
    ask = console._ask
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert console.run(ask(method, "/topics", b"", {})).status == 405


def test_a_form_that_is_too_large_is_refused(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "FORM_BYTES_MAX", 1_000)
    assert console.post("/logout", text="x" * 2_000).status == 413
    monkeypatch.setattr(access, "FORM_FIELDS_MAX", 3)
    assert console.post("/logout", a="1", b="2", c="3").status == 400


def test_a_broken_form_is_refused(console: ConsoleClient) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert console.send("/logout", b"\xff\xfe=1", form).status == 400


# Logins


def test_who_has_not_logged_in_sees_the_login_page_alone(guarded: ConsoleClient) -> None:
    answer = guarded.get("/topics?q=a")
    assert (answer.status, answer.location) == (303, "/login?next=%2Ftopics%3Fq%3Da")
    assert guarded.get("/topics/+live", {"accept": "text/event-stream"}).status == 401
    assert guarded.post("/topics/+new").status == 401
    assert guarded.get("/login").status == 200


def test_a_login_opens_the_pages_and_a_logout_closes_them(guarded: ConsoleClient) -> None:
    before = dict(guarded.cookies)
    answer = guarded.post("/login", user="ada", password=PASSWORD, next="/topics/+new")
    assert (answer.status, answer.location) == (303, "/topics/+new")
    assert guarded.cookies != before, "a session that somebody may know is not taken over"
    assert "ada" in guarded.get("/topics/+new").words
    assert guarded.post("/logout").location == "/login"
    assert guarded.get("/topics/+new").status == 303


@pytest.mark.parametrize(
    ("user", "password"),
    [("ada", "wrong"), ("eve", PASSWORD), ("ada", ""), ("", PASSWORD), ("ada", "x" * 5_000)],
)
def test_a_wrong_login_opens_nothing(guarded: ConsoleClient, user: str, password: str) -> None:
    assert guarded.post("/login", user=user, password=password).status in (400, 403)
    assert guarded.get("/topics").status == 303


def test_many_wrong_passwords_make_one_wait() -> None:
    clock = Seconds()
    with ConsoleClient(clock=clock, user="ada", password=PASSWORD) as console:
        statuses = [console.post("/login", user="ada", password="no").status for _ in range(11)]
        assert statuses == [403] * 10 + [429]
        assert console.post("/login", user="ada", password=PASSWORD).status == 429
        clock.now += access.FAILURES_S + 1
        assert console.post("/login", user="ada", password=PASSWORD).status == 303


def test_a_login_ends_an_hour_after_its_last_use_and_after_half_a_day() -> None:
    clock = Seconds()
    with ConsoleClient(clock=clock, user="ada", password=PASSWORD) as console:
        console.post("/login", user="ada", password=PASSWORD)
        for _ in range(11):
            clock.now += 3_599
            assert console.get("/topics/+new").status == 200
        clock.now += 3_601
        assert console.get("/topics/+new").status == 303
        console.post("/login", user="ada", password=PASSWORD)
        for _ in range(12):
            clock.now += 3_500
            assert console.get("/topics/+new").status == 200
        clock.now += 3_500
        assert console.get("/topics/+new").status == 303, "twelve hours are over"


def test_sessions_and_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SESSIONS_MAX", 3)
    found = Access(ConsoleSettings(NOBODY_ASKS, user="ada", password=PASSWORD), Seconds())
    visitors = [found.log_in(Login(f"user {number}")) for number in range(5)]
    assert {login.user for login in found.logins()} == {"user 2", "user 3", "user 4"}
    for visitor in visitors:
        found.tell(visitor, "done")
    assert [found.messages(visitor) for visitor in visitors] == [[], [], *[["done"]] * 3]
    assert found.messages(visitors[4]) == [], "they are told once"


def test_a_theme_that_is_none_is_not_taken(console: ConsoleClient) -> None:
    assert "theme" not in console.post("/settings/theme", theme='"><script>').headers.get(
        "set-cookie", ""
    )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/topics?q=1", "/topics?q=1"),
        ("//attacker.example", "/"),
        ("https://attacker.example", "/"),
        ("/\\attacker.example", "/"),
        ("/a\r\nset-cookie: x=y", "/"),
        ("", "/"),
    ],
)
def test_a_login_leads_to_this_console_alone(text: str, path: str) -> None:
    assert path_of_console(text) == path


# Settings


@pytest.mark.parametrize(
    ("properties", "host", "user", "mode"),
    [
        (NOBODY_ASKS, "127.0.0.1", None, LoginMode.NOBODY),
        (NOBODY_ASKS, "127.0.0.1", "ada", LoginMode.CONSOLE),
        (NOBODY_ASKS, "10.0.0.1", "ada", LoginMode.CONSOLE),
        (SASL, "127.0.0.1", None, LoginMode.CLUSTER),
        (SASL | {"sasl.jaas.config": JAAS}, "127.0.0.1", None, LoginMode.NOBODY),
        (SASL | {"sasl.jaas.config": JAAS}, "10.0.0.1", None, LoginMode.CLUSTER),
        (SASL | {"sasl.jaas.config": JAAS}, "10.0.0.1", "ada", LoginMode.CONSOLE),
    ],
)
def test_who_must_log_in_follows_from_the_settings(
    properties: dict[str, str], host: str, user: str | None, mode: LoginMode
) -> None:
    settings = ConsoleSettings(properties, Listener(host, 8080), user=user, password=PASSWORD)
    settings.require_safe()
    assert settings.login_mode is mode


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (ConsoleSettings(NOBODY_ASKS, Listener("0.0.0.0", 8080)), "nobody would have to log in"),
        (ConsoleSettings(NOBODY_ASKS, user="ada"), "--password-file"),
        (
            ConsoleSettings(SASL | {"sasl.mechanism": "OAUTHBEARER"}, Listener("10.0.0.1", 1)),
            "has no passwords",
        ),
    ],
)
def test_what_would_let_everybody_in_or_nobody_is_refused(
    settings: ConsoleSettings, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        settings.require_safe()


def test_a_user_of_the_cluster_cannot_add_to_the_login_entry() -> None:
    from tidelog.config.jaas import entry_for

    name, password = 'eve" tokenauth="true', 'a\\"; x required\n'
    made = properties_of(ConsoleSettings(SASL), Login(name, password))["sasl.jaas.config"]
    options = entry_for("sasl.jaas.config", made, "SCRAM-SHA-256").options
    assert options == {"username": name, "password": password}


def test_passwords_are_not_shown() -> None:
    settings = ConsoleSettings(NOBODY_ASKS, user="ada", password=PASSWORD)
    assert PASSWORD not in repr(settings)
    assert PASSWORD not in repr(Login("ada", PASSWORD))


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("http://127.0.0.1:8080", Listener("127.0.0.1", 8080)),
        ("127.0.0.1:0", Listener("127.0.0.1", 0)),
        ("localhost", Listener("localhost", 8080)),
        ("http://[::1]:9000/", Listener("::1", 9000)),
    ],
)
def test_an_address_to_listen_at_has_several_forms(text: str, listener: Listener) -> None:
    assert parse_listener(text) == listener


@pytest.mark.parametrize(
    "text", ["", "ftp://x", "http://x:notaport", "http://x/path", "http://u@x", "http://x:99999"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_listener(text)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_the_loopback_interface_is_recognised(host: str, is_loopback: bool) -> None:
    assert Listener(host, 1).is_loopback is is_loopback
