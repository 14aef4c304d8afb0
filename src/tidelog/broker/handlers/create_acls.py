"""CreateAcls v0-v3: add access control lists.

Behaviour
- Each is answered on its own, when it is in the metadata store and this broker decides by it. Other
  brokers hear of it at once. One that is there already is no error.
- Without an authorizer: SECURITY_DISABLED (54) for each.
- An element that is UNKNOWN (0) closes the connection, as in Kafka. One that only a filter may have
  (ANY, MATCH) is UNKNOWN_SERVER_ERROR for all.
Checks, in order: ALTER on the cluster (31), of a CLUSTER resource the name kafka-cluster, a name at
all, no code that nobody knows, no slash in the name, a principal of the form Type:name (42; Kafka:
UNKNOWN_SERVER_ERROR).
Versions: v1 pattern types (KIP-290), v2 flexible, v3 USER resources.
"""

from __future__ import annotations

from tidelog.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tidelog.broker.authorized_operations import ALTER
from tidelog.broker.context import CloseConnection, RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


async def handle(
    context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse | CloseConnection:
    for each in request.creations:
        kinds = (each.resource_type, each.resource_pattern_type)
        if 0 in (*kinds, each.operation, each.permission_type):
            return CloseConnection("a request about ACLs with UNKNOWN elements")
    authorizer = context.broker.authorizer
    if authorizer is None:
        return _refused(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    if not context.may_on_cluster(ALTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _refused(request, code, code.text)
    bindings = [_binding(each) for each in request.creations]
    if any(map(_is_of_a_filter, bindings)):
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        return _refused(request, code, "An ACL cannot have an element that is ANY or MATCH.")
    outcomes = {binding: _refusal(binding) for binding in bindings}
    valid = [binding for binding, refusal in outcomes.items() if refusal is None]
    outcomes.update(await authorizer.acls.create(valid))
    return CreateAclsResponse(results=[_row(outcomes[binding]) for binding in bindings])


def _refused(request: CreateAclsRequest, code: ErrorCode, message: str) -> CreateAclsResponse:
    row = AclCreationResult(error_code=code, error_message=message)
    return CreateAclsResponse(results=[row] * len(request.creations))


def _row(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=error.code, error_message=error.message)


def _binding(each: AclCreation) -> AclBinding:
    return AclBinding(
        ResourceType(each.resource_type),
        each.resource_name,
        each.principal,
        AclOperation(each.operation),
        AclPermission(each.permission_type),
        each.host,
        PatternType(each.resource_pattern_type),
    )


def _is_of_a_filter(binding: AclBinding) -> bool:
    return (
        binding.resource_type is ResourceType.ANY
        or binding.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or binding.operation is AclOperation.ANY
        or binding.permission is AclPermission.ANY
    )


def _refusal(binding: AclBinding) -> KafkaError | None:
    complaint = None
    elements = (
        binding.resource_type,
        binding.pattern_type,
        binding.operation,
        binding.permission,
    )
    if binding.resource_type is ResourceType.CLUSTER and binding.resource_name != CLUSTER_NAME:
        complaint = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not binding.resource_name:
        complaint = "Invalid empty resource name"
    elif 0 in elements:
        complaint = "The ACL has an element of a code that is not known"
    elif "/" in binding.resource_name:
        complaint = f"A resource with a slash in its name has no ACLs: {binding.resource_name}"
    elif ":" not in binding.principal:
        complaint = f"A principal has the form User:name, not {binding.principal!r}"
    return None if complaint is None else KafkaError(ErrorCode.INVALID_REQUEST, complaint)
