from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.log.leader_epoch_cache import LeaderEpochCache

LOG_END = 50


def test_epochs_and_offsets_grow() -> None:
    cache = LeaderEpochCache()
    assert cache.latest_epoch == -1
    assert cache.assign(2, 6)
    assert cache.assign(3, 10)
    assert not cache.assign(3, 12)
    assert cache.entries == [(2, 6), (3, 10)]


def test_a_new_entry_drops_those_that_contradict_it() -> None:
    cache = LeaderEpochCache([(1, 0), (2, 10), (3, 20)])
    cache.assign(4, 10)
    assert cache.entries == [(1, 0), (4, 10)]
    cache.assign(2, 30)
    assert cache.entries == [(1, 0), (2, 30)]


def test_an_epoch_without_batches_is_replaced_by_the_next() -> None:
    cache = LeaderEpochCache([(1, 0)])
    cache.assign(2, 10)
    cache.assign(3, 10)
    assert cache.entries == [(1, 0), (3, 10)]


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, LOG_END)),
        (5, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch_is_the_start_of_the_next(
    requested: int, expected: tuple[int, int]
) -> None:
    cache = LeaderEpochCache([(1, 5), (2, 10), (4, 20)])
    assert cache.end_offset_for(requested, LOG_END) == expected


def test_an_empty_cache_knows_no_end() -> None:
    assert LeaderEpochCache().end_offset_for(0, LOG_END) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(4, -1), (5, 1), (9, 1), (10, 2), (99, 2)])
def test_every_offset_has_the_epoch_that_covers_it(offset: int, epoch: int) -> None:
    assert LeaderEpochCache([(1, 5), (2, 10)]).epoch_for_offset(offset) == epoch


def test_truncation_at_the_end_drops_epochs_that_begin_there() -> None:
    cache = LeaderEpochCache([(1, 5), (2, 10), (3, 20)])
    cache.truncate_from_end(20)
    assert cache.entries == [(1, 5), (2, 10)]
    assert cache.dirty
    cache.dirty = False
    cache.truncate_from_end(20)
    assert not cache.dirty


def test_truncation_at_the_start_moves_the_first_entry() -> None:
    cache = LeaderEpochCache([(1, 5), (2, 10), (3, 20)])
    cache.truncate_from_start(15)
    assert cache.entries == [(2, 15), (3, 20)]


def test_truncation_below_the_first_entry_changes_nothing() -> None:
    cache = LeaderEpochCache([(1, 5)])
    cache.truncate_from_start(3)
    cache.truncate_from_start(5)
    assert cache.entries == [(1, 5)]
    assert not cache.dirty


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    cache = LeaderEpochCache()
    cache.assign(0, 0)
    cache.assign(7, 42)
    assert cache.ahead
    cache.save(str(tmp_path / "leader-epoch-checkpoint"))
    assert not cache.ahead
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n7 42\n"
