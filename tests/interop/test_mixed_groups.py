"""Tidelog's consumers beside confluent-kafka's and Kafka's own in one group, through random events;
the full size is `python -m tests.support.group_harness --protocol mixed`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.group_harness import MIXED_KINDS, GroupHarness, GroupKind
from tests.support.java_member import class_path_or_reason

EVENTS = 10


@pytest.mark.parametrize("kind", MIXED_KINDS, ids=lambda kind: f"{kind.protocol} {kind.strategy}")
def test_members_of_three_libraries_share_a_group_through_random_events(
    tmp_path: Path, kind: GroupKind
) -> None:
    found = class_path_or_reason()
    if isinstance(found, str):
        pytest.skip(f"Kafka's consumer is not here: {found}")
    harness = GroupHarness(tmp_path, [kind], seed=4)
    try:
        harness.run(EVENTS)
    finally:
        harness.close()
    assert harness.events.total() == EVENTS
