"""Users of SCRAM: who has a password at the cluster, a new one, and none any more.

A password is salted and hashed here, as RFC 5802 says, before it is sent to a broker. It is never
shown, logged or kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.client.admin.credentials import ScramCredential, ScramDeletion, ScramUpsertion
from tidelog.client.errors import ClientError
from tidelog.sasl.scram_credential import ScramMechanism
from tidelog.tools.console.clients import clients_of
from tidelog.tools.console.page import field_of, form_of, problem, render, told
from tidelog.tools.console.refusals import calm

NAVIGATION: Final = ("Users", "/users")
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
ROWS_MAX: Final = 1_000


class UserRow(NamedTuple):
    name: str
    credentials: Sequence[ScramCredential]
    problem: str = ""


async def show_list(request: Request) -> Response:
    text = request.query_params.get("text", "").strip()
    rows: list[UserRow] = []
    unknown = ""
    try:
        found = await clients_of(request).admin.describe_user_scram_credentials()
    except ClientError as error:
        unknown = calm(error)
    else:
        rows = [
            UserRow(name, ())._replace(problem=calm(result.error))
            if result.error is not None
            else UserRow(name, sorted(result.get()))
            for name, result in sorted(found.items())
            if text.casefold() in name.casefold()
        ]
    return render(
        request,
        "users/list.html",
        rows=rows[:ROWS_MAX],
        count=len(rows),
        text=text,
        unknown=unknown,
        mechanisms=MECHANISMS,
        iterations=ITERATIONS_MIN,
        iterations_max=ITERATIONS_MAX,
    )


async def set_password(request: Request) -> Response:
    name = field_of(request, "user")
    password = form_of(request).get("password", [""])[0]
    again = form_of(request).get("again", [""])[0]
    mechanisms = [each for each in form_of(request).get("mechanism", []) if each in MECHANISMS]
    iterations = field_of(request, "iterations", str(ITERATIONS_MIN))
    wrong = ""
    if not name or not password:
        wrong = "Give a user and a password."
    elif password != again:
        wrong = "The two passwords differ."
    elif not mechanisms:
        wrong = "Choose a mechanism."
    elif not (iterations.isascii() and iterations.isdigit()) or not (
        ITERATIONS_MIN <= int(iterations[:9]) <= ITERATIONS_MAX
    ):
        wrong = f"Iterations are a number between {ITERATIONS_MIN} and {ITERATIONS_MAX}."
    if wrong:
        return problem(request, "Nothing was changed", wrong)
    for mechanism in mechanisms:  # Kafka's KRaft takes one a request
        change = ScramUpsertion(name, ScramMechanism.named(mechanism), password, int(iterations))
        admin = clients_of(request).admin
        (await admin.alter_user_scram_credentials([change]))[name].get()
    return told(request, "/users", f"User {name} has a new password ({', '.join(mechanisms)}).")


async def delete(request: Request) -> Response:
    """All credentials of a user."""
    name = field_of(request, "user")
    if field_of(request, "confirm") != name or not name:
        return problem(request, "Nothing was deleted", "The name of the user was not repeated.")
    admin = clients_of(request).admin
    described = (await admin.describe_user_scram_credentials([name]))[name].get()
    for credential in described:
        change = ScramDeletion(name, credential.mechanism)
        (await admin.alter_user_scram_credentials([change]))[name].get()
    message = f"User {name} has no password any more. Connections that are open stay so."
    return told(request, "/users", message)


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/users", show_list),
    Route("/users/set", set_password, methods=["POST"]),
    Route("/users/delete", delete, methods=["POST"]),
)
