"""Where PySpark looks for `format("tidelog")`: it imports every top-level module that is named
pyspark_* and takes its DefaultSource."""

from __future__ import annotations

from tidelog.spark.source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
