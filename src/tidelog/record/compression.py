"""The four codecs of record batches, as Kafka frames them, with bounded output.

gzip    one or more members, any zlib level
snappy  written in the xerial framing of snappy-java (16-byte header, then blocks of at most 32 KiB,
        each behind its i32 length); read in that framing or as one raw block
lz4     one frame with independent 64 KiB blocks. Linked blocks (the default of most libraries) are
        refused, as Kafka's reader does. Magic 0 writes the header checksum that old clients expect,
        taken over the frame's magic number too; on reading magic 0 the checksum is not looked at
zstd    one frame or several

lz4's level 9, Kafka's default, is a name for the fast compressor, in Kafka as here; other levels
are those of the high compressor, ten times as slow for a tenth less bytes; gzip is as slow.
Indicative, for one megabyte of text: snappy 1 ms, lz4 2, zstd 8, lz4 at another level 20, gzip 35.

`decompress` stops while it streams as soon as more than `limit_bytes` have come out and raises
RecordsTooLarge; data that does not decompress raises UndecodableRecords. Libraries are imported
when a codec is first used.
"""

from __future__ import annotations

import threading
import zlib
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final

from tidelog.record.batch import Codec
from tidelog.record.errors import RecordsTooLarge, UndecodableRecords
from tidelog.record.inflation import REQUEST_BYTES_MAX
from tidelog.record.kernel import xxh32

if TYPE_CHECKING:
    from zstandard import ZstdCompressor, ZstdDecompressor

    from tidelog.record.kernel import Buffer

DECOMPRESSED_BYTES_MAX: Final = REQUEST_BYTES_MAX

DEFAULT_LEVELS: Final = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}

_NS_PER_BYTE: Final = {
    Codec.NONE: 0,
    Codec.GZIP: 35,
    Codec.SNAPPY: 1,
    Codec.LZ4: 2,
    Codec.ZSTD: 8,
}
_SLOW_NS_PER_BYTE: Final = 20

_CHUNK = 256 * 1024
PIECES_MAX: Final = 1 << 14  # blocks, members or frames; 512 MiB in the smallest usual blocks

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 4096

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024
_BLOCK_LENGTH = Struct(">i")

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_LENGTH = Struct("<I")
_LZ4_BLOCK_SIZES = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
_LZ4_UNCOMPRESSED = 1 << 31
_LZ4_FAST = 0  # the library's level for what Kafka calls 9

_ZSTD_RUN, _ZSTD_COMPRESSED = 1, 2
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024
_ZSTD_WINDOW_BYTES_MAX = 1 << 27
_ZSTD_ONE_SHOT_BYTES = 2 * 1024 * 1024


def compression_ns(codec: Codec, size_bytes: int, level: int | None) -> int:
    """About how long `compress` takes."""
    is_high_lz4 = codec == Codec.LZ4 and level not in (None, DEFAULT_LEVELS[Codec.LZ4])
    return size_bytes * (_SLOW_NS_PER_BYTE if is_high_lz4 else _NS_PER_BYTE[codec])


def codec_of(attributes: int) -> Codec:
    """The codec in a batch's attributes; an unknown one cannot be decoded."""
    try:
        return Codec(attributes & 7)
    except ValueError:
        raise UndecodableRecords(f"Unknown compression type id: {attributes & 7}") from None


def compress(codec: Codec, data: Buffer, level: int | None = None, magic: int = 2) -> bytes:
    if codec == Codec.NONE:
        return bytes(data)
    if level is None:
        level = DEFAULT_LEVELS.get(codec, -1)
    if codec == Codec.GZIP:
        return _gzip(data, level)
    if codec == Codec.SNAPPY:
        return _xerial(data)
    if codec == Codec.LZ4:
        return _lz4(data, level, magic)
    return _zstd(data, level)


def decompress(
    codec: Codec,
    data: Buffer,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
    magic: int = 2,
    pieces_max: int = PIECES_MAX,
) -> bytes | bytearray:
    view = memoryview(data).cast("B")
    if codec == Codec.NONE:
        return bytes(view)
    if codec == Codec.GZIP:
        return _gunzip(view, limit_bytes, pieces_max)
    if codec == Codec.SNAPPY:
        return _unsnappy(view, limit_bytes, pieces_max)
    if codec == Codec.LZ4:
        return _unlz4(view, limit_bytes, magic, pieces_max)
    return _unzstd(view, limit_bytes, pieces_max)


def _too_large(limit_bytes: int) -> RecordsTooLarge:
    return RecordsTooLarge(f"Compressed records inflate beyond {limit_bytes} bytes.")


def _next_piece(pieces: int, pieces_max: int) -> int:
    """One more; each piece costs a turn of a loop, however little it holds."""
    if pieces >= pieces_max:
        raise RecordsTooLarge(f"Compressed records come in more than {pieces_max} pieces.")
    return pieces + 1


def _undecodable(codec: str, why: object) -> UndecodableRecords:
    return UndecodableRecords(f"Failed to decompress {codec} records: {why}")


def _gzip(data: Buffer, level: int) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


def _gunzip(view: memoryview, limit_bytes: int, pieces_max: int) -> bytes | bytearray:
    """Members after the first are read in small windows: zlib copies what follows a member."""
    try:
        first, position = _gunzip_member(view, 0, len(view), limit_bytes)
        if view[position : position + 2] != _GZIP_MAGIC:
            return first
        inflated, pieces = bytearray(first), 1
        while view[position : position + 2] == _GZIP_MAGIC:
            pieces = _next_piece(pieces, pieces_max)
            left = limit_bytes - len(inflated)
            member, position = _gunzip_member(view, position, _GZIP_WINDOW, left)
            inflated += member
        return inflated
    except zlib.error as problem:
        raise _undecodable("gzip", problem) from None


def _gunzip_member(
    view: memoryview, position: int, window_bytes: int, limit_bytes: int
) -> tuple[bytes, int]:
    """(content of the member at `position`, where it ends)"""
    stream = zlib.decompressobj(31)
    inflated = b""
    parts: list[bytes] = []
    inflated_bytes = 0
    while not stream.eof:
        window = view[position : position + window_bytes]
        if not window:
            raise _undecodable("gzip", "the stream ends early")
        inflated = stream.decompress(window, limit_bytes + 1 - inflated_bytes)
        inflated_bytes += len(inflated)
        if inflated_bytes > limit_bytes:
            raise _too_large(limit_bytes)
        parts.append(inflated)
        position += len(window) - len(stream.unused_data)
    return inflated if len(parts) == 1 else b"".join(parts), position


def _xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data).cast("B")
    framed = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        framed += _BLOCK_LENGTH.pack(len(block))
        framed += block
    return bytes(framed)


def _unsnappy(view: memoryview, limit_bytes: int, pieces_max: int) -> bytes | bytearray:
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnap_block(view, limit_bytes)
    inflated, pieces = bytearray(), 0
    position = len(_XERIAL_HEADER)
    end = len(view)
    if end < position:
        raise _undecodable("snappy", "the header ends early")
    while position < end:
        pieces = _next_piece(pieces, pieces_max)
        if end - position < 4:
            raise _undecodable("snappy", "a block length ends early")
        length = _BLOCK_LENGTH.unpack_from(view, position)[0]
        position += 4
        if length < 0 or length > end - position:
            raise _undecodable("snappy", "a block ends early")
        inflated += _unsnap_block(view[position : position + length], limit_bytes - len(inflated))
        position += length
    return inflated


def _unsnap_block(block: memoryview, limit_bytes: int) -> bytes:
    """A block announces its length, so that a bomb is known before it is inflated."""
    import cramjam

    try:
        length = cramjam.snappy.decompress_raw_len(block)
        if length > limit_bytes:
            raise _too_large(limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as problem:
        raise _undecodable("snappy", problem) from None


def _lz4(data: Buffer, level: int, magic: int) -> bytes:
    import lz4.frame

    frame: bytes = lz4.frame.compress(
        bytes(data),
        compression_level=_LZ4_FAST if level == DEFAULT_LEVELS[Codec.LZ4] else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    if magic == 0:
        return frame[:6] + bytes([_descriptor_checksum(frame[:6])]) + frame[7:]
    return frame


@lru_cache(64)  # most frames of the world begin with one of a few descriptors
def _descriptor_checksum(descriptor: bytes) -> int:
    return xxh32(descriptor) >> 8 & 0xFF


def _unlz4(view: memoryview, limit_bytes: int, magic: int, pieces_max: int) -> bytearray:
    import lz4.block

    if len(view) < 7 or view[:4] != _LZ4_MAGIC:
        raise _undecodable("lz4", "no frame")
    flags = view[4]
    if flags >> 6 != 1:
        raise _undecodable("lz4", "unknown frame version")
    if not flags & 0x20:
        raise _undecodable("lz4", "linked blocks are not supported")
    if flags & 0x03 or view[5] & 0x8F:
        raise _undecodable("lz4", "reserved bits are set")
    block_bytes_max = _LZ4_BLOCK_SIZES.get(view[5] >> 4)
    if block_bytes_max is None:
        raise _undecodable("lz4", "unknown block size")
    position = 14 if flags & 0x08 else 6
    if len(view) <= position:
        raise _undecodable("lz4", "the header ends early")
    if magic > 0 and view[position] != _descriptor_checksum(bytes(view[4:position])):
        raise _undecodable("lz4", "the header fails its checksum")
    position += 1
    checksum_bytes = 4 if flags & 0x10 else 0
    inflated, pieces = bytearray(), 0
    end = len(view)
    while True:
        pieces = _next_piece(pieces, pieces_max)
        if end - position < 4:
            raise _undecodable("lz4", "a block length ends early")
        length = _LZ4_BLOCK_LENGTH.unpack_from(view, position)[0]
        position += 4
        if length == 0:
            return inflated
        stored = length & _LZ4_UNCOMPRESSED
        length &= ~_LZ4_UNCOMPRESSED
        if length > block_bytes_max or length + checksum_bytes > end - position:
            raise _undecodable("lz4", "a block ends early")
        block = view[position : position + length]
        position += length
        if checksum_bytes:
            if xxh32(block) != _LZ4_BLOCK_LENGTH.unpack_from(view, position)[0]:
                raise _undecodable("lz4", "a block fails its checksum")
            position += checksum_bytes
        if stored:
            inflated += block
        else:
            try:
                inflated += lz4.block.decompress(block, uncompressed_size=block_bytes_max)
            except lz4.block.LZ4BlockError as problem:
                raise _undecodable("lz4", problem) from None
        if len(inflated) > limit_bytes:
            raise _too_large(limit_bytes)


class _ZstdContexts(threading.local):
    """Contexts cost more to make than a small batch to decode; they serve one thread each."""

    def __init__(self) -> None:
        self._compressors: dict[int, ZstdCompressor] = {}
        self._decompressor: ZstdDecompressor | None = None

    def compressor(self, level: int) -> ZstdCompressor:
        if level not in self._compressors:
            from zstandard import ZstdCompressor

            self._compressors[level] = ZstdCompressor(level=level, write_content_size=False)
        return self._compressors[level]

    def decompressor(self) -> ZstdDecompressor:
        if self._decompressor is None:
            from zstandard import ZstdDecompressor

            self._decompressor = ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
        return self._decompressor


_ZSTD = _ZstdContexts()


def _zstd(data: Buffer, level: int) -> bytes:
    return _ZSTD.compressor(level).compress(memoryview(data))


def _measure_frames(view: memoryview, pieces_max: int) -> tuple[int, int]:
    """(frames, bytes they inflate to at most), from block headers alone.

    It also finds cut frames, which the streaming reader takes for the end.
    """
    import zstandard

    position, end = 0, len(view)
    frames = bound_bytes = pieces = 0
    while position < end:
        frames += 1
        if view[position : position + 4] != zstandard.FRAME_HEADER:
            raise _undecodable("zstd", "no frame")
        has_checksum = zstandard.get_frame_parameters(view[position:]).has_checksum
        position += zstandard.frame_header_size(view[position:])
        is_last = False
        while not is_last:
            pieces = _next_piece(pieces, pieces_max)
            header = int.from_bytes(view[position : position + 3], "little")
            is_last = bool(header & 1)
            kind = header >> 1 & 3
            position += 3 + (1 if kind == _ZSTD_RUN else header >> 3)
            bound_bytes += _ZSTD_BLOCK_BYTES_MAX if kind == _ZSTD_COMPRESSED else header >> 3
            if position > end:
                raise _undecodable("zstd", "a block ends early")
        position += 4 * has_checksum
    if position > end:
        raise _undecodable("zstd", "the checksum ends early")
    return frames, bound_bytes


def _unzstd(view: memoryview, limit_bytes: int, pieces_max: int) -> bytes | bytearray:
    import zstandard

    inflated = bytearray()
    try:
        frames, bound_bytes = _measure_frames(view, pieces_max)
        decompressor = _ZSTD.decompressor()
        if frames == 1 and 0 < bound_bytes <= min(limit_bytes, _ZSTD_ONE_SHOT_BYTES):
            return decompressor.decompress(view, max_output_size=bound_bytes)
        reader = decompressor.stream_reader(view, read_across_frames=True)
        while chunk := reader.read(_CHUNK):
            inflated += chunk
            if len(inflated) > limit_bytes:
                raise _too_large(limit_bytes)
    except zstandard.ZstdError as problem:
        raise _undecodable("zstd", problem) from None
    return inflated
