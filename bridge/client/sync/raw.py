"""pika with encoded properties, and without rejects of its own.

pika reads every integer as one type and cuts a double to an integer, so a republished message would
differ from the received one. And from `basic_cancel` on pika rejects the messages that RabbitMQ
still delivers to the consumer: failed deliveries that no receiver caused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from pika import SelectConnection, frame, spec
from pika.channel import Channel
from pika.exceptions import InvalidFrameError, StreamLostError

_HEAD = struct.Struct(">BHI")
_ACK = struct.Struct(">BHIHHQBB")
_CONTENT = struct.Struct(">HHQ")
_METHOD = struct.Struct(">BHII")
_FRONT = struct.Struct(">BHIHHQ")
_TAG_AND_BITS = struct.Struct(">QB")
_FRAME_BYTES = 8
_KINDS = {spec.FRAME_METHOD, spec.FRAME_HEADER, spec.FRAME_BODY, spec.FRAME_HEARTBEAT}
_DELIVER = spec.Basic.Deliver.INDEX

Consumer = Callable[[int, bool, str, bytes, bytes], None]
"""Called with the delivery tag, whether the message was delivered before, the exchange, the encoded
properties and the body."""

RECEIVED_BYTES = 1 << 16
"""How much is read at a time."""

FULL_S = 0.005
"""Interval of checks whether the kernel has taken the rest, when its buffer was full."""


class RawProperties(spec.BasicProperties):  # type: ignore[misc]
    """Encoded properties: flags and list.

    Attributes:
        raw: the encoding of `bridge.wire.basic.Properties`.
    """

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def encode(self) -> list[bytes]:
        """Return the encoding in pieces."""
        return [self.raw]


class RawChannel(Channel):  # type: ignore[misc]
    """A channel that passes what is delivered to the consumer: see `Consumer`."""

    def _on_deliver(self, method_frame: Any, header_frame: Any, body: bytes) -> None:
        consumer = self._consumers.get(method_frame.method.consumer_tag)
        if consumer is not None:
            method = method_frame.method
            exchange, raw = text_of(method.exchange), header_frame.properties.raw
            consumer(method.delivery_tag, method.redelivered, exchange, raw, body)


class RawConnection(SelectConnection):  # type: ignore[misc]
    """A connection whose messages have `RawProperties`, and are written at once, in one piece."""

    _frame_buffer: bytes

    @property
    def is_crowded(self) -> bool:
        """Whether a quarter of the channels that RabbitMQ allows are in use."""
        return bool(4 * len(self._channels) >= self.params.channel_max)

    def written(self, call: Callable[[], None]) -> None:
        """Call `call` when all written data is with the kernel, or lost."""
        transport = self._transport
        if transport is None or not transport.get_write_buffer_size():
            call()
        else:
            self._nbio.call_later(FULL_S, partial(self.written, call))

    def ack(self, channel: int, tag: int) -> None:
        """Write an ack, the most frequent frame."""
        self._output_marshaled_frames([_ACK.pack(1, channel, 13, 60, 80, tag, 0, 0xCE)])

    def abort(self) -> None:
        """End the connection without a close frame."""
        self._terminate_stream(StreamLostError("It was interrupted in the middle of a write."))

    def _adapter_emit_data(self, data: bytes) -> None:
        """Give data to the kernel now; pika would wait until its loop reports a writable socket."""
        transport = self._transport
        if transport is None or transport._state != transport._STATE_ACTIVE:
            return  # the transport has ended, maybe in the middle of a frame
        sent = 0
        if not transport.get_write_buffer_size():
            try:
                sent = transport._sock.send(data)
            except TimeoutError:  # of a signal handler, maybe after the write
                raise
            except OSError:
                pass  # the transport meets the error again, and handles it
        if sent < len(data):
            transport.write(data[sent:])

    def _create_channel(self, channel_number: int, on_open_callback: Any) -> RawChannel:
        return RawChannel(self, channel_number, on_open_callback)

    def _output_marshaled_frames(self, marshaled_frames: Any) -> None:
        """Write a message's frames in one piece, not each as a packet."""
        data = b"".join(marshaled_frames)
        self.bytes_sent += len(data)
        self.frames_sent += len(marshaled_frames)
        self._adapter_emit_data(data)

    def _proto_connection_made(self, transport: Any) -> None:
        transport._MAX_RECV_BYTES = RECEIVED_BYTES
        super()._proto_connection_made(transport)

    def _on_data_available(self, data_in: bytes) -> None:
        """Read frames; deliver a message at once if all its frames have come."""
        self.bytes_received += len(data_in)
        data, at = self._frame_buffer + data_in, 0
        while at < len(data):
            end = self._deliver(data, at)
            if end == at:
                self._frame_buffer = data[at : _frame_end(data, at)]
                count, found = self._read_frame()
                if not found:
                    break
                end += count
                self._process_frame(found)
            at = end
        self._frame_buffer = data[at:]

    def _deliver(self, data: bytes, at: int) -> int:
        """Deliver a message; return its end, or `at` if no whole delivery begins there.

        pika makes eight objects for a delivery, and calls callbacks for each frame.
        """
        if len(data) < at + _METHOD.size:
            return at
        kind, number, method_bytes, method = _METHOD.unpack_from(data, at)
        head_at = at + method_bytes + _FRAME_BYTES
        if method != _DELIVER or kind != spec.FRAME_METHOD or len(data) < head_at + _FRONT.size:
            return at
        front, head_number, head_bytes, _, _, body_bytes = _FRONT.unpack_from(data, head_at)
        body_at = head_at + head_bytes + _FRAME_BYTES
        end: int = body_at + body_bytes + _FRAME_BYTES
        if (front, head_number) != (spec.FRAME_HEADER, number) or len(data) < end:
            return at
        if _HEAD.unpack_from(data, body_at) != (spec.FRAME_BODY, number, body_bytes):
            return at  # the body is in several frames, or in none
        if not data[head_at - 1] == data[body_at - 1] == data[end - 1] == spec.FRAME_END:
            return at
        tag, tag_at = _short(data, at + _METHOD.size)
        consumer = self._consumer(number, tag)
        if consumer is None:
            return at
        delivery_tag, bits = _TAG_AND_BITS.unpack_from(data, tag_at)
        exchange, _ = _short(data, tag_at + _TAG_AND_BITS.size)
        raw = data[head_at + _FRONT.size : body_at - 1]
        self.frames_received += 3
        consumer(delivery_tag, bits & 1 != 0, exchange, raw, data[body_at + 7 : end - 1])
        return end

    def _consumer(self, number: int, tag: str) -> Consumer | None:
        channel = self._channels.get(number)
        return None if channel is None else channel._consumers.get(tag)

    def _read_frame(self) -> tuple[int, Any]:
        buffer = self._frame_buffer
        if len(buffer) < _HEAD.size or buffer[0] != spec.FRAME_HEADER:
            return frame.decode_frame(buffer)  # type: ignore[no-any-return]
        _, channel, size = _HEAD.unpack_from(buffer)
        end = _HEAD.size + size + 1
        if len(buffer) < end:
            return 0, None
        if buffer[end - 1] != spec.FRAME_END:
            raise InvalidFrameError("Invalid FRAME_END marker")
        _, _, body_size = _CONTENT.unpack_from(buffer, _HEAD.size)
        raw = bytes(buffer[_HEAD.size + _CONTENT.size : end - 1])
        return end, frame.Header(channel, body_size, RawProperties(raw))


def _frame_end(data: bytes, at: int) -> int:
    """Return the offset behind a frame; of a partial frame, that of the next bytes to come."""
    if len(data) < at + _HEAD.size or data[at] not in _KINDS:
        return len(data)
    return at + int(_HEAD.unpack_from(data, at)[2]) + _FRAME_BYTES


def _short(data: bytes, at: int) -> tuple[str, int]:
    """Return a short string and the offset of its end."""
    end = at + 1 + data[at]
    return text_of(data[at + 1 : end]), end


def text_of(value: str | bytes) -> str:
    """Return a short string as text; pika leaves a string that is no UTF-8 as bytes."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")
