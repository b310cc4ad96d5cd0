"""Bytes into frames: bounded, and without parsing an incomplete unit."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.machine.amqp10.faults import FRAMING_ERROR, ConnectionFault

HEADER_SIZE = 8


class FrameReader:
    """Collects bytes until a unit is whole: a protocol header, or a frame.

    Attributes:
        frame_bytes_max: a frame with a larger stated size is a fault before its body is read.
        kept: the bytes of a unit that is not whole.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.kept = bytearray()
        self._wanted = HEADER_SIZE
        self._data = b""
        self._at = 0

    @property
    def missing_bytes(self) -> int:
        """Missing bytes of the incomplete unit; 0 if there is none."""
        return self._wanted - len(self.kept) if self.kept else 0

    def feed(self, data: bytes) -> None:
        """Take bytes; `header` and `frames` give out the completed units."""
        if self._at < len(self._data):
            self._data, self._at = self._data[self._at :] + data, 0
        elif not self.kept:
            self._data, self._at = data, 0
        else:
            self.kept += data
            if len(self.kept) < self._wanted:
                return
            self._data, self._at = bytes(self.kept), 0
            self.kept.clear()

    def header(self) -> bytes | None:
        """Return the eight bytes of a protocol header, if they have come."""
        if len(self._data) - self._at < HEADER_SIZE:
            self._keep(HEADER_SIZE)
            return None
        self._at += HEADER_SIZE
        return self._data[self._at - HEADER_SIZE : self._at]

    def frames(self) -> Iterator[tuple[int, int, bytes, int, int]]:
        """Yield (type, channel, buffer, begin of body, end of body) of each whole frame.

        Raises:
            ConnectionFault: the bytes are no frame, or a larger one than agreed.
        """
        while True:
            data, at = self._data, self._at
            left = len(data) - at
            if not left:
                self._data, self._at = b"", 0
                return  # the kept part of a frame still waits for as much as before
            if left < HEADER_SIZE:
                self._keep(HEADER_SIZE)
                return
            size = int.from_bytes(data[at : at + 4], "big")
            offset = 4 * data[at + 4]
            if size > self.frame_bytes_max:
                raise ConnectionFault(
                    FRAMING_ERROR,
                    f"A frame of {size} bytes is larger than max-frame-size as it is now "
                    f"({self.frame_bytes_max}; before a token has been accepted it is small).",
                )
            if offset < HEADER_SIZE or size < offset:
                raise ConnectionFault(
                    FRAMING_ERROR, f"A frame of {size} bytes cannot begin its body at {offset}."
                )
            if left < size:
                self._keep(size)
                return
            self._at = at + size
            channel = data[at + 6] << 8 | data[at + 7]
            yield data[at + 5], channel, data, at + offset, at + size

    def _keep(self, wanted: int) -> None:
        self.kept += self._data[self._at :]
        self._wanted = wanted
        self._data, self._at = b"", 0
