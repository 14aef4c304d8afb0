"""`tidelog user list|set|delete`: users of SCRAM, whose credentials the cluster keeps.

    list     users with their mechanisms
    set      make a user, or give one a new password (`add` is another name)
    delete   a user's credentials, or those of one mechanism

A password comes from the terminal, or is the first line of standard input. It is no argument,
because every process of the machine can read those. The broker gets a salted hash of it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from tidelog.tools.cli.frame import CommandFailed
from tidelog.tools.cli.output import columns, failures, say, show_rows
from tidelog.tools.cli.session import ClusterGroup, Session, pass_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.admin.credentials import ScramDeletion, ScramUpsertion
    from tidelog.client.blocking.admin import Admin

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(MECHANISMS, case_sensitive=False),
    help="Only for this mechanism; may be given often.",
)


@click.group("user", cls=ClusterGroup, aliases={"add": "set"})
def command() -> None:
    """List, make and delete users that log in with SCRAM."""


@command.command("list")
@click.argument("names", nargs=-1, metavar="[USER]...")
@pass_session
def list_command(session: Session, names: tuple[str, ...]) -> int:
    """List users with their mechanisms."""
    with session.admin() as admin:
        found = admin.describe_user_scram_credentials(names or None)
    rows = [
        {
            "user": user,
            "mechanism": credential.mechanism.mechanism_name,
            "iterations": credential.iterations,
        }
        for user, result in sorted(found.items())
        if result.error is None
        for credential in result.get()
    ]
    shown = columns("user", "mechanism", "iterations>")
    show_rows(session.output_format, rows, shown, empty="no user has a SCRAM credential")
    return failures(str(result.error) for result in found.values() if result.error is not None)


@command.command("set")
@click.argument("name", metavar="USER")
@mechanism_option
@click.option(
    "--iterations",
    type=click.IntRange(4096, 16384),
    default=4096,
    show_default=True,
    help="How often a password is hashed: what guessing costs.",
)
@dry_run_option
@pass_session
def set_command(
    session: Session, name: str, mechanisms: tuple[str, ...], iterations: int, dry_run: bool
) -> int:
    """Make a user, or give one a new password."""
    from tidelog.client.admin.credentials import ScramUpsertion
    from tidelog.sasl.scram_credential import ScramMechanism

    password = _read_password(name)
    changes = [
        ScramUpsertion(name, ScramMechanism.named(mechanism), password, iterations)
        for mechanism in mechanisms or MECHANISMS
    ]
    with session.admin() as admin:
        _alter(admin, name, changes, "set", dry_run=dry_run)
    return 0


@command.command("delete")
@click.argument("name", metavar="USER")
@mechanism_option
@dry_run_option
@pass_session
def delete(session: Session, name: str, mechanisms: tuple[str, ...], dry_run: bool) -> int:
    """Delete a user's credentials. Connections that are open stay so."""
    from tidelog.client.admin.credentials import ScramDeletion
    from tidelog.sasl.scram_credential import ScramMechanism

    with session.admin() as admin:
        wanted = [ScramMechanism.named(each) for each in mechanisms]
        if not wanted:
            described = admin.describe_user_scram_credentials([name])[name].get()
            wanted = [credential.mechanism for credential in described]
        changes = [ScramDeletion(name, mechanism) for mechanism in wanted]
        _alter(admin, name, changes, "deleted", dry_run=dry_run)
    return 0


def _alter(
    admin: Admin,
    name: str,
    changes: Sequence[ScramDeletion] | Sequence[ScramUpsertion],
    what: str,
    *,
    dry_run: bool,
) -> None:
    for change in () if dry_run else changes:  # Kafka's KRaft takes one a request
        admin.alter_user_scram_credentials([change])[name].get()
    names = " and ".join(each.mechanism.mechanism_name for each in changes)
    say(f"user {name}: {names} {'would be ' if dry_run else ''}{what}")


def _read_password(name: str) -> str:
    if sys.stdin.isatty():
        password: str = click.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandFailed("there is no password: type it, or write it to standard input")
    return password
