"""An identity provider on loopback: signs tokens, and serves its key set and a token endpoint.

with OAuthProvider() as provider:
    provider.jwks_url, provider.token_url    # for brokers and clients
    provider.token("alice", exp=+60)         # times are relative to now
    provider.rotate()                        # from now on another key signs
"""

from __future__ import annotations

import base64
import json
import threading
import time
import warnings
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

CLIENT_ID, CLIENT_SECRET = "shop", "shop's secret"
ISSUER, AUDIENCE = "https://issuer.example", "tidelog"


def rsa_key(number: int = 0, bits: int = 2048) -> RSAKey:
    """Always the same one for a number."""
    return _rsa_key(number, bits)


@cache
def _rsa_key(number: int, bits: int) -> RSAKey:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # keys that are too small have a test
        return RSAKey.generate_key(bits, {"kid": f"rsa-{number}"})


@cache
def ec_key(curve: str = "P-256") -> ECKey:
    return ECKey.generate_key(curve, {"kid": f"ec-{curve}"})


def claims_of(subject: str | None, now: float | None = None, **more: Any) -> dict[str, Any]:
    """With an hour to live. Claims that are None are left out."""
    now = time.time() if now is None else now
    claims: dict[str, Any] = {
        "sub": subject,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": int(now),
        "exp": int(now) + 3600,
        **more,
    }
    return {name: value for name, value in claims.items() if value is not None}


def signed(
    claims: dict[str, Any],
    key: RSAKey | ECKey | OctKey | None = None,
    algorithm: str = "RS256",
    **header: Any,
) -> str:
    key = key or rsa_key()
    headers = {"alg": algorithm, "kid": key.kid, **header}
    headers = {name: value for name, value in headers.items() if value is not None}
    return jwt.encode(headers, claims, key, algorithms=[algorithm])


def unsecured(claims: dict[str, Any]) -> str:
    return f"{encoded({'alg': 'none'})}.{encoded(claims)}."


def encoded(part: object) -> str:
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def jwks(*keys: RSAKey | ECKey) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


class OAuthProvider:
    def __init__(self) -> None:
        self.keys: list[RSAKey | ECKey] = [rsa_key()]
        self._rotations = 0
        self.lifetime_s = 3600
        self.audience: str | None = AUDIENCE
        self.is_down = False
        self.asked_for_keys = 0
        self.asked_for_tokens: list[dict[str, list[str]]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked_for_keys += 1
                self._answer(200, jwks(*provider.keys))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = parse_qs(body)
                provider.asked_for_tokens.append(form)
                basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
                if self.headers["Authorization"] != f"Basic {basic}":
                    self._answer(401, b'{"error":"invalid_client"}')
                    return
                scope = form.get("scope", [None])[0]
                token = provider.token(CLIENT_ID, scope=scope)
                answer = {"access_token": token, "token_type": "Bearer"}
                answer["expires_in"] = str(provider.lifetime_s)
                self._answer(200, json.dumps(answer).encode())

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(503 if provider.is_down else status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def jwks_url(self) -> str:
        return f"{self._url}/keys"

    @property
    def token_url(self) -> str:
        return f"{self._url}/token"

    def token(self, subject: str, *, exp: int | None = None, **claims: Any) -> str:
        lifetime_s = self.lifetime_s if exp is None else exp
        more = {"aud": self.audience, "exp": int(time.time()) + lifetime_s, **claims}
        return signed(claims_of(subject, **more), self.keys[-1])

    def rotate(self) -> None:
        """The old key is withdrawn at once."""
        self._rotations += 1
        self.keys = [rsa_key(self._rotations)]
