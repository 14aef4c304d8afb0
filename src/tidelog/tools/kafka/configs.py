"""kafka-configs: --describe and --alter of topics, brokers, loggers, clients, users, ips,
client-metrics and groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.frame import (
    KafkaTool,
    ToolFailed,
    bootstrap_server,
    broker_words,
    config_file,
    properties_of,
    wrong_usage,
)

if TYPE_CHECKING:
    from tidelog.client.admin.configs import ConfigEntry, ConfigResource
    from tidelog.client.admin.quotas import QuotaEntity, QuotaFilter
    from tidelog.client.blocking.admin import Admin

RESOURCES: Final = {
    "topics": "TOPIC",
    "brokers": "BROKER",
    "broker-loggers": "BROKER_LOGGER",
    "client-metrics": "CLIENT_METRICS",
    "groups": "GROUP",
}
QUOTAS: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
CLIENT_QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
IP_QUOTAS: Final = ("connection_creation_rate",)
QUOTA_NAMES: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
ENTITY_TYPES: Final = (*RESOURCES, *QUOTAS)
# Flags that stand for a type and a name, and for a type and its default.
NAMED: Final = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker_logger": "broker-loggers",
    "ip": "ips",
    "client_metrics": "client-metrics",
    "group": "groups",
}
DEFAULTS: Final = {
    "client_defaults": "clients",
    "user_defaults": "users",
    "broker_defaults": "brokers",
    "ip_defaults": "ips",
}
# Commas and equals signs in brackets belong to a value.
OUTSIDE_BRACKETS: Final = r"(?=[^\]]*(?:\[|$))"
KEY: Final = re.compile(r"[a-zA-Z0-9._-]*")
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM_VALUE: Final = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")
SCRAM_ITERATIONS: Final = 4096
# As Kafka's ConfigSource prints itself.
SOURCES: Final = {
    "DYNAMIC_TOPIC": "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER": "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER": "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER": "STATIC_BROKER_CONFIG",
    "DEFAULT": "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER": "DYNAMIC_BROKER_LOGGER_CONFIG",
    "CLIENT_METRICS": "DYNAMIC_CLIENT_METRICS_CONFIG",
    "GROUP": "DYNAMIC_GROUP_CONFIG",
}


@click.command("kafka-configs", cls=KafkaTool)
@bootstrap_server
@config_file("--command-config")
@click.option("--describe", is_flag=True, help="Show settings.")
@click.option("--alter", is_flag=True, help="Change settings.")
@click.option("--all", "all_entries", is_flag=True, help="Defaults too.")
@click.option("--entity-type", "entity_types", multiple=True, metavar="TYPE", help="topics, ...")
@click.option("--entity-name", "entity_names", multiple=True, metavar="NAME")
@click.option("--entity-default", "entity_default", is_flag=True)
@click.option("--add-config", metavar="K1=V1,K2=[V1,V2]")
@click.option("--add-config-file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--delete-config", "delete_configs", multiple=True, metavar="K1,K2")
@click.option("--force", is_flag=True, help="Nothing is asked.")
@click.option("--topic", metavar="NAME")
@click.option("--client", metavar="ID")
@click.option("--client-defaults", is_flag=True)
@click.option("--user", metavar="NAME")
@click.option("--user-defaults", is_flag=True)
@click.option("--broker", metavar="ID")
@click.option("--broker-defaults", is_flag=True)
@click.option("--broker-logger", metavar="ID")
@click.option("--ip", metavar="ADDRESS")
@click.option("--ip-defaults", is_flag=True)
@click.option("--client-metrics", metavar="NAME")
@click.option("--group", metavar="ID")
@pass_session
def command(session: Session, **flags: Any) -> int:
    """Show and change settings of topics, brokers, clients and more."""
    from tidelog.client.errors import ClientError

    if flags["describe"] == flags["alter"]:
        raise wrong_usage("Command must include exactly one action: --describe, --alter")
    if flags["describe"] and (flags["add_config"] or flags["delete_configs"]):
        name = "add-config" if flags["add_config"] else "delete-config"
        raise wrong_usage(f'Option "[describe]" can\'t be used with option "[{name}]"')
    types, names = entities(flags)
    if session.bootstrap_server is None and session.config_file is None:
        raise ToolFailed(
            "One of the required --bootstrap-server, --boostrap-controller, or --zookeeper "
            "arguments must be specified"
        )
    try:
        with session.plain_admin() as admin:
            if flags["describe"]:
                _describe(admin, types, names, all_entries=flags["all_entries"])
            else:
                _alter(admin, types, names, flags)
    except ClientError as error:
        raise ToolFailed(
            f"Error while executing config command: {error.code.name}: {broker_words(error)}"
        ) from error
    return 0


def entities(flags: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Types, and names in their order; an empty name is a default."""
    named = [(kind, flags[flag]) for flag, kind in NAMED.items() if flags[flag] is not None]
    defaults = [(kind, "") for flag, kind in DEFAULTS.items() if flags[flag]]
    generic = flags["entity_types"] or flags["entity_names"] or flags["entity_default"]
    if generic and (named or defaults):
        raise ToolFailed(
            "--entity-{type,name,default} should not be used in conjunction with specific entity "
            "flags"
        )
    types = [*flags["entity_types"], *(kind for kind, _ in (*named, *defaults))]
    # The default belongs to the types that have no name.
    names = list(flags["entity_names"])
    if flags["entity_default"]:
        names += [""] * max(1, len(types) - len(names))
    names += [name for _, name in (*named, *defaults)]
    for kind in types:
        if kind not in ENTITY_TYPES:
            raise ToolFailed(
                f"Invalid entity type {kind}, the entity type must be one of "
                f"{', '.join(ENTITY_TYPES)} with a --bootstrap-server or --bootstrap-controller "
                "argument"
            )
    if not types:
        raise ToolFailed("At least one entity type must be specified")
    if len(types) != len(set(types)):
        raise ToolFailed(f"Duplicate entity type(s) specified: {','.join(types[1:])}")
    if len(types) > 1 and set(types) != {"users", "clients"}:
        raise ToolFailed("Only 'users' and 'clients' entity types may be specified together")
    if types[0] in ("brokers", "broker-loggers"):
        for name in names:
            if name and not name.isdigit():
                raise ToolFailed(
                    f"The entity name for {types[0]} must be a valid integer broker id, but it is: "
                    f"{name}"
                )
    return types, names


# describe


def _describe(
    admin: Admin, types: Sequence[str], names: Sequence[str], *, all_entries: bool
) -> None:
    kind = types[0]
    if kind in QUOTAS:
        _describe_quotas(admin, types, names)
        if "clients" not in types and "" not in names and "ips" not in types:
            _describe_credentials(admin, names)
        return
    for name in names[:1] or _all_names(admin, kind):
        if name:
            word = "All" if all_entries else "Dynamic"
            print(f"{word} configs for {kind[:-1]} {name} are:")
        else:
            print(f"Default configs for {kind} in the cluster are:")
        for entry in _entries(admin, kind, name, all_entries=all_entries):
            print(entry_line(entry))


def _all_names(admin: Admin, kind: str) -> list[str]:
    if kind == "topics":
        return [each.name for each in admin.list_topics(include_internal=True)]
    if kind in ("brokers", "broker-loggers"):
        return [*(str(node.id) for node in admin.describe_cluster().nodes), ""]
    if kind == "groups":
        return [each.group_id for each in admin.list_groups()]
    from tidelog.client.admin.configs import ConfigResourceType

    found = admin.list_config_resources([ConfigResourceType.CLIENT_METRICS])
    return [each.name for each in found]


def _resource(kind: str, name: str) -> ConfigResource:
    from tidelog.client.admin.configs import ConfigResource, ConfigResourceType

    return ConfigResource(ConfigResourceType[RESOURCES[kind]], name)


def _entries(admin: Admin, kind: str, name: str, *, all_entries: bool) -> list[ConfigEntry]:
    from tidelog.client.admin.configs import ConfigSource

    resource = _resource(kind, name)
    found = admin.describe_configs([resource], include_synonyms=True)[resource].get()
    source = {
        "topics": ConfigSource.DYNAMIC_TOPIC,
        "brokers": ConfigSource.DYNAMIC_BROKER if name else ConfigSource.DYNAMIC_DEFAULT_BROKER,
        "client-metrics": ConfigSource.CLIENT_METRICS,
        "groups": ConfigSource.GROUP,
    }.get(kind)
    return [
        entry
        for _, entry in sorted(found.items())
        if all_entries or source is None or entry.source is source
    ]


def entry_line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(
        f"{SOURCES.get(each.source.name, each.source.name)}:{each.name}={_shown(each.value)}"
        for each in entry.synonyms
    )
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={_shown(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _filters(types: Sequence[str], names: Sequence[str]) -> list[QuotaFilter]:
    from tidelog.client.admin.quotas import QuotaFilter, QuotaMatch

    if len(names) > len(types):
        raise ToolFailed("More entity names specified than entity types")
    found = []
    for index, kind in enumerate(types):
        name = names[index] if index < len(names) else None
        match = QuotaMatch.ANY if name is None else QuotaMatch.EXACT if name else QuotaMatch.DEFAULT
        found.append(QuotaFilter(QUOTAS[kind], match, name or None))
    return found


def _describe_quotas(admin: Admin, types: Sequence[str], names: Sequence[str]) -> None:
    found = admin.describe_client_quotas(_filters(types, names), strict=True)
    for entity, quotas in found.items():
        values = ", ".join(f"{key}={java_double(value)}" for key, value in quotas.items())
        print(f"Quota configs for {entity_text(entity)} are {values}")


def java_double(value: float) -> str:
    """As Java's Double.toString writes a positive number."""
    if 1e-3 <= value < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{Decimal(repr(value)):E}".partition("E")
    digits = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def entity_text(entity: QuotaEntity) -> str:
    parts = dict(entity.parts)
    return ", ".join(
        f"{QUOTA_NAMES[kind]} '{parts[kind]}'"
        if parts[kind] is not None
        else f"the default {QUOTA_NAMES[kind]}"
        for kind in ("user", "client-id", "ip")
        if kind in parts
    )


def _describe_credentials(admin: Admin, names: Sequence[str]) -> None:
    from tidelog.client.errors import UnsupportedByBroker
    from tidelog.errors import ErrorCode

    try:
        described = admin.describe_user_scram_credentials(list(names) or None)
    except UnsupportedByBroker:
        return
    for user, result in described.items():
        if result.error is not None:
            if result.error.code is ErrorCode.RESOURCE_NOT_FOUND:
                continue
            print(
                f"Error retrieving SCRAM credential configs for user-principal '{user}': "
                f"{result.error.code.name}: {broker_words(result.error)}"
            )
            continue
        infos = ", ".join(
            f"{info.mechanism.name.replace('_', '-')}=iterations={info.iterations}"
            for info in result.get()
        )
        print(f"SCRAM credential configs for user-principal '{user}' are {infos}")


# alter


def configs_to_add(flags: Mapping[str, Any]) -> dict[str, str]:
    found = properties_of(flags["add_config_file"])
    if flags["add_config"]:
        for pair in re.split("," + OUTSIDE_BRACKETS, flags["add_config"]):
            parts = re.split(r"\s*=\s*" + OUTSIDE_BRACKETS, pair)
            if len(parts) != 2:
                raise ToolFailed(
                    "requirement failed: Invalid entity config: all configs to be added must be in "
                    'the format "key=val".'
                )
            found[parts[0].strip()] = re.sub(r"\[?\]?", "", parts[1]).strip()
    for key in found:
        if KEY.fullmatch(key) is None:
            raise ToolFailed(f"Invalid character found for config key: {key}")
    return found


def _alter(
    admin: Admin, types: Sequence[str], names: Sequence[str], flags: Mapping[str, Any]
) -> None:
    if len(types) != len(names):
        raise ToolFailed("An entity name must be specified for every entity type")
    added = configs_to_add(flags)
    deleted = [key.strip() for keys in flags["delete_configs"] for key in keys.split(",")]
    if not added and not deleted:
        raise wrong_usage(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified "
            "with --alter"
        )
    kind, name = types[0], names[0]
    if kind in QUOTAS:
        _must_be_of(types, names, added, deleted)
        if any(key in SCRAM for key in (*added, *deleted)):
            _alter_credentials(admin, name, added, deleted)
        else:
            _alter_quotas(admin, types, names, added, deleted)
    else:
        _alter_resource(admin, kind, name, added, deleted)
    if name:
        print(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")


def _alter_resource(
    admin: Admin, kind: str, name: str, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    from tidelog.client.admin.configs import AlterConfig, AlterOp

    there = {entry.name for entry in _entries(admin, kind, name, all_entries=False)}
    unknown = [key for key in deleted if key not in there]
    if unknown:
        raise ToolFailed(f"Invalid config(s): {','.join(unknown)}")
    resource = _resource(kind, name)
    changes = [AlterConfig(key, value) for key, value in added.items()]
    changes += [AlterConfig(key, "", AlterOp.DELETE) for key in deleted]
    admin.incremental_alter_configs({resource: changes})[resource].get()


def _must_be_of(
    types: Sequence[str], names: Sequence[str], added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Raises ToolFailed for settings that the entities do not have, as Kafka's tool words it."""
    keys = IP_QUOTAS if types == ["ips"] else CLIENT_QUOTAS
    takes_scram = types == ["users"]
    what = "connection quota" if types == ["ips"] else "quota"
    if takes_scram:
        what = "quota and SCRAM credential"
    for verb, given in (("added", added), ("deleted", deleted)):
        unknown = [key for key in given if key not in keys and not (takes_scram and key in SCRAM)]
        if unknown:
            kind = "clients" if "clients" in types else types[0]
            raise ToolFailed(
                f"Only {what} configs can be {verb} for '{kind}' using --bootstrap-server. "
                f"Unexpected config names: {','.join(unknown)}"
            )
    both = {*added, *deleted}
    if both & {*SCRAM}:
        if "" in names:
            raise ToolFailed(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM "
                "Credentials using --bootstrap-server."
            )
        if both & {*keys}:
            raise ToolFailed(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' "
                "using --bootstrap-server."
            )


def _alter_quotas(
    admin: Admin,
    types: Sequence[str],
    names: Sequence[str],
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> None:
    from tidelog.client.admin.quotas import QuotaEntity

    found = admin.describe_client_quotas(_filters(types, names), strict=True)
    there = next(iter(found.values()), {})
    unknown = [key for key in deleted if key not in there]
    if unknown:
        raise ToolFailed(f"Invalid config(s): {','.join(unknown)}")
    quotas: dict[str, float | None] = dict.fromkeys(deleted)
    for key, text in added.items():
        try:
            quotas[key] = float(text)
        except ValueError:
            raise ToolFailed(f"Cannot parse quota configuration value for {key}: {text}") from None
    entity = QuotaEntity.of(
        {QUOTAS[kind]: name or None for kind, name in zip(types, names, strict=True)}
    )
    admin.alter_client_quotas({entity: quotas})[entity].get()


def _alter_credentials(
    admin: Admin, user: str, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    from tidelog.client.admin.credentials import ScramDeletion, ScramUpsertion
    from tidelog.sasl.scram_credential import ScramMechanism

    changes: list[ScramDeletion | ScramUpsertion] = [
        ScramDeletion(user, ScramMechanism[key.replace("-", "_")]) for key in deleted
    ]
    for key, text in added.items():
        match = SCRAM_VALUE.fullmatch(text)
        if match is None:
            raise ToolFailed(f"Invalid credential property {key}: it needs password=...")
        given = match[1] if match[1] not in (None, "", "-1") else SCRAM_ITERATIONS
        mechanism = ScramMechanism[key.replace("-", "_")]
        changes.append(ScramUpsertion(user, mechanism, match[2], int(given)))
    for result in admin.alter_user_scram_credentials(changes).values():
        result.get()
