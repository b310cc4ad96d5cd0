"""An undo file says what a command has taken, so that each message can be found again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.operations.changes import MessageChanges, sent_again
from bridge.operations.lines.scalar_values import ValueRefused
from bridge.operations.undo_file import (
    AwaitedCopies,
    Taken,
    TakenFate,
    UndoHead,
    entries,
    entry_line,
    entry_of,
    fates,
    identity_of,
    mark_line,
)
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.primitives import encode_map, encode_symbol
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.sections import descriptor
from tests.fixtures.examples import examples
from tests.unit.operations.test_changes import DEAD, NOW_MS
from tests.unit.operations.test_message_lines import messages

HEAD = UndoHead(
    verb="resubmit",
    namespace="localhost:5672",
    entity="orders/$DeadLetterQueue",
    to="orders",
    began_ms=NOW_MS,
)


def enqueued(message: RemoteMessage, number: int, at_ms: int) -> RemoteMessage:
    """Return a message as a namespace gives it."""
    pairs = [
        (encode_symbol(b"x-opt-sequence-number"), b"\x81" + number.to_bytes(8, "big")),
        (encode_symbol(b"x-opt-enqueued-time"), b"\x83" + at_ms.to_bytes(8, "big")),
    ]
    if message.partition_key:
        key = message.partition_key.encode()
        pairs.append((encode_symbol(b"x-opt-partition-key"), bytes((0xA1, len(key))) + key))
    return replace(message, annotations=descriptor(part.MESSAGE_ANNOTATIONS) + encode_map(pairs))


def test_the_first_line_says_what_was_done() -> None:
    """And comes back."""
    assert UndoHead.read(HEAD.line()) == HEAD


@pytest.mark.parametrize(
    "line",
    ["", "{}", '{"body": "x"}', '{"undo": {"version": 2}}', '{"undo": {"version": 1}}', "nothing"],
)
def test_a_file_that_is_none_is_refused(line: str) -> None:
    """A file of messages, of another command, or of a later version."""
    with pytest.raises(ValueRefused):
        UndoHead.read(line)


def test_the_same_command_goes_on_with_its_file_and_no_other_does() -> None:
    """What is in one file is undone by one way."""
    assert HEAD.is_continued_by(replace(HEAD, began_ms=NOW_MS + 5))
    for other in ({"verb": "purge"}, {"to": "others"}, {"entity": "o"}, {"namespace": "h"}):
        assert not HEAD.is_continued_by(replace(HEAD, **other))


@settings(max_examples=examples(100), deadline=None)
@given(messages())
def test_a_message_comes_back_as_it_was(message: RemoteMessage) -> None:
    """Byte for byte, with what the service had set."""
    assert entry_of(entry_line(message)) == Taken(message)


def test_a_message_that_was_written_twice_comes_once() -> None:
    """Its lock had ended, and it was received again; bytes that are no message have no number."""
    first, second = enqueued(DEAD, 7, 5), enqueued(DEAD, 7, 6)
    unread = RemoteMessage(unread=b"\x00")
    lines = [entry_line(each) for each in (first, second, first, unread, unread)]
    found = [each.message for each in entries(["", *lines])]
    assert found == [first, second, unread, unread]


def test_marks_say_what_has_become_of_messages_and_are_none() -> None:
    """The last line about a message counts; without a mark it is doubtful."""
    first, second, third = (enqueued(DEAD, number, 5) for number in (1, 2, 3))
    lines = [
        entry_line(first),
        entry_line(second),
        mark_line(TakenFate.LEFT, [identity_of(first)]),
        entry_line(first),
        entry_line(third),
        mark_line(TakenFate.REMOVED, [identity_of(first), identity_of(third)]),
    ]
    assert [each.message for each in entries(lines)] == [first, second, third]
    assert fates(lines) == {
        (1, 5): TakenFate.REMOVED,
        (2, 5): TakenFate.DOUBTFUL,
        (3, 5): TakenFate.REMOVED,
    }
    assert fates(lines[:3])[1, 5] is TakenFate.LEFT
    assert fates(lines[:4])[1, 5] is TakenFate.DOUBTFUL


@pytest.mark.parametrize(
    "line", ['{"removed": [5]}', '{"removed": [[1, "x"]]}', '{"left": [null]}']
)
def test_a_mark_that_names_no_message_is_refused(line: str) -> None:
    """Somebody has edited the file: which messages were removed is not guessed."""
    for reading in (fates, entries):
        with pytest.raises(ValueRefused):
            list(reading([line]))


STEPS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(("write", "remove", "leave", "somebody"))),
    max_size=40,
)


@settings(max_examples=examples(200), deadline=None)
@given(STEPS, st.data())
def test_wherever_a_command_is_killed_no_fate_is_wrong(
    steps: list[tuple[int, str]], data: st.DataObject
) -> None:
    """Written before it is removed, marked behind it; somebody else may receive what was left.

    The file may lose its last lines that no disk has confirmed: marks.
    """
    lines: list[str] = []
    kept = 0
    written: set[int] = set()
    removed: set[int] = set()
    gone: set[int] = set()
    for number, step in steps:
        message = enqueued(DEAD, number, 5)
        if number in gone:
            continue
        if step == "write":
            lines.append(entry_line(message))
            kept = len(lines)
            written.add(number)
        elif step == "somebody":
            gone.add(number)
        elif number in written:
            written.discard(number)
            if step == "remove":
                removed.add(number)
                gone.add(number)
            fate = TakenFate.REMOVED if step == "remove" else TakenFate.LEFT
            if data.draw(st.booleans(), label="the command lives on"):
                lines.append(mark_line(fate, [identity_of(message)]))
    left = lines[: data.draw(st.integers(kept, len(lines)), label="lines on the disk")]
    found = fates(left)
    for number in removed:
        assert found[number, 5] in (TakenFate.REMOVED, TakenFate.DOUBTFUL)
    for (number, _), fate in found.items():
        if fate is TakenFate.REMOVED:
            assert number in removed


def test_a_message_is_at_its_source_by_number_and_time() -> None:
    """An entity that was made anew counts from 1 again."""
    taken = Taken(enqueued(DEAD, 7, 5))
    assert taken.is_at_source(enqueued(DEAD, 7, 5))
    assert not taken.is_at_source(enqueued(DEAD, 7, 6))
    assert not taken.is_at_source(enqueued(DEAD, 8, 5))


def test_a_copy_is_known_by_what_its_sender_wrote() -> None:
    """With another number, another time, and without its death; none from before the command."""
    taken = entry_of(entry_line(DEAD))
    copy = enqueued(sent_again(DEAD, NOW_MS), 20, NOW_MS + 5)
    assert taken.is_copy(copy, HEAD)
    assert not taken.is_copy(enqueued(copy, 20, NOW_MS - 1), HEAD)
    assert not taken.is_copy(replace(copy, body=b""), HEAD)
    dead = enqueued(DEAD, 20, NOW_MS + 5)
    assert not taken.is_copy(dead, HEAD)
    assert taken.is_copy(dead, replace(HEAD, keeps_death=True))


def test_a_changed_copy_is_known_by_its_changes() -> None:
    """The file says what was sent."""
    sent = sent_again(DEAD, NOW_MS, MessageChanges({"subject": "corrected", "message_id": None}))
    taken = entry_of(entry_line(DEAD, sent))
    named = sent_again(sent, NOW_MS, MessageChanges({"message_id": "given by the namespace"}))
    assert taken.is_copy(enqueued(named, 20, NOW_MS), HEAD)
    assert not taken.is_copy(enqueued(sent_again(DEAD, NOW_MS), 20, NOW_MS), HEAD)


def is_sent(message: RemoteMessage) -> bool:
    """Whether a command sends it as it is: what cannot be read is refused."""
    try:
        sent_again(message, NOW_MS)
    except ValueRefused:
        return False
    return not message.unread


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(messages(), max_size=6), st.data())
def test_each_copy_is_found_once_in_any_order(
    originals: list[RemoteMessage], data: st.DataObject
) -> None:
    """As `is_copy` has it; equal messages have equal copies, and each original is named once."""
    originals = [replace(each, annotations=b"") for each in originals if is_sent(each)]
    taken = [entry_of(entry_line(enqueued(each, at, 5))) for at, each in enumerate(originals, 1)]
    awaited = AwaitedCopies(HEAD)
    for place, each in enumerate(taken):
        awaited.add(each, place)
    copies = [enqueued(sent_again(each.message, NOW_MS), 50, NOW_MS + 1) for each in taken]
    found = []
    for copy in data.draw(st.permutations(copies)):
        place = awaited.find(copy)
        assert place is not None
        assert taken[place].is_copy(copy, HEAD)
        found.append(place)
    assert sorted(found) == list(range(len(taken)))
    assert len(awaited) == 0
    assert all(awaited.find(each) is None for each in copies)


def test_a_copy_that_got_an_id_from_its_namespace_is_found() -> None:
    """And none that is older than the command, or that says something else."""
    original = entry_of(entry_line(replace(DEAD, properties=b"")))
    awaited = AwaitedCopies(HEAD)
    awaited.add(original, 3)
    copy = sent_again(original.message, NOW_MS)
    assert awaited.find(enqueued(copy, 20, NOW_MS - 1)) is None
    assert awaited.find(enqueued(replace(copy, body=b""), 20, NOW_MS)) is None
    named = sent_again(copy, NOW_MS, MessageChanges({"message_id": "given"}))
    assert awaited.find(enqueued(named, 20, NOW_MS)) == 3
