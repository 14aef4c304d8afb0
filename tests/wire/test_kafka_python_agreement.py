"""kafka-python, driven by its own copy of the schemas, reads what we write and writes it again.

Field by field the values are compared in test_kio_agreement; kafka-python renames some and turns
others into sets. Its ApiVersionsResponse tries version 0 first, so it is left out.
"""

from __future__ import annotations

from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest

from tests.support.messages import Case, RandomChoices, build, distinct_layouts

MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)
SAMPLES_PER_LAYOUT = 3


def their_class(case: Case) -> Any:
    """kafka-python's class of the message, None if it lacks it or the version."""
    if case.schema.name == "ApiVersionsResponse" or case.file.api_key < 0:
        return None
    for module in MODULES:
        found = getattr(module, case.schema.name, None)
        if found is not None and found.valid_versions[0] <= case.version <= found.max_version:
            return found
    return None


CASES = [case for case in distinct_layouts() if their_class(case) is not None]


def test_kafka_python_covers_its_apis() -> None:
    assert len({case.file.api_key for case in CASES}) >= 50


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kafka_python_writes_what_it_read_from_us(case: Case) -> None:
    for sample in range(SAMPLES_PER_LAYOUT):
        encoded = bytes(build(case, RandomChoices((case.name, sample))).encode(case.version))
        theirs = their_class(case).decode(encoded, version=case.version)
        theirs._header = None
        assert bytes(theirs.encode(version=case.version)) == encoded
