"""How far a command has come with a file, beside it: confirmed by the disk after each batch."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from bridge.commands.errors import WrongInput

SUFFIX: Final = ".progress"


def record_path(path: Path) -> Path:
    """Return where the record of a file is."""
    return path.with_name(path.name + SUFFIX)


class ProgressRecord:
    """The record of a file.

    Args:
        path: the file.
        made: what the record is of, such as the file's digest and the target.
        fresh: what a new record has besides.

    Attributes:
        line: the last line that is done with; 0: none.
        values: what a new record had besides.

    Raises:
        WrongInput: there is one that cannot be read, or is of something else.
    """

    def __init__(
        self, path: Path, made: Mapping[str, str], fresh: Mapping[str, str] | None = None
    ) -> None:
        self.path = record_path(path)
        self.line = 0
        self.values = dict(fresh or {})
        self._of = dict(made)
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise WrongInput(f"{self.path}: {error}.") from None
        try:
            match json.loads(text):
                case {"of": dict() as found, "line": int() as line, "values": dict() as values}:
                    pass
                case _:
                    raise ValueError
        except ValueError:
            raise WrongInput(f"{self.path} is no record of progress: remove it.") from None
        if found != self._of:
            names = [name for name in self._of if found.get(name) != self._of[name]]
            raise WrongInput(
                f"{self.path} is of another {' and '.join(names) or 'command'}: remove it to begin "
                "anew."
            )
        self.line = line
        self.values = values

    def restart(self, line: int, fresh: Mapping[str, str]) -> None:
        """Go on behind a line, whatever was noted, with other values; `note` writes it."""
        self.line = line
        self.values = dict(fresh)

    def note(self, line: int) -> None:
        """Have the disk know that this line and all before it are done with.

        Raises:
            OSError: it cannot; the error names the file.
        """
        self.line = line
        text = json.dumps({"of": self._of, "line": line, "values": self.values})
        new = self.path.with_name(self.path.name + ".new")
        try:
            with new.open("w") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:  # a disk that is full does not say of which file
            error.filename = error.filename or str(new)
            raise
        new.replace(self.path)


@contextmanager
def locked(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, while no other command reads it so, or writes it.

    Raises:
        WrongInput: it cannot be read, or another command has it.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise WrongInput(f"{path}: {error.strerror}.") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise WrongInput(f"{path}: another command is working with it.") from None
        yield file
