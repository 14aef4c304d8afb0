"""What logins, access control lists and quotas cost tidelog: Produce with and without them.

Two brokers of tidelog take turns. One is plain. The other serves a user who logged in with SCRAM,
and its authorizer holds 10,000 entries of other users and topics beside that user's own. In the
last row the user has quotas too, far above what it uses.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench import wire
from bench.arena import Arena
from bench.beside_plain import AGAINST, TOPIC, BesidePlain
from bench.peers import SASL_PORT
from bench.raw_client import RawClient
from bench.table import Report
from bench.wire import BadAnswer, batch_filling, record_batch
from tidelog.acls import (
    AclBinding,
    AclOperation,
    PatternType,
    ResourceType,
)
from tidelog.client import Admin, QuotaEntity, Result, ScramUpsertion
from tidelog.sasl.scram import ScramClient
from tidelog.sasl.scram_credential import ScramMechanism
from tidelog.tools.free_ports import free_port

TITLE = "Produce by a user with ACLs and a quota, beside a plain broker"
USER, PASSWORD = "bench", "bench-secret"
ACLS = 10_000
ACLS_AT_ONCE = 500
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
TARGET = 0.97


def run(arena: Arena) -> Report:
    if arena.tidelog is None:
        return Report(TITLE, remarks=["there is no tidelog among the peers: nothing measured"])
    sasl_port = free_port()
    settings = {
        SASL_PORT: str(sasl_port),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",  # of the plain listener, which sets everything up
    }
    with ExitStack() as stack:
        plain = stack.enter_context(arena.running(arena.tidelog))
        secured = stack.enter_context(arena.running(arena.tidelog, settings))
        admin = stack.enter_context(Admin(bootstrap_servers=f"127.0.0.1:{secured.port}"))
        _make_user_and_acls(admin)
        measure = BesidePlain(arena, plain, secured, partial(_logged_in, sasl_port))
        small, large = record_batch(100, 1), batch_filling(1_000, 16_384)
        few, many = arena.size.of(6_000, 20_000), arena.size.of(15_000, 60_000)
        figures = [
            measure.figure("one 100 B record a request", small, many, TARGET),
            measure.figure("16 KB batches of 1 KB", large, few, TARGET),
        ]
        _set_quotas(admin)
        figures.append(measure.figure("one 100 B record a request, with quotas", small, many, None))
        return Report(TITLE, figures, against=AGAINST)


def _make_user_and_acls(admin: Admin) -> None:
    user = ScramUpsertion(USER, ScramMechanism.SCRAM_SHA_256, PASSWORD)
    _must_work(admin.alter_user_scram_credentials([user]))
    write = AclBinding(ResourceType.TOPIC, TOPIC, f"User:{USER}", AclOperation.WRITE)
    describe = write._replace(operation=AclOperation.DESCRIBE)
    others = [
        AclBinding(ResourceType.TOPIC, f"topic-{number}", f"User:{number}", AclOperation.WRITE)
        for number in range(ACLS // 2)
    ]
    others += [
        each._replace(resource_name=f"team-{number}-", pattern_type=PatternType.PREFIXED)
        for number, each in enumerate(others)
    ]
    for first in range(0, len(others), ACLS_AT_ONCE):
        _must_work(admin.create_acls(others[first : first + ACLS_AT_ONCE]))
    _must_work(admin.create_acls([write, describe]))


def _set_quotas(admin: Admin) -> None:
    """Of which the user uses a small part."""
    user = QuotaEntity.of({"user": USER})
    limits = {"producer_byte_rate": 1e12, "request_percentage": 1e6}
    _must_work(admin.alter_client_quotas({user: limits}))


def _must_work(results: Mapping[Any, Result[None]]) -> None:
    for name, result in results.items():
        if result.error is not None:
            raise BadAnswer(f"{name}: {result.error}")


def _logged_in(port: int) -> RawClient:
    client = RawClient(port)
    exchange = ScramClient(ScramMechanism.SCRAM_SHA_256, USER, PASSWORD)
    _asked(client, SASL_HANDSHAKE, 1, wire.string(exchange.mechanism))
    challenge = b""
    while not exchange.is_complete:
        token = exchange.evaluate(challenge)
        if exchange.is_complete:
            break
        body = struct.pack(">i", len(token)) + token
        answer = _asked(client, SASL_AUTHENTICATE, 0, body)
        (length,) = struct.unpack_from(">i", answer, 4)  # after the code and a message that is null
        challenge = answer[8 : 8 + length]
    return client


def _asked(client: RawClient, api_key: int, version: int, body: bytes) -> bytes:
    """The answer behind its header; BadAnswer if it begins with an error code."""
    frame = wire.frame(api_key, version, body, flexible=False, correlation_id=1)
    answer = client.ask(frame)[8:]
    (code,) = struct.unpack_from(">h", answer)
    if code:
        raise BadAnswer(f"API {api_key} answered error code {code}")
    return answer
