"""An overlay is a mapping whose changes can be made or dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.controller.cluster.overlay import Overlay

KEYS = st.integers(0, 5)
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers())))


@given(st.dictionaries(KEYS, st.integers()), CHANGES)
def test_it_behaves_as_a_dictionary_with_the_changes_made(
    base: dict[int, int], changes: list[tuple[int, int | None]]
) -> None:
    model, before = dict(base), dict(base)
    overlay: Overlay[int, int] = Overlay(base)
    for key, value in changes:
        if value is not None:
            model[key] = overlay[key] = value
        else:
            assert overlay.pop(key, None) == model.pop(key, None)
        assert dict(overlay) == model
        assert len(overlay) == len(model)
        assert {k for k in range(6) if k in overlay} == model.keys()
    assert base == before, "nothing has happened to the base yet"
    overlay.fold()
    assert base == model
