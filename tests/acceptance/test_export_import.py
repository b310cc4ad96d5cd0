"""busbridge export and import, as somebody types them, on a real bridge."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.acceptance.busbridge import Busbridge, Make
from tests.acceptance.test_dead_letter_commands import lines, order
from tests.acceptance.test_undo_command import own_bytes, waiting
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT60S"}
ENTITIES = {
    **dict.fromkeys(
        ("from", "to", "many", "both", "copy", "other", "plan", "planned", "wrong"), LOCK
    ),
    "unique": {**LOCK, "RequiresDuplicateDetection": True},
}
COUNT = 2_000


@pytest.fixture
def busbridge(bridge: Bridge, make: Make) -> Busbridge:
    """The command, on the module's bridge."""
    return make(bridge.connection_string)


def exported(busbridge: Busbridge, entity: str, path: Path) -> None:
    """Export an entity into a file."""
    path.write_text(busbridge.done("export", entity).out)


def test_a_message_comes_back_byte_for_byte_and_a_repeat_sends_nothing(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """With the types of all values; the messages of the export stay where they are."""
    sent = [
        order(0, body={"value": {"map": {"a": [1, {"long": 2}]}}}, session_id="s"),
        order(1, body={"data": "AAEC"}, content_type="application/octet-stream"),
        order(2, body="text", priority=7),
    ]
    busbridge.done("send", "from", given=lines(*sent))
    before = waiting(busbridge, "from", 3)
    path = tmp_path / "lines"
    exported(busbridge, "from", path)
    said = busbridge.done("import", "to", str(path))
    assert (said.row["sent"], said.err) == (3, "3 messages sent to to.\n")
    found = waiting(busbridge, "to", 3)
    assert [own_bytes(each) for each in found] == [own_bytes(each) for each in before]
    assert found[2]["priority"] == 7
    again = busbridge.done("import", "to", str(path))
    assert "remove that to send it again" in again.err
    waiting(busbridge, "to", 3)
    waiting(busbridge, "from", 3)
    other = busbridge("import", "other", str(path))
    assert (other.code, "is of another target" in other.err) == (2, True)
    busbridge.done("import", "to", str(path), "--from-line", "3")
    assert own_bytes(waiting(busbridge, "to", 4)[3]) == own_bytes(before[2])


def test_what_went_to_one_namespace_is_not_taken_for_done_in_another(
    busbridge: Busbridge, start_bridge: StartBridge, make: Make, tmp_path: Path
) -> None:
    """The second one, whose entity has the same name, would get the rest, or nothing."""
    path = tmp_path / "lines"
    path.write_text(lines(*(order(at) for at in range(3))))
    busbridge.done("import", "both", str(path))
    waiting(busbridge, "both", 3)
    second = make(start_bridge().connection_string)
    said = second("import", "both", str(path))
    assert (said.code, "is of another target: remove it to begin anew" in said.err) == (2, True)
    Path(f"{path}.progress").unlink()
    second.done("import", "both", str(path))
    waiting(second, "both", 3)


@pytest.mark.long
def test_an_import_of_2000_that_is_killed_goes_on(busbridge: Busbridge, tmp_path: Path) -> None:
    """Each is there once, in order, byte for byte."""
    given = lines(*({**order(at), "body": f"order {at} " + "x" * 500} for at in range(COUNT)))
    busbridge.done("send", "many", given=given)
    before = waiting(busbridge, "many", COUNT)
    path = tmp_path / "lines"
    exported(busbridge, "many", path)
    assert len(path.read_text().splitlines()) == COUNT
    record = tmp_path / "lines.progress"

    def line() -> int:
        return json.loads(record.read_text())["line"] if record.exists() else 0

    kills = 0
    for _ in range(4):
        process = busbridge.start("import", "copy", str(path))
        more = line() + 1
        eventually(lambda more=more: line() >= more, "some are sent")
        process.kill()
        process.communicate()
        kills += process.returncode < 0
    assert kills
    busbridge.done("import", "copy", str(path))
    found = waiting(busbridge, "copy", COUNT)
    assert [own_bytes(each) for each in found] == [own_bytes(each) for each in before]


def test_a_scheduled_message_is_scheduled_again(busbridge: Busbridge, tmp_path: Path) -> None:
    """For its own time."""
    due = (datetime.now(UTC) + timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    busbridge.done("send", "plan", "text", "--schedule", due)
    path = tmp_path / "lines"
    exported(busbridge, "plan", path)
    busbridge.done("import", "planned", str(path))
    (before,), (found,) = waiting(busbridge, "plan", 1), waiting(busbridge, "planned", 1)
    assert found["state"] == "scheduled"
    assert found["scheduled_enqueue_time"] == before["scheduled_enqueue_time"]


def test_a_target_that_would_drop_originals_is_refused(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """They would be lost unsaid; with ids of their own they are there."""
    busbridge.done("send", "unique", given=lines(order(0), order(1)))
    waiting(busbridge, "unique", 2)
    path = tmp_path / "lines"
    exported(busbridge, "unique", path)
    said = busbridge("import", "unique", str(path))
    assert (said.code, "unique detects duplicates" in said.err) == (2, True)
    assert not (tmp_path / "lines.progress").exists()
    busbridge.done("import", "unique", str(path), "--new-id")
    waiting(busbridge, "unique", 4)


def test_nothing_is_sent_of_a_file_with_a_wrong_line(busbridge: Busbridge, tmp_path: Path) -> None:
    """Its place is said; and a file that has changed since is not gone on with."""
    path = tmp_path / "lines"
    path.write_text('{"body": "a"}\n{"bdoy": "b"}\n')
    said = busbridge("import", "wrong", str(path))
    assert (said.code, f"{path}:2: " in said.err) == (2, True)
    path.write_text('{"body": "a"}\n\n{"body": "b"}')
    assert busbridge.done("import", "wrong", str(path)).row["sent"] == 2
    path.write_text('{"body": "a"}\n')
    said = busbridge("import", "wrong", str(path))
    assert (said.code, "is of another file" in said.err) == (2, True)
    waiting(busbridge, "wrong", 2)
