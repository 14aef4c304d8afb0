"""Classes by API key, imported when asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidelog.protocol.api_keys import VERSIONS, ApiKey
from tidelog.protocol.generator import WITHOUT_CODEC
from tidelog.protocol.registry import request_class, response_class


@pytest.mark.parametrize(
    "api_key", [key for key in ApiKey if key.name.lower() not in WITHOUT_CODEC]
)
def test_every_key_that_is_used_has_its_two_classes(api_key: ApiKey) -> None:
    versions = VERSIONS[api_key]
    for found in (request_class(api_key), response_class(api_key)):
        assert api_key == found.API_KEY
        assert versions[:2] == (found.MIN_VERSION, found.MAX_VERSION)


def test_plain_numbers_are_keys_too() -> None:
    assert request_class(18).__name__ == "ApiVersionsRequest"
    assert response_class(75).__name__ == "DescribeTopicPartitionsResponse"


def test_an_unknown_key_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="95"):
        request_class(95)


def test_messages_are_imported_one_by_one() -> None:
    program = (
        "import sys, tidelog.protocol.header, tidelog.protocol.registry as registry\n"
        "registry.request_class(18)\n"
        "print(*sorted(m for m in sys.modules if m.startswith('tidelog.protocol.messages.')))\n"
        "assert 'tidelog.protocol.generation' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["tidelog.protocol.messages.api_versions"]
