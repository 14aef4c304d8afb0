from __future__ import annotations

import pytest

from tidelog.controller.topic_names import (
    collision_form,
    is_internal,
    must_be_valid,
    reason_invalid,
)
from tidelog.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", ["a", "a.b", "a_b", "A-9", "...", "__consumer_offsets", "x" * 249])
def test_valid_names(name: str) -> None:
    assert reason_invalid(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "a/b", "a\n", "\u00e9", "a*", "a:b", "a\0"]
)
def test_invalid_names(name: str) -> None:
    with pytest.raises(KafkaError) as raised:
        must_be_valid(name)
    assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    assert collision_form("a.b_c") == collision_form("a_b.c")
    assert collision_form("a.b") != collision_form("ab")


def test_internal_topics() -> None:
    assert is_internal("__consumer_offsets")
    assert is_internal("__transaction_state")
    assert not is_internal("__mine")
