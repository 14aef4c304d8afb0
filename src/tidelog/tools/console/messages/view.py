"""Records as pages show them: decoded, cut, and ready to be copied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.cli.output import json_line
from tidelog.tools.cli.record_format import record_as_json
from tidelog.tools.console.messages.decoding import Decoder, Shown, internal_decoder
from tidelog.tools.console.messages.documents import visible_json

KEY_CHARACTERS: Final = 120
VALUE_CHARACTERS: Final = 300
HEADERS_SHOWN: Final = 5
WHOLE_CHARACTERS: Final = 256 * 1024
COPIED_BYTES_MAX: Final = 4 * 1024
COPIED_WHOLE_BYTES_MAX: Final = 256 * 1024

_TIMESTAMP_KINDS: Final = {0: "of the producer", 1: "of the broker"}


class Cell(NamedTuple):
    """`text` is None for a null."""

    text: str | None
    form: str = ""
    problem: str = ""
    size_bytes: int = 0
    is_cut: bool = False


class RecordView(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_kind: str
    leader_epoch: int | None
    key: Cell
    value: Cell
    headers: list[tuple[str, Cell]]
    headers_count: int
    copied: str | None  # as JSON; None where that is too long


class Viewer:
    """Of one topic. Decoders may wait for a registry, so this runs in threads only."""

    def __init__(self, topic: str, key: Decoder, value: Decoder) -> None:
        self._key = key
        self._value = value
        # Whoever asks for a decoder gets it, also for internal topics.
        is_automatic = key.name == "auto" and value.name == "auto"
        self._internal = internal_decoder(topic) if is_automatic else None

    def rows(self, records: Iterable[ConsumerRecord]) -> list[RecordView]:
        return [self._view(record, is_whole=False) for record in records]

    def whole(self, record: ConsumerRecord) -> RecordView:
        return self._view(record, is_whole=True)

    def _view(self, record: ConsumerRecord, *, is_whole: bool) -> RecordView:
        key, value = self._shown(record, is_whole=is_whole)
        limits = (
            (WHOLE_CHARACTERS, WHOLE_CHARACTERS) if is_whole else (KEY_CHARACTERS, VALUE_CHARACTERS)
        )
        headers = record.headers if is_whole else record.headers[:HEADERS_SHOWN]
        text = Decoder("auto")
        size = len(record.key or b"") + len(record.value or b"")
        is_copied = size <= (COPIED_WHOLE_BYTES_MAX if is_whole else COPIED_BYTES_MAX)
        return RecordView(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            _TIMESTAMP_KINDS.get(record.timestamp_type, "none"),
            record.leader_epoch,
            _cell(record.key, key, limits[0]),
            _cell(record.value, value, limits[1]),
            [
                (name, _cell(each, None if each is None else text.shown(each), limits[0]))
                for name, each in headers
            ],
            len(record.headers),
            visible_json(json_line(record_as_json(record))) if is_copied else None,
        )

    def _shown(
        self, record: ConsumerRecord, *, is_whole: bool
    ) -> tuple[Shown | None, Shown | None]:
        if self._internal is not None:
            return self._internal(record, is_whole=is_whole)
        key, value = record.key, record.value
        return (
            None if key is None else self._key.shown(key, is_whole=is_whole),
            None if value is None else self._value.shown(value, is_whole=is_whole),
        )


def _cell(data: bytes | None, shown: Shown | None, characters: int) -> Cell:
    if data is None or shown is None:
        return Cell(None)
    is_cut = len(shown.text) > characters
    text = f"{shown.text[:characters]}…" if is_cut else shown.text
    return Cell(text, shown.form, shown.problem, len(data), is_cut)
