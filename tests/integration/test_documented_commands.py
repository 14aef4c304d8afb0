"""Every command in the documents works: a reader types them in the order of the page.

A page has a directory of its own, in which Apache Kafka has left a data directory with one damaged
batch. Brokers get a free port; later commands of the page talk to the last broker. A session shows
exactly what its commands print. `NOT_RUN` is the list of commands that are too large for a test or
need what a test machine may lack; each row says which test runs them, or why none does.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import READY_LINE, START_TIMEOUT_S, dies_with_us
from tests.support.documents import DOCUMENTS, ROOT, blocks, name_of
from tests.support.eventually import eventually
from tests.support.kafka_data import KAFKA_DATA, flip
from tests.support.unused_ports import unused_ports

BIN = Path(sys.executable).parent
COMMAND_TIMEOUT_S = 300
# Where a reader's files are, and where the test has them.
PLACES = {"/opt/kafka/config/": "", "/var/lib/tidelog": "served"}
SERVER_PROPERTIES = "log.dirs=data\nprocess.roles=broker,controller\nnode.id=1\n"
LISTENER = re.compile(r"(\w+)://(127\.0\.0\.1:\d+)")
NAMED_FILE = re.compile(r"# [a-z]+\.properties\n")
REPAIR_TIME = re.compile(r"\.repair-\d{8}-\d{6}")

# The beginning of a command: the test that runs it, or why none does.
NOT_RUN = {
    "make bench": "takes an hour on a machine of its own",
    ".venv/bin/python -m bench": "tests/test_documents.py checks the arguments",
    "make interop": "needs Maven Central",
    "make": "this suite is a part of it, or runs in it",
    "TIDELOG_TEST_BOOTSTRAP=": "this suite itself, against another broker",
    "pip install": "tests/interop/test_spark_newcomer.py",
    "python3 -m venv": "tests/interop/test_spark_newcomer.py",
    "kafka-configs.sh": "tests/interop/test_topic_tools.py",
    "tidelog serve --brokers": "tests/cluster/test_serve_brokers.py",
    "tidelog console": "tests/integration/test_console_command.py",
    "tidelog dev": "tests/cluster/test_dev_command.py",
    "MEMBERS=": "tests/integration/test_zookeeper_command.py",
    "tidelog zookeeper": "tests/integration/test_zookeeper_command.py",
    "tidelog serve --config oauth.properties": "tests/integration/test_documented_oauth.py",
    "tidelog topic create tokens": "tests/integration/test_documented_oauth.py",
    "tidelog pipeline validate": "tests/integration/spark/test_documented_pipelines.py",
    "tidelog pipeline test": "tests/integration/spark/test_documented_pipelines.py",
    "tidelog pipeline run": "tests/integration/spark/test_documented_pipelines.py",
    "tidelog pipeline status": "tests/integration/spark/test_documented_pipelines.py",
    "tidelog pipeline restart": "tests/integration/spark/test_documented_pipelines.py",
    "python shop-sdp/create_topics.py": "tests/integration/spark/test_exported_projects.py",
    "spark-pipelines": "tests/integration/spark/test_exported_projects.py",
}


def rows_for(command: str) -> list[str]:
    return [beginning for beginning in NOT_RUN if command.startswith(beginning)]


class Reader:
    """Types commands in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bootstrap = ""
        self.timeout_s = COMMAND_TIMEOUT_S
        self.addresses: dict[str, str] = {}  # of listeners: those of the page, and the real ones
        self.files_with_listeners: dict[str, str] = {}  # of the page, with their text
        self.brokers: list[subprocess.Popen[bytes]] = []
        shutil.copytree(KAFKA_DATA, directory / "data", copy_function=shutil.copyfile)
        flip(directory / "data" / "orders-0" / "00000000000000000000.log", 100)
        (directory / "server.properties").write_text(SERVER_PROPERTIES)

    def types(self, command: str) -> str:
        """What the command prints, on both streams."""
        for theirs, ours in PLACES.items():
            command = command.replace(theirs, ours)
        if command.startswith("tidelog serve"):
            return self._serves(shlex.split(command, comments=True))
        if "127.0.0.1:909" in command:
            assert self.bootstrap, f"{command}: the page has started no broker"
        for theirs, ours in self.addresses.items():
            command = command.replace(theirs, ours)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self.timeout_s,
            env={
                **os.environ,
                "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
                "XDG_CONFIG_HOME": str(self.directory / "config"),
            },
            check=False,
        )
        self.exit_code = done.returncode
        return done.stdout.replace(f"{self.directory}/", "")

    def _serves(self, words: list[str]) -> str:
        self.ends()
        output = self.directory / "broker.txt"
        command = [str(BIN / words[0]), *(word for word in words[1:] if word != "&")]
        own = [text for name, text in self.files_with_listeners.items() if name in words]
        if not own:
            protocol = "SSL" if "certs/server.properties" in words else "PLAINTEXT"
            command += ["--override", f"listeners={protocol}://127.0.0.1:0"]
        with output.open("wb") as stdout:
            broker = subprocess.Popen(
                dies_with_us(command), cwd=self.directory, stdout=stdout, stderr=subprocess.STDOUT
            )
        self.brokers.append(broker)

        def has_spoken() -> bool:
            return broker.poll() is not None or bool(READY_LINE.search(output.read_text()))

        eventually(has_spoken, START_TIMEOUT_S)
        ready = READY_LINE.search(output.read_text())
        assert ready is not None, output.read_text()
        self.bootstrap = f"127.0.0.1:{ready['port']}"
        self.addresses = dict.fromkeys(("127.0.0.1:9092", "127.0.0.1:9093"), self.bootstrap)
        bound = dict(LISTENER.findall(ready[0]))
        for text in own:
            self.addresses |= {theirs: bound[name] for name, theirs in LISTENER.findall(text)}
        self.exit_code = 0
        return ready[0]

    def writes(self, text: str) -> None:
        """A file that the page shows under its name."""
        name = text.partition("\n")[0].removeprefix("# ")
        for theirs, ours in PLACES.items():
            text = text.replace(theirs, ours)
        if LISTENER.search(text):
            self.files_with_listeners[name] = text
            text = LISTENER.sub(r"\1://127.0.0.1:0", text)
        (self.directory / name).write_text(text)

    def ends(self) -> None:
        for broker in self.brokers:
            broker.send_signal(signal.SIGTERM)
            broker.wait(START_TIMEOUT_S)
        self.brokers.clear()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.ends()


# Pages whose programs are run between their commands.
WITH_PROGRAMS = {"docs/tutorial.md"}
# Pages whose commands only make sense all together, and the test that types them.
TYPED_ELSEWHERE = {"examples/README.md": "tests/integration/spark/test_examples.py"}
WITH_COMMANDS = [
    document
    for document in DOCUMENTS
    if name_of(document) not in TYPED_ELSEWHERE
    and any(block.language in {"sh", "console"} for block in blocks(document))
]


@pytest.mark.integration
@pytest.mark.parametrize("document", WITH_COMMANDS, ids=name_of)
def test_the_commands_of_a_page_work_in_their_order(document: Path, reader: Reader) -> None:
    lacking = set()
    for block in blocks(document):
        if block.language == "properties" and NAMED_FILE.match(block.text):
            reader.writes(block.text)
        if block.language == "python" and name_of(document) in WITH_PROGRAMS:
            printed = reader.types(f"python - <<'END'\n{block.text}END")
            assert reader.exit_code == 0, f"{block.place}:\n{printed}"
        if block.language not in {"sh", "console"}:
            continue
        for command, expected in block.session:
            if rows_for(command):
                continue
            if "kcat" in command and shutil.which("kcat") is None:
                lacking.add("kcat")
                continue
            printed = reader.types(command)
            if block.language == "sh":
                assert reader.exit_code == 0, f"{block.place}: {command}\n{printed}"
            else:
                assert REPAIR_TIME.sub("", printed) == REPAIR_TIME.sub("", expected), block.place
    if lacking:
        pytest.skip(f"the page also needs {', '.join(lacking)}; everything else has run")


@pytest.mark.integration
def test_the_programs_and_tests_of_the_page_on_testing_work(tmp_path: Path) -> None:
    (port,) = unused_ports(1)
    for number, block in enumerate(blocks(ROOT / "docs" / "testing.md")):
        if block.language == "ini":
            (tmp_path / "pytest.ini").write_text(block.text)
        elif block.language == "python":
            text = block.text.replace("127.0.0.1:9092", f"127.0.0.1:{port}")
            if "def test_" not in text:  # a program: it must run to its end
                body = "".join(f"    {line}\n" for line in text.splitlines())
                text = f"def test_program():\n{body}"
            (tmp_path / f"test_block_{number}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        env={
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTEST_ADDOPTS": "",  # they are for this pytest
        },
        check=False,
    )
    assert re.search(r"= 12 passed", done.stdout), done.stdout


def test_the_list_of_commands_that_are_not_run_is_up_to_date() -> None:
    typed = [
        command
        for document in WITH_COMMANDS
        for block in blocks(document)
        if block.language in {"sh", "console"}
        for command in block.commands
    ]
    used = {row for command in typed for row in rows_for(command)}
    assert used == set(NOT_RUN)
    reasons = [*NOT_RUN.values(), *TYPED_ELSEWHERE.values()]
    named = [reason for reason in reasons if reason.startswith("tests/")]
    assert not [name for name in named if not (ROOT / name.split(" ")[0]).exists()]
