"""The file of a relay, as the commands take it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from bridge.commands.errors import WrongInput

if TYPE_CHECKING:
    from bridge.relay.plan.file import Reading
    from bridge.relay.plan.route import RelayFile

LINES_SHOWN = 20
"""Faults that are shown by a command that is not there to show them."""


def add_file(parser: argparse.ArgumentParser) -> None:
    """Add the file, and what it may hold."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the relay's file (TOML)")
    parser.add_argument(
        "--allow-inline-secrets", action="store_true",
        help="take connection strings that stand in the file itself",
    )  # fmt: skip


def reading_of(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Reading:
    """Read the file that the options name.

    Raises:
        WrongInput: it cannot be read.
    """
    from bridge.relay.file_secrets import FileSecrets
    from bridge.relay.plan.file import read_file

    path: Path = arguments.file
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise WrongInput(f"The file {str(path)!r} cannot be read: {reason}.") from None
    return read_file(
        text,
        FileSecrets(path.parent, environment),
        uuid4,
        allows_inline_secrets=arguments.allow_inline_secrets,
    )


def whole_file(arguments: argparse.Namespace, environment: Mapping[str, str]) -> RelayFile:
    """Return what the file says that the options name.

    Raises:
        WrongInput: it cannot be read, or has faults.
    """
    found = reading_of(arguments, environment)
    if found.file is not None:
        return found.file
    lines = [f"{arguments.file}:{each}" for each in found.faults]
    if len(lines) > LINES_SHOWN:
        lines[LINES_SHOWN:] = [f"and {len(lines) - LINES_SHOWN} more: busbridge relay check"]
    raise WrongInput("\n  ".join(["the file has faults:", *lines]))
