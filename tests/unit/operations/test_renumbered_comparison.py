"""What a comparison takes for copies, of a target with messages of its own."""

from __future__ import annotations

from bridge.operations.migration.copy_effects import CopyPlace
from bridge.operations.migration.renumbered_comparison import CopiesShown
from bridge.operations.migration.renumbered_message import renumbered
from bridge.operations.migration.verification import fingerprint
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.scalars import Long

PLACE = CopyPlace(path="q", renumbered_by="run-1")


def message(number: int, text: bytes = b"order") -> RemoteMessage:
    """A message as the source shows it."""
    return RemoteMessage.of(data=text, annotations={"x-opt-sequence-number": Long(number)})


def test_copies_are_compared_as_they_were_and_others_are_counted() -> None:
    """What an application has sent again with a copy's properties is one of the others."""
    three, four = message(3), message(4)
    copies = [renumbered(three, PLACE, 3, 13, None), renumbered(four, PLACE, 4, 14, None)]
    again = renumbered(three, PLACE, 3, 20, None)
    shown = CopiesShown(PLACE)
    assert shown.fingerprints([message(10), copies[0]]) == [fingerprint(three, is_dead=False)]
    assert shown.fingerprints([copies[1], again]) == [fingerprint(four, is_dead=False)]
    assert shown.fingerprints([message(21)]) == []
    assert shown.own == 3
