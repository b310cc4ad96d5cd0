"""Publish, then confirm, then ack: the one place where messages move from queue to queue.

Nothing is acked before every publish of its hand-over is confirmed. When one is refused (nack),
returned (no queue took it) or lost with its channel, nothing is acked: the message stays where it
was, and what was published of the same hand-over may exist twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from bridge.broker import failpoint as failpoints
from bridge.broker.connection.channel import Channel
from bridge.broker.errors import AckLost, BrokerError
from bridge.machine.publication import Publication

Done = Callable[[BrokerError | None], None]
Acks = Sequence[tuple[Channel, int]]


AT_ONCE = 1_000
"""Publishes of one hand-over that are written in one turn of the event loop."""

Publish = Publication
"""One message to be published."""


class _Move:
    """One hand-over on its way."""

    __slots__ = ("acks", "done", "error", "owner", "site", "unconfirmed")

    def __init__(
        self, owner: HandOver, unconfirmed: int, acks: Acks, done: Done | None, site: str
    ) -> None:
        self.owner = owner
        self.unconfirmed = unconfirmed
        self.acks = acks
        self.done = done
        self.site = site
        self.error: BrokerError | None = None

    def settled(self, error: BrokerError | None) -> None:
        """Count one publish of it as confirmed, or not."""
        if error is not None and self.error is None:
            self.error = error
        self.unconfirmed -= 1
        self.owner.in_flight -= 1
        if self.unconfirmed == 0:
            self.finish()

    def finish(self) -> None:
        """Ack, when all is confirmed, and tell."""
        error = self.error
        if error is None and failpoints.IS_ARMED:
            failpoints.reach(f"{self.site}.confirmed")
        if error is None and self.acks:
            try:
                if failpoints.IS_ARMED:
                    self._ack_armed()
                else:
                    for channel, tag in self.acks:
                        channel.consumers.ack(tag)
            except (BrokerError, ValueError) as cause:
                error = AckLost(text=f"confirmed, but not acked: {cause}")
                error.__cause__ = cause
        if self.done is not None:
            self.done(error)

    def _ack_armed(self) -> None:
        for channel, tag in self.acks:
            channel.consumers.ack(tag)
            channel.flush()
            failpoints.reach(f"{self.site}.acked")


class HandOver:
    """Hands messages over through one publishing channel, in the order of the calls.

    Attributes:
        channel: the channel that publishes; its confirms are on.
        in_flight: publishes that are not confirmed yet.
    """

    __slots__ = ("_waiting", "channel", "in_flight")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.in_flight = 0
        self._waiting: deque[tuple[_Move, Sequence[Publish]]] = deque()

    def __repr__(self) -> str:
        return f"<HandOver [{self.in_flight} in flight on {self.channel!r}]>"

    def submit(
        self,
        publishes: Sequence[Publish],
        *,
        acks: Acks = (),
        done: Done | None = None,
        failpoint: str,
    ) -> None:
        """Publish all; when the last is confirmed, ack, then call `done(None)`.

        Of more than `AT_ONCE` the rest is written in later turns of the event loop, before what is
        submitted meanwhile.

        With an error nothing is acked and `done` is told. With `AckLost` everything is published
        and at least one ack was not sent, because its channel was gone.

        Args:
            publishes: what to publish, mandatory; may be empty, then it acks at once.
            acks: what to ack afterwards, also of other channels and connections.
            done: called exactly once, perhaps before this returns.
            failpoint: the site, from `failpoint.HAND_OVERS`.
        """
        assert failpoint in failpoints.HAND_OVERS, f"{failpoint} is not in failpoint.HAND_OVERS"
        move = _Move(self, len(publishes), acks, done, failpoint)
        if not publishes:
            move.finish()
            return
        self.in_flight += len(publishes)
        if not self._waiting and len(publishes) <= AT_ONCE:
            self._publish(move, publishes)
            return
        self._waiting.append((move, publishes))
        if len(self._waiting) == 1:
            self._publish_waiting()

    def leads_to(self, queue: str) -> bool:
        """Whether a publish to this queue by its name waits to be written, or for its confirm."""
        waiting = any(each[:2] == ("", queue) for _, rest in self._waiting for each in rest)
        return waiting or self.channel.publisher.leads_to(queue)

    def _publish_waiting(self) -> None:
        """Publish what one turn of the loop may, in order; the rest in the next one."""
        move, publishes = self._waiting[0]
        rest = publishes[AT_ONCE:]
        refusal = self._publish(move, publishes[:AT_ONCE], is_all=not rest)
        if rest and refusal is None:
            self._waiting[0] = move, rest
        else:
            self._waiting.popleft()
            for _ in rest:
                move.settled(refusal)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._publish_waiting)

    def _publish(
        self, move: _Move, publishes: Sequence[Publish], *, is_all: bool = True
    ) -> BrokerError | None:
        """Publish; return why something of it was not."""
        publish = self.channel.publisher.publish
        settled = move.settled
        for index, (exchange, routing_key, properties, body) in enumerate(publishes):
            try:
                publish(exchange, routing_key, properties, body, settled=settled)
            except (BrokerError, ValueError) as error:
                refusal = error if isinstance(error, BrokerError) else BrokerError(text=str(error))
                for _ in publishes[index:]:
                    settled(refusal)
                return refusal
        if is_all and failpoints.IS_ARMED:
            self.channel.flush()
            failpoints.reach(f"{move.site}.published")
        return None

    async def move(self, publishes: Sequence[Publish], *, acks: Acks = (), failpoint: str) -> None:
        """Hand over and wait until it is done; raises what went wrong."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BrokerError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.submit(publishes, acks=acks, done=done, failpoint=failpoint)
        await future
