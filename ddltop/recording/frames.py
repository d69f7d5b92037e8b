"""Blocks of frames: what SQLite stores in `frames.payload`, and back, with bounded memory.

A block is zstd of: per frame, f8 time (seconds since the epoch), u4 length, the frame; little-endian.
"""

import struct
from collections.abc import Iterator, Sequence

import zstandard

from ddltop.errors import RecordingError

MAX_BLOCK_BYTES = 32 * 2**20
_HEAD = struct.Struct("<dI")
_LEVEL = 3


def pack_block(frames: Sequence[tuple[float, bytes]]) -> tuple[bytes, int]:
    """Compress frames; give the payload and its size before compression, bytes."""
    raw = b"".join(part for at, frame in frames for part in (_HEAD.pack(at, len(frame)), frame))
    return zstandard.ZstdCompressor(level=_LEVEL).compress(raw), len(raw)


def unpack_block(payload: bytes) -> Iterator[tuple[float, bytes]]:
    """Give (time, frame) in order; raise RecordingError when the block is damaged or larger than it may be."""
    raw = _decompress(payload)
    offset = 0
    while offset < len(raw):
        if offset + _HEAD.size > len(raw):
            raise _damaged("a frame's head is cut short")
        at, length = _HEAD.unpack_from(raw, offset)
        offset += _HEAD.size
        if offset + length > len(raw):
            raise _damaged("a frame is cut short")
        yield at, raw[offset : offset + length]
        offset += length


def _decompress(payload: bytes) -> bytes:
    try:
        size = zstandard.frame_content_size(payload)
        if not 0 <= size <= MAX_BLOCK_BYTES:
            raise _damaged(f"a block claims {size:,} bytes; the limit is {MAX_BLOCK_BYTES:,}")
        return zstandard.ZstdDecompressor().decompress(payload, max_output_size=MAX_BLOCK_BYTES)
    except zstandard.ZstdError as error:
        raise _damaged(str(error)) from error


def _damaged(what: str) -> RecordingError:
    return RecordingError(f"the recording is damaged: {what}", "the blocks before it are readable: ddltop replay FILE")
