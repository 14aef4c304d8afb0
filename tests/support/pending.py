"""Reading answers that come later, in tests that expect no failure."""

from __future__ import annotations


def unexpected(cause: BaseException) -> None:
    """For `then`. It is logged, and what the test waits for does not come."""
    raise AssertionError("the answer failed") from cause
