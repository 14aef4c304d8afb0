"""`leader-epoch-checkpoint` against the leader epochs in the batches.

The epoch of a batch lies outside of its checksum, and the file has none. Where they differ, one of
them is wrong: a lone batch that agrees with neither of its neighbours, or else the file.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.log.directory.checkpoints import LEADER_EPOCH_FILE, read_epochs
from tidelog.log.leader_epoch_cache import LeaderEpochCache
from tidelog.log.log_errors import CorruptCheckpoint
from tidelog.tools.verify.finding import Finding, Kind, Report
from tidelog.tools.verify.good_batches import GoodBatch

REWRITTEN = "it is written anew from the batches"


class _Suspect(NamedTuple):
    """A batch whose epoch the file does not know at its offsets."""

    path: str
    position: int
    base_offset: int
    epoch: int
    epoch_before: int
    epoch_after: int = -1

    @property
    def is_lone(self) -> bool:
        return self.epoch not in (self.epoch_before, self.epoch_after)


class EpochCheck:
    def __init__(self, folder: str, log_start_offset: int, report: Report) -> None:
        self._path = f"{folder}/{LEADER_EPOCH_FILE}"
        self._log_start_offset = log_start_offset
        self._report = report
        self._cache = LeaderEpochCache()
        self._is_said = False
        self._is_known = self._read()
        self._suspects: list[_Suspect] = []
        self._previous_epoch = -1
        self._has_epochs = False

    def _read(self) -> bool:
        try:
            entries = read_epochs(self._path)
        except CorruptCheckpoint as problem:
            self._say(str(problem).removeprefix(f"{self._path}: "))
            return False
        self._cache = LeaderEpochCache(entries or ())
        return entries is not None

    def batch(self, path: str, batch: GoodBatch) -> None:
        epoch = batch.leader_epoch
        if batch.magic < 2 or epoch < 0 or batch.last_offset < self._log_start_offset:
            return
        self._has_epochs = True
        if self._suspects and self._suspects[-1].epoch_after < 0:
            self._suspects[-1] = self._suspects[-1]._replace(epoch_after=epoch)
        first = self._cache.epoch_for_offset(max(batch.base_offset, self._log_start_offset))
        last = self._cache.epoch_for_offset(batch.last_offset)
        if not first == last == epoch and self._is_known:
            self._suspects.append(
                _Suspect(path, batch.position, batch.base_offset, epoch, self._previous_epoch)
            )
        self._previous_epoch = epoch

    def finish(self, end_offset: int, *, log_is_whole: bool) -> None:
        if not self._is_known:
            if self._has_epochs and not self._is_said:
                self._say("it is missing, though batches have leader epochs")
            return
        if log_is_whole and self._cache.entries and self._cache.entries[-1][1] > end_offset:
            self._say(f"epoch {self._cache.latest_epoch} begins behind the log's end")
            return
        if not self._suspects:
            return
        suspect = self._suspects[0]
        if len(self._suspects) == 1 and suspect.is_lone:
            self._say_batch(suspect)
            return
        self._say(
            f"it says epoch {self._cache.epoch_for_offset(suspect.base_offset)} for offset "
            f"{suspect.base_offset}, but the batch in {suspect.path} has {suspect.epoch}"
        )

    def _say_batch(self, suspect: _Suspect) -> None:
        right = self._cache.epoch_for_offset(max(suspect.base_offset, self._log_start_offset))
        self._report(
            Finding(
                Kind.BATCH_EPOCH,
                suspect.path,
                f"the batch has leader epoch {suspect.epoch}, but {LEADER_EPOCH_FILE} says {right}",
                "nothing; repair-log stamps the right epoch",
                suspect.position,
                suspect.base_offset,
                right,
            )
        )

    def _say(self, problem: str) -> None:
        self._is_said = True
        self._report(Finding(Kind.EPOCHS, self._path, problem, REWRITTEN))
