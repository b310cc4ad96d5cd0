"""The undo file: whole lines, for its owner alone, of one command."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.commands.errors import WrongInput
from bridge.commands.undo_writing import UndoFile
from bridge.operations.undo_file import TakenFate, UndoHead, entries, entry_line, fates
from bridge.remote.message import RemoteMessage
from tests.unit.operations.test_changes import DEAD
from tests.unit.operations.test_undo_file import HEAD, enqueued

MESSAGES = [enqueued(DEAD, number, 5) for number in (1, 2, 3)]
LINES = [entry_line(each) for each in MESSAGES]


def numbers(path: Path) -> list[int]:
    """Return the numbers of the messages in a file, whose head is right."""
    head, *lines = path.read_text().splitlines()
    assert UndoHead.read(head) == HEAD
    return [each.number for each in entries(lines)]


def test_its_owner_alone_reads_it(tmp_path: Path) -> None:
    """It holds bodies; also when somebody has made it readable since."""
    path = tmp_path / "undo"
    for _ in range(2):
        with UndoFile(path, HEAD) as file:
            file.write(LINES[:1])
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o644)


def test_the_same_command_goes_on_behind_the_last_whole_line(tmp_path: Path) -> None:
    """A line that a kill has cut short stands for a message that was not touched."""
    path = tmp_path / "undo"
    with UndoFile(path, HEAD) as file:
        file.write(LINES[:2])
    whole = path.read_bytes()
    for cut in range(len(LINES[1]) + 2):
        path.write_bytes(whole[: len(whole) - cut])
        with UndoFile(path, replace(HEAD, began_ms=HEAD.began_ms + 5)) as file:
            assert file.head == HEAD
            file.write(LINES[2:])
        assert numbers(path) == ([1, 2, 3] if cut == 0 else [1, 3])


def test_a_mark_that_was_cut_short_leaves_its_messages_doubtful(tmp_path: Path) -> None:
    """It may be that they were removed; the next command goes on behind the last whole line."""
    path = tmp_path / "undo"
    with UndoFile(path, HEAD) as file:
        file.write(LINES)
        file.mark(TakenFate.LEFT, MESSAGES[:1])
        before = path.stat().st_size
        file.mark(TakenFate.REMOVED, [*MESSAGES[1:2], RemoteMessage(unread=b"\x00")])
    whole = path.read_bytes()
    for size in range(before, len(whole) + 1):
        path.write_bytes(whole[:size])
        with UndoFile(path, HEAD):
            pass
        _, *lines = path.read_text().splitlines()
        second = TakenFate.REMOVED if size == len(whole) else TakenFate.DOUBTFUL
        assert list(fates(lines).values()) == [TakenFate.LEFT, second, TakenFate.DOUBTFUL]


def test_a_mark_that_the_disk_does_not_take_is_none_and_nothing_is_written_behind(
    tmp_path: Path,
) -> None:
    """The message is doubtful then: the command learns it by the next write."""
    path = tmp_path / "undo"
    with UndoFile(path, HEAD) as file:
        file.write(LINES[:1])
        with room_for(path.stat().st_size + 5):
            file.mark(TakenFate.REMOVED, MESSAGES[:1])
        with pytest.raises(OSError, match="File too large"):
            file.write(LINES[1:])
    assert numbers(path) == [1]
    _, *lines = path.read_text().splitlines()
    assert list(fates(lines).values()) == [TakenFate.DOUBTFUL]


def test_a_first_line_that_was_cut_short_is_written_anew(tmp_path: Path) -> None:
    """Nothing stands behind it."""
    path = tmp_path / "undo"
    line = HEAD.line()
    for size in range(len(line) + 1):
        path.write_text(line[:size])
        with UndoFile(path, HEAD) as file:
            file.write(LINES[:1])
        assert numbers(path) == [1]


@pytest.mark.parametrize("text", ["hello", '{"body": "x"}\n', "hello\n"])
def test_a_file_that_is_something_else_stays_as_it_is(tmp_path: Path, text: str) -> None:
    """Its name was mistyped: others read it as before, too."""
    path = tmp_path / "undo"
    path.write_text(text)
    path.chmod(0o644)
    with pytest.raises(WrongInput, match="undo"):
        UndoFile(path, HEAD)
    assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o644


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Have no file of this process grow beyond a size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_behind_a_batch_that_the_disk_did_not_take_nothing_is_confirmed(tmp_path: Path) -> None:
    """Its half line would be one with the next batch's first, and neither would come back."""
    path = tmp_path / "undo"
    with UndoFile(path, HEAD) as file:
        file.write(LINES[:1])
        with (
            room_for(path.stat().st_size + len(LINES[1]) // 2),
            pytest.raises(OSError, match="File too large"),
        ):
            file.write(LINES[1:2])
        assert numbers(path) == [1]
        with pytest.raises(OSError, match="File too large"):
            file.write(LINES[2:])
    assert numbers(path) == [1]
    with UndoFile(path, HEAD) as file:
        file.write(LINES[1:])
    assert numbers(path) == [1, 2, 3]


def test_behind_its_end_nothing_is_written(tmp_path: Path) -> None:
    """A second interrupt leaves a thread that writes: the number may be another file's by then."""
    path = tmp_path / "undo"
    with UndoFile(path, HEAD) as file:
        file.write(LINES[:1])
    with (tmp_path / "other").open("wb") as other, pytest.raises(OSError, match="is closed"):
        file.write(LINES[1:])
    assert other.closed
    assert (tmp_path / "other").read_bytes() == b""
    assert numbers(path) == [1]


def test_a_disk_without_room_for_a_first_line_is_said(tmp_path: Path) -> None:
    """Before any message is touched, by one sentence."""
    with room_for(9), pytest.raises(WrongInput, match="File too large"):
        UndoFile(tmp_path / "undo", HEAD)


def test_another_command_has_a_file_of_its_own(tmp_path: Path) -> None:
    """What is in one file is undone by one way."""
    path = tmp_path / "undo"
    UndoFile(path, HEAD).__exit__()
    with pytest.raises(WrongInput, match=r"another command \(resubmit of orders/"):
        UndoFile(path, replace(HEAD, verb="purge", to=""))


def test_two_commands_do_not_write_one_file(tmp_path: Path) -> None:
    """Their lines would be cut by each other."""
    path = tmp_path / "undo"
    with UndoFile(path, HEAD), pytest.raises(WrongInput, match="another command is writing it"):
        UndoFile(path, HEAD)
    UndoFile(path, HEAD).__exit__()


def test_a_place_where_no_file_can_be_is_said(tmp_path: Path) -> None:
    """Before any message is touched."""
    with pytest.raises(WrongInput, match="No such file"):
        UndoFile(tmp_path / "none" / "undo", HEAD)
    with pytest.raises(WrongInput, match="Is a directory"):
        UndoFile(tmp_path, HEAD)
