"""What can be wrong with AMQP 1.0 bytes.

CodecError
  DecodeError      they cannot be read (the peer's fault)
  EncodeError      a value has no AMQP 1.0 form (the caller's fault)
"""

from __future__ import annotations


class CodecError(Exception):
    """Bytes and values do not fit each other."""


class DecodeError(CodecError):
    """The bytes are no AMQP 1.0 value of the expected kind; the text says where and why."""

    condition = "amqp:decode-error"


class EncodeError(CodecError):
    """The value cannot be written as AMQP 1.0."""
