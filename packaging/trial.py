"""A first minute with an installed tidelog and no Java: serves, writes, reads, runs a test broker.

    python packaging/trial.py KERNEL MODULES

The arguments are what the broker must say of itself in its log: `c compiled`, `c interpreted` or
`python interpreted`. `packaging/release.py` runs this in a bare environment for each wheel, so it
imports nothing but tidelog and the standard library.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tidelog.client import Consumer, Producer
from tidelog.testing import Broker

READ_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
VALUES = [b"%d" % number for number in range(2000)]


def serve(command: str, data: str, log: Path) -> tuple[subprocess.Popen[str], str]:
    """The broker, and its address."""
    with log.open("w") as stderr:
        broker = subprocess.Popen(
            [command, "serve", "--data", data, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert broker.stdout is not None
    ready = re.search(r"listeners=PLAINTEXT://(\S+)", broker.stdout.readline())
    if ready is None:
        broker.kill()
        sys.exit(f"the broker did not get ready:\n{log.read_text()}")
    return broker, ready[1]


def write(address: str) -> None:
    config = {"bootstrap.servers": address, "compression.type": "lz4"}
    with Producer(config) as producer:
        for value in VALUES:
            producer.send("trial", key=value[-1:], value=value)
        producer.flush()


def read(address: str) -> list[bytes | None]:
    config = {"bootstrap.servers": address, "group.id": "trial", "auto.offset.reset": "earliest"}
    found: list[bytes | None] = []
    with Consumer(config) as consumer:
        consumer.subscribe(["trial"])
        while len(found) < len(VALUES):
            records = consumer.poll(READ_TIMEOUT_S)
            if not records:
                sys.exit(f"only {len(found)} of {len(VALUES)} records came back")
            found.extend(record.value for record in records)
        consumer.commit()
    return found


def try_command(kernel: str, modules: str) -> None:
    command = str(Path(sys.executable).parent / "tidelog")
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "broker.log"
        broker, address = serve(command, f"{place}/data", log)
        try:
            write(address)
            found = read(address)
            asked = [command, "group", "describe", "trial", "-b", address]
            subprocess.run(asked, check=True, stdout=subprocess.DEVNULL)
        finally:
            broker.terminate()
            code = broker.wait(STOP_TIMEOUT_S)
        text = log.read_text()
    if code or sorted(found, key=str) != sorted(VALUES, key=str):
        sys.exit(f"exit code {code}, {len(found)} records:\n{text}")
    if f" kernel={kernel} modules={modules} " not in text:
        sys.exit(f"not kernel={kernel} modules={modules}:\n{text}")


def try_test_broker() -> None:
    with Broker() as broker:
        topic = broker.create_topic("orders")
        broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        topic.send("apples")
        topic.expect().exactly_once(values=["apples"])


def main() -> None:
    kernel, modules = sys.argv[1:]
    try_command(kernel, modules)
    try_test_broker()
    version = sys.version.partition(" ")[0]
    print(f"works on Python {version}: kernel={kernel} modules={modules}, {len(VALUES)} records")


if __name__ == "__main__":
    main()
