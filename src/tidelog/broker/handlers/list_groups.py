"""ListGroups v0-v5: the groups that this broker looks after.

Behaviour
- Filters by state (v4) and type (v5) ignore case; a state or type that does not exist lists none.
- Groups that the client may not DESCRIBE are left out, unless it may DESCRIBE the cluster.
- While partitions load, the groups that are known already, with COORDINATOR_LOAD_IN_PROGRESS.
Versions: v1 throttle time, v3 flexible, v4 states, v5 types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.broker.authorized_operations import DESCRIBE, GROUP
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

GROUPS_PER_STEP: Final = 200


def handle(
    context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse | Pending[EncodedAnswer]:
    groups = context.broker.groups
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    sees_all = context.may_on_cluster_quietly(DESCRIBE)
    is_loading = groups.runtime.is_loading
    response = ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE
    )

    def list_all() -> Iterator[None]:
        listed = groups.list_groups()
        for first in range(0, len(listed), GROUPS_PER_STEP):
            response.groups += [
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state_name,
                    group_type=group.type.value,
                )
                for group in listed[first : first + GROUPS_PER_STEP]
                if (not states or group.state_name.lower() in states)
                and (not types or group.type.value in types)
                and (sees_all or context.may_quietly(DESCRIBE, GROUP, group.group_id))
            ]
            yield

    return answer_in_slices(context, list_all(), lambda: response)
