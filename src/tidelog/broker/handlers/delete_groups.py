"""DeleteGroups v0-v2: forget groups without members, and their offsets.

Behaviour
- Tombstones are written for the group and each of its offsets. A group named twice is one row.
Checks, in order: coordinator (14, 16), group known (69), no members (68).
Versions: v2 flexible.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    groups = context.broker.groups
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=groups.delete_group(group_id))
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )
