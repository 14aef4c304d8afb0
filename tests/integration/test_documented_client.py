"""The Python of docs/client.md runs, from top to bottom, against a broker."""

from __future__ import annotations

import warnings
from typing import Any

from tests.support.broker_process import unlike_apache_kafka
from tests.support.documents import ROOT, blocks

PAGE = ROOT / "docs" / "client.md"
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
