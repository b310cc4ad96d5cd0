"""Errors of reading and writing AMQP 1.0."""

from __future__ import annotations


class DecodeError(Exception):
    """The bytes are no AMQP 1.0 value of the expected kind; the text says where and why."""


class EncodeError(Exception):
    """The value cannot be written as AMQP 1.0."""
