"""Records as JSON lines and as typed input, and readings in threads."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import AsyncGenerator

import pytest

from tests.support.console_log import ConsoleLog, record_of
from tidelog.client.errors import CorruptRecordsFetched
from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.cli.record_input import InputRecord
from tidelog.tools.console.messages.apart import READINGS_MAX, Readings
from tidelog.tools.console.messages.cursor import Direction
from tidelog.tools.console.messages.decoding import Decoder
from tidelog.tools.console.messages.expression import parse_expression
from tidelog.tools.console.messages.filtering import RecordFilter
from tidelog.tools.console.messages.reading import first_cursor
from tidelog.tools.console.messages.scanning import Budget
from tidelog.tools.console.messages.transfer import (
    IMPORT_LINES_MAX,
    BadLine,
    exported,
    lines_of,
    parse_lines,
)
from tidelog.tools.console.messages.typed_input import BadInput, encoders, typed_record

TEXT = Decoder("text")


def export_of(log: ConsoleLog, expression: str) -> list[bytes]:
    wanted = RecordFilter(parse_expression(expression), TEXT, TEXT)

    async def pieces() -> list[bytes]:
        cursor = first_cursor(Direction.OLDEST_FIRST, await log.bounds())
        return [each async for each in exported(log, cursor, wanted, Budget(1.0, log.clock))]

    return asyncio.run(pieces())


def test_an_export_holds_all_matches_in_pieces() -> None:
    log = ConsoleLog(
        (record_of(each, b"%d" % (each % 2)) for each in range(5_000)), poll_records=500
    )

    pieces = export_of(log, 'value == "1"')

    assert len(pieces) > 1
    found = parse_lines(b"".join(pieces), {0}, keeps_partitions=True)
    assert len(found) == 2_500
    assert found[0][1] == InputRecord(b"1", None, (), 0, 0)


def test_an_export_that_cannot_go_on_ends_with_a_line_that_no_import_takes() -> None:
    log = ConsoleLog([record_of(0)])

    async def fails(seconds: float) -> list[ConsumerRecord]:
        raise CorruptRecordsFetched("partition t-0: fails its checksum")

    log.poll = fails  # type: ignore[method-assign]

    pieces = export_of(log, "true")

    assert b"checksum" in pieces[-1]
    with pytest.raises(BadLine, match="error is no field"):
        parse_lines(pieces[-1], {0}, keeps_partitions=False)


def test_records_come_back_from_their_lines() -> None:
    records = [
        record_of(0, b"\xff\x00", key=b"k", headers=(("h", b"1"), ("n", None)), timestamp=5),
        record_of(1, None, partition=3),
        record_of(2, '"ä\n'.encode()),
    ]

    found = parse_lines(lines_of(records), {0, 3}, keeps_partitions=True)

    assert [(row.key, row.value, row.headers, row.partition) for _, row in found] == [
        (each.key, each.value, each.headers, each.partition) for each in records
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{", "line 2"),
        (b"[]", "a record is an object"),
        (b'{"valeu": 1}', "valeu is no field"),
        (b'{"partition": -1}', "a number from 0 on"),
        (b'{"partition": 9}', "no partition 9"),
        (b'{"value": NaN}', "no JSON"),
        (b"\xff", "line 2"),
        (b'{"value": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_every_line_is_checked(line: bytes, told: str) -> None:
    with pytest.raises(BadLine, match=told) as caught:
        parse_lines(b'{"value": 1}\n' + line, {0}, keeps_partitions=True)
    assert str(caught.value).startswith("line 2: ")


def test_partitions_are_the_producers_choice_unless_they_are_kept() -> None:
    found = parse_lines(b'{"partition": 9}\n\n{"value": null}', {0}, keeps_partitions=False)

    assert [(number, row.partition) for number, row in found] == [(1, None), (3, None)]


def test_an_import_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.tools.console.messages.transfer.IMPORT_LINES_MAX", 2)
    assert IMPORT_LINES_MAX > 2

    with pytest.raises(BadLine, match="more than 2"):
        parse_lines(b"{}\n{}\n{}", {0}, keeps_partitions=False)


def test_typed_input_becomes_bytes() -> None:
    record = typed_record(
        {
            "key": "5",
            "key-form": "int64",
            "value": '{"a": 1}',
            "value-form": "json",
            "headers": "type: order\r\nnothing\r\n",
            "partition": "2",
            "timestamp": "7",
        }
    )

    assert record == InputRecord(
        b'{"a": 1}', struct.pack(">q", 5), (("type", b"order"), ("nothing", None)), 2, 7
    )
    assert typed_record({}) == InputRecord(b"")
    assert typed_record({"value-form": "null", "value": ""}).value is None
    assert {name for name, _ in encoders()} >= {"text", "json", "null", "uuid", "hex", "base64"}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"value-form": "json", "value": "{"}, "value"),
        ({"value-form": "int32", "value": "99999999999"}, "value"),
        ({"key-form": "uuid", "key": "x"}, "key"),
        ({"key": "typed, and null is chosen"}, "key"),
        ({"key-form": "hex", "key": "0g"}, "key"),
        ({"key-form": "base64", "key": "?"}, "key"),
        ({"key-form": "rot13", "key": ""}, "key"),
        ({"partition": "-1"}, "partition"),
        ({"timestamp": "soon"}, "timestamp"),
        ({"headers": ": no name"}, "headers"),
    ],
)
def test_input_that_is_wrong_names_its_field(values: dict[str, str], field: str) -> None:
    with pytest.raises(BadInput, match=f"^{field}: "):
        typed_record(values)


def test_readings_run_in_threads_of_their_own() -> None:
    async def name() -> str:
        return threading.current_thread().name

    async def names() -> list[str]:
        readings = Readings()
        many = (readings.run(name) for _ in range(READINGS_MAX + 2))
        return await asyncio.gather(*many)

    assert threading.current_thread().name not in asyncio.run(names())


def test_a_stream_is_pulled_and_closed_in_its_thread() -> None:
    closed: list[str] = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for number in range(1_000_000):
                yield number
        finally:
            closed.append(threading.current_thread().name)

    async def take() -> list[int]:
        taken = []
        stream = Readings().stream(numbers)
        async for number in stream:
            taken.append(number)
            if number == 2:
                break
        await stream.aclose()
        return taken

    assert asyncio.run(take()) == [0, 1, 2]
    assert closed == ["console-stream"]


def test_a_stream_that_waits_is_closed_when_its_reader_goes() -> None:
    closed: list[str] = []

    async def waits() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            closed.append("closed")

    async def take() -> None:
        stream = Readings().stream(waits)
        assert await anext(stream) == 1
        pulling = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        pulling.cancel()
        await asyncio.wait([pulling])
        await stream.aclose()

    asyncio.run(take())
    assert closed == ["closed"]


def test_what_a_stream_raises_is_raised_here_and_its_end_is_an_end() -> None:
    async def fails() -> AsyncGenerator[int, None]:
        yield 1
        raise ValueError("no more")

    async def one() -> AsyncGenerator[int, None]:
        yield 1

    async def take() -> None:
        assert [each async for each in Readings().stream(one)] == [1]
        with pytest.raises(ValueError, match="no more"):
            [each async for each in Readings().stream(fails)]

    asyncio.run(take())
