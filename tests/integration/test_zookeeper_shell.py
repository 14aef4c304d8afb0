"""ZooKeeper's own client and shell, in Java, against `tidelog zookeeper`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.embedded_zookeeper import EmbeddedZooKeeperProcess
from tests.support.zookeeper import require_zookeeper
from tidelog.tools.zookeeper_server import must_find_jars, must_find_java

pytestmark = pytest.mark.integration

WITHIN_S = 200


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeperProcess]:
    require_zookeeper()
    with EmbeddedZooKeeperProcess(tmp_path / "zookeeper") as server:
        yield server


def shell(server: EmbeddedZooKeeperProcess, script: str) -> str:
    """What the shell says to the lines of a script."""
    jars = must_find_jars()
    patterns = ("commons-cli-*.jar", "netty-*.jar")  # of the client besides
    more = [jar for pattern in patterns for jar in sorted(jars[0].parent.glob(pattern))]
    done = subprocess.run(
        [
            *(must_find_java(), "-Xmx64m", "-XX:TieredStopAtLevel=1"),
            *("-cp", ":".join(map(str, [*jars, *more]))),
            *("org.apache.zookeeper.ZooKeeperMain", "-server", server.address),
        ],
        input=script,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.stdout + done.stderr


def test_the_shell_makes_reads_watches_changes_and_deletes(
    server: EmbeddedZooKeeperProcess,
) -> None:
    said = shell(
        server,
        """create /a one
create -e /a/e two
create -s /a/s three
ls -s /a
get -w /a
set -v 0 /a changed
stat /a
create -c /container
addauth digest me:secret
setAcl /a auth::cdrwa,world:anyone:r
getAcl -s /a
getEphemerals /
getAllChildrenNumber /a
sync /a
addWatch -m PERSISTENT_RECURSIVE /a
delete /a
deleteall /a
ls /
whoami
quit
""",
    )
    for expected in (
        "Created /a/s0000000001",
        "[e, s0000000001]",
        "one",
        "type:NodeDataChanged path:/a",
        "dataLength = 7",
        "KeeperErrorCode = Unimplemented for /container",
        "'digest,'me:",
        "'world,'anyone\n: r",
        "aclVersion = 1",
        "[/a/e]",
        "Sync is OK",
        "Node not empty: /a",
        "type:NodeDeleted path:/a",
        "[zookeeper]",
    ):
        assert expected in said, said
