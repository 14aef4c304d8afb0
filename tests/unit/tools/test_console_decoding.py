"""What keys and values are shown as, and that no bytes do harm."""

from __future__ import annotations

import json
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.console_log import record_of
from tidelog.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from tidelog.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from tidelog.tools.console.messages.decoding import (
    DECODERS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Decoder,
    internal_decoder,
)
from tidelog.tools.console.messages.documents import MISSING, visible
from tidelog.tools.console.messages.view import VALUE_CHARACTERS, Viewer

UUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


@pytest.mark.parametrize(
    ("name", "data", "form", "text"),
    [
        ("auto", b'{"a":1}', "json", '{"a":1}'),
        ("auto", b"plain", "text", "plain"),
        ("auto", b"\xff\x00", "hex", "ff 00"),
        ("auto", b"\x00\x00\x00\x05", "hex", "00 00 00 05"),
        ("auto", b"{broken", "text", "{broken"),
        ("auto", b"42", "text", "42"),
        ("auto", b"", "text", ""),
        ("text", "zoë".encode(), "text", "zoë"),
        ("json", b" [1, 2]", "json", " [1, 2]"),
        ("int32", struct.pack(">i", -5), "number", "-5"),
        ("int64", struct.pack(">q", 1 << 40), "number", str(1 << 40)),
        ("float32", struct.pack(">f", 0.5), "number", "0.5"),
        ("float64", struct.pack(">d", -0.25), "number", "-0.25"),
        ("uuid", UUID.bytes, "uuid", str(UUID)),
        ("hex", b"\x0a\xff", "hex", "0a ff"),
        ("base64", b"\x0a\xff", "base64", "Cv8="),
    ],
)
def test_decoders(name: str, data: bytes, form: str, text: str) -> None:
    shown = Decoder(name).shown(data)

    assert (shown.form, shown.text, shown.problem) == (form, text, "")


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("text", b"ab\xff", "byte 2 is not UTF-8"),
        ("json", b"{", "no JSON"),
        ("json", b"NaN", "no JSON"),
        ("json", b"[" * 100_000, "nested too deeply"),
        ("int32", b"12345", "5 bytes are no int32, which has 4"),
        ("uuid", b"short", "5 bytes are no UUID"),
        ("schema", b"\0\0\0\0\1x", "--schemas"),
    ],
)
def test_what_cannot_be_decoded_is_hex_with_the_reason(name: str, data: bytes, told: str) -> None:
    shown = Decoder(name).shown(data)

    assert shown.form == "hex"
    assert told in shown.problem
    assert shown.text.startswith(f"{data[0]:02x}")


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=40), st.booleans())
def test_any_bytes_are_shown(name: str, data: bytes, is_whole: bool) -> None:
    decoder = Decoder(name)
    shown = decoder.shown(data, is_whole=is_whole)

    shown.text.encode()
    assert not any(ord(each) < 0x20 and each not in "\n\t" for each in shown.text)
    decoder.text(data)
    decoder.document(data)


def test_json_has_lines_on_its_own_page() -> None:
    assert Decoder("auto").shown(b'{"a":[1]}', is_whole=True).text == ('{\n  "a": [\n    1\n  ]\n}')


def test_a_lone_surrogate_in_json_can_be_sent_to_a_browser() -> None:
    shown = Decoder("json").shown(b'{"a":"\\ud800"}', is_whole=True)

    assert "\\ud800" in shown.text
    shown.text.encode()


def test_what_hides_or_turns_text_is_shown() -> None:
    assert visible("a\x1b[2J\u202eb\x00\n\t") == "a\\x1b[2J\\u202eb\\x00\n\t"


def test_a_record_is_copied_as_json_without_hidden_characters() -> None:
    value = 'a\u202eb\x7f\x1b"'.encode()
    row = Viewer("t", Decoder("auto"), Decoder("auto")).rows([record_of(0, value)])[0]

    assert row.copied is not None
    assert json.loads(row.copied)["value"].encode() == value
    assert visible(row.copied) == row.copied


def test_documents_of_decoders_that_have_none_are_missing() -> None:
    assert Decoder("text").document(b"abc") is MISSING
    assert Decoder("int32").document(b"abc") is MISSING
    assert Decoder("int32").document(b"\0\0\0\1") == 1


def test_offsets_of_groups_are_decoded() -> None:
    key = OffsetCommitKey(group="billing", topic="orders", partition=3)
    value = OffsetCommitValue(offset=77, leader_epoch=1, metadata="m", commit_timestamp=5)
    decode = internal_decoder(OFFSETS_TOPIC)
    assert decode is not None

    shown_key, shown_value = decode(
        record_of(0, b"\0\3" + value.encode(3), key=b"\0\1" + key.encode(0)), is_whole=False
    )

    assert shown_key is not None and shown_value is not None  # noqa: PT018
    assert '"group":"billing"' in shown_key.text
    assert '"offset":77' in shown_value.text


def test_transactions_are_decoded() -> None:
    key = TransactionLogKey(transactional_id="copy-1")
    value = TransactionLogValue(producer_id=9, transaction_timeout_ms=60_000)
    decode = internal_decoder(TRANSACTIONS_TOPIC)
    assert decode is not None

    shown_key, shown_value = decode(
        record_of(0, b"\0\0" + value.encode(0), key=b"\0\0" + key.encode(0)), is_whole=True
    )

    assert shown_key is not None and shown_value is not None  # noqa: PT018
    assert "copy-1" in shown_key.text
    assert "producerId:9" in shown_value.text


@given(
    st.sampled_from([OFFSETS_TOPIC, TRANSACTIONS_TOPIC]),
    st.one_of(st.none(), st.binary(max_size=20)),
    st.one_of(st.none(), st.binary(max_size=40)),
)
def test_any_record_of_an_internal_topic_is_shown(
    topic: str, key: bytes | None, value: bytes | None
) -> None:
    decode = internal_decoder(topic)
    assert decode is not None

    shown_key, shown_value = decode(record_of(0, value, key=key), is_whole=False)

    assert (shown_key is None) == (key is None)
    assert (shown_value is None) == (value is None)


def test_other_topics_have_no_decoder_of_their_own() -> None:
    assert internal_decoder("orders") is None


def test_rows_are_cut_and_say_so() -> None:
    viewer = Viewer("t", Decoder("auto"), Decoder("auto"))
    long = record_of(0, b"x" * 10_000, headers=tuple((f"h{each}", b"v") for each in range(9)))

    row, whole = viewer.rows([long])[0], viewer.whole(long)

    assert row.value.text == "x" * VALUE_CHARACTERS + "…"
    assert (row.value.is_cut, row.value.size_bytes) == (True, 10_000)
    assert (len(row.headers), row.headers_count, len(whole.headers)) == (5, 9, 9)
    assert row.copied is None
    assert whole.value.text == "x" * 10_000
    assert whole.copied is not None
    assert row.key.text is None
