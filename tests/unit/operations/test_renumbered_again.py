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
