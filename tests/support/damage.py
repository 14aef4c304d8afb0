"""Random damage to a data directory: what disks, crashes and people do to files.

`DAMAGES` names each kind with a function that does one to a directory and says what it did; the
same seed does the same. Each one changes something a broker or `tidelog verify-log` can tell; what
nobody can tell from the files is left out and said where it is.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.support import raw_batch
from tests.support.damage_stage import ACCOUNTS, DamageStage
from tidelog.log.directory.checkpoints import (
    CHECKPOINT_FILES,
    HIGH_WATERMARK_FILE,
    RECOVERY_POINT_FILE,
)

INDEX_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": 34}


class Site(NamedTuple):
    stage: DamageStage
    directory: Path
    random: Random

    def files(self, *suffixes: str) -> list[Path]:
        """That are not empty."""
        found = [path for end in suffixes for path in self.directory.glob(f"*/*{end}")]
        return sorted(path for path in found if path.stat().st_size)

    def pick(self, *suffixes: str) -> Path:
        return self.random.choice(self.files(*suffixes))


def flip(path: Path, position: int, bit: int) -> str:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {position} of {path.parent.name}/{path.name} turned"


def flip_in_log(site: Site) -> str:
    path = site.pick(".log")
    size = path.stat().st_size
    position = site.random.randrange(size)
    if path.parent.name == str(ACCOUNTS):
        # Where gaps are usual, nobody can tell that a batch has been moved within one.
        while in_base_offset(path, position):
            position = site.random.randrange(size)
    return flip(path, position, site.random.randrange(8))


def in_base_offset(path: Path, position: int) -> bool:
    return any(
        batch.position <= position < batch.position + 8
        for batch in raw_batch.read_batches(path.read_bytes())
    )


def tear_log(site: Site) -> str:
    path = site.pick(".log")
    content = path.read_bytes()
    kept = site.random.randrange(len(content))
    ends = {batch.position for batch in raw_batch.read_batches(content)}
    if path.parent.name == str(ACCOUNTS) and path != last_log(path.parent):
        # The same goes for batches lost at the end of a segment.
        while kept in ends:
            kept = site.random.randrange(len(content))
    path.write_bytes(content[:kept])
    return f"{path.parent.name}/{path.name} torn at {kept} of {len(content)}"


def last_log(folder: Path) -> Path:
    return max(folder.glob("*.log"))


def zero_tail(site: Site) -> str:
    path = site.pick(".log")
    content = bytearray(path.read_bytes())
    start = site.random.randrange(len(content) - 30)
    content[start:] = bytes(len(content) - start)
    path.write_bytes(content)
    return f"{path.parent.name}/{path.name} zeroed from {start} on"


def append_zeros(site: Site) -> str:
    path = last_log(site.pick(".log").parent)
    count = site.random.randrange(1, 5000)
    path.write_bytes(path.read_bytes() + bytes(count))
    return f"{count} zeros after {path.parent.name}/{path.name}"


def append_garbage(site: Site) -> str:
    path = last_log(site.pick(".log").parent)
    garbage = site.random.randbytes(site.random.randrange(1, 500))
    path.write_bytes(path.read_bytes() + garbage)
    return f"{len(garbage)} bytes of garbage after {path.parent.name}/{path.name}"


def overwrite_block(site: Site) -> str:
    path = site.pick(".log")
    content = bytearray(path.read_bytes())
    size = min(site.random.choice((16, 64, 512)), len(content))
    start = site.random.randrange(len(content) - size + 1)
    block = bytes(size) if site.random.random() < 0.5 else site.random.randbytes(size)
    content[start : start + size] = block
    path.write_bytes(content)
    return f"{size} bytes at {start} of {path.parent.name}/{path.name} overwritten"


def swap_segments(site: Site) -> str:
    """Of one log; with their indexes or without."""
    folder = site.pick(".log").parent
    logs = [path for path in site.files(".log") if path.parent == folder]
    first, second = site.random.sample(logs, 2)
    suffixes = [".log"]
    if site.random.random() < 0.5:
        suffixes += list(INDEX_BYTES)
    for suffix in suffixes:
        exchange(first.with_suffix(suffix), second.with_suffix(suffix))
    return f"{folder.name}: {first.name} and {second.name} swapped, {len(suffixes)} files each"


def exchange(first: Path, second: Path) -> None:
    contents = [path.read_bytes() if path.exists() else None for path in (first, second)]
    for path, content in zip((second, first), contents, strict=True):
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content)


def foreign_segment(site: Site) -> str:
    """The segment of another log, which holds other offsets."""
    path = site.pick(".log")
    others = [
        other
        for other in site.files(".log")
        if other.parent != path.parent and not fits(other, path)
    ]
    other = site.random.choice(others)
    shutil.copy(other, path)
    return f"{path.parent.name}/{path.name} replaced by {other.parent.name}/{other.name}"


def fits(other: Path, path: Path) -> bool:
    """Whether the offsets could be those of the segment; where gaps are usual, many could."""
    base = int(path.stem)
    if path.parent.name == str(ACCOUNTS):
        later = [int(each.stem) for each in path.parent.glob("*.log") if int(each.stem) > base]
        return base <= first_offset(other) < min(later, default=1 << 62)
    return first_offset(other) == base


def first_offset(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[:8], "big")


def lose_index(site: Site) -> str:
    path = site.pick(*INDEX_BYTES)
    path.unlink()
    return f"{path.parent.name}/{path.name} lost"


def foreign_index(site: Site) -> str:
    path = site.pick(*INDEX_BYTES)
    content = path.read_bytes()
    others = [
        other
        for other in site.files(path.suffix)
        if other.read_bytes()[: len(content)] != content[: other.stat().st_size]
    ]
    other = site.random.choice(others)
    shutil.copy(other, path)
    return f"{path.parent.name}/{path.name} replaced by {other.parent.name}/{other.name}"


def flip_in_index(site: Site) -> str:
    path = site.pick(*INDEX_BYTES)
    return flip(path, site.random.randrange(path.stat().st_size), site.random.randrange(8))


def tear_index(site: Site) -> str:
    """Within an entry: a whole one less is still an index, though a sparser one."""
    path = site.pick(*INDEX_BYTES)
    size = path.stat().st_size
    kept = site.random.randrange(size)
    while kept % INDEX_BYTES[path.suffix] == 0:
        kept = site.random.randrange(size)
    path.write_bytes(path.read_bytes()[:kept])
    return f"{path.parent.name}/{path.name} torn at {kept} of {size}"


def zero_index(site: Site) -> str:
    path = site.pick(".index", ".timeindex")
    path.write_bytes(bytes(path.stat().st_size))
    return f"{path.parent.name}/{path.name} zeroed"


def stale_checkpoints(site: Site) -> str:
    for name in CHECKPOINT_FILES:
        shutil.copy(site.stage.stale / name, site.directory)
    return "all checkpoints as they were halfway"


def garble_checkpoint(site: Site) -> str:
    """The high watermark is left alone: one that is too low is what any kill leaves."""
    name = site.random.choice([n for n in CHECKPOINT_FILES if n != HIGH_WATERMARK_FILE])
    path = site.directory / name
    if name == RECOVERY_POINT_FILE and site.random.random() < 0.5:
        content = bytearray(path.read_bytes())
        content[-2] ^= 1 << site.random.randrange(3)  # a digit of an offset
        path.write_bytes(content)
        return f"another digit in {name}"
    path.write_bytes(site.random.randbytes(site.random.randrange(1, 60)))
    return f"{name} overwritten with garbage"


def damage_snapshot(site: Site) -> str:
    path = site.pick(".snapshot")
    if site.random.random() < 0.7:
        return flip(path, site.random.randrange(path.stat().st_size), site.random.randrange(8))
    path.write_bytes(path.read_bytes()[: site.random.randrange(path.stat().st_size)])
    return f"{path.parent.name}/{path.name} torn"


def damage_epochs(site: Site) -> str:
    path = site.pick("leader-epoch-checkpoint")
    kind = site.random.randrange(3)
    if kind == 0:
        path.unlink()
        return f"{path.parent.name}/{path.name} lost"
    if kind == 1:
        content = path.read_bytes()
        path.write_bytes(content[: site.random.randrange(len(content) - 1)])
        return f"{path.parent.name}/{path.name} torn"
    rows = path.read_text().splitlines()
    epoch, start = rows[-1].split()
    rows[-1] = f"{epoch} {int(start) + site.random.choice((-3, -1, 1, 5))}"
    path.write_text("\n".join([*rows, ""]))
    return f"another offset in {path.parent.name}/{path.name}"


DAMAGES: dict[str, Callable[[Site], str]] = {
    function.__name__: function
    for function in (
        flip_in_log,
        tear_log,
        zero_tail,
        append_zeros,
        append_garbage,
        overwrite_block,
        swap_segments,
        foreign_segment,
        lose_index,
        foreign_index,
        flip_in_index,
        tear_index,
        zero_index,
        stale_checkpoints,
        garble_checkpoint,
        damage_snapshot,
        damage_epochs,
    )
}
# More of what is likely, and of what has many places to strike.
WEIGHTS = {"flip_in_log": 6, "tear_log": 3, "overwrite_block": 3, "flip_in_index": 4}


def do_damage(stage: DamageStage, directory: Path, seed: int) -> str:
    """Deterministic; what was done."""
    random = Random(seed)
    names = list(DAMAGES)
    name = random.choices(names, [WEIGHTS.get(each, 1) for each in names])[0]
    return f"{name}: {DAMAGES[name](Site(stage, directory, random))}"


def do_damages(stage: DamageStage, directory: Path, seed: int) -> str:
    """Several at once, of the kinds that leave something between them."""
    site = Site(stage, directory, Random(seed))
    kinds = (flip_in_log, flip_in_log, overwrite_block, overwrite_block, flip_in_index, lose_index)
    done = []
    for _ in range(site.random.randrange(2, 8)):
        # Whether a place is a base offset cannot be told any more in a log that is damaged.
        with contextlib.suppress(raw_batch.DamagedBatch):
            done.append(site.random.choice(kinds)(site))
    return "; ".join(done)
