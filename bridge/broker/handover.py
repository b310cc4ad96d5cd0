"""Publish, then confirm, then ack: the one place where messages move from queue to queue.

A hand-over acks its messages when every publish is confirmed and every target queue still exists.
When a publish is refused (nack), returned (no queue took it) or lost with its channel, the
hand-over acks nothing. The message stays in its queue, and the other publishes of the same
hand-over may be second copies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from typing import Protocol

from bridge.broker import failpoint as failpoints
from bridge.broker.connection.channel import Channel
from bridge.broker.errors import AckLost, BrokerError, BrokerSilent, NotStored
from bridge.broker.outcome import Done, resolve
from bridge.machine.inbox.publication import Publication


class Acked(failpoints.WrittenOn, Protocol):
    """A channel that has delivered a message."""

    def ack(self, tag: int) -> None:
        """Ack a delivery; raises BrokerError or ValueError."""


Acks = Sequence[tuple[Acked, int]]


LOOK_EVERY_S = 0.005
"""Minimum interval of checks whether target queues exist: a check costs as much as a message."""

Publish = Publication
"""One message to be published."""


class _Move:
    """A hand-over that is not finished yet."""

    __slots__ = ("acks", "done", "error", "is_partial", "missing", "owner", "site", "targets")

    def __init__(
        self,
        owner: HandOver,
        publishes: int,
        targets: Collection[str],
        acks: Acks,
        done: Done | None,
        site: str,
    ) -> None:
        self.owner = owner
        self.missing = publishes + bool(targets)
        self.targets = targets
        self.acks = acks
        self.done = done
        self.site = site
        self.error: BrokerError | None = None
        self.is_partial = False

    def settled(self, error: BrokerError | None) -> None:
        """Take the outcome of one publish: None for a confirm, else the error."""
        owner = self.owner
        owner.in_flight -= 1
        if owner.waiting:
            owner.go_on_soon()
        if not isinstance(error, NotStored):
            self.is_partial = True
        self.seen(error)

    def seen(self, error: BrokerError | None) -> None:
        """Take one outcome, of a publish or of the check for targets; finish after the last one."""
        if error is not None and self.error is None:
            self.error = error
        self.missing -= 1
        if not self.missing:
            self.finish()

    def finish(self) -> None:
        """Send the acks, unless there was an error, and call `done`."""
        error = self.error
        if error is not None and self.is_partial:
            error.is_partial = True
        if error is None and failpoints.IS_ARMED:
            failpoints.reach(f"{self.site}.confirmed")
        if error is None and self.acks:
            try:
                for channel, tag in self.acks:
                    channel.ack(tag)
                    if failpoints.IS_ARMED:
                        failpoints.reach(f"{self.site}.acked", channel)
            except (BrokerError, ValueError) as cause:
                error = AckLost(text=f"confirmed, but not acked: {cause}")
                error.__cause__ = cause
        if self.done is not None:
            self.done(error)


class HandOver:
    """Hands messages over through one publishing channel, in the order of the calls.

    Args:
        channel: the channel that publishes; its confirms are on.
        beyond: how many more publishes are written than `ChannelPublisher.room` allows.

    Attributes:
        channel: the channel.
        in_flight: publishes that are not confirmed yet, also those that are not written yet.
        waiting: hand-overs of which publishes are not written yet, with these.
    """

    __slots__ = (
        "_beyond",
        "_is_look_due",
        "_is_write_due",
        "_looked_s",
        "_unseen",
        "channel",
        "in_flight",
        "waiting",
    )

    def __init__(self, channel: Channel, *, beyond: int = 0) -> None:
        self.channel = channel
        self._beyond = beyond
        self._is_write_due = False
        self._is_look_due = False
        self._looked_s = 0.0
        self._unseen: list[_Move] = []
        self.in_flight = 0
        self.waiting: deque[tuple[_Move, Sequence[Publish]]] = deque()

    def __repr__(self) -> str:
        return f"<HandOver [{self.in_flight} in flight on {self.channel!r}]>"

    def submit(
        self,
        publishes: Sequence[Publish],
        *,
        targets: Collection[str] = (),
        acks: Acks = (),
        done: Done | None = None,
        failpoint: str,
    ) -> None:
        """Publish all messages; when the last is confirmed, ack, then call `done(None)`.

        Publishes for which the channel has no room are written when earlier ones are confirmed,
        in the order of the calls.

        After an error nothing is acked, and `done` gets the first error, `is_partial` unless
        nothing is stored. `AckLost` means that everything is published and at least one ack was not
        sent, because its channel was gone.

        Args:
            publishes: the messages, published as mandatory; without any, the acks leave at once.
            targets: queues that must still exist when all messages are published. RabbitMQ
                confirms a message for several queues though one of them was deleted
                (docs/rabbitmq-faults.md: deleted-target).
            acks: deliveries to ack afterwards, also of other channels and connections.
            done: called exactly once, perhaps before this returns.
            failpoint: the site, from `failpoint.HAND_OVERS`.
        """
        assert failpoint in failpoints.HAND_OVERS, f"{failpoint} is not in failpoint.HAND_OVERS"
        move = _Move(self, len(publishes), targets, acks, done, failpoint)
        if not publishes:
            move.finish()
            return
        self.in_flight += len(publishes)
        if not self.waiting and len(publishes) <= self._room:
            self._publish(move, publishes)
            return
        self.waiting.append((move, publishes))
        if len(self.waiting) == 1:
            self._go_on()

    def go_on_soon(self) -> None:
        """Publish in the next turn of the event loop what there is room for by then."""
        if not self._is_write_due:
            self._is_write_due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    @property
    def has_room(self) -> bool:
        """Whether a publish that is submitted now is written at once."""
        return not self.waiting and self._room > 0

    @property
    def _room(self) -> int:
        return self.channel.publisher.room + self._beyond

    def leads_to(self, queue: str) -> bool:
        """Whether a publish to this queue by the default exchange is unwritten or unconfirmed."""
        waiting = any(each[:2] == ("", queue) for _, rest in self.waiting for each in rest)
        return waiting or self.channel.publisher.leads_to(queue)

    def _go_on(self) -> None:
        """Publish what waits, in order, as far as it may be written."""
        self._is_write_due = False
        while self.waiting and (room := self._room) > 0:
            move, publishes = self.waiting[0]
            rest = publishes[room:]
            refusal = self._publish(move, publishes[:room], is_all=not rest)
            if rest and refusal is None:
                self.waiting[0] = move, rest
                continue
            self.waiting.popleft()
            for _ in rest:
                move.settled(refusal)

    def _publish(
        self, move: _Move, publishes: Sequence[Publish], *, is_all: bool = True
    ) -> BrokerError | None:
        """Publish messages; return the error that kept one from being written, or None."""
        publish = self.channel.publisher.publish
        settled = move.settled
        for index, (exchange, routing_key, properties, body) in enumerate(publishes):
            try:
                publish(exchange, routing_key, properties, body, settled=settled)
            except (BrokerError, ValueError) as error:
                refusal = error if isinstance(error, BrokerError) else BrokerError(text=str(error))
                for _ in publishes[index:]:
                    settled(refusal)
                if move.targets:
                    move.seen(refusal)
                return refusal
        if is_all and move.targets:
            self._unseen.append(move)
            if not self._is_look_due:
                self._look_soon()
        if is_all and failpoints.IS_ARMED:
            failpoints.reach(f"{move.site}.published", self.channel)
        return None

    def _look_soon(self) -> None:
        """Schedule a check for target queues, at most one each `LOOK_EVERY_S`.

        All hand-overs that are published meanwhile share the check.
        """
        self._is_look_due = True
        loop = asyncio.get_running_loop()
        loop.call_at(self._looked_s + LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        self._is_look_due = False
        self._looked_s = asyncio.get_running_loop().time()
        moves, self._unseen = self._unseen, []
        targets = {target for move in moves for target in move.targets}
        try:
            barrier = self.channel.barrier(targets)
        except BrokerError as error:
            self._on_seen(moves, error)
        else:
            barrier.add_done_callback(lambda seen: self._on_seen(moves, seen.exception()))

    def _on_seen(self, moves: Sequence[_Move], error: BaseException | None) -> None:
        assert error is None or isinstance(error, BrokerError)
        if isinstance(error, BrokerSilent) and self.channel.is_blocked:
            self._unseen += moves  # no deadline holds while RabbitMQ has an alarm
            if not self._is_look_due:
                self._look_soon()
            return
        for move in moves:
            self.channel.notify(move.seen, error)

    async def move(self, publishes: Sequence[Publish], *, acks: Acks = (), failpoint: str) -> None:
        """Submit a hand-over and wait until it is finished.

        Raises:
            BrokerError: the hand-over failed; see `submit`.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.submit(publishes, acks=acks, done=partial(resolve, future), failpoint=failpoint)
        await future
