"""The clients that push metrics to a broker (KIP-714), as its /metrics page tells of them."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Sequence
from typing import Any, Final

from tidelog.tools.cluster_view import METRICS_TIMEOUT_S, PAGE_BYTES_MAX

PREFIX: Final = "kafka_client_"
INFO: Final = "kafka_client_info"
ID: Final = "client_instance_id"

_SERIES: Final = re.compile(rf"^({PREFIX}\w+)\{{(.*)\}} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:\\.|[^"\\])*)"')
_ESCAPED: Final = re.compile(r"\\(.)")

Row = dict[str, Any]


def read_page(url: str) -> str:
    """Raises OSError or ValueError if nobody answers there."""
    with urllib.request.urlopen(url, timeout=METRICS_TIMEOUT_S) as answer:
        page: str = answer.read(PAGE_BYTES_MAX).decode("utf-8", "replace")
        return page


def clients(pages: Sequence[str]) -> list[Row]:
    """One row for each client, with how many series it pushes."""
    series = [each for page in pages for each in _series(page)]
    counts: dict[str, int] = {}
    for name, label, _ in series:
        if name != INFO:
            counts[label.get(ID, "")] = counts.get(label.get(ID, ""), 0) + 1
    return [
        {
            "client_id": label.get("client_id", ""),
            "instance_id": label.get(ID, ""),
            "software": label.get("client_software_name", ""),
            "version": label.get("client_software_version", ""),
            "address": label.get("client_source_address", ""),
            "principal": label.get("principal", ""),
            "metrics": counts.get(label.get(ID, ""), 0),
        }
        for name, label, _ in sorted(series, key=lambda each: each[1].get("client_id", ""))
        if name == INFO
    ]


def metrics(pages: Sequence[str], client: str) -> list[Row]:
    """What one client pushes; it is named by its client id or its instance id."""
    return [
        {
            "metric": name.removeprefix(PREFIX),
            "labels": ",".join(
                f"{key}={text}" for key, text in label.items() if key not in (ID, "client_id")
            ),
            "value": value,
            "instance_id": label.get(ID, ""),
        }
        for page in pages
        for name, label, value in _series(page)
        if name != INFO and client in (label.get("client_id"), label.get(ID))
    ]


def _series(page: str) -> list[tuple[str, dict[str, str], float]]:
    return [
        (name, {key: _plain(text) for key, text in _LABEL.findall(inside)}, float(value))
        for name, inside, value in _SERIES.findall(page)
    ]


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text)
