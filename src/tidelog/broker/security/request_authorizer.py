"""What handlers ask before they serve a request, and the audit log of the answers.

A handler asks through its `RequestContext` for the principal and the address of the session. One
line in the log `tidelog.authorizer` tells of each denial:

    level=info logger=tidelog.authorizer msg=denied principal=User:alice operation=READ
    resource=TOPIC:orders host=10.0.0.7 api=FETCH

A client that keeps asking does not fill the log: the same principal, operation and resource are
told of once in REPEAT_S, with the number of denials in between (`repeated`), and all together at
most LINES_PER_S times a second, with the number of those left out (`unlogged`). What is allowed is
logged at debug level. Questions that only decide what an answer shows, such as which topics are
listed, are not logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.acls import AclOperation, ResourceType
from tidelog.protocol.api_keys import ApiKey
from tidelog.rate import RateLimiter

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.security.acl_store import AclStore
    from tidelog.clock import Clock

audit = logging.getLogger("tidelog.authorizer")

REPEAT_S: Final = 10.0
REMEMBERED_MAX: Final = 10_000
LINES_PER_S: Final = 100.0
BURST_S: Final = 1.0

# Principal, operation, resource type, resource name.
Denial = tuple[str, int, int, str]


class RequestAuthorizer:
    """Touched only on the broker's loop."""

    def __init__(self, acls: AclStore, clock: Clock) -> None:
        self.acls = acls
        self._authorizer = acls.authorizer
        self._audit = AuditLog(clock)

    def may(
        self, context: RequestContext, operation: int, resource_type: int, name: str, logged: bool
    ) -> bool:
        session = context.session
        allowed = self._authorizer.authorize(
            session.principal, session.client_host, operation, resource_type, name
        )
        if logged:
            if not allowed:
                self._audit.denied(context, operation, resource_type, name)
            elif audit.isEnabledFor(logging.DEBUG):
                audit.debug("allowed", extra=_fields(context, operation, resource_type, name))
        return allowed

    def may_on_any(self, context: RequestContext, operation: int, resource_type: int) -> bool:
        session = context.session
        allowed = self._authorizer.authorize_by_resource_type(
            session.principal, session.client_host, operation, resource_type
        )
        if not allowed:
            self._audit.denied(context, operation, resource_type, "(any)")
        return allowed

    def operations(self, context: RequestContext, among: int, resource_type: int, name: str) -> int:
        """The bits of the operations that are allowed, of those asked for."""
        session = context.session
        return sum(
            1 << operation
            for operation in AclOperation
            if among >> operation & 1
            and self._authorizer.authorize(
                session.principal, session.client_host, operation, resource_type, name
            )
        )


class AuditLog:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limit = RateLimiter(LINES_PER_S, clock, burst_s=BURST_S, credit_s=BURST_S)
        self._told: dict[Denial, tuple[float, int]] = {}  # when, and how many since
        self._unlogged = 0

    def denied(
        self, context: RequestContext, operation: int, resource_type: int, name: str
    ) -> None:
        now = self._clock.monotonic()
        denial = (str(context.session.principal), operation, resource_type, name)
        told_at, repeated = self._told.get(denial, (None, 0))
        if told_at is not None and now - told_at < REPEAT_S:
            self._told[denial] = told_at, repeated + 1
            return
        if self._limit.wait_s() > 0:
            self._unlogged += 1
            return
        self._limit.spend(1)
        self._told.pop(denial, None)  # to come last
        if len(self._told) >= REMEMBERED_MAX:
            del self._told[next(iter(self._told))]
        self._told[denial] = now, 0
        fields = _fields(context, operation, resource_type, name)
        if repeated:
            fields["repeated"] = repeated
        if self._unlogged:
            fields["unlogged"] = self._unlogged
            self._unlogged = 0
        audit.info("denied", extra=fields)


def _fields(
    context: RequestContext, operation: int, resource_type: int, name: str
) -> dict[str, object]:
    return {
        "principal": str(context.session.principal),
        "operation": AclOperation(operation).name,
        "resource": f"{ResourceType(resource_type).name}:{name}",
        "host": context.session.client_host,
        "api": ApiKey(context.header.api_key).name,
    }
