"""`tidelog completion bash|zsh|fish`: the script that teaches a shell to complete our commands.

    eval "$(tidelog completion bash)"        in ~/.bashrc
    eval "$(tidelog completion zsh)"         in ~/.zshrc
    tidelog completion fish > ~/.config/fish/completions/tidelog.fish

Names of topics and groups come from the cluster. A cluster that does not answer within a second
gives none; completion must never hold up a shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from tidelog.errors import StartupError
from tidelog.tools.cli.frame import Command, CommandFailed
from tidelog.tools.cli.session import Session, session_of

if TYPE_CHECKING:
    from tidelog.client import Admin

SHELLS: Final = ("bash", "zsh", "fish")
TIMEOUT_MS: Final = 1_000


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print what lets SHELL complete commands, options and live names.

    \b
    eval "$(tidelog completion bash)"        in ~/.bashrc
    eval "$(tidelog completion zsh)"         in ~/.zshrc
    tidelog completion fish > ~/.config/fish/completions/tidelog.fish
    """
    from click.shell_completion import get_completion_class

    from tidelog.tools.cli.main import COMPLETE_VARIABLE, PROGRAM, root

    kind = get_completion_class(shell)
    assert kind is not None
    print(kind(root(), {}, PROGRAM, COMPLETE_VARIABLE).source())
    return 0


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _live(ctx, incomplete, topic_names)


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _live(ctx, incomplete, group_names)


def _live(
    ctx: click.Context, incomplete: str, names: Callable[[Admin], Iterable[str]]
) -> list[str]:
    session: Session = session_of(ctx)
    session.timeout_given_ms = TIMEOUT_MS
    try:
        with session.admin() as admin:
            return sorted(name for name in names(admin) if name.startswith(incomplete))
    except (CommandFailed, StartupError, OSError):
        return []


def topic_names(admin: Admin) -> Iterable[str]:
    return [listing.name for listing in admin.list_topics()]


def group_names(admin: Admin) -> Iterable[str]:
    return [listing.group_id for listing in admin.list_groups()]
