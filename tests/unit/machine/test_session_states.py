"""States of sessions: the newest of each counts, in whatever order RabbitMQ brings them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.sessions.states import States

CHANGES = st.lists(st.tuples(st.sampled_from("aAb"), st.sampled_from((b"", b"1", b"2", None))))


@given(changes=CHANGES, order=st.randoms(use_true_random=False))
def test_the_newest_counts_and_nothing_else_stays(
    changes: list[tuple[str, bytes | None]], order: object
) -> None:
    """Set, cleared, killed after any change, and read again in any order, in either spelling."""
    states = States()
    model: dict[str, bytes] = {}
    unacked: dict[int, tuple[str, int, bytes]] = {}
    queue: list[tuple[str, int, bytes]] = []
    tags = iter(range(1_000))

    def ack(tag: int | None) -> None:
        if tag is not None:
            del unacked[tag]

    def bring() -> None:
        tag = next(tags)
        unacked[tag] = queue.pop(0)
        session_id, updated_ms, value = unacked[tag]
        ack(states.arrived(session_id, updated_ms, value, tag))

    for session_id, value in changes:
        known = next((each for each in model if each.upper() == session_id.upper()), session_id)
        model.pop(known, None)
        if value is None:
            ack(states.clear(session_id))
        else:
            queue.append((session_id, states.next_ms(session_id, 1_000), value))
            bring()
            model[session_id] = value
        assert {each: states.value_of(each) for each in states.ids()} == model
    assert len(unacked) == len(model)
    states.lose()
    queue = list(unacked.values())
    unacked.clear()
    order.shuffle(queue)  # type: ignore[attr-defined]
    while queue:
        bring()
    assert {each: states.value_of(each) for each in states.ids()} == model


def test_a_kill_between_confirm_and_ack_leaves_both_and_the_newer_counts() -> None:
    """Either of them may come first."""
    for order in ((1, 2), (2, 1)):
        states = States()
        dropped = [states.arrived("a", each, b"%d" % each, each) for each in order]
        assert states.value_of("a") == b"2"
        assert [each for each in dropped if each is not None] == [1]


def test_a_state_has_the_time_of_its_change() -> None:
    """Which rises with each change, though the clock does not."""
    states = States()
    states.arrived("a", 2_000, b"x", 1)
    assert states.ids(1_999) == ["a"]
    assert states.ids(2_000) == []
    assert states.next_ms("a", 1_000) == 2_001


def test_of_two_that_have_the_same_time_the_later_counts() -> None:
    """As in RabbitMQ, where it is the one that stays."""
    states = States()
    assert states.arrived("a", 2_000, b"first", 1) is None
    assert states.arrived("a", 2_000, b"second", 2) == 1
    assert states.value_of("a") == b"second"


def test_of_the_states_of_two_spellings_the_later_counts() -> None:
    """A version that told them apart has stored both; whichever RabbitMQ brings first."""
    for first, second in ((("a", 1), ("A", 2)), (("A", 2), ("a", 1))):
        states = States()
        assert states.arrived(*first, b"%d" % first[1], tag=1) is None
        assert states.arrived(*second, b"%d" % second[1], tag=2) is not None
        assert (states.value_of("a"), states.ids()) == (b"2", ["A"])


def test_a_state_that_a_transaction_gave_and_that_was_cleared_is_not_due_again() -> None:
    """Whatever was set since, and although the clock has gone back."""
    states = States()
    states.arrived("a", 5, None, 1)
    below_ms = states.next_ms("a", 5)
    assert below_ms == 6
    states.note_followed(below_ms)
    assert states.is_due("A", below_ms)
    assert states.bare == ["a"]
    assert states.ids() == []
    assert states.arrived("a", below_ms, b"new", 2) == 1
    assert not states.is_due("a", below_ms)
    assert states.strip("a") is None
    assert states.clear("a") == 2
    assert not states.is_due("a", below_ms)
    states.arrived("a", states.next_ms("a", 3), None, 3)
    assert not states.is_due("a", below_ms)
    assert states.strip("A") == 3
    assert not states.has_any("a")
