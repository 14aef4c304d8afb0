"""Schemas by id: from a schema registry (Confluent's REST interface) or from a folder of files.

    GET  /schemas/ids/<id>                     a schema, its type and its references
    GET  /subjects/<subject>/versions/<n>      a schema that another one refers to, or the latest
    POST /subjects/<subject>/versions          registers a schema, gives its id
    POST /subjects/<subject>                   looks a schema up, gives its id

An id means one schema for ever, so what was read is kept, in a bounded number, for as long as the
process lives. An id that the registry does not know is UnknownSchema, and asked for again after a
while; that is the record's problem. Everything else is RegistryError and no record's problem: no
answer after some tries with growing pauses, a refusal, an answer that is too large or no JSON,
references that go round in a circle.

Credentials stand in no message and no repr, and follow no redirect.
"""

from __future__ import annotations

import base64
import json
import random
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.spark.codecs.errors import RegistryError, UnknownSchema

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"

ANSWER_BYTES_MAX: Final = 4 << 20
REFERENCES_MAX: Final = 200
CACHED_SCHEMAS_MAX: Final = 1_000
UNKNOWN_FOR_S: Final = 30.0
FOLDER_FILES_MAX: Final = 10_000
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_SCHEMA_NOT_FOUND: Final = 40403
_PAUSE_MAX_S: Final = 20.0
_SUFFIXES: Final = {".avsc": AVRO, ".json": JSON, ".proto": PROTOBUF}


class Reference(NamedTuple):
    name: str
    subject: str
    version: int


class RegisteredSchema(NamedTuple):
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    id: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Confluent's keys, checked."""

    urls: tuple[str, ...]
    user_info: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    is_registering: bool = True
    uses_latest: bool = False
    timeout_s: float = 10.0
    retries: int = 5
    pause_ms: int = 500


FILE_KEYS: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_KEYS: Final = (
    "schema.registry.url",
    "basic.auth.credentials.source",
    "basic.auth.user.info",
    "bearer.auth.token",
    *FILE_KEYS,
    "auto.register.schemas",
    "use.latest.version",
    "timeout",
    "max.retries",
    "retries.wait.ms",
)


def registry_settings(given: Mapping[str, str]) -> RegistrySettings:
    """Raises ValueError, which begins with the key that is wrong."""
    for key in given:
        if key not in _KEYS:
            raise ValueError(f"{key}: is not a key here; there is {', '.join(_KEYS)}")
    urls, user_info = _urls(given.get("schema.registry.url", ""))
    source = given.get("basic.auth.credentials.source", "USER_INFO" if not user_info else "URL")
    if source not in ("USER_INFO", "URL"):
        raise ValueError("basic.auth.credentials.source: is USER_INFO or URL")
    if source == "USER_INFO":
        user_info = given.get("basic.auth.user.info", "")
    elif given.get("basic.auth.user.info"):
        raise ValueError("basic.auth.user.info: the address has a user too; keep one of them")
    if user_info and ":" not in user_info:
        raise ValueError("basic.auth.user.info: is not of the form user:password")
    if user_info and given.get("bearer.auth.token"):
        raise ValueError("bearer.auth.token: stands beside a user and password; keep one of them")
    settings = RegistrySettings(
        urls=urls,
        user_info=user_info,
        token=given.get("bearer.auth.token", ""),
        ca_file=given.get("ssl.ca.location", ""),
        certificate_file=given.get("ssl.certificate.location", ""),
        key_file=given.get("ssl.key.location", ""),
        is_registering=_flag(given, "auto.register.schemas", True),
        uses_latest=_flag(given, "use.latest.version", False),
        timeout_s=_number(given, "timeout", 10, 1, 3600),
        retries=int(_number(given, "max.retries", 5, 0, 100)),
        pause_ms=int(_number(given, "retries.wait.ms", 500, 1, 60_000)),
    )
    if settings.uses_latest and given.get("auto.register.schemas") == "true":
        raise ValueError("use.latest.version: auto.register.schemas must be false beside it")
    return settings


def _urls(text: str) -> tuple[tuple[str, ...], str]:
    """The addresses without the user that may stand in them, and that user."""
    urls, user_info = [], ""
    for part in (part.strip() for part in text.split(",") if part.strip()):
        try:
            split = urllib.parse.urlsplit(part)
            is_known = split.scheme in ("http", "https") and bool(split.hostname)
            is_known = is_known and split.port != 0
        except ValueError:  # of the port, when it is no number
            is_known = False
        if not is_known:
            raise ValueError("schema.registry.url: is not of the form http://host:8081")
        user, _, host = split.netloc.rpartition("@")
        user_info = urllib.parse.unquote(user) or user_info
        urls.append(urllib.parse.urlunsplit((split.scheme, host, split.path.rstrip("/"), "", "")))
    if not urls:
        raise ValueError('schema.registry.url: is missing, for example "http://localhost:8081"')
    return tuple(urls), user_info


def _flag(given: Mapping[str, str], key: str, default: bool) -> bool:
    text = given.get(key, str(default).lower())
    if text not in ("true", "false"):
        raise ValueError(f"{key}: is true or false")
    return text == "true"


def _number(given: Mapping[str, str], key: str, default: float, low: float, high: float) -> float:
    try:
        number = float(given.get(key, default))
    except ValueError:
        number = -1
    if not low <= number <= high:
        raise ValueError(f"{key}: is a number from {low} to {high}")
    return number


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: Any, **more: Any) -> None:
        return None


class SchemaRegistry:
    """One registry, for one thread of one process. `sleep` and `now` are the clock."""

    def __init__(
        self,
        settings: RegistrySettings,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._sleep = sleep
        self._now = now
        self._schemas: OrderedDict[tuple[int, str], RegisteredSchema] = OrderedDict()
        self._unknown: OrderedDict[int, float] = OrderedDict()  # when it was asked for
        self._ids: dict[tuple[str, str], RegisteredSchema] = {}
        self._opener: urllib.request.OpenerDirector | None = None

    def __repr__(self) -> str:
        return f"SchemaRegistry({', '.join(self.settings.urls)})"

    def schema(self, schema_id: int, form: str = "") -> RegisteredSchema:
        """Raises UnknownSchema. `form` "serialized" asks for Protobuf's descriptors in base64."""
        key = schema_id, form
        if key in self._schemas:
            self._schemas.move_to_end(key)
            return self._schemas[key]
        asked = self._unknown.get(schema_id)
        if asked is not None and self._now() - asked < UNKNOWN_FOR_S:
            raise UnknownSchema(f"schema id {schema_id} is not in the registry")
        query = f"?format={form}" if form else ""
        answer = self._call("GET", f"/schemas/ids/{schema_id}{query}", none_if=_SCHEMA_NOT_FOUND)
        if answer is None:
            self._unknown[schema_id] = self._now()
            self._unknown.move_to_end(schema_id)
            _shorten(self._unknown)
            raise UnknownSchema(f"schema id {schema_id} is not in the registry")
        found = self._schema_in(answer, f"schema id {schema_id}")._replace(id=schema_id)
        self._schemas[key] = found
        _shorten(self._schemas)
        return found

    def references(self, schema: RegisteredSchema, form: str = "") -> list[tuple[str, str]]:
        """Names and texts of all that a schema needs, each after what it needs itself."""
        found: dict[str, str] = {}
        self._collect(schema, form, found, [])
        return list(found.items())

    def _collect(
        self, schema: RegisteredSchema, form: str, found: dict[str, str], above: list[Reference]
    ) -> None:
        for reference in schema.references:
            if reference in above:
                names = " -> ".join(row.name for row in (*above, reference))
                raise self._error(f"references of schemas go round in a circle: {names}")
            if reference.name in found:
                continue
            if len(found) + len(above) >= REFERENCES_MAX:
                raise self._error(f"a schema has more than {REFERENCES_MAX} references")
            other = self.version(reference.subject, reference.version, form)
            self._collect(other, form, found, [*above, reference])
            found[reference.name] = other.text

    def version(self, subject: str, version: int | str, form: str = "") -> RegisteredSchema:
        query = f"?format={form}" if form else ""
        path = f"{_subject(subject)}/versions/{version}{query}"
        return self._schema_in(self._call("GET", path), f"{subject} version {version}")

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest of a subject, as it was when it was first asked for."""
        key = subject, ""
        if key not in self._ids:
            self._ids[key] = self.version(subject, "latest")
        return self._ids[key]

    def written(
        self, subject: str, kind: str, text: str, references: tuple[Reference, ...] = ()
    ) -> RegisteredSchema:
        """The schema with its id: registered, or looked up, by `auto.register.schemas`."""
        key = subject, text
        if key not in self._ids:
            path, body = _subject(subject), _body(kind, text, references)
            if self.settings.is_registering:
                path += "/versions"
            self._ids[key] = self._identified(path, RegisteredSchema(kind, text, references), body)
        return self._ids[key]

    def referred(
        self, name: str, subject: str, kind: str, text: str, references: tuple[Reference, ...]
    ) -> Reference:
        """What another schema says to use this one, which is registered first where it may be."""
        self.written(subject, kind, text, references)
        body = _body(kind, text, references)
        found = self._identified(_subject(subject), RegisteredSchema(kind, text), body)
        return Reference(name, subject, found.version)

    def _identified(
        self, path: str, schema: RegisteredSchema, body: dict[str, Any]
    ) -> RegisteredSchema:
        answer = self._call("POST", path, body)
        found = _number_in(answer, "id")
        if found is None:
            raise self._error(f"the answer to POST {path} has no id")
        return schema._replace(id=found, version=_number_in(answer, "version") or 0)

    # The wire

    def _schema_in(self, answer: Any, what: str) -> RegisteredSchema:
        try:
            text, kind = answer["schema"], answer.get("schemaType") or AVRO
            references = tuple(
                Reference(str(row["name"]), str(row["subject"]), int(row["version"]))
                for row in answer.get("references") or ()
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._error(f"the answer for {what} is no schema") from None
        if not isinstance(text, str) or not isinstance(kind, str):
            raise self._error(f"the answer for {what} is no schema")
        numbers = _number_in(answer, "id") or 0, _number_in(answer, "version") or 0
        return RegisteredSchema(kind, text, references, *numbers)

    def _call(self, method: str, path: str, body: Any = None, none_if: int | None = None) -> Any:
        """The answer as JSON; None when the registry says that it has no such thing."""
        told = ""
        for turn in range(self.settings.retries + 1):
            if turn:
                pause_s = self.settings.pause_ms / 1000 * 2 ** (turn - 1)
                self._sleep(min(pause_s, _PAUSE_MAX_S) * random.uniform(0.8, 1.2))
            url = self.settings.urls[turn % len(self.settings.urls)]
            try:
                return self._json(self._exchange(method, url + path, body))
            except urllib.error.HTTPError as refusal:
                with refusal:
                    said = _said(refusal)
                if refusal.code == 404 and none_if is not None and said[0] in (none_if, None):
                    return None
                told = f"{refusal.code} {said[1]}"
                if refusal.code < 500 and refusal.code not in (408, 429):
                    raise self._error(f"refused {method} {path}: {told}") from None
            except (OSError, HTTPException) as problem:
                told = str(getattr(problem, "reason", "") or problem or type(problem).__name__)
        raise self._error(
            f"does not answer after {self.settings.retries + 1} tries: {told}; is it running, and "
            "is schema.registry.url right?"
        )

    def _exchange(self, method: str, url: str, body: Any) -> bytes:
        if self._opener is None:
            self._opener = self._made_opener()
        headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        if self.settings.user_info:
            encoded = base64.b64encode(self.settings.user_info.encode()).decode()
            headers["Authorization"] = f"Basic {encoded}"
        elif self.settings.token:
            headers["Authorization"] = f"Bearer {self.settings.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        with self._opener.open(request, timeout=self.settings.timeout_s) as answer:
            read: bytes = answer.read(ANSWER_BYTES_MAX + 1)
        if len(read) > ANSWER_BYTES_MAX:
            raise self._error(f"an answer has more than {ANSWER_BYTES_MAX} bytes")
        return read

    def _made_opener(self) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if any(url.startswith("https") for url in self.settings.urls):
            try:
                context = ssl.create_default_context(cafile=self.settings.ca_file or None)
                if self.settings.certificate_file:
                    key = self.settings.key_file or None
                    context.load_cert_chain(self.settings.certificate_file, key)
            except OSError as problem:
                raise self._error(f"certificates cannot be read: {problem}") from None
            handlers.append(urllib.request.HTTPSHandler(context=context))
        return urllib.request.build_opener(*handlers)

    def _json(self, read: bytes) -> Any:
        try:
            return json.loads(read)
        except (ValueError, RecursionError):
            raise self._error("an answer is no JSON; is this a schema registry?") from None

    def _error(self, told: str) -> RegistryError:
        return RegistryError(f"the schema registry {', '.join(self.settings.urls)}: {told}")


def _subject(subject: str) -> str:
    return f"/subjects/{urllib.parse.quote(subject, safe='')}"


def _body(kind: str, text: str, references: tuple[Reference, ...]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": text}
    if kind != AVRO:
        body["schemaType"] = kind
    if references:
        body["references"] = [reference._asdict() for reference in references]
    return body


def _said(refusal: urllib.error.HTTPError) -> tuple[int | None, str]:
    """The registry's own error code and words."""
    try:
        answer = json.loads(refusal.read(ANSWER_BYTES_MAX))
        return _number_in(answer, "error_code"), str(answer.get("message", ""))[:300]
    except (AttributeError, OSError, HTTPException, ValueError, RecursionError):
        return None, str(refusal.reason)


def _number_in(answer: Any, key: str) -> int | None:
    value = answer.get(key) if isinstance(answer, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _shorten(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > CACHED_SCHEMAS_MAX:
        kept.popitem(last=False)


class SchemaFolder:
    """Files named by id: `7.avsc`, `7.json`, `7.proto`; read when it is made, so that it can travel
    to workers that do not see the folder. Schemas stand alone: there are no references."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._schemas: dict[int, RegisteredSchema] = {}
        files = [path for path in sorted(folder.iterdir()) if path.suffix in _SUFFIXES]
        if len(files) > FOLDER_FILES_MAX:
            raise RegistryError(f"{folder} has more than {FOLDER_FILES_MAX} schemas")
        self.files = [row for row in files if row.stem.isascii() and row.stem.isdigit()]
        for path in self.files:
            schema_id = int(path.stem)
            if schema_id in self._schemas:
                raise RegistryError(f"{folder} has two schemas of id {schema_id}")
            text = path.read_text(encoding="utf-8")
            kind = _SUFFIXES[path.suffix]
            self._schemas[schema_id] = RegisteredSchema(kind, text, id=schema_id)

    def __len__(self) -> int:
        return len(self._schemas)

    def schema(self, schema_id: int, form: str = "") -> RegisteredSchema:
        if schema_id not in self._schemas:
            raise UnknownSchema(f"schema id {schema_id} is not in {self.folder}")
        return self._schemas[schema_id]

    def references(self, schema: RegisteredSchema, form: str = "") -> list[tuple[str, str]]:
        return []

    def written(
        self, subject: str, kind: str, text: str, references: tuple[Reference, ...] = ()
    ) -> RegisteredSchema:
        for schema in self._schemas.values():
            if schema.kind == kind and _same(schema, text):
                return schema
        raise RegistryError(
            f"{self.folder} has no file with the schema that {subject} is written by"
        )


def _same(schema: RegisteredSchema, text: str) -> bool:
    if schema.kind == PROTOBUF:
        return schema.text.strip() == text.strip()
    try:
        return bool(json.loads(schema.text) == json.loads(text))
    except ValueError:
        return False


# Where schemas come from: the settings of a registry travel, its connection and cache do not.
SchemaSource = RegistrySettings | SchemaFolder


@lru_cache(maxsize=8)
def _registry(settings: RegistrySettings) -> SchemaRegistry:
    return SchemaRegistry(settings)


def schemas_of(source: SchemaSource) -> SchemaRegistry | SchemaFolder:
    """The same one within a process, so that every batch finds what the ones before it read."""
    return source if isinstance(source, SchemaFolder) else _registry(source)
