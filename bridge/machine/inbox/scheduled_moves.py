"""A move of scheduled messages: others, the same but for their times, take their places.

It is a cancel and a schedule in one arrival, and stays one however often the leader is killed. The
journal gets the cancel first, then the new messages, each with a number of its own. The arrival is
acked when all of that is confirmed, so a kill in between brings it to the next leader:

    the journal has       the next leader
    nothing               carries the move out, or refuses it: a message is due meanwhile
    the cancel            finishes it: the old ones wait no more, so nothing is doubled
    some new ones         finishes it: it knows those by their identities
    all                   has nothing to do

The other way round, an old message could be due between the two. Both parts are entries that
bridges of any version read. What is asked twice is done once: a number that is moved is no longer
that of a scheduled message, and is not given again.

A message that takes the place of another is not looked up among those that were accepted: where
duplicates are detected it would be dropped as one of the message that it replaces.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.machine.inbox.applied import Applied, SenderAnswer
from bridge.machine.inbox.arrival import Cancel, Move, ReplyTo, SendCommand
from bridge.model.errors import MessageNotFound
from bridge.wire import reply

MOVED_MAX = 100
"""Messages of one move at most: they are numbered in one turn of the event loop."""


def parts_of(move: Move) -> tuple[Cancel, SendCommand]:
    """Return the two commands that a move is made of, in the order of their journal entries."""
    items = [replace(each, digest=None) for each in move.items]
    return (
        Cancel(move.identity, move.numbers),
        SendCommand(move.identity, items, move.reply_to),
    )


def not_scheduled(path: str, number: int, reply_to: ReplyTo | None) -> Applied:
    """Return what becomes of a cancel or a move of a message that is not scheduled: nothing."""
    if reply_to is None:
        return Applied(())
    description = (
        f"The scheduled message with SequenceNumber = {number} does not exist in "
        f"'{path}', or is no longer scheduled."
    )
    refused = reply.encode_refused(MessageNotFound.condition, description)
    return Applied((), SenderAnswer(reply_to, refused))
