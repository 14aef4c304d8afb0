"""`tidelog context list|use|set|show|delete`: clusters by name.

tidelog context set prod bootstrap.servers=a:9092,b:9092
tidelog context use prod
"""

from __future__ import annotations

from typing import Final

import click

from tidelog.tools.cli.contexts import Contexts
from tidelog.tools.cli.frame import CommandFailed, KeyValue
from tidelog.tools.cli.output import columns, say, show_data, show_rows
from tidelog.tools.cli.session import (
    BOOTSTRAP,
    ClusterGroup,
    Session,
    complete_contexts,
    pass_session,
    unknown_key_or_none,
)

SECRET: Final = ("password", "secret", "token", "jaas", ".key")
HIDDEN: Final = "(hidden)"

name_argument = click.argument("name", shell_complete=complete_contexts)
dry_run = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


@click.group("context", cls=ClusterGroup)
def command() -> None:
    """Name clusters and switch between them."""


@command.command("list")
@pass_session
def list_command(session: Session) -> int:
    """List the contexts; the current one has a star."""
    contexts = Contexts()
    current = contexts.current()
    rows = [
        {
            "name": name,
            "current": name == current,
            "bootstrap_servers": contexts.properties(name).get(BOOTSTRAP),
            "mark": "*" if name == current else " ",
        }
        for name in contexts.names()
    ]
    if session.output_format in (None, "table"):
        show_rows(
            None,
            rows,
            columns("mark= ", "name", "bootstrap_servers"),
            empty="There are no contexts. `tidelog context set NAME bootstrap.servers=HOST:PORT` "
            "makes one.",
        )
    else:
        show_data(
            session.output_format,
            [{key: each[key] for key in ("name", "current", "bootstrap_servers")} for each in rows],
        )
    return 0


@command.command("use")
@name_argument
@dry_run
def use(name: str, dry_run: bool) -> int:
    """Make NAME the context of all further commands."""
    contexts = Contexts()
    contexts.properties(name)
    if dry_run:
        say(f"{name} would be the current context")
        return 0
    contexts.use(name)
    say(f"{name} is the current context now")
    return 0


@command.command("set")
@name_argument
@click.argument("settings", nargs=-1, type=KeyValue(), metavar="KEY=VALUE...")
@click.option("--unset", multiple=True, metavar="KEY", help="A key to forget; may be given often.")
@click.option("--use", "use_it", is_flag=True, help="Make it the current context too.")
@dry_run
@pass_session
def set_command(
    session: Session,
    name: str,
    settings: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    use_it: bool,
    dry_run: bool,
) -> int:
    """Set keys of Kafka's clients in context NAME; it is made if it is not there.

    -b HOST:PORT and -X KEY=VALUE do the same as KEY=VALUE.
    """
    contexts = Contexts()
    before = contexts.properties(name) if contexts.exists(name) else {}
    after = {**before, **session.properties, **dict(settings)}
    if session.bootstrap_server is not None:
        after[BOOTSTRAP] = session.bootstrap_server
    for key in unset:
        after.pop(key, None)
    for key in after:
        problem = unknown_key_or_none(key)
        if problem is not None:
            raise CommandFailed(problem)
    if after == before and contexts.exists(name):
        say(f"context {name} has these settings already")
    elif dry_run:
        say(f"context {name} would be written with {', '.join(after) or 'no keys'}")
    else:
        contexts.write(name, after)
        say(f"context {name} written")
    if use_it and not dry_run:
        contexts.use(name)
    return 0


@command.command("show")
@click.argument("name", required=False, shell_complete=complete_contexts)
@click.option("--secrets", is_flag=True, help="Passwords too.")
@pass_session
def show(session: Session, name: str | None, secrets: bool) -> int:
    """Show the settings of context NAME, by default the current one."""
    contexts = Contexts()
    chosen = name or session.context_name or contexts.current()
    if chosen is None:
        raise CommandFailed("there is no current context. `tidelog context use NAME` chooses one.")
    found = {
        key: value if secrets or not _is_secret(key) else HIDDEN
        for key, value in contexts.properties(chosen).items()
    }
    if session.output_format in (None, "table"):
        rows = [{"key": key, "value": value} for key, value in found.items()]
        say(f"context {chosen}")
        show_rows(None, rows, columns("key", "value"))
    else:
        show_data(session.output_format, {"name": chosen, "properties": found})
    return 0


def _is_secret(key: str) -> bool:
    return any(word in key for word in SECRET)


@command.command("delete")
@name_argument
@dry_run
def delete(name: str, dry_run: bool) -> int:
    """Delete context NAME."""
    contexts = Contexts()
    contexts.properties(name)
    if dry_run:
        say(f"context {name} would be deleted")
        return 0
    contexts.delete(name)
    say(f"context {name} deleted")
    return 0
