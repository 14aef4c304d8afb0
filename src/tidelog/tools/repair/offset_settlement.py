"""Which of the batches found in a segment file may stay, and at which offsets.

Base offset and leader epoch of a batch lie outside of its checksum. The heaviest part of the file
that is in order is believed; a batch counts more if the offset index points at it, or if the file's
name says that it is where it should be. Of the others

- a batch gets the offset that is left for it, if there is only one: it fills the room between its
  neighbours exactly, or in a log without gaps the room up to the known end. The file must hold a
  believed batch, with no lost bytes in between.
- a batch gets the epoch that leader-epoch-checkpoint has for it, if that is in order; else that of
  the batch before. An epoch says who wrote a batch, not what is in it.
- every other batch goes: a record at an offset that is not its own is worse than one that is lost.

A file whose believed batches do not belong between its name and the next file's is not this
segment: nothing in it is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.log.leader_epoch_cache import LeaderEpochCache
from tidelog.tools.repair.batch_finder import FoundBatch


class SegmentPlace(NamedTuple):
    """What the other files say of a segment."""

    base_offset: int
    limit_offset: int  # where the next segment begins; for the last one what an index can say
    end_offset: int | None  # where its batches end in a log without gaps, if that is known
    is_first: bool
    gaps_allowed: bool
    indexed: Mapping[int, int]  # last offsets of batches by position, from the offset index

    def may_hold(self, batch: FoundBatch) -> bool:
        return self.base_offset <= batch.base_offset and batch.last_offset < self.limit_offset


def settle_offsets(
    batches: Sequence[FoundBatch], content: bytes, place: SegmentPlace
) -> list[FoundBatch]:
    """The batches that stay; an empty list also if the file is not this segment."""
    if any(batch.records_count < 0 for batch in batches):
        # Nobody can tell how many offsets a compressed batch of format 0 or 1 covers.
        place = place._replace(gaps_allowed=True)
    keys = _keys(batches)
    if _is_settled(batches, keys, place):
        return list(batches)
    believed = _believed(batches, keys, place)
    if len({keys[number] for number in believed}) > 1 + _losses_count(batches) + 1:
        # So many gaps are none that a damaged offset makes: the log was compacted, or the file
        # comes from another log that was, and then this segment's index points at none of it.
        if place.indexed and not any(_is_indexed(batch, place) for batch in batches):
            return []
        place = place._replace(gaps_allowed=True)
        believed = _believed(batches, keys, place)
    if _is_foreign(batches, keys, believed, place):
        return []
    believed = _without_moved_end(batches, keys, believed, place)
    believed = [number for number in believed if place.may_hold(batches[number])]
    return _with_moved(batches, believed, content, place)


def _keys(batches: Sequence[FoundBatch]) -> list[int]:
    """Base offsets less the offsets before them: equal in a log without gaps, else they grow."""
    keys, covered = [], 0
    for batch in batches:
        keys.append(batch.base_offset - covered)
        covered += batch.offsets_count
    return keys


def _is_settled(batches: Sequence[FoundBatch], keys: Sequence[int], place: SegmentPlace) -> bool:
    if not all(place.may_hold(batch) for batch in batches) or sorted(keys) != keys:
        return False
    is_dense = all(
        keys[number] == keys[number - 1]
        for number in range(1, len(batches))
        if batches[number].position == batches[number - 1].end
    )
    is_anchored = place.is_first or not batches or batches[0].position > 0
    return place.gaps_allowed or (is_dense and (is_anchored or keys[0] == place.base_offset))


def _is_indexed(batch: FoundBatch, place: SegmentPlace) -> bool:
    return place.indexed.get(batch.position) == batch.last_offset


def _losses_count(batches: Sequence[FoundBatch]) -> int:
    return sum(
        batches[number].position != batches[number - 1].end for number in range(1, len(batches))
    )


def _before_loss(batches: Sequence[FoundBatch]) -> int:
    """How many batches there are before the first lost bytes."""
    position = 0
    for number, batch in enumerate(batches):
        if batch.position != position:
            return number
        position = batch.end
    return len(batches)


def _believed(batches: Sequence[FoundBatch], keys: Sequence[int], place: SegmentPlace) -> list[int]:
    whole = 0 if place.gaps_allowed else _before_loss(batches)
    weights = [
        1 + 2 * _is_indexed(batch, place) + 2 * (number < whole and key == place.base_offset)
        for number, (batch, key) in enumerate(zip(batches, keys, strict=True))
    ]
    return heaviest_in_order(keys, weights)


def _is_foreign(
    batches: Sequence[FoundBatch],
    keys: Sequence[int],
    believed: Sequence[int],
    place: SegmentPlace,
) -> bool:
    whole = 0 if place.gaps_allowed else _before_loss(batches)
    if any(number < whole and keys[number] == place.base_offset for number in believed):
        return False
    if any(_is_indexed(batches[n], place) and place.may_hold(batches[n]) for n in believed):
        return False
    outside = [number for number in believed if not place.may_hold(batches[number])]
    if outside:
        is_one_liar = len(outside) == 1 and outside[0] in (believed[0], believed[-1])
        return not is_one_liar or len(believed) < 3
    return whole > 0 and not place.is_first


def _without_moved_end(
    batches: Sequence[FoundBatch],
    keys: Sequence[int],
    believed: list[int],
    place: SegmentPlace,
) -> list[int]:
    """A last batch behind a gap, where there should be none, is believed by nobody but itself."""
    if place.gaps_allowed or len(believed) < 2 or believed[-1] != len(batches) - 1:
        return believed
    before, last = believed[-2:]
    is_adjacent = all(
        batches[number].position == batches[number - 1].end
        for number in range(before + 1, last + 1)
    )
    is_moved = keys[before] != keys[last] and batches[last].last_offset + 1 != place.end_offset
    return believed[:-1] if is_adjacent and is_moved else believed


def _with_moved(
    batches: Sequence[FoundBatch], believed: Sequence[int], content: bytes, place: SegmentPlace
) -> list[FoundBatch]:
    settled: list[FoundBatch] = []
    liars: list[FoundBatch] = []
    trusted = set(believed)
    if not trusted:
        return []
    for number, batch in enumerate(batches):
        if number not in trusted:
            liars.append(batch)
            continue
        before = settled[-1] if settled else None
        # The believed may overlap all the same where a count is not known.
        if before is not None and batch.base_offset <= before.last_offset:
            continue
        settled += _moved(liars, before, batch, content, place)
        settled.append(batch)
        liars = []
    settled += _moved(liars, settled[-1], None, content, place)
    return settled


def _moved(
    liars: Sequence[FoundBatch],
    before: FoundBatch | None,
    after: FoundBatch | None,
    content: bytes,
    place: SegmentPlace,
) -> list[FoundBatch]:
    """The liars at the offsets that are left for them, if those are the only ones."""
    if not liars or any(batch.records_count < 0 for batch in liars):
        return []
    position = 0 if before is None else before.end
    for batch in liars:
        if batch.position != position:
            return []
        position = batch.end
    if position != (len(content) if after is None else after.position):
        return []
    offset = place.base_offset if before is None else before.last_offset + 1
    end = place.end_offset if after is None else after.base_offset
    if offset + sum(batch.offsets_count for batch in liars) != end:
        return []
    moved = []
    for batch in liars:
        moved.append(batch.moved_to(offset, content))
        offset += batch.offsets_count
    return moved


def settle_epochs(
    batches: Sequence[FoundBatch],
    content: bytes,
    *,
    before: int,
    after: int | None,
    known: LeaderEpochCache,
) -> list[FoundBatch]:
    """`before` and `after` are the epochs at the borders of the neighbouring segments."""
    settled = list(batches)
    numbers = [n for n, batch in enumerate(batches) if batch.magic == 2]
    epochs = [batches[n].leader_epoch for n in numbers]
    frame = [before, *epochs, *([] if after is None else [after])]
    if sorted(frame) == frame and min(frame) >= -1:
        return settled
    weights = [
        (1 + 2 * (known.epoch_for_offset(batches[n].base_offset) == epoch)) if epoch >= -1 else 0
        for n, epoch in zip(numbers, epochs, strict=True)
    ]
    weights = [2, *weights, *([] if after is None else [2])]
    believed = set(heaviest_in_order(frame, weights))
    latest = before
    for place, number in enumerate(numbers, 1):
        batch = batches[number]
        if place in believed and batch.leader_epoch >= -1:
            latest = batch.leader_epoch
            continue
        later = [frame[n] for n in sorted(believed) if n > place and frame[n] >= latest]
        epoch = known.epoch_for_offset(batch.base_offset)
        if not latest <= epoch <= (later[0] if later else epoch):
            epoch = latest
        settled[number] = batch.of_epoch(epoch, content)
    return settled


def heaviest_in_order(keys: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Numbers of the keys of a non-decreasing subsequence of the largest weight."""
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)), 1)}
    heaviest = [(0, -1)] * (len(ranks) + 1)  # a Fenwick tree of (weight, number of the last key)
    before: list[int] = []
    for number, (key, weight) in enumerate(zip(keys, weights, strict=True)):
        best, rank = (0, -1), ranks[key]
        while rank:
            best, rank = max(best, heaviest[rank]), rank & (rank - 1)
        before.append(best[1])
        best, rank = (best[0] + weight, number), ranks[key]
        while rank < len(heaviest):
            heaviest[rank], rank = max(best, heaviest[rank]), rank + (rank & -rank)
    best = max(heaviest)
    chosen = []
    number = best[1] if best[0] else -1
    while number >= 0:
        chosen.append(number)
        number = before[number]
    return chosen[::-1]
