"""`tidelog console`: the web console, in the foreground, until a signal.

Prints one line when it serves: `tidelog console ready console=http://127.0.0.1:8080 ...`. Exit code
0 when it was stopped, 1 when it could not start, 2 for wrong usage and without the extra `console`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tidelog.tools.cli.frame import CommandFailed
from tidelog.tools.cli.server_options import CONSOLE_ADDRESS
from tidelog.tools.cli.session import (
    BOOTSTRAP,
    ClusterCommand,
    Session,
    pass_session,
    unknown_key_or_none,
)

if TYPE_CHECKING:
    from tidelog.tools.console.settings import ConsoleSettings, Listener

PASSWORD_CHARACTERS_MIN: Final = 8
TIME_LIMITS: Final = (  # that --timeout sets
    "default.api.timeout.ms",
    "request.timeout.ms",
    "socket.connection.setup.timeout.ms",
)


@click.command("console", cls=ClusterCommand)
@click.option(
    "--listen",
    default=CONSOLE_ADDRESS,
    metavar="URL",
    show_default=True,
    help="Where to serve the pages; port 0: any free one.",
)
@click.option("--write", is_flag=True, help="Pages may change things; without it they only read.")
@click.option(
    "--metrics",
    multiple=True,
    metavar="URL",
    help="A broker's metrics, for bytes and latencies; may be given often.",
)
@click.option(
    "--pipelines",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A pipeline's folder, or one of such folders.",
)
@click.option(
    "--logs",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="DIR",
    help="A broker's data directory, to show its segments; may be given often.",
)
@click.option(
    "--schemas",
    metavar="URL|DIR",
    help="A schema registry, or a folder of schemas, to decode records with.",
)
@click.option("--user", metavar="NAME", help="Who must log in to see anything.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The password of --user, in the first line.",
)
@click.option(
    "--host-name",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers call the console; may be given often. IP addresses and "
    "localhost need none.",
)
@pass_session
def command(
    session: Session,
    listen: str,
    write: bool,
    metrics: tuple[str, ...],
    pipelines: Path | None,
    logs: tuple[Path, ...],
    schemas: str | None,
    user: str | None,
    password_file: Path | None,
    host_name: tuple[str, ...],
) -> int:
    """See and steer a cluster in the browser.

    \b
    tidelog console
    tidelog console -b kafka:9092 --write --metrics http://127.0.0.1:9308/metrics
    """
    from tidelog.broker_process import ConsoleProcess

    missing = ConsoleProcess.missing()
    if missing:
        print(
            f"tidelog console: error: {', '.join(missing)} cannot be imported; "
            "pip install 'tidelog[console]'",
            file=sys.stderr,
        )
        return 2
    if (user is None) != (password_file is None):
        raise click.UsageError("--user and --password-file go together")
    for folder in (*logs, *([] if pipelines is None else [pipelines])):
        if not folder.is_dir():
            raise CommandFailed(f"{folder} is no folder")
    from tidelog.config.definition import ConfigError
    from tidelog.tools.console.server import serve
    from tidelog.tools.console.settings import ConsoleSettings, parse_listener

    try:
        settings = ConsoleSettings(
            properties=_properties(session),
            listener=parse_listener(listen),
            can_write=write,
            metrics_urls=metrics,
            pipelines=None if pipelines is None else pipelines.resolve(),
            logs=tuple(folder.resolve() for folder in logs),
            schemas=schemas,
            user=user,
            password=None if password_file is None else _password(password_file),
            host_names=frozenset(name.lower() for name in host_name),
        )
        settings.require_safe()
    except ConfigError as error:
        raise CommandFailed(str(error)) from error
    return serve(settings, lambda listener: _say_ready(settings, listener))


def _properties(session: Session) -> dict[str, str]:
    from tidelog.config.client import AdminConfig

    properties = session.client_properties()
    for key in properties:
        problem = unknown_key_or_none(key)
        if problem is not None:
            raise CommandFailed(problem)
    if session.timeout_given_ms is not None:
        for key in TIME_LIMITS:
            properties.setdefault(key, str(session.timeout_ms))
    known = {key: value for key, value in properties.items() if key in AdminConfig.TABLE}
    has_login = "sasl.jaas.config" in known
    if has_login or not known.get("security.protocol", "").upper().startswith("SASL"):
        AdminConfig(known)  # what is wrong is told now, not by every page
    return properties


def _password(file: Path) -> str:
    lines = file.read_text().splitlines()
    password = lines[0] if lines else ""
    if len(password) < PASSWORD_CHARACTERS_MIN:
        raise CommandFailed(f"{file}: a password has at least {PASSWORD_CHARACTERS_MIN} characters")
    return password


def _say_ready(settings: ConsoleSettings, listener: Listener) -> None:
    if not listener.is_loopback:
        print(
            f"tidelog: WARNING: {listener} is not on the loopback interface and has no TLS: "
            "passwords and records pass in clear. Put a proxy with TLS before it",
            file=sys.stderr,
        )
    servers = settings.properties[BOOTSTRAP]
    print(f"tidelog console ready console={listener} bootstrap.servers={servers}", flush=True)
