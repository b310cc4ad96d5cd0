"""The undo file of a command, written and confirmed by the disk before anything is settled."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Self

from bridge.commands.errors import WrongInput
from bridge.commands.progress_record import record_path
from bridge.operations.lines.scalar_values import ValueRefused
from bridge.operations.undo_file import TakenFate, UndoHead, identity_of, mark_line
from bridge.remote.message import RemoteMessage

MODE = 0o600
"""It holds bodies: its owner alone reads it."""

HEAD_BYTES_MAX = 64 * 1024


class UndoFile:
    """A file that a command adds lines to; the same command goes on with one that is there.

    Several threads may write. Behind a failure nothing more is written: a disk that has lost lines
    says so once, and confirms the next ones.

    Raises:
        WrongInput: there is a file that is none, or another command's, or that is being written; or
            the disk does not take it.
    """

    def __init__(self, path: Path, head: UndoHead) -> None:
        self.path = path
        self.head = head
        if record_path(path).exists():
            raise WrongInput(f"--undo {path}: it is being undone: name a file of its own.")
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        except OSError as error:
            raise WrongInput(f"--undo {path}: {error.strerror}.") from None
        self._writing = Lock()
        self._failure: OSError | None = None
        try:
            self._take()
        except OSError as error:
            os.close(self._file)
            raise WrongInput(f"--undo {path}: {error.strerror}.") from None
        except BaseException:
            os.close(self._file)
            raise

    def _take(self) -> None:
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise WrongInput(f"--undo {self.path}: it is no regular file.")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WrongInput(f"--undo {self.path}: another command is writing it.") from None
        first, found, _ = os.pread(self._file, HEAD_BYTES_MAX, 0).partition(b"\n")
        if not found:  # nothing, or a first line that a kill has cut short: nothing stands behind
            if first and not self.head.line().encode().startswith(first[:9]):
                raise WrongInput(f"--undo {self.path}: it is no undo file.")
            os.fchmod(self._file, MODE)
            os.ftruncate(self._file, 0)
            self.write([self.head.line()])
            _sync_folder(self.path)
            return
        try:
            head = UndoHead.read(first.decode(errors="replace"))
        except ValueRefused as error:
            raise WrongInput(f"--undo {self.path}: {error}.") from None
        if not head.is_continued_by(self.head):
            raise WrongInput(
                f"--undo {self.path}: it is of another command ({head.verb} of {head.entity}): "
                "name a file of its own."
            )
        self.head = head
        os.fchmod(self._file, MODE)
        os.ftruncate(self._file, self._whole_bytes())

    def _whole_bytes(self) -> int:
        """Return the size up to the end of the last whole line."""
        end = os.fstat(self._file).st_size
        while end > 0:
            start = max(0, end - HEAD_BYTES_MAX)
            at = os.pread(self._file, end - start, start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
        return 0

    def write(self, lines: Iterable[str]) -> None:
        """Add lines, and return when the disk has them; raises OSError."""
        self._append(lines, is_synced=True)

    def mark(self, fate: TakenFate, messages: Iterable[RemoteMessage]) -> None:
        """Say what has become of messages that were written before.

        It outlives this process; what the machine loses, or the disk does not take, is doubtful
        when it is undone. Behind a failure nothing more is written, as behind one of `write`.
        """
        identities = [each for each in map(identity_of, messages) if each[0]]
        if identities:
            with suppress(OSError):
                self._append([mark_line(fate, identities)], is_synced=False)

    def _append(self, lines: Iterable[str], *, is_synced: bool) -> None:
        raw = memoryview("".join(f"{each}\n" for each in lines).encode())
        with self._writing:
            if self._failure is not None:
                raise self._failure
            end = os.lseek(self._file, 0, os.SEEK_END)
            try:
                while raw:
                    raw = raw[os.write(self._file, raw) :]
                if is_synced:
                    os.fsync(self._file)
            except OSError as error:
                self._failure = error
                with suppress(OSError):
                    os.ftruncate(self._file, end)
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._writing:  # a command that is cut off leaves its threads behind
            self._failure = OSError(errno.EBADF, "the file is closed")
            with suppress(OSError):
                os.fsync(self._file)
            os.close(self._file)


def _sync_folder(path: Path) -> None:
    """Have the disk know a new file's name."""
    folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
