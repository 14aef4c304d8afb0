"""`tidelog certs`: a CA and certificates for development, and the properties that use them."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.tools.cli.frame import Command


@click.command("certs", cls=Command)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="A host name or address of a broker, besides this machine's own; may be given often.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="A client, which becomes User:CN=NAME; may be given often. Without it: client.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 36_500),
    default=365,
    show_default=True,
    help="How long the certificates are valid.",
)
def command(directory: Path, names: tuple[str, ...], clients: tuple[str, ...], days: int) -> int:
    """Make a CA and certificates for development.

    The CA's key lies beside the certificates, so this is not for production.
    """
    from tidelog.tools.dev_certificates import make_certificates

    for path in make_certificates(directory, names=names, clients=clients, days=days):
        print(path)
    return 0
