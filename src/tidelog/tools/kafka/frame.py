"""What the drop-in tools share: Kafka's common flags, its way to refuse, its tables.

Kafka's tools answer wrong usage with a line, their options and exit code 1. Their clients have
Kafka's own defaults, unlike the commands of `tidelog`: 60 seconds for an operation of the admin
client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from tidelog.tools.cli.frame import Command, Function, Group
from tidelog.tools.cli.session import Session, session_of

API_TIMEOUT_MS: Final = 60_000
# Where the class is not named after its code.
RENAMED_EXCEPTIONS: Final = {
    "NonEmptyGroupException": "GroupNotEmptyException",
    "TopicAlreadyExistsException": "TopicExistsException",
    "RequestTimedOutException": "TimeoutException",
    "TopicAuthorizationFailedException": "TopicAuthorizationException",
    "GroupAuthorizationFailedException": "GroupAuthorizationException",
    "ClusterAuthorizationFailedException": "ClusterAuthorizationException",
    "DelegationTokenAuthDisabledException": "DelegationTokenDisabledException",
    "DelegationTokenAuthorizationFailedException": "DelegationTokenAuthorizationException",
    "DelegationTokenRequestNotAllowedException": "UnsupportedByAuthenticationException",
}


class ToolFailed(Exception):
    """The message is all that standard error gets."""


class KafkaTool(Command):
    """A tool of Kafka. Its function gets the Session first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["--help"]})
        super().__init__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        session_of(ctx).timeout_given_ms = API_TIMEOUT_MS
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise ToolFailed(f"{error.format_message()}\n{self.get_help(ctx)}") from error


class ToolGroup(Group):
    """A tool with verbs, as kafka-transactions has them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise ToolFailed(f"{error.format_message()}\n{self.get_help(ctx)}") from error


def wrong_usage(message: str) -> ToolFailed:
    """As Kafka's printUsageAndExit: the message, then every option."""
    ctx = click.get_current_context()
    return ToolFailed(f"{message}\n{ctx.command.get_help(ctx)}")


def _bootstrap(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        session_of(ctx).bootstrap_server = value


def _config_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is not None:
        session_of(ctx).config_file = value


bootstrap_server = click.option(
    "--bootstrap-server",
    metavar="HOST:PORT",
    expose_value=False,
    callback=_bootstrap,
    help="REQUIRED: the server(s) to connect to.",
)


def config_file(flag: str) -> Callable[[Function], Function]:
    """`--command-config FILE` under the name it has in this tool."""
    return click.option(
        flag,
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_config_file,
        help="A file with settings of the client.",
    )


def require_server(session: Session, broker_list: str | None = None) -> None:
    """`broker_list` is the deprecated flag of some tools."""
    if session.bootstrap_server is None:
        session.bootstrap_server = broker_list
    if session.bootstrap_server is None and session.config_file is None:
        raise wrong_usage('Missing required argument "[bootstrap-server]"')


def key_values(pairs: Sequence[str]) -> dict[str, str]:
    """Kafka's parseKeyValueArgs: `key=value`, and `key=` for an empty value."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ToolFailed(f"Invalid command line properties: {pair}")
        found[key] = value
    return found


def properties_of(path: Path | None) -> dict[str, str]:
    """What a file of settings says; nothing where there is none."""
    if path is None:
        return {}
    from tidelog.config.server_properties import load_properties

    return {each.key: each.value for each in load_properties(path)}


def is_true(properties: Mapping[str, str], key: str) -> bool:
    return properties.get(key, "").strip().lower() == "true"


def broker_words(error: Exception) -> str:
    """What the broker itself said, without what our client says about it."""
    from tidelog.client.errors import ClientError

    words = error.broker_message if isinstance(error, ClientError) else None
    return words or str(error)


def java_words(error: Exception) -> str:
    """As Java prints an exception: its class, then what the broker said."""
    from tidelog.client.errors import ClientError

    if not isinstance(error, ClientError) or not error.code:
        return str(error)
    return f"{java_exception(error.code.name)}: {broker_words(error)}"


def java_exception(code_name: str) -> str:
    """The class of Kafka's clients for an error code."""
    words = code_name.removesuffix("_ERROR").split("_")
    name = "".join(word.capitalize() for word in words) + "Exception"
    return f"org.apache.kafka.common.errors.{RENAMED_EXCEPTIONS.get(name, name)}"


class IncludeList:
    """Kafka's: names separated by commas or bars, each a regular expression for the whole name."""

    INTERNAL: Final = frozenset(
        ("__consumer_offsets", "__transaction_state", "__share_group_state")
    )

    def __init__(self, raw: str) -> None:
        cleaned = raw.strip().replace(",", "|").replace(" ", "")
        try:
            self._pattern = re.compile(re.sub(r"^[\"']+|[\"']+$", "", cleaned))
        except re.error as error:
            raise ToolFailed(f"{raw} is an invalid regex: {error}") from None

    def allows(self, topic: str, *, exclude_internal: bool) -> bool:
        is_match = self._pattern.fullmatch(topic) is not None
        return is_match and not (exclude_internal and topic in self.INTERNAL)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """As Kafka's ToolsUtils.prettyPrintTable: padded columns, a tab after each."""
    cells = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "".join(cell.ljust(width) + "\t" for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
