"""busbridge undo of a purge and of a resubmit, as somebody types it, on a real bridge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.operations.lines.exact_lines import message_of_fields
from bridge.operations.undo_file import TakenFate, entries, fates, identity_of, mark_line
from bridge.topology import names
from tests.acceptance.busbridge import Busbridge, Make
from tests.acceptance.sdk import native_channel
from tests.acceptance.test_dead_letter_commands import WAIT, dead, kill_messages, lines, order
from tests.fixtures.bridge import Bridge
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT60S"}
ENTITIES = {
    **dict.fromkeys(("purged", "half", "doubted", "back", "struck", "sent", "equal"), LOCK),
    "killed": {"LockDuration": "PT5S"},
    "unique": {**LOCK, "RequiresDuplicateDetection": True},
}
TOPICS = [{"Name": "events", "Subscriptions": [{"Name": "audit"}, {"Name": "ledger"}]}]
YES = "--yes"


@pytest.fixture
def busbridge(bridge: Bridge, make: Make) -> Busbridge:
    """The command, on the module's bridge."""
    return make(bridge.connection_string)


def waiting(busbridge: Busbridge, entity: str, count: int) -> list[dict[str, Any]]:
    """Return the messages of an entity, when there are so many."""
    found: list[dict[str, Any]] = []

    def are_there() -> bool:
        found[:] = busbridge.done("peek", entity, "--all").rows
        return len(found) == count

    eventually(are_there, f"{entity} has {count} messages")
    return found


def own_bytes(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a sender wrote: bytes, but for the properties, which say when a copy expires."""
    message = message_of_fields(row, now_ms=0)
    return message.message_id, message.application_properties, message.body, message.footer


def purge(busbridge: Busbridge, entity: str, path: Path, *words: str) -> None:
    """Purge dead letters of an entity, with an undo file."""
    busbridge.done("dead-letter", "purge", entity, *words, *WAIT, "--undo", str(path), YES)


def test_what_was_purged_is_put_back_as_new_after_asking(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """Byte for byte, once, however often it is undone; without why it died."""
    kill_messages(
        busbridge, "purged", *(order(at, body={"value": {"long": at}}) for at in range(4))
    )
    before = [own_bytes(each) for each in busbridge.done("dead-letter", "export", "purged").rows]
    path = tmp_path / "undo"
    purge(busbridge, "purged", path)
    dead(busbridge, "purged", 0)
    asked = busbridge("undo", str(path))
    assert (asked.code, "each as a new message" in asked.err) == (2, True)
    assert busbridge.done("peek", "purged").rows == []
    said = busbridge.done("undo", str(path), YES)
    assert (said.row["sent"], said.err) == (4, "4 messages sent to purged.\n")
    found = waiting(busbridge, "purged", 4)
    assert [own_bytes(each) for each in found] == before
    again = busbridge.done("undo", str(path), YES)
    assert again.row["sent"] == 0
    Path(f"{path}.progress").unlink()
    busbridge.done("undo", str(path), YES)
    waiting(busbridge, "purged", 4)


def test_a_line_whose_message_was_not_removed_is_left_where_it_is(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """The command was killed behind the line; a line that was cut short counts for nothing."""
    kill_messages(busbridge, "half", *(order(at) for at in range(4)))
    rows = busbridge.done("dead-letter", "export", "half").out.splitlines()
    path = tmp_path / "undo"
    purge(busbridge, "half", path, "--limit", "2")
    with path.open("a") as file:
        file.write(f"{rows[2]}\n{rows[3][:-9]}")
    said = busbridge("undo", str(path), YES)
    assert said.code == 3, said
    assert "1 message of half/$DeadLetterQueue were not removed" in said.err
    found = waiting(busbridge, "half", 2)
    assert [each["body"] for each in found] == ["order 0", "order 1"]
    left = dead(busbridge, "half", 2)
    assert [each["body"] for each in left] == ["order 2", "order 3"]
    other = busbridge("dead-letter", "purge", "half", *WAIT, "--undo", str(path), YES)
    assert (other.code, "it is being undone" in other.err) == (2, True)


def test_what_somebody_has_received_meanwhile_is_not_sent_again(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """A purge was killed behind its lines: of what is gone since, the file does not say why.

    It is listed, and sent only if somebody who has looked asks for it.
    """
    kill_messages(busbridge, "doubted", *(order(at) for at in range(4)))
    rows = busbridge.done("dead-letter", "export", "doubted").out.splitlines()
    path = tmp_path / "undo"
    purge(busbridge, "doubted", path, "--limit", "1")
    with path.open("a") as file:
        file.writelines(f"{each}\n" for each in rows[1:])
    received = busbridge.done(
        *("receive", "doubted", "--dead-letter", "--count", "2", "--settle", "complete", YES)
    )
    assert [each["body"] for each in received.rows] == ["order 1", "order 2"]
    asked = busbridge("undo", str(path))
    assert "Of 3 messages it is not sure that they were removed" in asked.err
    for _ in range(2):
        said = busbridge("undo", str(path), YES)
        assert said.code == 3, said
        assert "2 messages of doubted/$DeadLetterQueue are not sent" in said.err
        assert "1 message of doubted/$DeadLetterQueue were not removed" in said.err
        assert [each["number"] for each in said.rows[1:]] == [4, 2, 3]
        assert [each["body"] for each in waiting(busbridge, "doubted", 1)] == ["order 0"]
    said = busbridge("undo", str(path), YES, "--doubtful")
    assert said.code == 3, said
    found = waiting(busbridge, "doubted", 3)
    assert [each["body"] for each in found] == ["order 0", "order 1", "order 2"]
    said = busbridge("undo", str(path), YES)
    assert (said.code, [each["number"] for each in said.rows[1:]]) == (3, [4])
    busbridge("undo", str(path), YES, "--doubtful")
    waiting(busbridge, "doubted", 3)


def test_what_came_back_behind_its_mark_is_not_sent_again(
    busbridge: Busbridge, bridge: Bridge, tmp_path: Path
) -> None:
    """RabbitMQ forgets completions of a bridge that is killed, which were answered.

    Nobody has told what was settled last, so the count alone says that the oldest are gone.
    """
    kill_messages(busbridge, "back", *(order(at) for at in range(6)))
    rows = busbridge.done("dead-letter", "export", "back").rows
    path = tmp_path / "undo"
    purge(busbridge, "back", path, "--limit", "2")
    came_back = [message_of_fields(each, now_ms=0) for each in rows[2:4]]
    with path.open("a") as file:
        file.writelines(f"{json.dumps(each)}\n" for each in rows[2:4])
        file.write(f"{mark_line(TakenFate.REMOVED, map(identity_of, came_back))}\n")
    with native_channel(bridge) as channel:
        got = [channel.basic_get(names.dead_letter_queue("back")) for _ in range(4)]
        for at, (method, _, _) in enumerate(got):
            if at < 2:
                channel.basic_nack(method.delivery_tag)
            else:
                channel.basic_ack(method.delivery_tag)
    said = busbridge("undo", str(path), YES)
    assert said.code == 3, said
    assert "2 messages of back/$DeadLetterQueue were not removed" in said.err
    assert [each["number"] for each in said.rows[1:]] == [3, 4]
    assert [each["body"] for each in waiting(busbridge, "back", 2)] == ["order 0", "order 1"]
    assert [each["body"] for each in dead(busbridge, "back", 2)] == ["order 2", "order 3"]


def test_of_a_purge_that_was_killed_every_message_is_accounted_for(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """It is where it was, sent again by the undo, or listed as doubtful; none is there twice."""
    count = 300
    kill_messages(busbridge, "struck", *(order(at) for at in range(count)))
    path = tmp_path / "undo"
    words = ("--where", "n >= 0", "--rate", "100", "--wait", "60", "--undo", str(path), YES)
    process = busbridge.start("dead-letter", "purge", "struck", *words)
    eventually(lambda: path.exists() and b"removed" in path.read_bytes(), "some are removed")
    process.kill()
    process.communicate()
    eventually(lambda: len(busbridge.done("dead-letter", "ls", "struck").rows) < count, "are gone")
    said = busbridge("undo", str(path), YES)
    assert said.code in (0, 3), said
    summary, *rest = said.rows
    removed = [fate for fate in _fates(path).values() if fate is TakenFate.REMOVED]
    assert 0 < summary["sent"] <= len(removed) < count
    found = waiting(busbridge, "struck", summary["sent"])
    sent = {each["body"] for each in found}
    there = {each["body"] for each in busbridge.done("dead-letter", "ls", "struck").rows}
    doubtful = {
        f"order {each['number'] - 1}"
        for each in rest
        if each["why"] == "it was removed, or somebody has received it since"
    }
    assert (len(sent), sent & there, sent & doubtful, there & doubtful) == (
        len(found), set(), set(), set()
    )  # fmt: skip
    assert sent | there | doubtful == {f"order {at}" for at in range(count)}


def _fates(path: Path) -> dict[tuple[int, int], TakenFate]:
    """Return what an undo file says of its messages; a line that was cut short says nothing."""
    _, *lines = path.read_text().rpartition("\n")[0].splitlines()
    assert list(entries(lines))
    return fates(lines)


@pytest.mark.long
def test_what_was_sent_again_is_withdrawn_and_the_rest_is_listed(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """It is dead again with its reason; a message that is none of the copies stays."""
    kill_messages(busbridge, "sent", *(order(at) for at in range(4)))
    path = tmp_path / "undo"
    busbridge.done(
        *("dead-letter", "resubmit", "sent", "--set", "subject=new", *WAIT, "--undo", str(path))
    )
    waiting(busbridge, "sent", 4)
    busbridge.done("receive", "sent", "--count", "1", "--settle", "complete", YES)
    busbridge.done("send", "sent", given=lines(order(9)))
    waiting(busbridge, "sent", 4)
    asked = busbridge("undo", str(path))
    assert (asked.code, "are dead-lettered there" in asked.err) == (2, True)
    said = busbridge("undo", str(path), YES, *WAIT)
    assert said.code == 3, said
    summary, gone = said.rows
    assert (summary["taken"], summary["removed"]) == (3, 3)
    assert (gone["number"], gone["message_id"]) == (1, "m0")
    found = dead(busbridge, "sent", 3)
    assert [each["body"] for each in found] == ["order 1", "order 2", "order 3"]
    assert {each["application_properties"]["DeadLetterReason"] for each in found} == {"bad"}
    (left,) = waiting(busbridge, "sent", 1)
    assert (left["body"], left["delivery_count"]) == ("order 9", 0)
    again = busbridge("undo", str(path), YES, *WAIT)
    assert (again.code, again.row["taken"]) == (3, 0), "it names none by one"
    assert again.err.count("No copy of the 4 messages was found at sent") == 1


@pytest.mark.long
def test_an_undo_that_is_killed_goes_on_and_nothing_is_lost_or_there_twice(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """Those in front that are no copies go back uncounted, also from the command at the end."""
    count, others = 300, 3
    kill_messages(busbridge, "killed", *(order(at) for at in range(count)))
    busbridge.done(
        "send", "killed", given=lines(*({"body": f"other {at}"} for at in range(others)))
    )
    path = tmp_path / "undo"
    busbridge.done("dead-letter", "resubmit", "killed", *WAIT, "--undo", str(path))
    waiting(busbridge, "killed", count + others)
    process = busbridge.start("undo", str(path), YES, "--wait", "60")
    eventually(lambda: busbridge.done("dead-letter", "ls", "killed").rows, "some are dead again")
    process.kill()
    process.communicate()
    said = busbridge("undo", str(path), YES, "--wait", "8")
    assert said.code in (0, 3), said
    found = dead(busbridge, "killed", count)
    assert sorted(each["body"] for each in found) == sorted(f"order {at}" for at in range(count))
    left = waiting(busbridge, "killed", others)
    assert [each["body"] for each in left] == [f"other {at}" for at in range(others)]


def test_of_equal_messages_no_more_are_withdrawn_than_were_sent(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """Which of them, nobody can tell."""
    kill_messages(busbridge, "equal", {"body": "a"}, {"body": "a"})
    path = tmp_path / "undo"
    busbridge.done("dead-letter", "resubmit", "equal", *WAIT, "--undo", str(path))
    busbridge.done("send", "equal", given=lines({"body": "a"}))
    waiting(busbridge, "equal", 3)
    said = busbridge.done("undo", str(path), YES, *WAIT)
    assert said.row["taken"] == 2
    dead(busbridge, "equal", 2)
    waiting(busbridge, "equal", 1)


def test_copies_at_a_topic_are_withdrawn_from_the_subscription_that_is_named(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """Each subscription has its own copies."""
    busbridge.done("send", "events", given=lines(order(0)))
    busbridge.done(
        *("receive", "events", "audit", "--wait", "60", "--settle", "dead-letter"),
        *("--reason", "bad"),
    )
    eventually(lambda: busbridge.done("dead-letter", "ls", "events", "audit").rows)
    path = tmp_path / "undo"
    busbridge.done("dead-letter", "resubmit", "events", "audit", *WAIT, "--undo", str(path), YES)
    eventually(lambda: busbridge.done("peek", "events", "audit").rows)
    asked = busbridge("undo", str(path), YES)
    assert (asked.code, "name one by --at" in asked.err) == (2, True)
    busbridge.done("undo", str(path), YES, *WAIT, "--at", "events/Subscriptions/audit")
    eventually(lambda: busbridge.done("dead-letter", "ls", "events", "audit").rows)
    assert busbridge.done("peek", "events", "audit").rows == []


def test_a_target_that_would_drop_what_is_put_back_is_refused(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """As resubmit does; with ids of their own they are there."""
    kill_messages(busbridge, "unique", order(0), order(1))
    path = tmp_path / "undo"
    purge(busbridge, "unique", path)
    said = busbridge("undo", str(path), YES)
    assert (said.code, "unique detects duplicates" in said.err) == (2, True)
    busbridge.done("undo", str(path), YES, "--new-id")
    waiting(busbridge, "unique", 2)


def test_a_file_of_another_namespace_or_none_is_refused(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """And an option that is of the other kind of file."""
    path = tmp_path / "undo"
    for text, reason in (("{}\n", "not that of an undo file"), ("", "no JSON")):
        path.write_text(text)
        said = busbridge("undo", str(path), YES)
        assert (said.code, reason in said.err) == (2, True), said
    head = {"version": 1, "verb": "purge", "namespace": "other", "entity": "q/$DeadLetterQueue"}
    head |= {"to": "", "keeps_death": False, "began_ms": 0}
    path.write_text(json.dumps({"undo": head}) + "\n")
    said = busbridge("undo", str(path), YES)
    assert (said.code, "of the namespace other" in said.err) == (2, True)
