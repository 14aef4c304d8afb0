"""Which rows of a batch are broken, and why: one reason a row, the first that is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

REASON_CHARS_MAX: Final = 200
SHOWN_CHARS: Final = 60

Indexes = Any  # an array of numpy, of int64
# What Arrow and Python raise for a value that does not fit; ArrowInvalid is a ValueError.
MISFIT: Final = (ArithmeticError, TypeError, ValueError)


class BrokenRows:
    def __init__(self, count: int) -> None:
        self._codes = np.zeros(count, np.int32)  # 0 for a good row, else the index of its reason
        self._texts: list[str | None] = [None]

    def add(self, rows: Indexes, reason: str) -> None:
        """`rows` are indexes, and may name a row twice."""
        if len(rows) == 0:
            return
        fresh = rows[self._codes[rows] == 0]
        self._codes[fresh] = len(self._texts)
        self._texts.append(reason[:REASON_CHARS_MAX])

    def reasons(self) -> Any:
        """An array of texts, null for a good row."""
        return pa.array(self._texts, pa.string()).take(pa.array(self._codes))

    @property
    def is_empty(self) -> bool:
        return len(self._texts) == 1

    def is_good(self) -> Any:
        return self._codes == 0


def converted(
    array: Any,
    convert: Callable[[Any], Any],
    kind: Any,
    owners: Indexes,
    broken: BrokenRows,
    told: Callable[[Any], str],
) -> Any:
    """The array, or list, through `convert`; values that it refuses are null, and break the row
    that owns them. The bad values are found by halving, so that a few of them cost little."""
    try:
        return convert(array)
    except MISFIT:
        if len(array) == 1:
            broken.add(owners, told(array[0]))
            return pa.nulls(1, kind)
        middle = len(array) // 2
        halves = [
            converted(array[part], convert, kind, owners[part], broken, told)
            for part in (slice(0, middle), slice(middle, None))
        ]
        return pa.concat_arrays(halves)


def shown(scalar: Any) -> str:
    """A few characters of a value, for a reason."""
    value = scalar.as_py() if hasattr(scalar, "as_py") else scalar
    return str(value)[:SHOWN_CHARS]
