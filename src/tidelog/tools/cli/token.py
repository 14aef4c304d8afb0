"""`tidelog token list|create|renew|expire`: delegation tokens, with which others log in as you.

    list      the tokens that you own, may renew, or may see
    create    a token of yours, or with --owner of another user
    renew     let a token expire later
    expire    end a token, at once or after a time

A token is named by its id. Its HMAC is as good as a password, so only `create` shows it (and `list`
if asked to), and it is no argument; --save writes both into a file of client settings that only you
can read.
"""

from __future__ import annotations

import base64
import os
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.tools.cli.frame import CommandFailed, Parsed
from tidelog.tools.cli.output import columns, say, show_rows
from tidelog.tools.cli.session import ClusterGroup, Session, milliseconds, pass_session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.client.admin.credentials import DelegationToken, Principal
    from tidelog.client.blocking.admin import Admin

TIME: Final = Parsed("TIME", partial(milliseconds, bits=45))  # a date in the calendar after it
BROKERS_CHOICE: Final = -1
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# What a client needs beside the login, to reach the same listener.
KEPT_PREFIXES: Final = ("bootstrap.servers", "security.protocol", "ssl.")


@click.group("token", cls=ClusterGroup, aliases={"delete": "expire"})
def command() -> None:
    """List, make, renew and end delegation tokens."""


@command.command("list")
@click.option("--owner", "owners", multiple=True, metavar="USER", help="Only of this user.")
@click.option("--hmac", "shows_hmac", is_flag=True, help="Show the HMACs, which are secret.")
@pass_session
def list_command(session: Session, owners: tuple[str, ...], shows_hmac: bool) -> int:
    """List the tokens that you may see."""
    with session.admin() as admin:
        found = admin.describe_delegation_token([_principal(each) for each in owners] or None)
    _show(session, sorted(found), shows_hmac=shows_hmac, empty="there are no tokens")
    return 0


@command.command("create")
@click.option("--owner", metavar="USER", help="Whom the token is for, if not for you.")
@click.option("--renewer", "renewers", multiple=True, metavar="USER", help="Who may renew it.")
@click.option("--lifetime", type=TIME, metavar="TIME", help="Its longest life, such as 7d.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write client settings that log in with it, instead of showing the HMAC.",
)
@click.option(
    "--mechanism",
    type=click.Choice(MECHANISMS, case_sensitive=False),
    help="Of the settings that are saved; your own, or SCRAM-SHA-512 if yours is no SCRAM.",
)
@dry_run_option
@pass_session
def create(
    session: Session,
    owner: str | None,
    renewers: tuple[str, ...],
    lifetime: int | None,
    save: Path | None,
    mechanism: str | None,
    dry_run: bool,
) -> int:
    """Make a token."""
    with session.admin() as admin:
        if dry_run:
            admin.describe_delegation_token([])  # fails where there can be no tokens
            whose = "yours" if owner is None else _name(_principal(owner))
            say(f"a token of {whose} would be made")
            return 0
        token = admin.create_delegation_token(
            owner=None if owner is None else _principal(owner),
            renewers=[_principal(each) for each in renewers],
            max_lifetime_ms=BROKERS_CHOICE if lifetime is None else lifetime,
        )
    if save is not None:
        _save(save, session.client_properties(), token, mechanism)
        say(f"token {token.token_id} of {_name(token.owner)}: its login is in {save}")
        return 0
    _show(session, [token], shows_hmac=True)
    return 0


@command.command("renew")
@click.argument("token_id", metavar="TOKEN")
@click.option("--for", "period", type=TIME, metavar="TIME", help="From now on, such as 1d.")
@dry_run_option
@pass_session
def renew(session: Session, token_id: str, period: int | None, dry_run: bool) -> int:
    """Let a token expire later."""
    with session.admin() as admin:
        token = _find(admin, token_id)
        if dry_run:
            say(f"token {token_id}: would {_expiry(token, period, 'be renewed')}")
            return 0
        expires_at_ms = admin.renew_delegation_token(
            token.hmac, period_ms=BROKERS_CHOICE if period is None else period
        )
    say(f"token {token_id}: expires at {_time(expires_at_ms)}")
    return 0


@command.command("expire")
@click.argument("token_id", metavar="TOKEN")
@click.option("--after", "period", type=TIME, metavar="TIME", help="Not at once.")
@dry_run_option
@pass_session
def expire(session: Session, token_id: str, period: int | None, dry_run: bool) -> int:
    """End a token. Connections that are open stay so until they log in again."""
    with session.admin() as admin:
        token = _find(admin, token_id)
        if dry_run:
            say(f"token {token_id}: would {_expiry(token, period, 'be ended')}")
            return 0
        expires_at_ms = admin.expire_delegation_token(
            token.hmac, period_ms=BROKERS_CHOICE if period is None else period
        )
    ended = "ended" if period is None else f"expires at {_time(expires_at_ms)}"
    say(f"token {token_id}: {ended}")
    return 0


def _find(admin: Admin, token_id: str) -> DelegationToken:
    for token in admin.describe_delegation_token():
        if token.token_id == token_id:
            return token
    raise CommandFailed(f"there is no token {token_id} that you may see")


def _expiry(token: DelegationToken, period_ms: int | None, otherwise: str) -> str:
    """What a dry run says; without a period the brokers choose."""
    if period_ms is None:
        return otherwise
    expires_at_ms = min(int(time.time() * 1000) + period_ms, token.max_timestamp)
    return f"expire at {_time(expires_at_ms)}"


def _principal(text: str) -> Principal:
    from tidelog.client.admin.credentials import Principal

    kind, colon, name = text.partition(":")
    return Principal(kind, name) if colon else Principal("User", text)


def _name(principal: Principal) -> str:
    return f"{principal.type}:{principal.name}"


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")


def _show(
    session: Session, tokens: Iterable[DelegationToken], *, shows_hmac: bool, empty: str = ""
) -> None:
    names = ["token", "owner", "requester", "renewers", "expires", "max"]
    rows: list[dict[str, Any]] = []
    for token in tokens:
        row: dict[str, Any] = {
            "token": token.token_id,
            "owner": _name(token.owner),
            "requester": "" if token.requester is None else _name(token.requester),
            "renewers": ",".join(map(_name, token.renewers)),
            "issued": _time(token.issue_timestamp),
            "expires": _time(token.expiry_timestamp),
            "max": _time(token.max_timestamp),
        }
        if shows_hmac:
            row["hmac"] = base64.b64encode(token.hmac).decode()
        rows.append(row)
    if shows_hmac:
        names.append("hmac")
    show_rows(session.output_format, rows, columns(*names), empty=empty)


def _save(path: Path, used: dict[str, str], token: DelegationToken, mechanism: str | None) -> None:
    from tidelog.config.jaas import SCRAM_MODULE
    from tidelog.config.server_properties import escaped_value

    kept = {name: value for name, value in used.items() if name.startswith(KEPT_PREFIXES)}
    password = base64.b64encode(token.hmac).decode()
    own = used.get("sasl.mechanism", "")
    kept["sasl.mechanism"] = mechanism or (own if own in MECHANISMS else "SCRAM-SHA-512")
    kept["sasl.jaas.config"] = (
        f'{SCRAM_MODULE} required username="{token.token_id}" password="{password}" '
        'tokenauth="true";'
    )
    text = "".join(f"{name}={escaped_value(value)}\n" for name, value in kept.items())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
    except OSError as error:
        raise CommandFailed(f"the token was made, but {path} cannot be written: {error}") from error
