"""What `run` tells other processes, and what `status` and `restart` make of it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tests.unit.pipeline.test_running_pipeline import (
    ENDS,
    PIPELINE,
    LiveQuery,
    Report,
    Seconds,
    Starts,
    query,
)
from tidelog.pipeline.queries.run_status import StatusFile, is_alive, read_status, wish_restart
from tidelog.pipeline.queries.running import RunningPipeline
from tidelog.tools.cli.main import main


def test_what_was_told_is_read_again(tmp_path: Path) -> None:
    clock = Seconds()
    running = RunningPipeline(PIPELINE, clock)
    running.add(query("revenue"), Starts(LiveQuery(Report(3))))
    running.refresh()
    StatusFile(tmp_path, clock).tell(running)
    found = read_status(tmp_path)
    assert found is not None
    assert (found.pid, found.name) == (os.getpid(), "shop")
    (row,) = found.members
    assert (row.name, row.state, row.batch_id, row.rows_in) == ("revenue", "running", 3, 10)
    assert found.runs(59.0, lambda pid: True)
    assert not found.runs(59.0, lambda pid: False)
    assert not found.runs(61.0, lambda pid: True), "it has been silent for too long"


def test_the_file_is_written_once_a_second_and_at_the_end(tmp_path: Path) -> None:
    clock = Seconds()
    running = RunningPipeline(PIPELINE, clock)
    running.add(query("revenue"), Starts(ENDS))
    file = StatusFile(tmp_path, clock)
    file.tell(running)
    first = file.file.read_text()
    clock.now_s = 0.9
    file.tell(running)
    assert file.file.read_text() == first
    file.tell(running, has_ended=True)
    assert json.loads(file.file.read_text())["has_ended"]


def test_a_wish_restarts_the_query_and_goes_away(tmp_path: Path) -> None:
    running = RunningPipeline(PIPELINE)
    starts = Starts(LiveQuery())
    running.add(query("revenue"), starts)
    wish, other = wish_restart(tmp_path, "revenue"), wish_restart(tmp_path, "nope")
    assert StatusFile(tmp_path).grant_wishes(running) == ["revenue"]
    assert starts.count == 2
    assert not wish.exists()
    assert not other.exists()


def test_a_wish_can_be_made_while_others_are_granted(tmp_path: Path) -> None:
    running = RunningPipeline(PIPELINE)
    file = StatusFile(tmp_path)
    done = threading.Event()

    def grant() -> None:
        while not done.is_set():
            file.grant_wishes(running)

    granting = threading.Thread(target=grant)
    granting.start()
    try:
        for _ in range(200):
            wish_restart(tmp_path, "revenue")
    finally:
        done.set()
        granting.join()


def test_a_restart_that_is_only_tried_out_makes_no_wish(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = RunningPipeline(PIPELINE)
    running.add(query("revenue"), Starts(LiveQuery()))
    running.refresh()
    StatusFile(tmp_path).tell(running)
    before = sorted(tmp_path.rglob("*"))
    assert main(["pipeline", "restart", str(tmp_path), "revenue", "--dry-run"]) == 0
    assert capsys.readouterr().out == "revenue would be started again\n"
    assert sorted(tmp_path.rglob("*")) == before
    assert main(["pipeline", "restart", str(tmp_path), "nope", "--dry-run"]) == 1


def test_a_process_that_is_gone_is_not_alive() -> None:
    assert is_alive(os.getpid())
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert not is_alive(child)


def test_status_and_restart_say_when_nothing_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "status", str(tmp_path)]) == 1
    assert "no run of a pipeline has told anything here" in capsys.readouterr().err
    running = RunningPipeline(PIPELINE)
    running.add(query("revenue"), Starts(ENDS))
    StatusFile(tmp_path).tell(running, has_ended=True)
    assert main(["pipeline", "status", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("shop does not run")
    assert all(len(line) < 80 for line in out.splitlines())
    assert main(["pipeline", "restart", str(tmp_path), "revenue"]) == 1
    assert "no pipeline runs here" in capsys.readouterr().err


def test_status_of_a_running_pipeline_is_0_and_restart_knows_its_queries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = RunningPipeline(PIPELINE)
    running.add(query("revenue"), Starts(LiveQuery(Report(3))))
    running.refresh()
    StatusFile(tmp_path).tell(running)
    assert main(["pipeline", "status", str(tmp_path)]) == 0
    assert "revenue" in capsys.readouterr().out
    assert main(["pipeline", "restart", str(tmp_path), "nope"]) == 1
    assert "there is no query nope; there is revenue" in capsys.readouterr().err
    assert main(["pipeline", "restart", str(tmp_path), "revenue", "--timeout", "0"]) == 1
    assert "was not started again within 0 s" in capsys.readouterr().err
