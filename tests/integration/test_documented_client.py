"""The Python of docs/client.md and docs/security.md runs, from top to bottom, against a broker."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import unlike_apache_kafka
from tests.support.documents import ROOT, blocks
from tidelog.tools.dev_certificates import make_certificates

PAGE = ROOT / "docs" / "client.md"
SECURITY_PAGE = ROOT / "docs" / "security.md"
SERVER = "127.0.0.1:9092"


@unlike_apache_kafka
def test_the_examples_of_the_client_page_run(start_broker: Any) -> None:
    bootstrap = start_broker().bootstrap
    names: dict[str, object] = {"__name__": "client_page"}
    for block in blocks(PAGE):
        if block.language == "python":
            code = compile(block.text.replace(SERVER, bootstrap), block.place, "exec")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                exec(code, names)


@unlike_apache_kafka
def test_the_example_of_the_security_page_runs(
    start_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificates(tmp_path / "certs")
    monkeypatch.chdir(tmp_path)
    properties = (tmp_path / "certs" / "server.properties").read_text().splitlines()
    keys = dict(line.split("=", 1) for line in properties if not line.startswith("#"))
    broker = start_broker({**keys, "listeners": "SSL://127.0.0.1:0"})
    for block in blocks(SECURITY_PAGE):
        if block.language == "python":
            text = block.text.replace("127.0.0.1:9093", broker.bootstrap)
            exec(compile(text, block.place, "exec"), {"__name__": "security_page"})
