"""Every command of examples/README.md works in its order, but for those of a Spark cluster:
tests/interop/test_pipeline_on_a_spark_cluster.py types these."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.integration.spark.conftest import missing
from tests.integration.test_documented_commands import Reader, reader
from tests.support.broker_process import unlike_apache_kafka
from tests.support.documents import ROOT, Block, blocks

__all__ = ["reader"]

PAGE = ROOT / "examples" / "README.md"
CLUSTER = "spark://"
RUN_TIMEOUT_S = 900  # three commands start Spark


def sections() -> list[Block]:
    return [block for block in blocks(PAGE) if CLUSTER not in block.text]


@unlike_apache_kafka
@pytest.mark.timeout(3 * RUN_TIMEOUT_S)
def test_the_commands_of_the_examples_work_in_their_order(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setenv("SPARK_LOCAL_IP", os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"))
    reader.timeout_s = RUN_TIMEOUT_S
    shutil.copytree(ROOT / "examples", Path(reader.directory) / "examples")
    printed: dict[str, str] = {}
    for block in sections():
        for command in block.commands if block.language == "sh" else ():
            if command.startswith("pip install"):
                continue
            printed[command] = reader.types(command)
            assert reader.exit_code == 0, f"{block.place}: {command}\n{printed[command]}"

    def output_of(beginning: str) -> list[str]:
        (found,) = (told for command, told in printed.items() if command.startswith(beginning))
        return found.splitlines()

    (shown,) = (block.text for block in sections() if block.language == "text")
    assert sorted(output_of("tidelog consume page-views.counts")) == shown.splitlines()
    assert len(output_of("tidelog consume page-views.dead-letter")) == 1
    assert any('"amount_cents":1150' in row for row in output_of("tidelog consume shop.revenue"))
