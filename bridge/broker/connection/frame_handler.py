"""What takes the frames of a channel."""

from __future__ import annotations

from typing import Protocol


class FrameHandler(Protocol):
    """What a channel does with its frames; `raw[start:end]` is the payload."""

    def on_method(self, raw: bytes, start: int, end: int) -> None:
        """Take a method frame."""

    def on_header(self, raw: bytes, start: int, end: int) -> None:
        """Take a content header frame."""

    def on_body(self, raw: bytes, start: int, end: int) -> None:
        """Take a body frame."""
