"""How a cleaning ends before its time."""

from __future__ import annotations


class CleaningAborted(Exception):
    """The log was deleted, truncated or taken offline, or the cleaner stops: nothing is wrong."""


class CannotClean(Exception):
    """The log holds what the cleaner cannot read; it stays as it is."""
