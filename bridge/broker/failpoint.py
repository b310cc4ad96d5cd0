"""Failpoints: named places in the code at which tests can have the process killed.

`BUSBRIDGE_FAILPOINT=name` kills the process at the first pass of a point, `name:3` at the third.
Each hand-over site has three points, in the order of its steps:

    <site>.published   written to RabbitMQ, not confirmed
    <site>.confirmed   confirmed, not acked
    <site>.acked       acked

Every publish, ack and reject of the bridge belongs to a site or a point in these tables.
"""

from __future__ import annotations

import os
import signal
from typing import Protocol

VARIABLE = "BUSBRIDGE_FAILPOINT"

HAND_OVERS: dict[str, str] = {
    "bench.hop": "the benchmark's hop from one queue to another",
    "engine.again": "a message that was abandoned with changed properties goes back into its queue",
    "engine.dead_letter": "a client dead-letters a message",
    "engine.defer": "a client defers a message",
    "engine.delivery_count_exceeded": "a message that failed too often is dead-lettered",
    "engine.expire": "a message that expired here goes to the dead-letter queue",
    "engine.forward": "a message is forwarded to another entity",
    "engine.transfer": "a transaction's message for another entity goes there",
    "engine.transfer_refused": "a transaction's message that its target refuses is dead-lettered",
    "engine.send_back": "a message published past the front exchange goes back through it",
    "expired_unnumbered.return": "an arrival that expired in an inbox goes back to it",
    "scheduler.activate": "a scheduled message that is due becomes active",
    "scheduler.move": "a scheduled message goes to a finer bucket",
    "sequencer.again": "what an earlier term published and saw no confirm for",
    "sequencer.ownership": "the ownership token, by which an owner of an inbox knows that it is",
    "sequencer.journal": "markers, snapshots and notes about buckets",
    "sequencer.number": "an arrival of an inbox: numbered, scheduled, or a cancel",
    "test.hop": "what the tests of the hand-over itself move",
}
"""Hand-over site -> its description."""

POINTS: dict[str, str] = {
    "dead_letters.published": "a dead letter that its queue may lack was published again",
    "disposal.marked": "an idle entity has the status Deleting",
    "disposal.closed": "the front exchange of an idle entity was deleted",
    "disposal.begun": "the deletion of an idle entity has no way back",
    "disposal.removed": "the objects of an idle entity were deleted, not its definition",
    "engine.abandon.rejected": "a message was abandoned: rejected, to be delivered again",
    "engine.commit.begun": "all that may refuse a commit here is checked, and nothing is published",
    "engine.commit.decided": "a commit is decided, and none of its outcomes is carried out",
    "engine.complete.acked": "a message was completed: acked",
    "engine.deferred.declared": "the queue of an entity's deferred messages was made",
    "engine.deferred.answered": "an ask for deferred messages was answered and acked",
    "engine.deferred.put_last": "an ask was returned, to come behind all deferred messages",
    "engine.deferred.returned": "a deferred message was returned, to be read again",
    "engine.drop.acked": "a second copy was acked",
    "engine.expire.acked": "a message that expired was acked, without a dead letter",
    "engine.lock.rejected": "a lock has expired: rejected, to be delivered again",
    "engine.move.refused": "a next queue has refused a message, peeks are not told yet",
    "engine.receive_and_delete.acked": "a message was received and deleted: acked",
    "engine.release.returned": "a message was released: returned without counting (4.3)",
    "engine.send.confirmed": "an envelope was confirmed, its sender not answered",
    "engine.send.published": "an envelope was published, not confirmed",
    "engine.tell.published": "other bridges were notified, or one was answered",
    "engine.session.acked": "a session's earlier state, or an ask for its holder, was acked",
    "engine.session.returned": "a session's message was returned, to be read again",
    "queue.made_on_use": "a queue that is made when it is used was declared, without a fence",
    "sequencer.answered": "whoever scheduled or cancelled was told",
    "usage.told": "a leader was told that an entity is used",
}
"""Point that belongs to no hand-over -> the step that precedes the point."""

STEPS = ("published", "confirmed", "acked")


def failpoints() -> dict[str, str]:
    """Return every point with its description."""
    table = {
        f"{site}.{step}": f"{what}: {step}" for site, what in HAND_OVERS.items() for step in STEPS
    }
    return table | POINTS


class Failpoint:
    """The point that the environment has armed, if any.

    Attributes:
        name: the point's name; "" when none is armed.
    """

    __slots__ = ("_passes_left", "name")

    def __init__(self, setting: str) -> None:
        self.name, _, nth = setting.partition(":")
        if self.name and self.name not in failpoints():
            raise ValueError(f"{VARIABLE}={setting}: there is no failpoint {self.name}")
        if nth and (not nth.isascii() or not nth.isdigit() or int(nth) == 0):
            raise ValueError(f"{VARIABLE}={setting}: {nth!r} is not a number of passes")
        self._passes_left = int(nth or 1)

    def reach(self, name: str) -> None:
        """Pass a point; kill the process (SIGKILL) at the armed pass of the armed point."""
        if name == self.name:
            self._passes_left -= 1
            if self._passes_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


ARMED = Failpoint(os.environ.get(VARIABLE, ""))
"""The point that this process's environment arms, if any."""

IS_ARMED = bool(ARMED.name)
"""Whether any point is armed; hot paths check this first."""


class WrittenOn(Protocol):
    """A channel."""

    def flush(self) -> None:
        """Write the collected frames to the kernel."""


def reach(name: str, channel: WrittenOn | None = None) -> None:
    """Pass a point of this process.

    When any point is armed, the channel's frames are flushed first, so that they reach RabbitMQ.
    """
    if IS_ARMED:
        if channel is not None:
            channel.flush()
        ARMED.reach(name)
