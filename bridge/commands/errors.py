"""Errors that end a command with one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.commands.exit_codes import ExitCode

if TYPE_CHECKING:
    from bridge.remote.errors import RemoteError


class CommandError(Exception):
    """Error whose text is the sentence that the user reads.

    Attributes:
        code: the exit code of the command.
    """

    code = ExitCode.FAILED


class WrongInput(CommandError):
    """Error for an option, a file or a name that cannot be used; nothing was done."""

    code = ExitCode.WRONG_INPUT


class Declined(CommandError):
    """Error for a question that was answered with no; nothing was done."""


def sentence_of(error: RemoteError) -> str:
    """Return what a namespace said, as a sentence."""
    text = (error.description or error.condition).rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
