"""The committed messages are what the generator makes of the committed table."""

from __future__ import annotations

from pathlib import Path

import tidelog.protocol
from tidelog.protocol import generator
from tidelog.protocol.api_keys import VERSIONS, ApiKey
from tidelog.protocol.generation.schema import read_all

PACKAGE = Path(tidelog.protocol.__file__).parent


def test_generated_files_are_fresh() -> None:
    stale = [
        name for name, text in generator.generate().items() if (PACKAGE / name).read_text() != text
    ]
    assert stale == [], "run python -m tidelog.protocol.generator"


def test_no_generated_file_is_left_over() -> None:
    made = {Path(name).name for name in generator.generate()} | {"__init__.py"}
    assert {path.name for path in (PACKAGE / "messages").glob("*.py")} <= made


def test_the_table_has_all_keys_and_layouts_of_the_two_releases() -> None:
    apis = [file for file in read_all() if file.api_key >= 0]
    assert [file.api_key for file in apis] == list(range(95))
    released = [file for file in apis if file.api_key not in (93, 94)]
    assert sum(len(message.versions) for file in released for message in file.messages) == 722


def test_request_and_response_have_the_same_versions() -> None:
    for file in read_all():
        if file.api_key >= 0:
            request, response = file.messages
            assert request.versions == response.versions, file.api_name
            assert request.flexible == response.flexible, file.api_name


def test_version_ranges_come_from_the_requests() -> None:
    assert VERSIONS[ApiKey.FETCH] == (0, 18, 12)
    assert VERSIONS[ApiKey.SASL_HANDSHAKE] == (0, 1, None)
    assert len(VERSIONS) == len(ApiKey) == 95
