from __future__ import annotations

import pytest

from tidelog.pending import Pending


def test_reader_gets_an_answer_that_comes_later() -> None:
    pending: Pending[int] = Pending()
    seen: list[int] = []
    pending.then(seen.append)
    assert seen == []
    pending.complete(7)
    assert seen == [7]


def test_reader_gets_an_answer_that_was_there_first() -> None:
    pending: Pending[int] = Pending()
    pending.complete(7)
    seen: list[int] = []
    pending.then(seen.append)
    assert seen == [7]


def test_completing_twice_is_a_bug() -> None:
    pending: Pending[int] = Pending()
    pending.complete(7)
    with pytest.raises(AssertionError):
        pending.complete(8)
