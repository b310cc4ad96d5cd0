"""A run with new numbers into an entity that has copies of an earlier one."""

from __future__ import annotations

import pytest

from bridge.operations.migration.copy_effects import (
    CopyAnswer,
    CopyDone,
    CopyEffect,
    CopyPlace,
    CopyStopped,
    HoldTarget,
    LastNumbers,
    PeekPage,
    ReadLastNumbers,
    ReleaseTarget,
    TargetHeld,
    peeked,
)
from bridge.operations.migration.entity_copy import EntityCopy
from bridge.operations.migration.renumbered_message import peeked_copy, renumbered
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.scalars import Long
from tests.unit.operations.test_entity_copy import queue_of, stopped
from tests.unit.operations.test_renumbering import LivelyTarget, LivelyWorld

PLACE = CopyPlace(path="orders", renumbered_by="run-1")


def numbered(number: int) -> RemoteMessage:
    """A message under a number."""
    return RemoteMessage.of(data=b"x", annotations={"x-opt-sequence-number": Long(number)})


def answered(effect: CopyEffect) -> CopyAnswer:
    """What both sides say: the source has message 2, and the target the copy of message 1."""
    match effect:
        case HoldTarget():
            return TargetHeld(is_new=False, was_empty=True)
        case ReadLastNumbers():
            return LastNumbers(((3, False),))
        case PeekPage(side="source", from_number=1):
            return [peeked(numbered(2), is_dead=False)]
        case PeekPage(side="target", from_number=1):
            return [peeked_copy(renumbered(numbered(1), PLACE, 1, 3, None), PLACE)]
        case PeekPage():
            return []
        case _:
            return CopyDone()


def play(copy: EntityCopy, done: list[CopyEffect]) -> None:
    """Have a copy go on as far as it comes, and note what it wants done."""
    steps = copy.steps()
    done.append(next(steps))
    while True:
        done.append(steps.send(answered(done[-1])))


def test_copies_that_the_source_has_no_more_stop_it_before_it_copies() -> None:
    """They could not be told from its own: giving it up would say how to remove them, too."""
    done: list[CopyEffect] = []
    with pytest.raises(CopyStopped, match=r"the target has 3, an earlier run's copy of message 1"):
        play(EntityCopy([PLACE], due_after_ms=0), done)
    reads = (HoldTarget, ReadLastNumbers, PeekPage)
    assert all(isinstance(each, reads) for each in done[:-1]), "nothing is copied"
    assert done[-1] == ReleaseTarget()


BATCH = 4
"""Messages of a transfer."""


def begun_again() -> LivelyWorld:
    """A run that was killed behind its first transfer, whose copies are gone when it begins again.

    The source's messages that were copied are gone, too: those that expire do so at both sides.
    """
    world = LivelyWorld([queue_of(*range(1, 9))], [{40}])
    while world.copies[0].copied < BATCH:
        world.step(0)
    for number in range(1, BATCH + 1):
        del world.sources[0].messages[0][number]
        world.targets[0].messages[0].pop(40 + number)
    world.begin()
    return world


def test_a_run_whose_copies_have_all_expired_stops_and_is_given_up() -> None:
    """Nobody can tell them from copies that are not shown; what begins anew goes on behind them."""
    world = begun_again()
    assert "q: the target has imported a message under 44, and shows no copy" in stopped(world)
    assert "all copies have expired: `busbridge migrate run --renumber --give-up`" in world.stopped
    target = world.targets[0]
    assert target.is_held
    assert isinstance(target, LivelyTarget)
    target.is_held, world.stopped = False, ""  # given up
    target.imported.clear()
    world.begin()
    world.finish()
    assert world.is_over, world.stopped
    found = {each.number: n for n, each in target.messages[0].items() if not each.is_own}
    assert found == {number: 40 + number for number in range(5, 9)}


def test_a_base_that_is_taken_anew_is_behind_copies_that_have_expired() -> None:
    """The target knows its last imports alone; of older ones only that their numbers are given."""
    world = begun_again()
    target = world.targets[0]
    assert isinstance(target, LivelyTarget)
    target.imported.clear()
    world.finish()
    assert world.is_over, world.stopped
    found = sorted(n for n, each in target.messages[0].items() if not each.is_own)
    assert found == [45, 46, 47, 48]
    assert target.messages[0][40].is_own
