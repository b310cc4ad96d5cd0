"""The one subscription that a message is for, while the leader's definition lacks it."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.machine.inbox.arrival import (
    Command,
    ExpiredUnnumbered,
    ImportCommand,
    RefusedItem,
    SendCommand,
)
from bridge.machine.inbox.fanout import Fanout
from bridge.wire.envelope import Item
from bridge.wire.gaps import OWN


def missing_target(fanout: Fanout | None, command: Command) -> bytes | None:
    """Return the subscription that a message of a command is for, if it is not known.

    `None`: there is no such. Otherwise the definition is to be read anew before the sequencer
    carries the command out, or the message would go nowhere.

    Args:
        fanout: the topic's; `None` for a queue.
    """
    if fanout is None:
        return None
    items: Sequence[Item] = ()
    if isinstance(command, SendCommand | ImportCommand):
        items = command.items
    elif isinstance(command, ExpiredUnnumbered | RefusedItem):
        items = (command.item,)
    for each in items:
        target = each.target
        if each.imported is not None and each.imported.short != OWN:
            target = each.imported.short
        if target is not None and fanout.is_missing(target):
            return target
    return None
