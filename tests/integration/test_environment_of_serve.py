"""`tidelog serve` takes settings from its environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.broker_process import (
    EXTERNAL_BOOTSTRAP,
    START_TIMEOUT_S,
    TIDELOG,
    BrokerProcess,
)

pytestmark = pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="starts its own brokers")


def test_the_broker_names_the_variables_it_took_and_never_their_values(tmp_path: Path) -> None:
    environment = {
        "TIDELOG_BROKER_ID": "41",
        "TIDELOG_DELEGATION_TOKEN_SECRET_KEY": "hush-hush",
        "TIDELOG_NUM_PARTITONS": "shush",
        "KAFKA_BROKER_ID": "42",
    }
    broker = BrokerProcess(tmp_path, environment=environment)
    with broker:
        assert broker.broker_id == 41
        text = broker.log_text() + broker.stdout_path.read_text()
    assert "settings from the environment: TIDELOG_BROKER_ID, TIDELOG_DELEGATION_TOKEN" in text
    assert "TIDELOG_NUM_PARTITONS: unknown configuration key num.partitons" in text
    assert "hush" not in text


@pytest.mark.parametrize("flags", [["--kafka-env"], []], ids=["asked for", "not asked for"])
def test_variables_of_kafka_count_with_the_flag(tmp_path: Path, flags: list[str]) -> None:
    """Seen by what the broker refuses, so that none has to start."""
    done = subprocess.run(
        [*TIDELOG, "serve", "--override", "num.partitions=many", *flags],
        env={**os.environ, "KAFKA_LOG_DIRS": str(tmp_path), "KAFKA_BACKGROUND_THREADS": "none"},
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    refused = "background.threads" if flags else "num.partitions"
    assert done.returncode == 1
    assert f"for configuration {refused}" in done.stderr
