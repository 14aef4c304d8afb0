"""A schema registry on loopback, of Confluent's REST interface as much as serializers use.

It keeps schemas in memory and checks no compatibility. `answers` replaces the answer of a path, to
play a registry that is broken or hostile; `requests` is what was asked for.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

SCHEMA_NOT_FOUND = 404, {"error_code": 40403, "message": "Schema not found"}
SUBJECT_NOT_FOUND = 404, {"error_code": 40401, "message": "Subject not found"}

Answer = tuple[int, Any]  # status and JSON, or status and bytes


class FakeRegistry:
    def __init__(self, user_info: str = "") -> None:
        self.user_info = user_info
        self.schemas: list[dict[str, Any]] = []  # by id, from 1 on
        self.subjects: dict[str, list[int]] = {}  # ids by version, from 1 on
        self.answers: dict[str, list[Answer]] = {}  # by path; the last one stays
        self.requests: list[str] = []
        self.url = ""

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        return int(self._registered(subject, body)["id"])

    def answer(self, method: str, target: str, body: Any, authorization: str) -> Answer:
        self.requests.append(f"{method} {target}")
        expected = base64.b64encode(self.user_info.encode()).decode()
        if self.user_info and authorization != f"Basic {expected}":
            return 401, {"error_code": 401, "message": "Unauthorized"}
        split = urlsplit(target)
        if planned := self.answers.get(split.path):
            return planned.pop(0) if len(planned) > 1 else planned[0]
        parts = [unquote(part) for part in split.path.strip("/").split("/")]
        form = parse_qs(split.query).get("format", [""])[0]
        return self._routed(method, parts, body, form)

    def _routed(self, method: str, parts: list[str], body: Any, form: str) -> Answer:
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                return self._by_id(int(number), form)
            case "POST", ["subjects", subject, "versions"]:
                return 200, self._registered(subject, body)
            case "POST", ["subjects", subject]:
                found = self._found(subject, body)
                return SCHEMA_NOT_FOUND if found is None else (200, found)
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, number: int, form: str) -> Answer:
        if not 0 < number <= len(self.schemas):
            return SCHEMA_NOT_FOUND
        return 200, _without_defaults(self.schemas[number - 1])

    def _registered(self, subject: str, body: Any) -> dict[str, Any]:
        made = _schema(body)
        if made not in self.schemas:
            self.schemas.append(made)
        number = self.schemas.index(made) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return {"id": number}

    def _found(self, subject: str, body: Any) -> dict[str, Any] | None:
        made = _schema(body)
        for version, number in enumerate(self.subjects.get(subject, []), 1):
            if self.schemas[number - 1] == made:
                return self._told(subject, version, number)
        return None

    def _version(self, subject: str, version: str) -> Answer:
        versions = self.subjects.get(subject, [])
        number = len(versions) if version == "latest" else int(version)
        if not 0 < number <= len(versions):
            return SUBJECT_NOT_FOUND
        return 200, self._told(subject, number, versions[number - 1])

    def _told(self, subject: str, version: int, number: int) -> dict[str, Any]:
        schema = _without_defaults(self.schemas[number - 1])
        return {"subject": subject, "version": version, "id": number, **schema}


def _schema(body: Any) -> dict[str, Any]:
    return {
        "schema": body["schema"],
        "schemaType": body.get("schemaType") or "AVRO",
        "references": body.get("references") or [],
    }


def _without_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """A registry does not name Avro, nor an empty list of references."""
    told = {key: value for key, value in schema.items() if value}
    if told["schemaType"] == "AVRO":
        del told["schemaType"]
    return told


@contextmanager
def running_registry(user_info: str = "") -> Iterator[FakeRegistry]:
    registry = FakeRegistry(user_info)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            authorization = self.headers.get("Authorization") or ""
            status, answer = registry.answer(method, self.path, body, authorization)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            if status in (301, 302, 307):
                self.send_header("Location", data.decode())
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
