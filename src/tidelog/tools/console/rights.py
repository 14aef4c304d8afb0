"""What a visitor may see of things that know no ACLs themselves: files, and brokers' listeners.

Where visitors log in as users of the cluster, the cluster is asked what they are allowed on it.
Elsewhere everybody has the rights of the console.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from tidelog.acls import AclOperation
from tidelog.client.errors import NotAuthorized
from tidelog.errors import ErrorCode
from tidelog.tools.console.clients import Clients, clients_of
from tidelog.tools.console.page import visitor_of
from tidelog.tools.console.settings import ConsoleSettings, LoginMode

AGE_S: Final = 30.0


async def require_on_cluster(request: Request, operation: AclOperation, what: str) -> None:
    """Raises NotAuthorized, which says what it takes."""
    settings: ConsoleSettings = request.app.state.settings
    if settings.login_mode is not LoginMode.CLUSTER:
        return
    clients = clients_of(request)
    allowed = await clients.shared("allowed on the cluster", AGE_S, lambda: _allowed(clients))
    if operation not in allowed:
        raise NotAuthorized(
            f"{what} know no ACLs; to see them takes {operation.name} on the cluster",
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        )


async def _allowed(clients: Clients) -> frozenset[AclOperation]:
    """Nothing where the brokers do not say."""
    found = await clients.admin.describe_cluster(include_authorized_operations=True)
    return found.authorized_operations or frozenset()


def is_still_in(request: Request) -> bool:
    """Whether whoever opened a live page has not logged out since, or been away for too long. A
    stream asks before it tells more."""
    login = visitor_of(request).login
    return login is None or login in request.app.state.access.logins()
