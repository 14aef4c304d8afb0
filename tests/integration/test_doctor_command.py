"""`tidelog doctor` against a broker that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tidelog.tools.cli.main import main


@pytest.mark.integration
def test_the_doctor_looks_at_a_running_broker_and_its_directory(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker({"broker.id": "7"})
    file = tmp_path / "server.properties"
    file.write_text(
        f"broker.id=7\nlog.dirs={broker.data_directory}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{broker.port}\n"
    )
    arguments = ["doctor", "--config", str(file), "--bootstrap", broker.bootstrap, "-o", "json"]
    main([*arguments, "--timeout", "60s"])
    report = json.loads(capsys.readouterr().out)
    checks = {finding["check"] for finding in report["findings"]}
    of_this_machine = {"disk-full", "disk-nearly-full", "file-limit", "java-missing"}
    assert checks - of_this_machine - {"no-compiled-kernel"} == {"directory-locked"}
    assert report["not_looked_at"] == []
