"""The tools for log files on the directory of a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker_process import EXTERNAL_BOOTSTRAP, BrokerProcess
from tests.support.eventually import eventually
from tests.support.handover_story import fill
from tests.support.kafka_data import problems
from tidelog.tools.cli.main import main

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="needs a broker of its own"),
]
BUSY_CLEANER = {
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def test_a_compacted_directory_is_sound_after_a_kill_and_after_a_stop(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, BUSY_CLEANER)
    with broker:
        fill(broker.bootstrap)
        eventually(lambda: "cleaned accounts-0" in broker.log_text(), 30)
        broker.kill()
        assert problems(broker.data_directory) == []
        broker.start()
        assert broker.stop() == 0
    assert problems(broker.data_directory) == []


def test_repair_refuses_the_directory_of_a_running_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert main(["repair-log", str(broker.data_directory)]) == 1
    assert "in use by another process" in capsys.readouterr().err
