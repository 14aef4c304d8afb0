"""A pipeline with secrets leaves none of them behind: in no checkpoint, plan or log, not in Spark's
event log, not on a command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.spark.conftest import missing
from tests.support.spark_topics import SparkTopics

RUN_TIMEOUT_S = 600
# Words that Spark does not hide by itself.
SECRETS = {"SHOP_CLIENT": "xylophone-one", "SHOP_RACK": "xylophone-two", "SHOP_KEY": "xylophone-3"}
FILE_SECRET = "xylophone-four"
LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = info
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""
DECLARATION = """\
[pipeline]
name = "{name}"
bootstrap = "{bootstrap}"
trigger = "available-now"

[kafka]
"client.id" = "${{env:SHOP_CLIENT}}"

[spark]
master = "local[2]"
"spark.sql.shuffle.partitions" = 1
"spark.sql.ui.explainMode" = "extended"
"spark.driver.extraJavaOptions" = "-Dlog4j2.configurationFile={logging}"
"spark.eventLog.enabled" = true
"spark.eventLog.compress" = false
"spark.eventLog.dir" = "{events}"
"spark.hadoop.shop.code" = "${{file:code}}"

[source.visits]
topic = "{name}.visits"
format = "raw"
options = {{ "kafka.client.rack" = "${{env:SHOP_RACK}}" }}

[sink.copy]
from = "visits"
topic = "{name}.copy"
format = "raw"

[sink.files]
from = "visits"
parquet = "files"
options = {{ "shop.key" = "${{env:SHOP_KEY}}" }}
"""


def test_no_secret_is_left_in_files_output_or_command_lines(
    tmp_path: Path, topics: SparkTopics, topic_name: str
) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    topics.create(f"{topic_name}.visits")
    topics.fill(f"{topic_name}.visits", range(3))
    events = tmp_path / "events"
    events.mkdir()
    (tmp_path / "code").write_text(FILE_SECRET)
    logging = tmp_path / "log4j2.properties"
    logging.write_text(LOGGING)
    (tmp_path / "pipeline.toml").write_text(
        DECLARATION.format(
            name=topic_name,
            bootstrap=topics.bootstrap,
            events=events.as_uri(),
            logging=logging.as_uri(),
        )
    )

    shown, commands = output_and_command_lines("validate", tmp_path)
    assert "plan of sink files" in shown
    assert "values from ${env:SHOP_CLIENT}" in shown
    told, more = output_and_command_lines("run", tmp_path)
    assert "ended: 6 rows written" in told

    written = {path for path in tmp_path.rglob("*") if path.is_file()} - {tmp_path / "code"}
    assert tmp_path / "checkpoint" / "files" / "commits" / "0" in written
    event_log = "".join(path.read_text() for path in events.rglob("events_*"))
    assert "WriteToMicroBatchDataSource" in event_log
    assert "shop.key=*********(redacted)" in event_log
    assert "spark.hadoop.shop.code" in event_log
    assert "INFO MicroBatchExecution: " in (tmp_path / "spark.log").read_text()
    for secret in (*SECRETS.values(), FILE_SECRET):
        assert not [path for path in written if secret.encode() in path.read_bytes()], secret
        assert secret not in shown + told
        assert not [command for command in {*commands, *more} if secret in command]


def output_and_command_lines(command: str, folder: Path) -> tuple[str, set[str]]:
    """Of a command of `tidelog pipeline`, and of all processes that it has started."""
    output = folder / f"{command}.txt"
    commands: set[str] = set()
    deadline_s = time.monotonic() + RUN_TIMEOUT_S
    with output.open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "pipeline", command, str(folder)],
            cwd=folder,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            env={**os.environ, **SECRETS},
        )
    try:
        while process.poll() is None:
            assert time.monotonic() < deadline_s, output.read_text()
            commands |= set(command_lines(process.pid))
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, output.read_text()
    assert any("org.apache.spark.deploy.SparkSubmit" in each for each in commands)
    return output.read_text(), commands


def command_lines(pid: int) -> list[str]:
    found = []
    try:
        for child in psutil.Process(pid).children(recursive=True):
            found.append(" ".join(child.cmdline()))
    except psutil.NoSuchProcess:
        pass
    return found
