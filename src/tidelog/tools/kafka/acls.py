"""kafka-acls: list, add and remove access control lists.

Not done: --authorizer and --authorizer-properties, which write to ZooKeeper behind the brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from tidelog.acls import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from tidelog.tools.acl_choice import AclChoice, WrongChoice, filter_of
from tidelog.tools.cli.acl import FILTERS, chosen, entries, resources
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


@click.command("kafka-acls", cls=KafkaTool)
@bootstrap_server
@config_file("--command-config")
@resources
@click.option(
    "--resource-pattern-type",
    "pattern_type",
    type=click.Choice(FILTERS, case_sensitive=False),
    default="literal",
    help="The type of the resource pattern or pattern filter.",
)
@entries
@click.option("--principal", multiple=True, metavar="USER", help="List ACLs for the principal.")
@click.option("--add", "adds", is_flag=True, help="Indicates you are trying to add ACLs.")
@click.option("--remove", "removes", is_flag=True, help="You are trying to remove ACLs.")
@click.option("--list", "lists", is_flag=True, help="List ACLs for the specified resource.")
@click.option("--force", is_flag=True, help="Assume Yes to all queries and do not prompt.")
@pass_session
def command(
    session: Session,
    principal: tuple[str, ...],
    adds: bool,
    removes: bool,
    lists: bool,
    force: bool,
    **given: Any,
) -> int:
    """Manage acls on kafka."""
    from tidelog.client.errors import ClientError

    require_server(session)
    if adds + removes + lists != 1:
        raise wrong_usage("Command must include exactly one action: --list, --add, --remove. ")
    if principal and not lists:
        raise wrong_usage("The --principal option is only available if --list is set")
    try:
        if adds:
            return _add(session, chosen(given))
        if removes:
            return _remove(session, chosen(given), force)
        return _list(session, chosen(given), principal)
    except WrongChoice as error:
        raise wrong_usage(str(error)) from error
    except ClientError as error:
        raise ToolFailed(f"Error while executing ACL command: {java_words(error)}") from error


def _entry(entry: AccessControlEntry) -> str:
    return (
        f"(principal={entry.principal}, host={entry.host}, operation={entry.operation.name}, "
        f"permissionType={entry.permission.name})"
    )


def _resource(pattern: ResourcePattern) -> str:
    resource_type, name, pattern_type = pattern
    return (
        f"ResourcePattern(resourceType={resource_type.name}, name={name}, "
        f"patternType={pattern_type.name})"
    )


def _block(head: str, found: Iterable[AccessControlEntry], tail: str = "") -> str:
    rows = "\n".join("\t" + _entry(each) for each in sorted(found))
    return f"{head} \n {rows} \n{tail}"


def _by_pattern(bindings: Iterable[AclBinding]) -> Mapping[ResourcePattern, list[AclBinding]]:
    found: dict[ResourcePattern, list[AclBinding]] = {}
    for binding in sorted(bindings):
        found.setdefault(binding.pattern, []).append(binding)
    return found


def _add(session: Session, choice: AclChoice) -> int:
    bindings = choice.bindings()
    with session.plain_admin() as admin:
        for pattern, some in _by_pattern(bindings).items():
            head = f"Adding ACLs for resource `{_resource(pattern)}`:"
            print(_block(head, (each.entry for each in some)))
            for result in admin.create_acls(some).values():
                result.get()
    return 0


def _remove(session: Session, choice: AclChoice, force: bool) -> int:
    with session.plain_admin() as admin:
        for resource, found in choice.entries().items():
            text = _resource(resource)
            question = (
                f"Are you sure you want to delete all ACLs for resource filter `{text}`? (y/n)"
            )
            if found:
                tail = f" from resource filter `{text}`? (y/n)"
                question = _block("Are you sure you want to remove ACLs:", found, tail)
            if not force:
                print(question)
                if input().lower() != "y":
                    continue
            filters = [filter_of(resource, entry) for entry in sorted(found)]
            for result in admin.delete_acls(filters or [filter_of(resource)]).values():
                result.get()
    return 0


def _list(session: Session, choice: AclChoice, principals: tuple[str, ...]) -> int:
    filters = [filter_of(each) for each in choice.resources()] or [AclBindingFilter()]
    with session.plain_admin() as admin:
        found = {binding for wanted in filters for binding in admin.describe_acls(wanted)}
    if not principals:
        _print(found)
    for principal in principals:
        print(f"ACLs for principal `{principal}`")
        _print(each for each in found if each.principal == principal)
    return 0


def _print(bindings: Iterable[AclBinding]) -> None:
    for pattern, some in _by_pattern(bindings).items():
        head = f"Current ACLs for resource `{_resource(pattern)}`:"
        print(_block(head, (each.entry for each in some)))
