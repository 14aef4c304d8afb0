from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.support.failing_disk import FailingDisk
from tests.support.log_broker import LogBroker, close_abruptly
from tests.support.log_builder import fill
from tidelog.broker.housekeeping import write_checkpoints
from tidelog.types import TopicPartition, Uuid


def test_checkpoints_of_a_dead_disk_do_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LogBroker(tmp_path, directories=2)
    manager = broker.start()
    for number in range(2):
        fill(manager.get_or_create(TopicPartition("t", number), Uuid(bytes(range(16)))), 3)
    FailingDisk(broker.paths[0], monkeypatch).fail(errno.EIO)
    write_checkpoints(manager.pending_checkpoints(), manager.failures.report)
    assert str(broker.paths[0]) in manager.failures
    assert "t 1 3" in (broker.paths[1] / "replication-offset-checkpoint").read_text()
    close_abruptly(manager)
