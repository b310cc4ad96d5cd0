"""Groups: single messages for one entity that leave as one envelope.

An envelope costs RabbitMQ a confirm, a delivery and an ack in the inbox, whether it holds one
message or a hundred. All messages that senders hand over in one turn of the event loop for one
entity share it. A group is not a batch: each message was checked by itself before it joined, so one
that is refused is in no group, and the sequencer treats each message of an envelope by itself.

A message that is alone waits for nobody: its group leaves at the end of the turn. While `AHEAD_MAX`
groups of its entity are unconfirmed, a group that is not full waits until one of them is confirmed,
and more messages join: clients with many messages under way have full groups by themselves. What
must not overtake it (a batch, a schedule, a cancel) has a group leave at once.

Nobody waits longer because of a group: the time for a confirm begins with the group. When it is
over for one of those ahead, the group that waits for them is refused, and never written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from bridge.engine.api import OnSent
from bridge.engine.sending.answers import busy
from bridge.model import entity as model
from bridge.model.errors import OperationTimeout, ServiceBusError
from bridge.wire.envelope import Item

BYTES_MAX = 65_536
"""Bytes of a group's items, as encoded: 53 messages of 1 KiB. A leader holds 64 MB of arrivals, and
1,000 of them (`sidecar.arrival_buffer`): so many full groups fit, and no backlog of groups ends a
term."""

ITEMS_MAX = 100
"""Messages of a group."""

AHEAD_MAX = 4
"""Unconfirmed groups of an entity beyond which the next one waits, unless it is full: on average
for a quarter of the time that a confirm takes."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Group:
    """The messages of one turn for one entity, in the order in which they were handed over.

    Attributes:
        entity: the definition by which all were checked and encoded.
        front: the entity's front exchange.
        since_s: when the group began (the loop's clock).
        told: for each message who is told the outcome.
        size_bytes: the bytes of all items.
    """

    entity: model.SendEntity
    front: str
    since_s: float
    items: list[Item] = field(default_factory=list)
    told: list[OnSent] = field(default_factory=list)
    size_bytes: int = 0

    def tell(self, error: ServiceBusError | None) -> None:
        """Tell the outcome of the envelope to each sender."""
        for told in self.told:
            try:
                told(error)
            except Exception:  # the others must be told, too
                log.exception("send.untold entity=%s", self.entity.path)


class Groups:
    """The groups that have not left yet, by front exchange.

    Args:
        publish: publishes a group, and calls back once with the outcome.
        after: called after the groups of a turn were published.
    """

    def __init__(self, publish: Callable[[Group, OnSent], None], after: Callable[[], None]) -> None:
        self._publish = publish
        self._after = after
        self._open: dict[str, Group] = {}
        self._ahead: Counter[str] = Counter()
        # Kept: `get_running_loop` makes a system call each time (Python 3.11).
        self._loop = asyncio.get_running_loop()
        self._is_due = False

    def __repr__(self) -> str:
        return f"<Groups { ({front: len(each.items) for front, each in self._open.items()}) }>"

    def join(
        self, entity: model.SendEntity, front: str, item: Item, size_bytes: int, told: OnSent
    ) -> None:
        """Add a message to its entity's group; a group that is full leaves at once.

        Args:
            front: the entity's front exchange.
            size_bytes: the size of the encoded item.
        """
        group = self._open.get(front)
        if group is not None and (
            group.entity is not entity  # changed, or created anew, since the group began
            or group.size_bytes + size_bytes > BYTES_MAX
            or len(group.items) >= ITEMS_MAX
        ):
            self.leave(front)
            group = None
        if group is None:
            group = self._open[front] = Group(entity, front, self._loop.time())
            self._end_turn_soon()
        group.items.append(item)
        group.told.append(told)
        group.size_bytes += size_bytes

    def leave(self, front: str) -> None:
        """Publish an entity's group now: something is to be published behind it."""
        group = self._open.pop(front, None)
        if group is not None:
            self._ahead[front] += 1
            self._publish(group, partial(self._on_told, group))

    def _on_told(self, group: Group, error: ServiceBusError | None) -> None:
        front = group.front
        has_kept = self._ahead[front] >= AHEAD_MAX and front in self._open
        self._ahead[front] -= 1
        if not self._ahead[front]:
            del self._ahead[front]
        if has_kept and isinstance(error, OperationTimeout):
            kept = self._open.pop(front)
            group.tell(error)
            kept.tell(busy("what was sent before is not confirmed"))
            return
        if has_kept:
            self._end_turn_soon()
        group.tell(error)

    def _end_turn_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_due = False
        for front in [each for each in self._open if self._ahead[each] < AHEAD_MAX]:
            self.leave(front)
        self._after()
