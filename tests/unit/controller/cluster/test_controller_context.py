"""The controller's picture of the cluster: assignments, and the mappings of a draft."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.controller.cluster.controller_context import DraftMapping, ReplicaAssignment

BROKERS = st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True)


def test_kafkas_example() -> None:
    moving = ReplicaAssignment((1, 2, 3)).reassigned_to([4, 5, 6])
    assert moving == ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert moving.origin == (1, 2, 3)
    assert moving.target == (4, 5, 6)


def test_a_second_reassignment_supersedes_the_first() -> None:
    second = ReplicaAssignment((1, 2, 3)).reassigned_to([3, 4]).reassigned_to([2, 5])
    assert second.target == (2, 5)
    assert sorted(second.origin) == [1, 2, 3]
    assert second.adding == (5,)


def test_nothing_changes_when_the_target_is_what_is() -> None:
    assert not ReplicaAssignment((1, 2)).reassigned_to([1, 2]).is_being_reassigned


@given(BROKERS, st.lists(BROKERS, min_size=1, max_size=4))
def test_origin_and_target_can_always_be_told(before: list[int], targets: list[list[int]]) -> None:
    assignment = ReplicaAssignment(tuple(before))
    for target in targets:
        assignment = assignment.reassigned_to(target)
        assert assignment.target == tuple(target)
        assert set(assignment.origin) == set(before)
    cancelled = assignment.reassigned_to(assignment.origin)
    assert set(cancelled.replicas) == set(before)
    assert not cancelled.is_being_reassigned


KEYS = st.integers(0, 5)
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers())))


@given(st.dictionaries(KEYS, st.integers()), CHANGES)
def test_it_behaves_as_a_dictionary_with_the_changes_made(
    base: dict[int, int], changes: list[tuple[int, int | None]]
) -> None:
    model, before = dict(base), dict(base)
    draft: DraftMapping[int, int] = DraftMapping(base)
    for key, value in changes:
        if value is not None:
            model[key] = draft[key] = value
        else:
            assert draft.pop(key, None) == model.pop(key, None)
        assert dict(draft) == model
        assert len(draft) == len(model)
        assert {k for k in range(6) if k in draft} == model.keys()
    assert base == before, "nothing has happened to the base yet"
    draft.fold()
    assert base == model
