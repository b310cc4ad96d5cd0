"""Log lines: one a fact, whatever strangers say."""

from __future__ import annotations

import logging
import sys

import pytest

from bridge.commands.log_lines import TEXT_MAX, LineFormatter


def line_of(text: object, *, error: bool = False) -> str:
    """Return what is logged of a stranger's text."""
    exc_info = sys.exc_info() if error else None
    record = logging.LogRecord("x", logging.INFO, "", 0, "seen name=%s", (text,), exc_info)
    return LineFormatter().format(record)


@pytest.mark.parametrize("control", ["\n", "\r\n", "\x85", "\u2028", "\x0b", "\x1b[2K\r", "\x00"])
def test_nobody_forges_a_line(control: str) -> None:
    """A character that ends a line, or moves a terminal's cursor, is written as its escape."""
    line = line_of(f"x{control}2026-01-01T00:00:00.000Z info    token.accepted")

    assert len(line.splitlines()) == 1
    assert line.isprintable()


def test_nobody_forges_a_line_by_an_error() -> None:
    """A traceback has lines of its own; none begins as a fact does."""
    try:
        raise ValueError("x\n2026-01-01T00:00:00.000Z info    token.accepted")
    except ValueError:
        lines = line_of("x", error=True).splitlines()

    assert all(line.startswith("  ") for line in lines[1:])
    assert any("token.accepted" in line for line in lines)


def test_a_long_name() -> None:
    """A name of a megabyte makes no line of a megabyte."""
    line = line_of("x" * 1_000_000)

    assert len(line) < TEXT_MAX + 100
    assert line.endswith("(1000010 characters)")


@pytest.mark.parametrize(
    ("said", "logged"),
    [
        ("sb://localhost:5672/orders", "sb://localhost:5672/orders"),
        ("sb://[::1]:5672/orders", "sb://[::1]:5672/orders"),
        ("amqp://127.0.0.1:5672", "amqp://127.0.0.1:5672"),
        ("amqp://guest:secret@h:5672/v", "amqp://guest:***@h:5672/v"),
        ("amqp://guest:12345@h", "amqp://guest:***@h"),
        ("amqp://guest:5672/x@h:1/v", "amqp://guest:***@h:1/v"),
        ("amqp://guest:secret", "amqp://guest:***"),
        ("amqp://u:se@cret@h/", "amqp://u:***@h/"),
        ("https://u:p@[::1]:15671/", "https://u:***@[::1]:15671/"),
        ("Endpoint=sb://h:1/;SharedAccessKey=abc=;X", "Endpoint=sb://h:1/;SharedAccessKey=***;X"),
    ],
)
def test_a_password_is_masked_and_a_port_is_not(said: str, logged: str) -> None:
    """The entity stands behind the port of an address."""
    assert line_of(said).endswith(f" seen name={logged}")
