from __future__ import annotations

import gzip
import os
import tracemalloc
import zlib
from contextlib import suppress
from typing import Any

import aiokafka.codec
import cramjam
import kafka.codec
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batches import codecs
from tidelog.errors import ErrorCode
from tidelog.record.batch import Codec
from tidelog.record.compression import codec_of, compress, decompress
from tidelog.record.errors import RecordsTooLarge, UndecodableRecords
from tidelog.record.kernel import xxh32

TEXT = b"a log is a sequence of records " * 4000
COMPRESSED = [codec for codec in Codec if codec != Codec.NONE]
SAMPLES = [b"", b"x", os.urandom(70_000), TEXT]

every_codec = pytest.mark.parametrize("codec", COMPRESSED)
clients = pytest.mark.parametrize("client", [kafka.codec, aiokafka.codec])


@every_codec
@pytest.mark.parametrize("sample", SAMPLES, ids=len)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_was_compressed_comes_back(codec: Codec, sample: bytes, magic: int) -> None:
    assert decompress(codec, compress(codec, sample, magic=magic), magic=magic) == sample


@every_codec
@clients
def test_foreign_clients_read_ours_and_we_read_theirs(codec: Codec, client: Any) -> None:
    name = codec.name.lower()
    decode, encode = getattr(client, f"{name}_decode"), getattr(client, f"{name}_encode")
    for sample in SAMPLES[1:]:
        assert bytes(decode(compress(codec, sample))) == sample
        theirs = encode(sample)
        if codec == Codec.LZ4 and not theirs[4] & 0x20:
            with pytest.raises(UndecodableRecords, match="linked"):
                decompress(codec, theirs)
        else:
            assert decompress(codec, theirs) == sample


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 12), (Codec.ZSTD, 1, 19)]
)
def test_the_level_reaches_the_library(codec: Codec, low: int, high: int) -> None:
    sample = b" ".join(b"%d" % (n * n % 9973) for n in range(20_000))
    assert compress(codec, sample, high) != compress(codec, sample, low)


@settings(deadline=None, max_examples=200)
@given(codecs, st.binary(max_size=300), st.integers(0, 2))
def test_garbage_is_undecodable_or_too_large(codec: Codec, data: bytes, magic: int) -> None:
    if codec == Codec.NONE:
        return
    with suppress(UndecodableRecords, RecordsTooLarge):
        decompress(codec, data, 10_000, magic)


@settings(deadline=None, max_examples=200)
@given(codecs, st.binary(min_size=1, max_size=500), st.data())
def test_damaged_data_never_surprises(codec: Codec, sample: bytes, data: st.DataObject) -> None:
    damaged = bytearray(compress(codec, sample))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    with suppress(UndecodableRecords, RecordsTooLarge):
        decompress(codec, damaged, 1_000_000)


@every_codec
@pytest.mark.parametrize("cut", [1, 2, 3, 5, 100])
def test_cut_data_is_undecodable(codec: Codec, cut: int) -> None:
    whole = compress(codec, os.urandom(1000))
    with pytest.raises(UndecodableRecords) as caught:
        decompress(codec, whole[:-cut])
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


BOMB_BYTES = 200 * 1024 * 1024


def _bomb(codec: Codec) -> bytes:
    if codec == Codec.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
        framed = len(block).to_bytes(4, "big") + block
        return b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + framed * (BOMB_BYTES >> 20)
    if codec == Codec.LZ4:
        chunk = lz4.frame.compress(
            bytes(4 << 20), block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False
        )
        header, blocks = chunk[:15], chunk[15:-4]
        return bytes(header + blocks * (BOMB_BYTES >> 22) + bytes(4))
    if codec == Codec.ZSTD:
        return zstandard.compress(bytes(BOMB_BYTES))
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    return (
        b"".join(stream.compress(bytes(1 << 20)) for _ in range(BOMB_BYTES >> 20)) + stream.flush()
    )


@every_codec
def test_a_bomb_stops_at_the_limit(codec: Codec) -> None:
    bomb = _bomb(codec)
    assert len(bomb) < BOMB_BYTES // 10
    limit = 1 << 20
    tracemalloc.start()
    with pytest.raises(RecordsTooLarge) as caught:
        decompress(codec, bomb, limit)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 20 * limit


def test_a_raw_snappy_block_that_announces_too_much_is_not_inflated() -> None:
    announced = b"\xff\xff\xff\xff\x0f"
    with pytest.raises((RecordsTooLarge, UndecodableRecords)):
        decompress(Codec.SNAPPY, announced + b"\x00", 1 << 20)


@every_codec
def test_exactly_the_limit_is_allowed(codec: Codec) -> None:
    assert decompress(codec, compress(codec, TEXT), len(TEXT)) == TEXT
    with pytest.raises(RecordsTooLarge):
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)


def test_raw_snappy_is_read_too() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_several_gzip_members_and_zstd_frames_follow_each_other() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"ab") + gzip.compress(b"cd")) == b"abcd"
    frames = zstandard.compress(b"ab") + zstandard.compress(b"cd")
    assert decompress(Codec.ZSTD, frames) == b"abcd"


class TestLz4Frames:
    def test_ours_have_independent_blocks_of_64_kib(self) -> None:
        frame = compress(Codec.LZ4, TEXT)
        assert frame[:4] == bytes.fromhex("04224d18")
        assert frame[4] & 0x20
        assert frame[5] == 0x40

    def test_linked_blocks_are_refused(self) -> None:
        with pytest.raises(UndecodableRecords, match="linked"):
            decompress(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True))

    @pytest.mark.parametrize("block_checksum", [False, True])
    @pytest.mark.parametrize("content_checksum", [False, True])
    @pytest.mark.parametrize("store_size", [False, True])
    def test_all_optional_fields_are_read(
        self, block_checksum: bool, content_checksum: bool, store_size: bool
    ) -> None:
        frame = lz4.frame.compress(
            TEXT,
            block_linked=False,
            block_checksum=block_checksum,
            content_checksum=content_checksum,
            store_size=store_size,
        )
        assert decompress(Codec.LZ4, frame) == TEXT

    def test_a_damaged_block_fails_its_checksum(self) -> None:
        frame = bytearray(
            lz4.frame.compress(os.urandom(1000), block_linked=False, block_checksum=True)
        )
        frame[-50] ^= 1
        with pytest.raises(UndecodableRecords, match="checksum"):
            decompress(Codec.LZ4, frame)

    def test_magic_0_carries_the_old_header_checksum(self) -> None:
        old, right = compress(Codec.LZ4, TEXT, magic=0), compress(Codec.LZ4, TEXT, magic=1)
        assert old[6] == xxh32(old[:6]) >> 8 & 0xFF
        assert right[6] == xxh32(right[4:6]) >> 8 & 0xFF
        assert old[6] != right[6]
        assert old[7:] == right[7:]
        with pytest.raises(UndecodableRecords, match="header"):
            decompress(Codec.LZ4, old, magic=1)

    def test_kafka_pythons_old_frames_agree(self) -> None:
        theirs = kafka.codec.lz4_encode_old_kafka(TEXT)
        assert xxh32(theirs[:6]) >> 8 & 0xFF == theirs[6]


@pytest.mark.parametrize(
    ("data", "digest"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF), (b"0123456789abcdef" * 2, None)],
)
def test_xxh32_by_known_values(data: bytes, digest: int | None) -> None:
    if digest is None:
        frame = lz4.frame.compress(data, content_checksum=True)
        digest = int.from_bytes(frame[-4:], "little")
    assert xxh32(data) == digest


def test_unknown_codecs_are_undecodable() -> None:
    assert [codec_of(attributes) for attributes in (0x10, 0x21, 4)] == [0, 1, 4]
    for attributes in (5, 6, 7):
        with pytest.raises(UndecodableRecords):
            codec_of(attributes)


def test_the_default_level_of_lz4_is_the_fast_compressor() -> None:
    content = b"".join(b"%d words that repeat " % (n * n) for n in range(2000))
    assert compress(Codec.LZ4, content) == compress(Codec.LZ4, content, 9)
    assert len(compress(Codec.LZ4, content, 9)) > len(compress(Codec.LZ4, content, 8))


def test_gzip_members_follow_each_other() -> None:
    pieces = [os.urandom(n) for n in (3, 0, 5000, 1, 70_000)]
    joined = b"".join(compress(Codec.GZIP, piece) for piece in pieces)
    assert decompress(Codec.GZIP, joined) == b"".join(pieces)
    assert decompress(Codec.GZIP, joined + b"padding") == b"".join(pieces)
    with pytest.raises(UndecodableRecords):
        decompress(Codec.GZIP, joined[:-1])
    with pytest.raises(RecordsTooLarge):
        decompress(Codec.GZIP, joined, 75_003)
    assert len(decompress(Codec.GZIP, joined, 75_004)) == 75_004


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.GZIP, compress(Codec.GZIP, b"") * 20_000),
        (Codec.SNAPPY, compress(Codec.SNAPPY, b"") + b"\0\0\0\x01\0" * 20_000),
        (Codec.LZ4, compress(Codec.LZ4, b"")[:7] + b"\x01\0\0\x80x" * 20_000 + bytes(4)),
        (Codec.ZSTD, compress(Codec.ZSTD, b"x") * 20_000),
    ],
)
def test_too_many_small_pieces_are_refused(codec: Codec, data: bytes) -> None:
    with pytest.raises(RecordsTooLarge, match="pieces"):
        decompress(codec, data)
