"""`tidelog acl list|add|remove`: who may do what, with the flags of Kafka's own tool.

    list      all ACLs, or those of resources and principals
    add       shown first with --dry-run; what is there already stays
    remove    those that match, after --yes; --dry-run shows them

--producer and --consumer stand for what a producer or consumer needs (`tools/acl_choice.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.acls import AclBindingFilter, PatternType
from tidelog.tools.acl_choice import AclChoice, WrongChoice, filter_of
from tidelog.tools.cli.completion import complete_groups, complete_topics
from tidelog.tools.cli.frame import CommandFailed, Function, together
from tidelog.tools.cli.output import columns, counted, failures, say, show_rows
from tidelog.tools.cli.session import ClusterGroup, Session, pass_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.acls import AclBinding
    from tidelog.client.blocking.admin import Admin

SHOWN: Final = columns(
    "principal", "host", "permission", "operation", "resource", "name", "pattern"
)
SPECIFIC: Final = ("literal", "prefixed")
FILTERS: Final = (*SPECIFIC, "any", "match")


@click.group("acl", cls=ClusterGroup)
def command() -> None:
    """List, add and remove access control lists."""


def _many(flag: str, metavar: str, help: str, **more: Any) -> Callable[[Function], Function]:
    return click.option(f"--{flag}", multiple=True, metavar=metavar, help=help, **more)


resources = together(
    _many("topic", "NAME", "A topic; * for all.", shell_complete=complete_topics),
    _many("group", "ID", "A consumer group; * for all.", shell_complete=complete_groups),
    _many("transactional-id", "ID", "A transactional id; * for all."),
    _many("delegation-token", "ID", "A delegation token; * for all."),
    _many("user-principal", "USER", "A user as a resource; * for all."),
    click.option("--cluster", is_flag=True, help="The cluster."),
)
entries = together(
    _many("operation", "NAME", "What is allowed or denied; ALL unless given."),
    _many("allow-principal", "USER", "Who may; User:* for everybody."),
    _many("allow-host", "ADDRESS", "From where; * unless given."),
    _many("deny-principal", "USER", "Who may not, whatever else allows it."),
    _many("deny-host", "ADDRESS", "From where not; * unless given."),
    click.option("--producer", is_flag=True, help="What a producer to the topics needs."),
    click.option("--consumer", is_flag=True, help="What a consumer of topics in groups needs."),
    click.option("--idempotent", is_flag=True, help="With --producer: IDEMPOTENT_WRITE as well."),
)


def _pattern_type(values: tuple[str, ...], default: str) -> Callable[[Function], Function]:
    return click.option(
        "--resource-pattern-type",
        "pattern_type",
        type=click.Choice(values, case_sensitive=False),
        default=default,
        show_default=True,
        help="Of the resources' names. match: all patterns that hold for the name.",
    )


def chosen(given: dict[str, Any]) -> AclChoice:
    """Of the options above, whichever a command has."""
    return AclChoice(
        topics=given["topic"],
        groups=given["group"],
        transactional_ids=given["transactional_id"],
        delegation_tokens=given["delegation_token"],
        user_principals=given["user_principal"],
        cluster=given["cluster"],
        pattern_type=PatternType[given["pattern_type"].upper()],
        operations=given.get("operation", ()),
        allow_principals=given.get("allow_principal", ()),
        allow_hosts=given.get("allow_host", ()),
        deny_principals=given.get("deny_principal", ()),
        deny_hosts=given.get("deny_host", ()),
        producer=given.get("producer", False),
        consumer=given.get("consumer", False),
        idempotent=given.get("idempotent", False),
    )


def _show(session: Session, bindings: Iterable[AclBinding], empty: str) -> None:
    rows = [
        {
            "principal": each.principal,
            "host": each.host,
            "permission": each.permission.name,
            "operation": each.operation.name,
            "resource": each.resource_type.name,
            "name": each.resource_name,
            "pattern": each.pattern_type.name,
        }
        for each in sorted(bindings)
    ]
    show_rows(session.output_format, rows, SHOWN, empty=empty)


def _matching(admin: Admin, filters: Iterable[AclBindingFilter]) -> set[AclBinding]:
    return {binding for wanted in filters for binding in admin.describe_acls(wanted)}


@command.command("list")
@resources
@_pattern_type(FILTERS, "any")
@_many("principal", "USER", "Only entries of this principal.")
@pass_session
def list_command(session: Session, principal: tuple[str, ...], **given: Any) -> int:
    """List ACLs: all, or those of resources and principals."""
    filters = [filter_of(each) for each in chosen(given).resources()]
    with session.admin() as admin:
        found = _matching(admin, filters or [AclBindingFilter()])
    shown = [each for each in found if not principal or each.principal in principal]
    _show(session, shown, "There are no such ACLs.")
    return 0


@command.command("add")
@resources
@_pattern_type(SPECIFIC, "literal")
@entries
@click.option("--dry-run", is_flag=True, help="Only show what would be added.")
@pass_session
def add_command(session: Session, dry_run: bool, **given: Any) -> int:
    """Add ACLs; those that are there already stay."""
    try:
        bindings = chosen(given).bindings()
    except WrongChoice as error:
        raise click.UsageError(str(error)) from error
    if dry_run:
        _show(session, bindings, "")
        return 0
    with session.admin() as admin:
        results = admin.create_acls(bindings)
    added = [binding for binding, result in results.items() if result.error is None]
    _show(session, added, "No ACL was added.")
    return failures(str(result.error) for result in results.values() if result.error)


@command.command("remove")
@resources
@_pattern_type(FILTERS, "literal")
@entries
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@pass_session
def remove_command(session: Session, dry_run: bool, yes: bool, **given: Any) -> int:
    """Remove ACLs: without principals all those of the resources."""
    try:
        filters = chosen(given).filters()
    except WrongChoice as error:
        raise click.UsageError(str(error)) from error
    with session.admin() as admin:
        if dry_run or not yes:
            _show(session, found := _matching(admin, filters), "There are no such ACLs.")
            if dry_run or not found:
                return 0
            if not click.confirm(f"Remove {counted(len(found), 'ACL')}?", err=True):
                raise CommandFailed("nothing was removed")
        results = admin.delete_acls(filters)
    removed = {each for result in results.values() if not result.error for each in result.get()}
    say(f"Removed {counted(len(removed), 'ACL')}.")
    return failures(str(result.error) for result in results.values() if result.error)
