"""Whether Spark can run here, and a session that keeps its noise out of the terminal.

Spark's launcher, its JVM and its Python workers inherit standard error from this process. While the
session is made, standard error is a log file, so all of them write there for good; afterwards this
process has its own back. Errors of queries do not come that way and lose nothing.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import StartupError
from tidelog.pipeline.spark_errors import spark_failures, summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.declaration.parts import Pipeline

JAVA_VERSION_MIN: Final = 17
INSTALL: Final = "pip install 'tidelog[spark]'"
# PySpark logs every error that it also raises.
_ERROR_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# What Spark hides by default, in its event log and wherever it shows settings.
_HIDDEN_BY_SPARK: Final = "(?i)secret|password|token|access[.]?key"
_REDACTION: Final = "spark.redaction.regex"
_CONNECT_MODULES: Final = ("grpc", "google.rpc", "grpc_status")


def missing(remote: str = "") -> str | None:
    """Why Spark cannot run here and what to do about it, in one line."""
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            return f"{module} is not installed: {INSTALL}"
    if remote:
        return _missing_for_connect()
    java = java_command()
    if java is None:
        return (
            f"Spark needs Java {JAVA_VERSION_MIN} or later and there is no java on the PATH: "
            f"install one (apt install openjdk-{JAVA_VERSION_MIN}-jre-headless) or set JAVA_HOME"
        )
    version = java_version(java)
    if version is not None and version < JAVA_VERSION_MIN:
        return f"Spark needs Java {JAVA_VERSION_MIN} or later; {java} is Java {version}"
    return None


def _missing_for_connect() -> str | None:
    for module in _CONNECT_MODULES:
        try:
            found = find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return f"Spark Connect needs {module}: pip install 'pyspark[connect]'"
    return None


def java_command() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def java_version(java: str) -> int | None:
    """The major version; None when the command does not say."""
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found[1]) if found else None


def open_session(pipeline: Pipeline, log_file: Path | None) -> SparkSession:
    """Without a log file everything goes to the terminal."""
    reason = missing(pipeline.remote)
    if reason is not None:
        raise StartupError(reason)
    choose_python(pipeline)
    for name in _ERROR_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        if log_file is None:
            return _make(pipeline)
        with _standard_error_in(log_file):
            return _make(pipeline)
    except spark_failures() as error:
        where = "above" if log_file is None else f"in {log_file}"
        raise StartupError(f"Spark did not start: {summary(error)}; more is {where}") from error


def is_submitted() -> bool:
    """Whether spark-submit runs this process; then it has decided where Spark runs."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_local(pipeline: Pipeline) -> bool:
    return pipeline.master.startswith("local") and not pipeline.remote and not is_submitted()


def choose_python(pipeline: Pipeline) -> None:
    """Spark runs the same command in its driver and on its workers. On this machine that is this
    Python. Elsewhere it is `python3`: here it finds this Python, there it finds the worker's."""
    if "PYSPARK_PYTHON" in os.environ or is_submitted():
        return
    if is_local(pipeline):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        folder = str(Path(sys.executable).parent)
        os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])


def _make(pipeline: Pipeline) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"tidelog pipeline {pipeline.name}")
    settings = {"spark.sql.session.timeZone": "UTC", **pipeline.spark}
    if pipeline.remote:
        builder = builder.remote(pipeline.remote)
    else:
        if not is_submitted():
            builder = builder.master(pipeline.master)
        settings = _hiding(pipeline, {**_quiet(pipeline), **settings})
    for name, value in settings.items():
        builder = builder.config(name, value)
    if not pipeline.remote:
        _start_jvm(pipeline, {"spark.master": pipeline.master, **settings})
    session: SparkSession = builder.getOrCreate()
    if pipeline.remote:
        from tidelog.spark.source import TidelogDataSource

        session.dataSource.register(TidelogDataSource)
    return session


def _start_jvm(pipeline: Pipeline, settings: Mapping[str, str]) -> None:
    """In a session of its own: a signal to this process and its group, such as Ctrl-C and `timeout`
    send it, must not end the JVM before its queries are stopped. It ends when this process has.

    PySpark hands settings to its JVM on the command line, which everybody on the machine can read.
    So the JVM starts without those that are secret, and gets them with the session."""
    from pyspark import SparkConf, SparkContext, java_gateway

    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False)
        for name, value in settings.items():
            if name not in pipeline.hidden_settings:
                conf.set(name, value)
        launch: Any = java_gateway.launch_gateway
        gateway = launch(conf, popen_kwargs={"start_new_session": True})
        SparkContext._ensure_initialized(gateway=gateway)


def _hiding(pipeline: Pipeline, settings: dict[str, str]) -> dict[str, str]:
    """With Spark told to hide what is secret of them."""
    if not pipeline.hidden_settings:
        return settings
    # The event log also shows settings of Hadoop, without their prefix.
    names = [re.escape(name.removeprefix("spark.hadoop.")) for name in pipeline.hidden_settings]
    hidden = "|".join([settings.get(_REDACTION, _HIDDEN_BY_SPARK), *names])
    return {**settings, _REDACTION: hidden}


def _quiet(pipeline: Pipeline) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # 15 s are too short for a Python worker on a very busy machine.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.streaming.noDataProgressEventInterval": "1000",
        "spark.sql.streaming.numRecentProgressUpdates": "10",
    }
    if is_local(pipeline):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.driver.host"] = "127.0.0.1"
    return settings


@contextmanager
def _standard_error_in(log_file: Path) -> Iterator[None]:
    log_file.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)
