"""Encode and decode messages; refuse what is malformed with an error that says what it is."""

from typing import TypeVar

import msgspec

from ddltop.errors import WireError
from ddltop.wire.messages import Message, ToAgent, ToCollector, ToRank, ToViewer

T = TypeVar("T")

MAX_FRAME_BYTES = 8 * 2**20
"""A frame above this is refused unread (one node sends about 50 KiB a second)."""

_encoder = msgspec.msgpack.Encoder()
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)
_to_collector: msgspec.msgpack.Decoder[ToCollector] = msgspec.msgpack.Decoder(ToCollector)
_to_rank: msgspec.msgpack.Decoder[ToRank] = msgspec.msgpack.Decoder(ToRank)
_to_viewer: msgspec.msgpack.Decoder[ToViewer] = msgspec.msgpack.Decoder(ToViewer)


def encode(message: Message) -> bytes:
    """Encode one message as a msgpack frame."""
    return _encoder.encode(message)


def decode_for_rank(frame: bytes) -> ToRank:
    """Decode a frame that an agent sent to its ranks; raise WireError."""
    return _decode(_to_rank, frame)


def decode_for_agent(frame: bytes) -> ToAgent:
    """Decode a frame that a probe or the collector sent to an agent; raise WireError."""
    return _decode(_to_agent, frame)


def decode_for_collector(frame: bytes) -> ToCollector:
    """Decode a frame that an agent, a viewer or `ddltop run` sent to the collector; raise WireError."""
    return _decode(_to_collector, frame)


def decode_for_viewer(frame: bytes) -> ToViewer:
    """Decode a frame that the collector sent to a viewer; raise WireError."""
    return _decode(_to_viewer, frame)


def _decode(decoder: msgspec.msgpack.Decoder[T], frame: bytes) -> T:
    if len(frame) > MAX_FRAME_BYTES:
        raise WireError(
            f"a frame of {len(frame):,} bytes; the limit is {MAX_FRAME_BYTES:,}",
            "run the same ddltop version on all nodes",
        )
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise WireError(f"a malformed frame: {error}", "run the same ddltop version on all nodes") from error
