"""A standalone Spark cluster on this machine, from the jars of the pyspark wheel: one master, some
workers, and the Python environments of both sides.

`SparkCluster` starts the processes on free loopback ports and kills them by their pids; executors
die with their worker. `bare_environment` is a Python that has pyspark, pyarrow and pandas and
nothing else: what a worker of somebody's cluster has. `driver_environment` also has tidelog as it
is in this tree. Neither takes anything from the network.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from importlib.metadata import distributions
from pathlib import Path

import tidelog
from tests.support.broker_process import dies_with_us
from tests.support.eventually import eventually

START_TIMEOUT_S = 180.0
MASTER_LINE = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
REGISTERED = "Successfully registered with master"
PROVIDED = frozenset({"numpy", "pandas", "py4j", "pyarrow", "pyspark", "python-dateutil"})
PROVIDED |= {"pytz", "six", "tzdata"}  # as some versions of the others want them
COMMAND = """\
#!{python}
import sys

from tidelog.tools.cli.main import main

sys.exit(main())
"""


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def bare_environment(home: Path) -> Path:
    """The folder of its commands."""
    venv.create(home, symlinks=True, with_pip=False)
    site_packages = next((home / "lib").glob("python*/site-packages"))
    for found in distributions():
        if found.metadata["Name"].lower() in PROVIDED:
            for top in {file.parts[0] for file in found.files or ()} - {".."}:
                if not (site_packages / top).exists():
                    (site_packages / top).symlink_to(str(found.locate_file(top)))
    return home / "bin"


def driver_environment(home: Path) -> Path:
    """The folder of its commands, `tidelog` among them."""
    venv.create(home, symlinks=True, with_pip=False)
    site_packages = next((home / "lib").glob("python*/site-packages"))
    installed = next(each for each in sys.path if each.endswith("site-packages"))
    # Entries of a .pth file are searched in their order, and no .pth files in them are read.
    paths = [str(Path(tidelog.__file__).parents[1]), installed]
    (site_packages / "tree.pth").write_text("".join(f"{path}\n" for path in paths))
    command = home / "bin" / "tidelog"
    command.write_text(COMMAND.format(python=home / "bin" / "python"))
    command.chmod(0o755)
    return home / "bin"


def environment_of(commands: Path) -> dict[str, str]:
    """Variables for a process that finds these commands first, and Spark's behind them."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK_", "SPARK_", "PYTHON"))
    }
    path = os.pathsep.join([str(commands), str(spark_home() / "bin"), os.environ["PATH"]])
    return {
        **kept,
        "PATH": path,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class SparkCluster:
    def __init__(self, directory: Path, worker_commands: Path, worker_count: int = 2) -> None:
        self.directory = directory
        self._environment = {**environment_of(worker_commands), "SPARK_DAEMON_MEMORY": "256m"}
        self._worker_count = worker_count
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self) -> SparkCluster:
        local = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = self._spawn("master", ["org.apache.spark.deploy.master.Master", *local])
        eventually(lambda: MASTER_LINE.search(log.read_text()) is not None, START_TIMEOUT_S)
        told = MASTER_LINE.search(log.read_text())
        assert told is not None
        self.master = told[1]
        worker = "org.apache.spark.deploy.worker.Worker"
        size = ["--cores", "1", "--memory", "1200m"]
        logs = [
            self._spawn(
                name,
                [worker, *local, *size, "--work-dir", str(self.directory / name), self.master],
            )
            for name in (f"worker-{number}" for number in range(1, self._worker_count + 1))
        ]
        eventually(
            lambda: all(REGISTERED in log.read_text() for log in logs), within_s=START_TIMEOUT_S
        )
        return self

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(START_TIMEOUT_S)

    def _spawn(self, name: str, arguments: list[str]) -> Path:
        """The file that it logs to."""
        log = self.directory / f"{name}.log"
        self.directory.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                dies_with_us([str(spark_home() / "bin" / "spark-class"), *arguments]),
                cwd=self.directory,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )
        self._processes.append(process)
        return log
