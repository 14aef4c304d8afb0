"""Who asked for a change: what every log line of one says of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext


def asked_by(context: RequestContext) -> dict[str, object]:
    session = context.session
    return {
        "principal": str(session.principal),
        "client_id": context.client_id,
        "client": f"{session.client_host}:{session.client_port}",
    }
