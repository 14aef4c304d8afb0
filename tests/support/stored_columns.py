"""The records of whole batches of any format as columns, control batches left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.record import kernel
from tidelog.record.batch import CONTROL_BIT
from tidelog.record.columns import Columns, columns_of, legacy_part, part_of

if TYPE_CHECKING:
    from tidelog.record.kernel import Buffer, RecordsPart

_BATCHES_MAX = 1 << 31


def read_columns(data: Buffer) -> Columns:
    view = memoryview(data).cast("B")
    _, why, batches = kernel.list_batches(view, 0, len(view), _BATCHES_MAX)
    assert why in (kernel.AT_END, kernel.INCOMPLETE), "batches end in bytes that are none"
    parts: list[RecordsPart] = []
    run_end = 0
    for position, size, magic, attributes, base_offset, *_, in_batch in batches:
        if magic < 2:
            if position >= run_end:
                part, run_end = legacy_part(view, position, size, attributes)
                parts.append(part)
        elif not attributes & CONTROL_BIT:
            batch = view[position : position + size]
            parts.append(part_of(batch, attributes, base_offset, in_batch))
    return columns_of(parts)
