"""The login page, and the way out.

In LoginMode.CLUSTER a login is one at the cluster, by SASL, and every request of the session runs
as that user. In LoginMode.CONSOLE it is the console's own user, compared in constant time.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tidelog.client.errors import AuthenticationFailed, ClientError
from tidelog.tools.console.access import Access, Login, path_of_console, session_cookie
from tidelog.tools.console.page import ReadingPost, field_of, form_of, render, visitor_of
from tidelog.tools.console.settings import LoginMode

NAVIGATION: Final = None
NAME_CHARACTERS_MAX: Final = 1_000


async def show(request: Request) -> Response:
    following = path_of_console(request.query_params.get("next", "/"))
    if request.app.state.access.may_enter(visitor_of(request)):
        return RedirectResponse(following, 303)
    return _form(request, following)


def _form(request: Request, following: str, wrong: str = "", status: int = 200) -> Response:
    is_of_cluster = request.app.state.access.mode is LoginMode.CLUSTER
    return render(
        request,
        "access/login.html",
        status=status,
        following=following,
        wrong=wrong,
        is_of_cluster=is_of_cluster,
        user=field_of(request, "user") if request.method == "POST" else "",
    )


async def log_in(request: Request) -> Response:
    access: Access = request.app.state.access
    following = path_of_console(field_of(request, "next", "/"))
    user = field_of(request, "user")
    password = form_of(request).get("password", [""])[0]
    address = request.client.host if request.client is not None else ""
    if not access.may_try(address):
        wrong = "There were too many wrong passwords. Wait a minute."
        return _form(request, following, wrong, 429)
    if not user or not password or max(len(user), len(password)) > NAME_CHARACTERS_MAX:
        return _form(request, following, "Give a user and a password.", 400)
    login = Login(user, password if access.mode is LoginMode.CLUSTER else None)
    try:
        is_right = await _is_right(request, login, password)
    except ClientError as problem:
        return _form(request, following, f"The cluster cannot be asked: {problem}", 502)
    if not is_right:
        access.failed(address)
        return _form(request, following, "The user or the password is wrong.", 403)
    visitor = access.log_in(login)
    answer = RedirectResponse(following, 303)
    answer.headers.append("set-cookie", session_cookie(access, visitor))
    return answer


async def _is_right(request: Request, login: Login, password: str) -> bool:
    settings = request.app.state.settings
    if request.app.state.access.mode is LoginMode.CONSOLE:
        is_user = hmac.compare_digest(login.user.encode(), str(settings.user).encode())
        is_password = hmac.compare_digest(password.encode(), str(settings.password).encode())
        return is_user and is_password
    try:
        await request.app.state.clients.check(login)
    except AuthenticationFailed:
        return False
    return True


async def log_out(request: Request) -> Response:
    request.app.state.access.log_out(visitor_of(request))
    return RedirectResponse("/login", 303)


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/login", show),
    ReadingPost("/login", log_in),
    ReadingPost("/logout", log_out),
)
