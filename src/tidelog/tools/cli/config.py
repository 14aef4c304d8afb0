"""`tidelog config get|set|unset TYPE NAME`: settings of topics, brokers, groups and clients;
`tidelog config validate|explain|diff`: what a server.properties says.

    tidelog config get topic orders
    tidelog config get broker 1 --all
    tidelog config set broker --default log.cleaner.threads=2
    tidelog config set client my-app producer_byte_rate=1048576
    tidelog config set user alice --client my-app consumer_byte_rate=1048576
    tidelog config unset topic orders retention.ms

TYPE is topic, broker, logger (of a broker), group, client-metrics, client, user or ip. The last
three have quotas; --client and --client-default make that of a user one for its clients. `get`
shows what was set; --all shows defaults too.

    tidelog config validate server.properties       exit code 1 if a broker would not start with it
    tidelog config explain log.retention.ms
    tidelog config diff server.properties broker:1  exit code 1 if something differs
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tidelog.tools.cli.frame import CommandFailed, KeyValue, together
from tidelog.tools.cli.output import columns, failures, show_data, show_rows
from tidelog.tools.cli.session import ClusterGroup, Session, pass_session

if TYPE_CHECKING:
    from tidelog.client.admin.configs import ConfigEntry, ConfigResource
    from tidelog.client.blocking.admin import Admin
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.definition import ConfigError, Key
    from tidelog.tools.config_comparison import Side

RESOURCES: Final = {
    "topic": "TOPIC",
    "broker": "BROKER",
    "logger": "BROKER_LOGGER",
    "group": "GROUP",
    "client-metrics": "CLIENT_METRICS",
}
QUOTAS: Final = {"client": "client-id", "user": "user", "ip": "ip"}
TYPES: Final = (*RESOURCES, *QUOTAS)
WITH_DEFAULT: Final = ("broker", "client", "user", "ip")
HIDDEN: Final = "(hidden)"


def _complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from tidelog.tools.cli.completion import complete_groups, complete_topics

    kind = ctx.params.get("kind")
    if kind == "topic":
        return complete_topics(ctx, param, incomplete)
    return complete_groups(ctx, param, incomplete) if kind == "group" else []


kind_argument = click.argument("kind", type=click.Choice(TYPES), metavar="TYPE")
whose_options = together(
    click.option(
        "--default", "is_default", is_flag=True, help="Of all brokers, clients, users or addresses."
    ),
    click.option("--client", metavar="ID", help="Of this client of the user."),
    click.option(
        "--client-default",
        is_flag=True,
        help="Of each client of the user that has none of its own.",
    ),
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only check whether it would work.")


@click.group("config", cls=ClusterGroup)
def command() -> None:
    """Show and change settings of topics, brokers, groups and clients; check files of brokers."""


def _name_and_rest(
    kind: str, words: Sequence[str], *, is_default: bool
) -> tuple[str, tuple[str, ...]]:
    """With --default there is no NAME."""
    if is_default:
        if kind not in WITH_DEFAULT:
            raise click.UsageError(f"a {kind} has no --default")
        return "", tuple(words)
    if not words:
        raise click.UsageError("missing argument 'NAME'")
    return words[0], tuple(words[1:])


def _resource(kind: str, name: str) -> ConfigResource:
    from tidelog.client.admin.configs import ConfigResource, ConfigResourceType

    if kind in ("broker", "logger") and name and not name.isdigit():
        raise CommandFailed(f"a broker has a number, not the name {name}")
    return ConfigResource(ConfigResourceType[RESOURCES[kind]], name)


# get


@command.command("get")
@kind_argument
@click.argument("words", nargs=-1, metavar="NAME [KEY]...", shell_complete=_complete_names)
@whose_options
@click.option("--all", "all_entries", is_flag=True, help="Defaults too.")
@click.option("--docs", is_flag=True, help="What the settings mean.")
@pass_session
def get(
    session: Session,
    kind: str,
    words: tuple[str, ...],
    is_default: bool,
    client: str | None,
    client_default: bool,
    all_entries: bool,
    docs: bool,
) -> int:
    """Show settings of NAME, or only those of the KEYs."""
    name, keys = _name_and_rest(kind, words, is_default=is_default)
    parts = _quota_parts(kind, name, client, client_default=client_default)
    if parts:
        return _get_quotas(session, parts, keys)
    resource = _resource(kind, name)
    with session.admin() as admin:
        result = admin.describe_configs(
            {resource: list(keys) or None}, include_synonyms=False, include_documentation=docs
        )[resource]
        entries = result.get()
    missing = [f"{key} is no setting of {resource}" for key in keys if key not in entries]
    rows = [
        _row(entry, docs=docs)
        for key, entry in sorted(entries.items())
        if key in keys or all_entries or _is_set(entry, kind)
    ]
    shown = columns("key", "value", "source", *(["documentation"] if docs else []))
    show_rows(
        session.output_format,
        rows,
        shown,
        empty=f"Nothing is set for {resource}; --all shows the defaults.",
    )
    return failures(missing)


def _is_set(entry: ConfigEntry, kind: str) -> bool:
    """By somebody, for this resource: a broker's file counts, defaults do not."""
    from tidelog.client.admin.configs import ConfigSource

    sources = {
        "topic": {ConfigSource.DYNAMIC_TOPIC},
        "group": {ConfigSource.GROUP},
        "client-metrics": {ConfigSource.CLIENT_METRICS},
        "broker": {
            ConfigSource.DYNAMIC_BROKER,
            ConfigSource.DYNAMIC_DEFAULT_BROKER,
            ConfigSource.STATIC_BROKER,
        },
        "logger": {ConfigSource.DYNAMIC_BROKER_LOGGER},
    }
    return entry.source in sources[kind]


def _row(entry: ConfigEntry, *, docs: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "key": entry.name,
        "value": HIDDEN if entry.is_sensitive else entry.value,
        "source": entry.source.name.lower().replace("_", "-"),
        "read_only": entry.is_read_only,
    }
    if docs:
        row["documentation"] = entry.documentation
    return row


# set and unset


@command.command("set")
@kind_argument
@click.argument("words", nargs=-1, metavar="NAME KEY=VALUE...", shell_complete=_complete_names)
@whose_options
@dry_run_option
@pass_session
def set_command(
    session: Session,
    kind: str,
    words: tuple[str, ...],
    is_default: bool,
    client: str | None,
    client_default: bool,
    dry_run: bool,
) -> int:
    """Set KEYs of NAME."""
    name, pairs = _name_and_rest(kind, words, is_default=is_default)
    if not pairs:
        raise click.UsageError("missing argument 'KEY=VALUE'")
    settings: dict[str, str | None] = dict(KeyValue().convert(pair, None, None) for pair in pairs)
    parts = _quota_parts(kind, name, client, client_default=client_default)
    return _change(session, kind, name, settings, parts, dry_run=dry_run)


@command.command("unset")
@kind_argument
@click.argument("words", nargs=-1, metavar="NAME KEY...", shell_complete=_complete_names)
@whose_options
@dry_run_option
@pass_session
def unset(
    session: Session,
    kind: str,
    words: tuple[str, ...],
    is_default: bool,
    client: str | None,
    client_default: bool,
    dry_run: bool,
) -> int:
    """Let KEYs of NAME go back to their defaults."""
    name, keys = _name_and_rest(kind, words, is_default=is_default)
    if not keys:
        raise click.UsageError("missing argument 'KEY'")
    nothing: dict[str, str | None] = dict.fromkeys(keys)
    parts = _quota_parts(kind, name, client, client_default=client_default)
    return _change(session, kind, name, nothing, parts, dry_run=dry_run)


def _change(
    session: Session,
    kind: str,
    name: str,
    settings: dict[str, str | None],
    parts: Mapping[str, str | None],
    *,
    dry_run: bool,
) -> int:
    with session.admin() as admin:
        if parts:
            what = _change_quotas(admin, parts, settings, dry_run=dry_run)
        else:
            resource = _resource(kind, name)
            _change_resource(admin, resource, settings, dry_run=dry_run)
            what = str(resource)
    change = "would be changed" if dry_run else "changed"
    if session.output_format in (None, "table"):
        print(f"{what} {change}: {', '.join(settings)}")
    else:
        show_data(session.output_format, {"what": what, "change": change, "keys": list(settings)})
    return 0


def _change_resource(
    admin: Admin, resource: ConfigResource, settings: dict[str, str | None], *, dry_run: bool
) -> None:
    from tidelog.client.admin.configs import AlterConfig, AlterOp

    changes = [
        AlterConfig(key, value, AlterOp.DELETE if value is None else AlterOp.SET)
        for key, value in settings.items()
    ]
    results = admin.incremental_alter_configs({resource: changes}, validate_only=dry_run)
    results[resource].get()


# Quotas


def _quota_parts(
    kind: str, name: str, client: str | None, *, client_default: bool
) -> dict[str, str | None]:
    """Types and names of the entity, None for a default; nothing if it has no quotas."""
    if client is not None or client_default:
        if kind != "user":
            raise click.UsageError("--client and --client-default go with a user")
        if client is not None and client_default:
            raise click.UsageError("either --client or --client-default")
        return {"user": name or None, "client-id": client}
    return {QUOTAS[kind]: name or None} if kind in QUOTAS else {}


def _get_quotas(session: Session, parts: Mapping[str, str | None], keys: tuple[str, ...]) -> int:
    from tidelog.client.admin.quotas import QuotaEntity, QuotaFilter, QuotaMatch

    filters = [
        QuotaFilter(kind, QuotaMatch.DEFAULT if name is None else QuotaMatch.EXACT, name)
        for kind, name in parts.items()
    ]
    with session.admin() as admin:
        found = admin.describe_client_quotas(filters)
    rows = [
        {"entity": str(entity), "key": key, "value": value}
        for entity, quotas in sorted(found.items(), key=str)
        for key, value in sorted(quotas.items())
        if not keys or key in keys
    ]
    show_rows(
        session.output_format,
        rows,
        columns("entity", "key", "value>"),
        empty=f"Nothing is set for {QuotaEntity.of(parts)}.",
    )
    return 0


def _change_quotas(
    admin: Admin,
    parts: Mapping[str, str | None],
    settings: dict[str, str | None],
    *,
    dry_run: bool,
) -> str:
    from tidelog.client.admin.quotas import QuotaEntity

    quotas: dict[str, float | None] = {}
    for key, text in settings.items():
        try:
            quotas[key] = None if text is None else float(text)
        except ValueError:
            raise CommandFailed(f"{key}={text}: a quota is a number") from None
    entity = QuotaEntity.of(parts)
    admin.alter_client_quotas({entity: quotas}, validate_only=dry_run)[entity].get()
    return str(entity)


# Files of brokers


def _problems_of_tls(config: BrokerConfig) -> Iterator[ConfigError]:
    from tidelog.config.definition import ConfigError

    for endpoint in config.listeners:
        if endpoint.is_encrypted:
            from tidelog.tls.contexts import listener_problems
            from tidelog.tls.settings import TlsSettings

            try:
                yield from listener_problems(TlsSettings.of_listener(config, endpoint))
            except ConfigError as problem:
                yield problem


@command.command("validate")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--strict", is_flag=True, help="Unknown keys and keys set twice are errors too.")
@pass_session
def validate(session: Session, file: Path, strict: bool) -> int:
    """Say everything that is wrong with a server.properties."""
    from tidelog.config.file_check import check_file

    problems = check_file(file, _problems_of_tls)
    grave = {"error", "warning"} if strict else {"error"}
    errors = sum(problem.level in grave for problem in problems)
    if session.output_format in (None, "table"):
        for problem in problems:
            place = f"{file}:{problem.line}" if problem.line else str(file)
            print(f"{place}: {problem.level}: {problem.message}")
        if not problems:
            print(f"{file}: nothing is wrong", file=sys.stderr)
    else:
        show_data(session.output_format, [problem._asdict() for problem in problems])
    return 1 if errors else 0


@command.command("explain")
@click.argument("name", metavar="KEY")
@pass_session
def explain(session: Session, name: str) -> int:
    """Say what a key of a broker, a topic or a group does here."""
    found = list(_explanations(name))
    if not found:
        from tidelog.config.broker import must_find_key

        must_find_key(name)  # says which key is near
    if session.output_format not in (None, "table"):
        show_data(session.output_format, found)
        return 0
    for number, facts in enumerate(found):
        print(f"{'' if number == 0 else chr(10)}{name}  (a key of a {facts['of']})")
        for field, value in facts.items():
            if field not in ("key", "of") and value not in (None, ""):
                print(f"  {field.replace('_', ' ')}: {value}")
    return 0


def _explanations(name: str) -> Iterator[dict[str, object]]:
    """One for each kind of thing that has the key."""
    from tidelog.config.broker import find_key
    from tidelog.config.definition import READ_ONLY
    from tidelog.config.environment import variable_of
    from tidelog.config.group import GROUP_TABLE
    from tidelog.config.topic import TOPIC_TABLE

    key = find_key(name)
    if key is not None:
        of_topics = [
            row.name
            for table in (TOPIC_TABLE, GROUP_TABLE)
            for row in table
            if name in [synonym for synonym, _ in row.synonyms]
        ]
        yield {
            **_facts(name, "broker", key),
            "change": READ_ONLY if key.is_fixed else key.dynamic,
            "default_of": ", ".join(of_topics),
            "variable": variable_of(name),
        }
    for kind, table in (("topic", TOPIC_TABLE), ("group", GROUP_TABLE)):
        row = table.get(name)
        if row is not None:
            names = ", ".join(synonym for synonym, _ in row.synonyms)
            yield {**_facts(name, kind, row), "change": "at any time", "default_from": names}


def _facts(name: str, kind: str, key: Key) -> dict[str, object]:
    from tidelog.config.definition import ConfigType, to_text

    effect = key.effect
    return {
        "key": name,
        "of": kind,
        "what": key.doc,
        "type": ConfigType(key.type).name.lower(),
        "default": to_text(key.default),
        "valid": None if key.valid is None else str(key.valid),
        "importance": key.importance,
        "effect": effect.kind.value + (f": {effect.reason}" if effect.reason else ""),
    }


@command.command("diff")
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@pass_session
def diff(session: Session, left: str, right: str) -> int:
    """Show where two brokers are set differently. A and B are files, or broker:ID for one that
    runs.
    """
    from tidelog.tools.config_comparison import differences

    rows = differences(_side(session, left), _side(session, right))
    shown = columns("key", f"left={left}", f"right={right}", "comparison")
    show_rows(session.output_format, rows, shown, empty="Nothing differs.")
    return 1 if rows else 0


def _side(session: Session, text: str) -> Side:
    from tidelog.tools.config_comparison import side_of_broker, side_of_file

    broker = text.removeprefix("broker:")
    if broker == text:
        return side_of_file(Path(text))
    resource = _resource("broker", broker)
    with session.admin() as admin:
        entries = admin.describe_configs({resource: None}, include_synonyms=False)[resource].get()
    return side_of_broker(text, entries)
