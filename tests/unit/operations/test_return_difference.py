"""What a source lacks to be what its target has made of its messages."""

from __future__ import annotations

import pytest

from bridge.operations.migration.last_copied import LastCopied
from bridge.operations.migration.return_difference import SeriesLook, difference
from bridge.operations.migration.return_effects import ReturnMessage
from bridge.operations.migration.side_ledger import SideLedger


def look(*, last: int) -> SeriesLook:
    """Both sides have a scheduled message of one number and content, of which none has an id.

    Args:
        last: up to which number a run has copied; 0: it has copied nothing.
    """
    ledgers = []
    for copied in (LastCopied(path="ticks", lasts={0: last}), None):
        ledger = SideLedger("ticks", copied)
        tick = ReturnMessage(number=1, order=1, digest=b"digests", due_ms=5, state="scheduled")
        ledger.note(tick, is_dead=False)
        ledger.close()
        ledgers.append(ledger)
    return SeriesLook(*ledgers)


@pytest.mark.parametrize("looks", [1, 2])
def test_a_message_that_came_behind_the_copy_is_no_copy_whatever_its_number(looks: int) -> None:
    """The target's is brought beside it, in each look; a copy is left as it is."""
    before = look(last=0) if looks > 1 else None
    found = difference(look(last=0), before, "there/ticks", returns=True)
    assert (list(found.brought), found.scheduled.numbers) == ([0], [1])
    assert (found.stays, found.unsure, found.settled) == (0, 0, {})
    found = difference(look(last=1), look(last=1), "there/ticks", returns=True)
    assert (found.stays, found.is_done) == (1, True)
