"""A process that writes to a metadata store until it is killed: `python metadata_writer.py DIR N`.

Several writers at once commit multis; the one numbered n makes /left/n and /right/n and sets
/latest to n, or none of that. Once a multi has returned its number goes to stdout. Numbers start
at N. The journal is folded into a snapshot often, so that a kill may fall into that, too.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.metadata_store import Create, SetData

WRITERS = 3


async def write_for_ever(store: EmbeddedStore, numbers: itertools.count[int]) -> None:
    while True:
        n = next(numbers)
        await store.multi(
            [Create(f"/left/{n}"), SetData("/latest", b"%d" % n), Create(f"/right/{n}")]
        )
        os.write(1, b"%d\n" % n)


async def main(directory: Path, first: int) -> None:
    store = EmbeddedStore.open(directory, journal_bytes_max=4096)
    if await store.exists("/latest") is None:
        await store.multi([Create("/left"), Create("/right"), Create("/latest")])
    numbers = itertools.count(first)
    await asyncio.gather(*(write_for_ever(store, numbers) for _ in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
