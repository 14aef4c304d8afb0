"""DeleteGroups v0-v2: forget groups without members, and their offsets.

Behaviour
- Tombstones are written for the group and each of its offsets, in slices: a member that joins
  meanwhile keeps the group, without the offsets that are gone. A group named twice is one row.
Checks, in order: DELETE on the group (30), coordinator (14, 16), group known (69), no members (68).
Versions: v2 flexible.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.broker.authorized_operations import DELETE, GROUP
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(
    context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Pending[EncodedAnswer]:
    groups = context.broker.groups
    results: list[DeletableGroupResult] = []

    def delete_all() -> Iterator[None]:
        for group_id in dict.fromkeys(request.groups_names):
            if not context.may(DELETE, GROUP, group_id):
                denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
                results.append(DeletableGroupResult(group_id=group_id, error_code=denied))
                continue
            while (code := groups.delete_group(group_id)) is None:
                yield
            results.append(DeletableGroupResult(group_id=group_id, error_code=code))
            yield

    return answer_in_slices(context, delete_all(), lambda: DeleteGroupsResponse(results=results))
