"""aiokafka's hand-written structs, the oracle for versions that Apache Kafka 4 dropped.

It has them as X_v0, X_v1 ... classes: each decodes what we write, to the last byte, and encodes it
again. Its ListOffsets requests v4 and v5 are left out: their leader epoch has 64 bits, Kafka's 32.
"""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.api import RequestStruct, Response

from tests.support.messages import Case, RandomChoices, all_cases, build

MODULES = (
    "admin",
    "commit",
    "coordination",
    "fetch",
    "group",
    "metadata",
    "offset",
    "produce",
    "transaction",
)
SAMPLES_PER_LAYOUT = 4


def structs_by_api() -> dict[tuple[int, bool, int], Any]:
    """(key, is request, version) to struct."""
    found: dict[tuple[int, bool, int], Any] = {}
    for name in MODULES:
        for value in vars(import_module(f"aiokafka.protocol.{name}")).values():
            if isinstance(value, type) and issubclass(value, RequestStruct | Response):
                key, version = getattr(value, "API_KEY", None), getattr(value, "API_VERSION", None)
                if isinstance(key, int) and isinstance(version, int):
                    found[key, issubclass(value, RequestStruct), version] = value
    return found


STRUCTS = structs_by_api()


def struct_of(case: Case) -> Any:
    if case.schema.name == "ListOffsetsRequest" and case.version >= 4:
        return None
    is_request = case.schema.name.endswith("Request")
    return STRUCTS.get((case.file.api_key, is_request, case.version))


CASES = [case for case in all_cases() if not case.layout.flexible and struct_of(case)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_aiokafka_writes_what_it_read_from_us(case: Case) -> None:
    struct = struct_of(case)
    for sample in range(SAMPLES_PER_LAYOUT):
        encoded = bytes(build(case, RandomChoices((case.name, sample))).encode(case.version))
        source = BytesIO(encoded)
        theirs = struct.decode(source)
        assert source.tell() == len(encoded)
        assert theirs.encode() == encoded
