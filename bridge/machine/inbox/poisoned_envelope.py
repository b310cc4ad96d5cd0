"""An envelope with a message that cannot be numbered: the others of the envelope are.

The senders of an envelope's messages may know nothing of each other, and each was told that its
message is stored. So the message that fails becomes a dead letter by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bridge.machine.inbox.applied import Applied, Unplaced
from bridge.machine.inbox.arrival import (
    Command,
    RefusedItem,
    SendCommand,
    TransactionCommand,
    unreadable,
)
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.wire.envelope import Item


def is_divisible(command: Command | TransactionCommand) -> bool:
    """Whether a command has several messages, and nobody waits for all their numbers at once."""
    return type(command) is SendCommand and len(command.items) > 1 and command.reply_to is None


def apply_each(sequencer: Sequencer, command: Command, now_ms: int) -> Applied:
    """Carry out a divisible command, that has failed as a whole, message by message.

    Raises:
        Exception: a dead letter failed, too; nothing has changed.
    """
    before = sequencer.checkpoint()
    try:
        return _apply_each(sequencer, command, now_ms)
    except Exception:
        sequencer.take_back(command, before)
        raise


def _apply_each(sequencer: Sequencer, command: Command, now_ms: int) -> Applied:
    assert type(command) is SendCommand
    publications: list[Publication] = []
    unplaced: list[Unplaced] = []
    for index, item in enumerate(command.items, command.first):
        try:
            outcome = sequencer.apply(replace(command, items=(item,), first=index), now_ms)
        except Exception as error:
            outcome = Applied(_dead_lettered(sequencer, item, error, now_ms))
            if item.source is not None:  # a relay's copy is none again when it comes again
                sequencer.memory.came(item.source, command.identity)
        publications += outcome.publications
        unplaced += outcome.unplaced
    return Applied(publications, None, unplaced)


def _dead_lettered(
    sequencer: Sequencer, item: Item, error: Exception, now_ms: int
) -> Sequence[Publication]:
    """Return the publications of a dead letter: with the message's own properties, if they can."""
    refused = unreadable(item.body, error)
    whole = RefusedItem(Item(item.properties, item.body), refused.reason, refused.description)
    try:
        return sequencer.apply(whole, now_ms).publications
    except Exception:
        return sequencer.apply(refused, now_ms).publications
