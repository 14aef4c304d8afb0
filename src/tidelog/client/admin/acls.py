"""Creating, describing and deleting access control lists; `tidelog.acls` says what they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tidelog.client.admin.asking import Asking, Found, Result, problem_of
from tidelog.client.errors import ClientError
from tidelog.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from tidelog.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_NOT_SAID: Final = -(1 << 31)
_PATTERNS_VERSION: Final = 1


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """The operations that a broker says the client is authorized for; None if it does not say."""
    if bits == _NOT_SAID:
        return None
    known = [operation for operation in AclOperation if operation and bits >> operation & 1]
    return frozenset(known)


def _oldest_version(wanted: AclBindingFilter) -> int:
    """Before 2.0 names are literal only."""
    return 0 if wanted.pattern_type is PatternType.LITERAL else _PATTERNS_VERSION


class AclCalls(Asking):
    async def create_acls(
        self, bindings: Iterable[AclBinding], *, timeout: float | None = None
    ) -> dict[AclBinding, Result[None]]:
        async def step(some: list[AclBinding], _: int) -> Found[AclBinding, None]:
            request = CreateAclsRequest(creations=[_creation(binding) for binding in some])
            is_literal = all(each.pattern_type is PatternType.LITERAL for each in some)
            response = await self.of_any(
                request, CreateAclsResponse, at_least=0 if is_literal else _PATTERNS_VERSION
            )
            return {
                binding: problem_of(f"creation of {binding}", row.error_code, row.error_message)
                for binding, row in zip(some, response.results, strict=False)
            }

        return await self.each("creation of ACLs", bindings, step, timeout)

    async def describe_acls(
        self, matching: AclBindingFilter | None = None, *, timeout: float | None = None
    ) -> list[AclBinding]:
        wanted = AclBindingFilter() if matching is None else matching

        async def ask(_: int) -> DescribeAclsResponse:
            request = DescribeAclsRequest(
                resource_type_filter=wanted.resource_type,
                resource_name_filter=wanted.resource_name,
                pattern_type_filter=wanted.pattern_type,
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission,
            )
            answer = await self.of_any(
                request, DescribeAclsResponse, at_least=_oldest_version(wanted)
            )
            problem = problem_of("description of ACLs", answer.error_code, answer.error_message)
            if problem is not None:
                raise problem
            return answer

        response = await self.once("description of ACLs", ask, timeout)
        return [
            AclBinding(
                ResourceType(resource.resource_type),
                resource.resource_name,
                row.principal,
                AclOperation(row.operation),
                AclPermission(row.permission_type),
                row.host,
                PatternType(resource.pattern_type),
            )
            for resource in response.resources
            for row in resource.acls
        ]

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout: float | None = None
    ) -> dict[AclBindingFilter, Result[list[AclBinding]]]:
        """What each filter matched, and is gone now."""

        async def step(
            some: list[AclBindingFilter], _: int
        ) -> Found[AclBindingFilter, list[AclBinding]]:
            request = DeleteAclsRequest(filters=[_deletion(wanted) for wanted in some])
            response = await self.of_any(
                request, DeleteAclsResponse, at_least=max(map(_oldest_version, some))
            )
            found: dict[AclBindingFilter, list[AclBinding] | ClientError] = {}
            for wanted, row in zip(some, response.filter_results, strict=False):
                problem = problem_of("deletion of ACLs", row.error_code, row.error_message)
                for matched in row.matching_acls:
                    problem = problem or problem_of(
                        f"deletion of {_matched(matched)}",
                        matched.error_code,
                        matched.error_message,
                    )
                found[wanted] = problem or [_matched(matched) for matched in row.matching_acls]
            return found

        return await self.each("deletion of ACLs", filters, step, timeout)


def _creation(binding: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        resource_pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def _deletion(wanted: AclBindingFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _matched(row: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        ResourceType(row.resource_type),
        row.resource_name,
        row.principal,
        AclOperation(row.operation),
        AclPermission(row.permission_type),
        row.host,
        PatternType(row.pattern_type),
    )
