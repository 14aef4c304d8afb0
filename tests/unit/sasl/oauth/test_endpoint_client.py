"""How an identity provider is asked: what is not followed, not read, and not believed."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tidelog.config.oauth import Endpoint
from tidelog.sasl.oauth.endpoint_client import EndpointClient, EndpointFailed

KEY = "sasl.oauthbearer.jwks.endpoint.url"


@contextmanager
def served(
    status: int, body: bytes, headers: dict[str, str] | None = None, key: Path | None = None
) -> Iterator[tuple[str, list[str]]]:
    """The address of a server that always answers so, and the paths it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if key is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def client(url: str, tls: dict[str, str] | None = None) -> EndpointClient:
    """Whose time passes only when it sleeps."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    endpoint = Endpoint(KEY, url, 1, 5, 20_000, 20_000, tls or {})
    return EndpointClient(endpoint, sleep=sleep, monotonic=lambda: now[0])


def test_it_gets_what_is_there() -> None:
    with served(200, b"keys") as (address, asked):
        assert client(f"http://{address}/a/keys?x=1").get() == b"keys"
        assert client(f"http://{address}").get() == b"keys"
    assert asked == ["/a/keys?x=1", "/"]


def test_a_redirect_is_not_followed() -> None:
    with served(200, b"evil") as (elsewhere, asked):
        headers = {"Location": f"http://{elsewhere}/keys"}
        with served(302, b"", headers) as (address, _):
            with pytest.raises(EndpointFailed, match="which is not followed") as raised:
                client(f"http://{address}/keys").get()
            assert raised.value.is_final
            with pytest.raises(EndpointFailed, match="not followed"):
                client(f"http://{address}/token").post_patiently(b"secret", {})
    assert asked == []


def test_an_answer_without_end_is_not_read() -> None:
    with (
        served(200, b"x" * (2 << 20)) as (address, _),
        pytest.raises(EndpointFailed, match="more than 1 MiB"),
    ):
        client(f"http://{address}/").get()


@pytest.mark.parametrize(
    ("status", "is_final"), [(400, True), (401, True), (404, True), (429, False), (500, False)]
)
def test_what_may_be_different_the_next_time_is_tried_again(status: int, is_final: bool) -> None:
    with (
        served(status, b"why") as (address, asked),
        pytest.raises(EndpointFailed, match=f"status {status}: why") as raised,
    ):
        client(f"http://{address}/").get_patiently()
    assert raised.value.is_final is is_final
    assert (len(asked) == 1) is is_final


def test_over_tls_the_server_must_prove_its_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusted = authority.client_keys()
    with served(200, b"keys", key=authority.issue("idp")) as (address, _):
        assert client(f"https://{address}/", trusted).get() == b"keys"
        with pytest.raises(EndpointFailed, match=r"cannot be reached.*certificate verify failed"):
            client(f"https://{address}/").get()  # the system does not trust it
    other = authority.issue("other", hosts=("idp.example.com",))
    with (
        served(200, b"keys", key=other) as (address, _),
        pytest.raises(EndpointFailed, match=r"IP address mismatch|doesn't match"),
    ):
        client(f"https://{address}/", trusted).get()


def test_a_trust_store_that_is_not_there_is_named() -> None:
    tls = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/no/such/ca.pem"}
    with pytest.raises(EndpointFailed, match=r"ssl\.truststore\.location") as raised:
        client("https://127.0.0.1:1/", tls)
    assert raised.value.is_final
