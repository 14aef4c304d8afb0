"""DescribeAcls v0-v3: access control lists that match a filter.

Behaviour
- Those that this broker knows, by resource. A field of the filter that is null matches everything,
  an empty one does not. The pattern type MATCH (v1+) finds all that hold for the resource named.
- Without an authorizer: SECURITY_DISABLED (54).
- An element that is UNKNOWN (0) closes the connection, as in Kafka; a code that nobody knows
  matches nothing.
Checks, in order: DESCRIBE on the cluster (31).
Versions: v1 pattern types (KIP-290; v0 sees literal ones alone), v2 flexible, v3 USER resources.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.acls import AclBindingFilter, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.broker.authorized_operations import DESCRIBE
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import CloseConnection, RequestContext
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def handle(
    context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse | CloseConnection | Pending[EncodedAnswer]:
    kinds = (request.resource_type_filter, request.pattern_type_filter)
    if 0 in (*kinds, request.operation, request.permission_type):
        return CloseConnection("a request about ACLs with UNKNOWN elements")
    authorizer = context.broker.authorizer
    if authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message="No Authorizer is configured on the broker",
        )
    if not context.may_on_cluster(DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeAclsResponse(error_code=code, error_message=code.text)
    wanted = AclBindingFilter(
        ResourceType(request.resource_type_filter),
        request.resource_name_filter,
        request.principal_filter,
        AclOperation(request.operation),
        AclPermission(request.permission_type),
        request.host_filter,
        PatternType(request.pattern_type_filter),
    )
    response = DescribeAclsResponse(error_message=None)

    def describe_all() -> Iterator[None]:
        for bindings in authorizer.acls.matching(wanted):
            if bindings:
                pattern = bindings[0].pattern
                row = DescribeAclsResource(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    acls=[
                        AclDescription(
                            principal=binding.principal,
                            host=binding.host,
                            operation=binding.operation,
                            permission_type=binding.permission,
                        )
                        for binding in bindings
                    ],
                )
                response.resources.append(row)
            yield

    return answer_in_slices(context, describe_all(), lambda: response)
