"""The interface that takes the frames of one channel, and what takes those of an ended one."""

from __future__ import annotations

from typing import Protocol


class FrameHandler(Protocol):
    """The receiver of a channel's frames; `raw[start:end]` is the payload."""

    def on_method(self, raw: bytes, start: int, end: int) -> None:
        """Take a method frame."""

    def on_header(self, raw: bytes, start: int, end: int) -> None:
        """Take a content header frame."""

    def on_body(self, raw: bytes, start: int, end: int) -> None:
        """Take a body frame."""


class Discarding:
    """Drops the frames of channels that RabbitMQ has closed (docs/rabbitmq-faults.md)."""

    def on_method(self, raw: bytes, start: int, end: int) -> None:
        """Drop a method frame."""

    on_header = on_body = on_method
