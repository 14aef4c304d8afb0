"""Access control lists: who may do what; added and deleted after a look at what that means.

A form stands for one or several ACLs (`acl_choice`): the next page shows them, and its form has the
same fields. ACLs to be deleted are named whole, each as a JSON list, so nothing else is matched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.acls import (
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tidelog.client.errors import ClientError
from tidelog.tools.acl_choice import SUPPORTED, AclChoice, WrongChoice
from tidelog.tools.cli.output import counted
from tidelog.tools.console.clients import clients_of
from tidelog.tools.console.page import ReadingPost, form_of, problem, render, told
from tidelog.tools.console.refusals import calm

NAVIGATION: Final = ("ACLs", "/acls")
ROWS_MAX: Final = 500
CHOSEN_MAX: Final = 500
TYPES: Final = tuple(each.name for each in SUPPORTED)
OPERATIONS: Final = tuple(each.name for each in AclOperation if each > AclOperation.ANY)
FIELDS: Final = (
    "resource",
    "name",
    "pattern",
    "permission",
    "principal",
    "host",
    "operation",
    "topic",
    "group",
    "transactional_id",
    "needs",
)
Form = Mapping[str, Sequence[str]]


async def show_list(request: Request) -> Response:
    asked = request.query_params
    resource, text = asked.get("resource", ""), asked.get("text", "").strip()
    wanted = AclBindingFilter()
    if resource in TYPES:
        wanted = AclBindingFilter(ResourceType[resource])
    found: list[AclBinding] = []
    unknown = ""
    try:
        found = sorted(await clients_of(request).admin.describe_acls(wanted))
    except ClientError as error:
        unknown = calm(error)
    shown = [each for each in found if text.casefold() in str(each).casefold()]
    return render(
        request,
        "acls/list.html",
        rows=[(each, name_of(each)) for each in shown[:ROWS_MAX]],
        count=len(shown),
        total=len(found),
        resource=resource,
        text=text,
        types=TYPES,
        operations=OPERATIONS,
        unknown=unknown,
    )


# Add


async def preview(request: Request) -> Response:
    fields = {name: form_of(request).get(name, []) for name in FIELDS}
    try:
        bindings = bindings_of(fields)
    except WrongChoice as error:
        return problem(request, "These are no ACLs", str(error))
    return render(request, "acls/preview.html", bindings=bindings, fields=fields)


async def add(request: Request) -> Response:
    fields = {name: form_of(request).get(name, []) for name in FIELDS}
    try:
        bindings = bindings_of(fields)
    except WrongChoice as error:
        return problem(request, "These are no ACLs", str(error))
    results = await clients_of(request).admin.create_acls(bindings)
    for result in results.values():
        result.get()
    return told(request, "/acls", f"{counted(len(bindings), 'ACL')} added.")


def bindings_of(fields: Form) -> list[AclBinding]:
    """What a form stands for. WrongChoice says what has to change."""
    made = choice_of(fields).bindings()
    if not made:
        raise WrongChoice("Name a resource.")
    return made


def choice_of(fields: Form) -> AclChoice:
    def one(name: str, default: str = "") -> str:
        values = fields.get(name) or [""]
        return values[0].strip() or default

    principal = one("principal")
    if ":" not in principal:
        raise WrongChoice("A principal has a type and a name, such as User:alice.")
    needs = set(fields.get("needs", ()))
    if needs:
        return AclChoice(
            topics=_named(one("topic")),
            groups=_named(one("group")),
            transactional_ids=_named(one("transactional_id")),
            allow_principals=[principal],
            allow_hosts=_named(one("host")),
            producer="producer" in needs,
            consumer="consumer" in needs,
            idempotent="idempotent" in needs,
        )
    resource, name = one("resource"), one("name")
    if resource not in TYPES:
        raise WrongChoice("Choose what kind of resource it is about.")
    if not name and resource != ResourceType.CLUSTER.name:
        raise WrongChoice(f"Name the {resource.lower()}; {WILDCARD} stands for all.")
    pattern = one("pattern", PatternType.LITERAL.name)
    if pattern not in (PatternType.LITERAL.name, PatternType.PREFIXED.name):
        raise WrongChoice("A pattern is LITERAL or PREFIXED.")

    def names(kind: ResourceType) -> list[str]:
        return [name] if resource == kind.name else []

    choice = AclChoice(
        topics=names(ResourceType.TOPIC),
        groups=names(ResourceType.GROUP),
        transactional_ids=names(ResourceType.TRANSACTIONAL_ID),
        delegation_tokens=names(ResourceType.DELEGATION_TOKEN),
        user_principals=names(ResourceType.USER),
        cluster=resource == ResourceType.CLUSTER.name,
        pattern_type=PatternType[pattern],
        operations=[each for each in fields.get("operation", ()) if each],
    )
    hosts = _named(one("host"))
    if one("permission", AclPermission.ALLOW.name) == AclPermission.DENY.name:
        return choice._replace(deny_principals=[principal], deny_hosts=hosts)
    return choice._replace(allow_principals=[principal], allow_hosts=hosts)


def _named(name: str) -> list[str]:
    return [name] if name else []


# Delete


async def ask_delete(request: Request) -> Response:
    chosen = form_of(request).get("acl", [])
    try:
        bindings = [binding_of(text) for text in chosen]
    except WrongChoice as error:
        return problem(request, "Nothing was deleted", str(error))
    if not bindings or len(bindings) > CHOSEN_MAX:
        return problem(
            request, "Nothing was deleted", f"Choose between 1 and {CHOSEN_MAX} ACLs of the list."
        )
    rows = list(zip(bindings, chosen, strict=True))
    return render(request, "acls/delete.html", rows=rows)


async def delete(request: Request) -> Response:
    try:
        bindings = [binding_of(text) for text in form_of(request).get("acl", [])]
    except WrongChoice as error:
        return problem(request, "Nothing was deleted", str(error))
    filters = [filter_of_binding(each) for each in bindings]
    results = await clients_of(request).admin.delete_acls(filters) if filters else {}
    gone = sum(len(result.get()) for result in results.values())
    return told(request, "/acls", f"{counted(gone, 'ACL')} deleted.")


def name_of(binding: AclBinding) -> str:
    """A binding as a form names it."""
    return json.dumps(
        [
            binding.resource_type.name,
            binding.resource_name,
            binding.principal,
            binding.operation.name,
            binding.permission.name,
            binding.host,
            binding.pattern_type.name,
        ]
    )


def binding_of(text: str) -> AclBinding:
    try:
        resource, name, principal, operation, permission, host, pattern = json.loads(text)
        found = AclBinding(
            ResourceType[resource],
            name,
            principal,
            AclOperation[operation],
            AclPermission[permission],
            host,
            PatternType[pattern],
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise WrongChoice("The form names something that is no ACL.") from None
    if not all(isinstance(each, str) and each for each in (name, principal, host)):
        raise WrongChoice("The form names something that is no ACL.")
    # Anything else would match more than the one that was shown.
    if found.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise WrongChoice("The form names something that is no ACL.")
    if found.operation <= AclOperation.ANY or found.permission <= AclPermission.ANY:
        raise WrongChoice("The form names something that is no ACL.")
    if found.resource_type <= ResourceType.ANY:
        raise WrongChoice("The form names something that is no ACL.")
    return found


def filter_of_binding(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.resource_type,
        binding.resource_name,
        binding.principal,
        binding.operation,
        binding.permission,
        binding.host,
        binding.pattern_type,
    )


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/acls", show_list),
    ReadingPost("/acls/preview", preview),
    Route("/acls/add", add, methods=["POST"]),
    ReadingPost("/acls/ask-delete", ask_delete),
    Route("/acls/delete", delete, methods=["POST"]),
)
