"""PySpark's loggers leave the format of what pytest captures alone (`tests/conftest.py`)."""

from __future__ import annotations

import logging

import pytest

logger = logging.getLogger(__name__)


@pytest.mark.parametrize("time", ["with the logger", "after it"])
def test_what_is_captured_stays_plain_text(time: str, caplog: pytest.LogCaptureFixture) -> None:
    pyspark_logger = pytest.importorskip("pyspark.logger")
    pyspark_logger.PySparkLogger.getLogger("a logger of PySpark").propagate = False
    try:
        raise LookupError("nobody expected this")
    except LookupError:
        logger.exception("it failed")
    assert "LookupError: nobody expected this" in caplog.text
