"""The forwarder of one RabbitMQ queue: it publishes the queue's messages to the target, in order.

    take -> sorted -> waiting -> published to the target -> confirmed -> acked
                         |
                         +-- cannot be forwarded: a dead letter of the source; a dead letter waits
                             or is kept

Waiting messages are published in order, then all their confirms are awaited. A message whose
publish fails is not returned: it is published again, with the same identity, before those behind.
Meanwhile the next messages are asked for. A request ends before its messages are passed on: of
several requests at a time RabbitMQ serves one and the other in turn.

When a process is killed, RabbitMQ returns what its forwarder held, before anything newer, but not
in order (docs/rabbitmq-faults.md: windows-order). So a forwarder begins by taking all that was
returned, and sorts it. It has all when a message comes that was never delivered before, or when
the queue has no more. The same happens when RabbitMQ has taken back what this forwarder held.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque

from bridge.background.tasks import Tasks
from bridge.background.waits import RepeatedWait
from bridge.broker.errors import AckLost, BrokerError
from bridge.broker.handover import Publish
from bridge.engine.forwarding.forwarded_copy import ForwardingSource, envelope_of
from bridge.engine.forwarding.targets import (
    CannotForward,
    FindTarget,
    ForwardingTargets,
    refused,
)
from bridge.engine.receiving.receivers import Receiving
from bridge.engine.sending.requests import Sending
from bridge.engine.services import Services
from bridge.engine.settlement.held_message import HeldMessage
from bridge.machine.queue.forwarding_order import ForwardingOrder
from bridge.machine.queue.second_copies import Left
from bridge.model import entity as model
from bridge.model.errors import QuotaExceeded, ServiceBusError
from bridge.model.forwarding import target_of
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.envelope import SILENT_PROPERTIES

ASKED = 120
HELD = 128
"""The most messages that are asked for at a time, and that are held when more are asked for.

Their sum is below the number that a target recognizes when they come again
(`machine.inbox.forwarded`).
"""

HELD_BYTES = 32 << 20
"""The most bytes of held messages: of large messages fewer are held."""

SORTED_MAX = 512
"""The most messages that are sorted when a forwarder begins: more than two forwarders in turn held,
as the second may have been killed before it had all that the first one held."""

LATE_S = 0.2
"""Time without a message after which RabbitMQ is asked whether it has more to return."""

PREDECESSOR_S = 3.0
"""How long a forwarder waits at most until its predecessor's consumers are gone: RabbitMQ has then
returned what they held."""

KEPT_MAX = 1_000
"""The most dead letters that are kept because they cannot be forwarded; those behind them are still
forwarded."""

RETRY_S = 0.5
CLOSE_S = 2.0

UNCONFIRMED = "RabbitMQ has not taken what it forwards"

log = logging.getLogger(__name__)


class Forwarder:
    """Forwards one entity's messages, or its dead letters.

    Args:
        find: returns the target's definition.

    Attributes:
        entity: the source's definition; the owner of this object may replace it at any time.
    """

    def __init__(
        self,
        path: EntityPath,
        entity: model.ReceiveEntity,
        *,
        services: Services,
        receiving: Receiving,
        sending: Sending,
        find: FindTarget,
    ) -> None:
        self.entity = entity
        self._path = path
        self._is_dead_letter = path.sub_queue is SubQueue.DEAD_LETTER
        self._sending = sending
        self._sender = services.sender
        self._departure = services.departure
        self._counters = services.counters
        self._targets = ForwardingTargets(find, sending.full)
        self._order: ForwardingOrder[HeldMessage] = ForwardingOrder(SORTED_MAX)
        self._kept: list[HeldMessage] = []
        self._in_flight = 0
        self._asked = 0
        self._average_bytes = 1024
        self._changed = asyncio.Event()
        self._connections = services.connections
        self._wait = RepeatedWait(services.supervisor.waits, str(path))
        self._has_newer = asyncio.Event()
        self._is_closing = False
        self._receiver = receiving.open_uncounted(path, entity, self._take)
        self._reader = self._receiver.reader
        self._moving: list[asyncio.Task[HeldMessage | None]] = []
        self._moves = Tasks()
        self._task = services.supervisor.keep(
            "forwarder", self._run, subject=str(path), may_end=lambda: self._is_closing
        ).task

    def __repr__(self) -> str:
        held = f"{len(self._waiting)} waiting, {self._in_flight} in flight, {len(self._kept)} kept"
        return f"Forwarder({self._path}, {held})"

    async def close(self) -> None:
        """Take back the credit, and forward the held messages; return the others to the queue."""
        self._is_closing = True
        with contextlib.suppress(TimeoutError, BrokerError):
            async with asyncio.timeout(CLOSE_S):
                await self._receiver.withdraw()
                self._changed.set()
                await self._task
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        closed = self._receiver.close()
        for holding in sorted([*self._waiting, *self._kept], key=lambda each: each.number):
            if self._reader.holds(holding):
                self._reader.put_down(holding)
        with contextlib.suppress(TimeoutError, BrokerError):
            async with asyncio.timeout(CLOSE_S):
                await closed

    def _take(self, holding: HeldMessage) -> None:
        self._asked = max(self._asked - 1, 0)
        self._average_bytes += (len(holding.record.body) - self._average_bytes) // 8
        self._order.came(holding, was_delivered=_was_delivered(holding))
        if self._order.has_newer:
            self._has_newer.set()
        self._changed.set()

    @property
    def _waiting(self) -> deque[HeldMessage]:
        return self._order.waiting

    def _ask(self) -> None:
        """Ask for messages while there is room, by one request at a time.

        RabbitMQ delivers to several windows in turn, and so not in order.
        """
        if self._is_closing or len(self._kept) >= KEPT_MAX or self._asked:
            return
        held = len(self._waiting) + self._in_flight
        most = HELD if self._order.has_all else SORTED_MAX
        if held <= min(most, HELD_BYTES // max(self._average_bytes, 1)):
            self._asked = ASKED
            self._receiver.add_credit(ASKED)

    async def _run(self) -> None:
        """Forward until closed; then until no message is held, or one cannot be forwarded now."""
        await self._await_predecessor()
        is_stuck = False
        try:
            while not self._is_closing or (self._waiting and not is_stuck):
                self._ask()
                if not self._waiting:
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                self._forget_lost()
                await self._take_all()
                self._ask()
                is_stuck = not await self._pass_on()
                if is_stuck:
                    await asyncio.sleep(RETRY_S)
        finally:
            self._wait.end()

    async def _await_predecessor(self) -> None:
        """Wait until no other process consumes the queue: RabbitMQ has returned what was held.

        When this process itself holds messages of the queue, the consumers are its own.
        """
        with contextlib.suppress(TimeoutError, BrokerError):
            async with asyncio.timeout(PREDECESSOR_S):
                queue = self._reader.resource
                with await self._connections.route(queue).channel() as channel:
                    declare = channel.declarations.declare_queue
                    state = await declare(queue, passive=True)
                    while state.consumers and not self._reader.held:
                        await asyncio.sleep(LATE_S)
                        state = await declare(queue, passive=True)

    def _forget_lost(self) -> None:
        """Forget messages that RabbitMQ has taken back: they come again, perhaps not in order."""
        if self._waiting and not self._reader.holds(self._waiting[0]):
            self._note_loss()
            self._order.keep(self._reader.holds)

    def _note_loss(self) -> None:
        self._order.lost()
        self._has_newer.clear()

    async def _take_all(self) -> None:
        """End the present request; after a loss, first take all that RabbitMQ has returned."""
        while not self._order.has_all:
            self._ask()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LATE_S):
                    await self._has_newer.wait()
            await self._end_request()
        await self._end_request()

    async def _end_request(self) -> None:
        """Take back the credit that is left; when this returns all messages have come."""
        if self._asked:
            await self._receiver.drain()
            self._asked = 0
        self._order.ended(_place)

    async def _pass_on(self) -> bool:
        """Forward the waiting messages; return whether all have gone. Others wait on, first.

        Health names what RabbitMQ hinders, not what a target's state does: that is its operator's.
        """
        self._wait.begin(UNCONFIRMED)
        await self._moved()  # what a run before this has left under way
        is_over = is_hindered = False
        while self._waiting and not is_over and len(self._moving) < ASKED + HELD:
            holding = self._waiting[0]
            try:
                if self._reader.holds(holding):
                    publish = await self._publish_of(holding)
                    self._in_flight += 1
                    self._moving.append(self._moves.start(self._move(holding, publish), "forward"))
                self._waiting.popleft()
            except CannotForward as reason:
                is_over = self._is_dead_letter and not reason.is_for_good
                if not is_over:
                    self._strand(self._waiting.popleft(), reason)
            except (BrokerError, ServiceBusError) as error:
                log.info("forward.waits entity=%s error=%s", self._path, error)
                is_over = True
                is_hindered = isinstance(error, BrokerError)
                if is_hindered:
                    self._wait.begin(f"{self._target!r} takes nothing now: {error}")
        are_gone = await self._moved()
        if are_gone and not is_hindered:
            self._wait.end()
        return are_gone and not is_over

    async def _moved(self) -> bool:
        """Wait for the hand-overs; put back what they have not moved, first. Were there none?"""
        if self._moving:
            await asyncio.wait(self._moving)  # hand-overs go on when this is cancelled
        failed = [each for task in self._moving if (each := task.result()) is not None]
        self._moving = []
        self._waiting.extendleft(reversed(failed))
        if failed:
            self._targets.doubt(self._target)
        return not failed

    @property
    def _target(self) -> str:
        return target_of(self.entity, self._path.sub_queue)

    async def _publish_of(self, holding: HeldMessage) -> Publish:
        try:
            target = await self._targets.open(self._target)
        except QuotaExceeded as error:
            raise refused(error) from error
        source = ForwardingSource(self.entity, self._is_dead_letter)
        body = envelope_of(holding, source, target, self._sending.tier)
        return Publish(names.front(target.path), "", SILENT_PROPERTIES, body)

    async def _move(self, holding: HeldMessage, publish: Publish) -> HeldMessage | None:
        """Hand a message over; return it if that has failed and it is still held."""
        self._reader.departing(holding)
        acks = ((holding.channel, holding.tag),)
        try:
            await self._sender.move((publish,), acks=acks, failpoint="engine.forward")
        except (BrokerError, ServiceBusError) as error:
            if not self._reader.holds(holding) or isinstance(error, AckLost):
                self._note_loss()
                return None
            log.info("forward.failed entity=%s error=%s", self._path, error)
            self._reader.stayed(holding)
            return holding
        except Exception:
            log.exception("forward.failed entity=%s", self._path)
            self._reader.stayed(holding)
            return holding
        else:
            self._counters.forwarded += 1
            self._reader.left(holding, Left.SETTLED)
            return None
        finally:
            self._in_flight -= 1

    def _strand(self, holding: HeldMessage, reason: CannotForward) -> None:
        """Make a message a dead letter; one that is a dead letter already is kept, unacked."""
        log.warning("forward.refused entity=%s reason=%s", self._path, reason)
        if self._is_dead_letter:
            self._kept = [each for each in self._kept if self._reader.holds(each)]
            self._kept.append(holding)
        else:
            self._counters.unforwardable += 1
            self._reader.departing(holding)
            self._departure.strand(self._reader, holding, reason.reason, reason.description)


def _was_delivered(holding: HeldMessage) -> bool:
    """Whether RabbitMQ has delivered a message before: a dead letter perhaps in another queue."""
    table = holding.record.properties.headers or {}
    return any(name in table for name in headers.DELIVERY_COUNTS)


def _place(holding: HeldMessage) -> tuple[int, int]:
    """Return the place in the queue: times never fall, numbers rise within a partition."""
    return (holding.enqueued_ms, holding.number)
