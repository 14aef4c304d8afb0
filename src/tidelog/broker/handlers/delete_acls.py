"""DeleteAcls v0-v3: remove access control lists that match filters.

Behaviour
- Each filter is answered with what it matched, when that is gone from the metadata store and this
  broker decides without it. What several filters match is the first one's. A filter that matches
  nothing is no error.
- Without an authorizer: SECURITY_DISABLED (54) for each.
- An element that is UNKNOWN (0) closes the connection, as in Kafka; a code that nobody knows
  matches nothing.
Checks, in order: ALTER on the cluster (31).
Versions: v1 pattern types (KIP-290; v0 removes literal ones alone), v2 flexible, v3 USER resources.
"""

from __future__ import annotations

from tidelog.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tidelog.broker.authorized_operations import ALTER
from tidelog.broker.context import CloseConnection, RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(
    context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse | CloseConnection:
    for each in request.filters:
        kinds = (each.resource_type_filter, each.pattern_type_filter)
        if 0 in (*kinds, each.operation, each.permission_type):
            return CloseConnection("a request about ACLs with UNKNOWN elements")
    authorizer = context.broker.authorizer
    if authorizer is None:
        return _refused(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    if not context.may_on_cluster(ALTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _refused(request, code, code.text)
    deleted = await authorizer.acls.delete([_filter(each) for each in request.filters])
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_message=None,
                matching_acls=[_row(binding, error) for binding, error in matched.items()],
            )
            for matched in deleted
        ]
    )


def _refused(request: DeleteAclsRequest, code: ErrorCode, message: str) -> DeleteAclsResponse:
    row = DeleteAclsFilterResult(error_code=code, error_message=message)
    return DeleteAclsResponse(filter_results=[row] * len(request.filters))


def _filter(each: DeleteAclsFilter) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType(each.resource_type_filter),
        each.resource_name_filter,
        each.principal_filter,
        AclOperation(each.operation),
        AclPermission(each.permission_type),
        each.host_filter,
        PatternType(each.pattern_type_filter),
    )


def _row(binding: AclBinding, error: KafkaError | None) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )
