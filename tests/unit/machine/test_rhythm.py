"""Rhythm: only who asks again at once, many times in a row, is in rhythm."""

from __future__ import annotations

from bridge.machine.rhythm import CAUTIOUS_ROUNDS, PAUSE_S, ROUNDS, Rhythm


def after(rounds: int, *, is_cautious: bool = False, step: int = 1) -> Rhythm:
    """A rhythm of so many rounds; the last message was settled at 100 s."""
    rhythm = Rhythm(is_cautious=is_cautious)
    rhythm.settled(100.0, 1, 0)
    for number in range(1, rounds + 1):
        rhythm.asked(100.0, 1)
        rhythm.settled(100.0, 1 + number * step, 0)
    return rhythm


def test_it_is_steady_after_so_many_rounds() -> None:
    """And not before."""
    assert not after(ROUNDS - 1).is_steady
    assert after(ROUNDS).is_steady


def test_one_late_ask_ends_it() -> None:
    """What was fetched ahead has been given up by then."""
    rhythm = after(ROUNDS)
    assert not rhythm.is_over(100 + PAUSE_S)
    assert rhythm.is_over(100 + 2 * PAUSE_S)
    rhythm.asked(100 + 2 * PAUSE_S, 1)
    assert not rhythm.is_steady


def test_an_ask_for_more_than_one_ends_it() -> None:
    """A receiver of batches needs nothing ahead."""
    rhythm = after(ROUNDS)
    rhythm.asked(100.0, 2)
    assert not rhythm.is_steady


def test_it_is_no_rhythm_when_others_ask_as_well() -> None:
    """Then an ack's message is theirs."""
    rhythm = after(ROUNDS)
    rhythm.settled(100.0, 10, 1)
    assert not rhythm.is_steady


def test_a_long_work_with_a_message_ends_it() -> None:
    """What lies ready for this receiver could be somebody else's meanwhile."""
    rhythm = after(ROUNDS)
    rhythm.asked(100.0, 1)
    assert rhythm.is_over(101.0)
    rhythm.settled(101.0, 10, 0)
    assert not rhythm.is_steady


def test_a_second_ask_without_a_settlement_ends_it() -> None:
    """Two receivers, or a receiver that wants two."""
    rhythm = after(ROUNDS)
    rhythm.asked(100.0, 1)
    rhythm.asked(100.0, 1)
    assert not rhythm.is_steady


def test_a_cautious_rhythm_is_longer() -> None:
    """What comes ahead stays, so it must be all the more likely that it is wanted."""
    assert not after(CAUTIOUS_ROUNDS - 1, is_cautious=True).is_steady
    assert after(CAUTIOUS_ROUNDS, is_cautious=True).is_steady


def test_a_cautious_rhythm_ends_when_a_number_is_left_out() -> None:
    """It may be another consumer's."""
    assert after(ROUNDS, step=2).is_steady
    assert not after(CAUTIOUS_ROUNDS, is_cautious=True, step=2).is_steady
    rhythm = after(CAUTIOUS_ROUNDS, is_cautious=True)
    rhythm.asked(100.0, 1)
    rhythm.settled(100.0, CAUTIOUS_ROUNDS + 3, 0)
    assert not rhythm.is_steady
