"""The record of a file says how far a command has come with it, and of what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.commands.errors import WrongInput
from bridge.commands.progress_record import ProgressRecord, locked, record_path
from tests.unit.commands.test_undo_writing import room_for

OF = {"file": "digest", "target": "orders"}


def test_a_command_goes_on_behind_the_last_line_that_was_noted(tmp_path: Path) -> None:
    """With the values of the first; without any note there is no record."""
    path = tmp_path / "lines"
    first = ProgressRecord(path, OF, {"id": "first"})
    assert (first.line, record_path(path).exists()) == (0, False)
    first.note(250)
    second = ProgressRecord(path, OF, {"id": "second"})
    assert (second.line, second.values) == (250, {"id": "first"})
    second.restart(7, {"id": "third"})
    second.note(7)
    third = ProgressRecord(path, OF)
    assert (third.line, third.values) == (7, {"id": "third"})


@pytest.mark.parametrize("name", OF)
def test_a_record_of_something_else_is_refused(tmp_path: Path, name: str) -> None:
    """What was sent of another file, or to another target, says nothing of this one."""
    path = tmp_path / "lines"
    ProgressRecord(path, OF).note(5)
    with pytest.raises(WrongInput, match=f"of another {name}: remove it"):
        ProgressRecord(path, {**OF, name: "other"})


@pytest.mark.parametrize("text", ["", "{}", "5", '{"of": {}, "line": "5", "values": {}}'])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    """A guess could leave messages out."""
    path = tmp_path / "lines"
    record_path(path).write_text(text)
    with pytest.raises(WrongInput, match="no record of progress"):
        ProgressRecord(path, OF)


def test_one_command_at_a_time_works_with_a_file(tmp_path: Path) -> None:
    """Two would send all twice."""
    path = tmp_path / "lines"
    path.write_text("")
    with locked(path), pytest.raises(WrongInput, match="another command"), locked(path):
        pass
    with locked(path):
        pass


def test_a_disk_that_is_full_is_said_with_the_file_and_the_record_stays(tmp_path: Path) -> None:
    """A command says it in one sentence; given again, it goes on where the record says."""
    path = tmp_path / "dead.jsonl"
    made = {"target": "orders"}
    ProgressRecord(path, made).note(3)
    with room_for(5), pytest.raises(OSError, match=r"dead\.jsonl\.progress"):
        ProgressRecord(path, made).note(4)
    assert ProgressRecord(path, made).line == 3
