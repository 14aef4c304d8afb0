"""kafka-delegation-tokens: make, renew, expire and describe delegation tokens.

Times are in the local time zone, as Kafka's are. --describe without an owner shows all tokens that
the user may see, as Kafka's help has it; Kafka's own tool asks for those of no owner and gets none.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.frame import (
    KafkaTool,
    ToolFailed,
    bootstrap_server,
    config_file,
    java_words,
    require_server,
    wrong_usage,
)

if TYPE_CHECKING:
    from tidelog.client.admin.credentials import DelegationToken, Principal

ROW: Final = "\n{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
HEADS: Final = (
    "TOKENID",
    "HMAC",
    "OWNER",
    "REQUESTER",
    "RENEWERS",
    "ISSUEDATE",
    "EXPIRYDATE",
    "MAXDATE",
)
# What each action needs, and what it must not have.
NEEDED: Final = {
    "create": ("max-life-time-period",),
    "renew": ("hmac", "renew-time-period"),
    "expire": ("hmac", "expiry-time-period"),
    "describe": (),
}
UNWANTED: Final = {
    "create": ("hmac", "renew-time-period", "expiry-time-period"),
    "renew": (
        "renewer-principal",
        "max-life-time-period",
        "expiry-time-period",
        "owner-principal",
    ),
    "expire": ("max-life-time-period", "renew-time-period", "owner-principal"),
    "describe": ("renew-time-period", "max-life-time-period", "hmac", "expiry-time-period"),
}


@click.command("kafka-delegation-tokens", cls=KafkaTool)
@bootstrap_server
@config_file("--command-config")
@click.option("--create", "creates", is_flag=True, help="Create a new delegation token.")
@click.option("--renew", "renews", is_flag=True, help="Renew a delegation token.")
@click.option("--expire", "expires", is_flag=True, help="Expire a delegation token.")
@click.option("--describe", "describes", is_flag=True, help="Describe delegation tokens.")
@click.option("--owner-principal", multiple=True, metavar="TYPE:NAME", help="The owner.")
@click.option("--renewer-principal", multiple=True, metavar="TYPE:NAME", help="A renewer.")
@click.option("--max-life-time-period", type=int, metavar="MS", help="-1: the broker's choice.")
@click.option("--renew-time-period", type=int, metavar="MS", help="-1: the broker's choice.")
@click.option("--expiry-time-period", type=int, metavar="MS", help="-1: at once.")
@click.option("--hmac", metavar="BASE64", help="HMAC of the delegation token.")
@pass_session
def command(
    session: Session,
    creates: bool,
    renews: bool,
    expires: bool,
    describes: bool,
    owner_principal: tuple[str, ...],
    renewer_principal: tuple[str, ...],
    max_life_time_period: int | None,
    renew_time_period: int | None,
    expiry_time_period: int | None,
    hmac: str | None,
) -> int:
    """Create, renew, expire, or describe delegation tokens."""
    from tidelog.client.errors import ClientError

    require_server(session)
    flags = {"create": creates, "renew": renews, "expire": expires, "describe": describes}
    actions = [name for name, is_given in flags.items() if is_given]
    if len(actions) != 1:
        raise wrong_usage(
            "Command must include exactly one action: --create, --renew, --expire or --describe"
        )
    (action,) = actions
    _check(
        action,
        {
            "owner-principal": owner_principal or None,
            "renewer-principal": renewer_principal or None,
            "max-life-time-period": max_life_time_period,
            "renew-time-period": renew_time_period,
            "expiry-time-period": expiry_time_period,
            "hmac": hmac,
        },
    )
    owners = [_principal(each) for each in owner_principal]
    try:
        if action == "create":
            assert max_life_time_period is not None
            renewers = [_principal(each) for each in renewer_principal]
            _create(session, owners, renewers, max_life_time_period)
        elif action == "describe":
            _describe(session, owners)
        else:
            period_ms = renew_time_period if action == "renew" else expiry_time_period
            assert hmac is not None
            assert period_ms is not None
            _change(session, action, hmac, period_ms)
    except ClientError as error:
        raise ToolFailed(java_words(error)) from error
    return 0


def _check(action: str, given: dict[str, object]) -> None:
    for name in NEEDED[action]:
        if given[name] is None:
            raise wrong_usage(f'Missing required argument "[{name}]"')
    for name in UNWANTED[action]:
        if given[name] is not None:
            raise wrong_usage(f'Option "[{action}]" can\'t be used with option "[{name}]"')


def _principal(text: str) -> Principal:
    from tidelog.client.admin.credentials import Principal

    kind, colon, name = text.strip().partition(":")
    if not colon:
        raise ToolFailed(
            f"expected a string in format principalType:principalName but got {text.strip()}"
        )
    return Principal(kind, name)


def _listed(principals: Iterable[Principal]) -> str:
    return f"[{', '.join(f'{each.type}:{each.name}' for each in principals)}]"


def _create(
    session: Session, owners: list[Principal], renewers: list[Principal], lifetime_ms: int
) -> None:
    print(
        f"Calling create token operation with renewers :{_listed(renewers)} , "
        f"max-life-time-period :{lifetime_ms}"
    )
    with session.plain_admin() as admin:
        token = admin.create_delegation_token(
            owner=owners[0] if owners else None, renewers=renewers, max_lifetime_ms=lifetime_ms
        )
    print(f"Created delegation token with tokenId : {token.token_id}")
    _print([token])


def _change(session: Session, action: str, hmac: str, period_ms: int) -> None:
    print(f"Calling {action} token operation with hmac :{hmac} , {action}-time-period :{period_ms}")
    try:
        secret = base64.b64decode(hmac, validate=True)
    except binascii.Error as error:
        raise ToolFailed(f"the HMAC is not base64: {error}") from error
    with session.plain_admin() as admin:
        change = (
            admin.renew_delegation_token if action == "renew" else admin.expire_delegation_token
        )
        expires_at_ms = change(secret, period_ms=period_ms)
    print(f"Completed {action} operation. New expiry date : {_date(expires_at_ms)}")


def _describe(session: Session, owners: list[Principal]) -> None:
    if owners:
        print(f"Calling describe token operation for owners: {_listed(owners)}")
    else:
        print("Calling describe token operation for current user.")
    with session.plain_admin() as admin:
        tokens = admin.describe_delegation_token(owners or None)
    print(f"Total number of tokens : {len(tokens)}", end="")
    _print(tokens)


def _print(tokens: Iterable[DelegationToken]) -> None:
    print(ROW.format(*HEADS))
    for token in tokens:
        requester = token.requester or token.owner
        print(
            ROW.format(
                token.token_id,
                base64.b64encode(token.hmac).decode(),
                f"{token.owner.type}:{token.owner.name}",
                f"{requester.type}:{requester.name}",
                _listed(token.renewers),
                _date(token.issue_timestamp),
                _date(token.expiry_timestamp),
                _date(token.max_timestamp),
            )
        )


def _date(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%Y-%m-%dT%H:%M")
