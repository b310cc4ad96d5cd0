"""Lines of a file or of standard input, without a wait that a signal could not end."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import BinaryIO

from bridge.commands.errors import WrongInput

LINE_BYTES_MAX = 256 * 1024 * 1024
"""The longest line: a message of 100 MB (Azure, Premium) in Base64."""

STDIN = "-"


def is_again_readable(name: str) -> bool:
    """Whether a file can be read twice: it is one, and neither a pipe nor a terminal."""
    return name != STDIN and Path(name).is_file()


def is_given() -> bool:
    """Whether standard input has something to read: it is a pipe, a socket or a file."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or none at all
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def whole(name: str) -> bytes:
    """Return all of a file, or of standard input (`-`).

    Raises:
        WrongInput: it cannot be read.
    """
    try:
        return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise WrongInput(f"{name}: {error.strerror}.") from None


async def lines(name: str) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a file, or of standard input, without their ends.

    Raises:
        WrongInput: it cannot be read.
    """
    with _opened(name) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            for line in file:
                yield line.rstrip(b"\r\n")
            return
        async for line in _piped(file):
            yield line.rstrip(b"\r\n")


def _opened(name: str) -> BinaryIO:
    try:
        return sys.stdin.buffer if name == STDIN else Path(name).open("rb")
    except OSError as error:
        raise WrongInput(f"{name}: {error.strerror}.") from None


async def _piped(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a pipe or a terminal."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    try:
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
    except ValueError:  # /dev/null, and whatever else is neither a pipe, a socket nor a terminal
        for line in file:
            yield line
        return
    try:
        while line := await reader.readline():
            yield line
    finally:
        transport.close()
