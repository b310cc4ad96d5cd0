"""pika with encoded properties, and without what it does to messages on its own.

pika reads every integer as one type and cuts a double to an integer, so a message that is published
again would not be the one that came. And from `basic_cancel` on it rejects what a consumer is still
sent: a failed delivery that nobody had.
"""

from __future__ import annotations

import struct
from typing import Any

from pika import SelectConnection, frame, spec
from pika.channel import Channel

_HEAD = struct.Struct(">BHI")
_CONTENT = struct.Struct(">HHQ")


class RawProperties(spec.BasicProperties):  # type: ignore[misc]
    """Properties as they stand on the wire: flags and list.

    Attributes:
        raw: what `bridge.wire.basic.Properties` encodes and decodes.
    """

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def encode(self) -> list[bytes]:
        """Return them in pieces."""
        return [self.raw]


class RawChannel(Channel):  # type: ignore[misc]
    """A channel that gives a consumer all that it is sent."""

    def _on_deliver(self, method_frame: Any, header_frame: Any, body: bytes) -> None:
        consumer = self._consumers.get(method_frame.method.consumer_tag)
        if consumer is not None:
            consumer(self, method_frame.method, header_frame.properties, body)


class RawConnection(SelectConnection):  # type: ignore[misc]
    """A connection whose messages have `RawProperties`, and are written in one piece."""

    def _create_channel(self, channel_number: int, on_open_callback: Any) -> RawChannel:
        return RawChannel(self, channel_number, on_open_callback)

    def _output_marshaled_frames(self, marshaled_frames: Any) -> None:
        """Write a message's frames at once: each would be a packet of its own."""
        data = b"".join(marshaled_frames)
        self.bytes_sent += len(data)
        self.frames_sent += len(marshaled_frames)
        self._adapter_emit_data(data)

    def _read_frame(self) -> tuple[int, Any]:
        buffer = self._frame_buffer
        if len(buffer) < _HEAD.size or buffer[0] != spec.FRAME_HEADER:
            return frame.decode_frame(buffer)  # type: ignore[no-any-return]
        _, channel, size = _HEAD.unpack_from(buffer)
        end = _HEAD.size + size + 1
        if len(buffer) < end:
            return 0, None
        _, _, body_size = _CONTENT.unpack_from(buffer, _HEAD.size)
        raw = bytes(buffer[_HEAD.size + _CONTENT.size : end - 1])
        return end, frame.Header(channel, body_size, RawProperties(raw))
