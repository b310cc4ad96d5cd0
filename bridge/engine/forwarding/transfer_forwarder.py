"""The forwarder of an entity's transfer queue, whose messages name their targets.

    transfer queue -> waiting -> published to the target -> confirmed -> acked
                         |
                         +-- the target refuses it: a dead letter in `$Transfer/$DeadLetterQueue`

One consumer at a time gets the queue's messages. RabbitMQ returns what that held in order, and
before anything newer. What comes again has the identity that it had before: its target drops it.

Where a message goes is decided once, as far as this process knows: what may be stored already is
published again to the same place, whatever its target is like by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.background.tasks import Tasks
from bridge.background.waits import RepeatedWait
from bridge.broker.connection.address import is_there
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import AckLost, BrokerError, NotStored
from bridge.broker.handover import Publish
from bridge.broker.queue_on_use import make_on_use
from bridge.engine.clock import now_ms
from bridge.engine.forwarding.targets import (
    CannotForward,
    FindTarget,
    ForwardingTargets,
    check_message,
)
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sending.requests import Sending
from bridge.engine.services import Services
from bridge.machine.inbox.arrival import MALFORMED_MESSAGE
from bridge.machine.queue.transfer_order import TransferOrder
from bridge.message.transfers import TransferredItem, dead_transfers, transferred_items
from bridge.model.errors import ServiceBusError
from bridge.topology import names, parts
from bridge.wire import headers
from bridge.wire.basic import Properties, bytes_in
from bridge.wire.envelope import SILENT_PROPERTIES

HELD = 128
"""The most messages that are held at a time: fewer than a target recognizes when they come again
(`machine.inbox.forwarded`)."""

RETRY_S = 0.5
CLOSE_S = 2.0

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class HeldTransfer:
    """A message of the transfer queue, held unacked.

    Attributes:
        target: the path of the entity that it goes to; "" if it names none.
        tried: what was published of it, and may be stored; with the site of that hand-over.
        fault: why it cannot be read; "" if it can.
    """

    delivery: Delivery
    target: str
    tried: tuple[Sequence[Publish], str] | None = None
    fault: str = ""

    @property
    def key(self) -> str:
        """The target's identity."""
        return self.target.lower()


async def make_dead_letter_queue(connections: ConsumerConnections, path: str) -> None:
    """Make the queue of an entity's transfer dead letters, unless it exists.

    Raises:
        BrokerError: RabbitMQ does not make it, or the entity is deleted.
    """
    queue = parts.transfer_dead_letter_queue(path)
    if not await is_there(connections, queue.name):
        async with connections.apart(queue.name) as lease:
            await make_on_use(lease, queue, names.active_exchange(path))


class TransferForwarder:
    """Forwards the messages that one entity's transactions send to others.

    Args:
        path: the entity's path.
        find: returns a target's definition.
    """

    def __init__(
        self, path: str, *, services: Services, sending: Sending, find: FindTarget
    ) -> None:
        self._path = path
        self._queue = names.transfer_queue(path)
        self._connections = services.connections
        self._sender = services.sender
        self._counters = services.counters
        self._wait = RepeatedWait(services.supervisor.waits, path)
        self._sending = sending
        self._targets = ForwardingTargets(find, sending.full)
        self._order: TransferOrder[HeldTransfer] = TransferOrder()
        self._changed = asyncio.Event()
        self._moves = Tasks()
        self._has_dead_letters = False
        self._is_closing = False
        self._task = services.supervisor.keep(
            "transfers", self._run, subject=path, may_end=lambda: self._is_closing
        ).task

    def __repr__(self) -> str:
        return f"TransferForwarder({self._path!r}, {len(self._order)} waiting)"

    async def close(self) -> None:
        """Await what is on its way; RabbitMQ takes back all else."""
        self._is_closing = True
        self._changed.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.wait((self._task,))
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        channel = await self._connections.route(self._queue).channel()
        self._order = TransferOrder()
        try:
            channel.on_closed = lambda error: self._changed.set()
            await channel.consumers.qos(HELD)
            await channel.consumers.consume(
                self._queue, self._take, on_cancel=lambda tag: channel.abandon()
            )
            while not self._is_closing:
                self._changed.clear()
                if channel.close_reason is not None:
                    raise channel.close_reason.again()
                has_gone = await self._pass_on(channel)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if has_gone else RETRY_S):
                        await self._changed.wait()
        finally:
            self._wait.end()
            channel.on_closed = None
            await channel.close()

    def _take(self, delivery: Delivery) -> None:
        try:
            table = Properties.decode(delivery.properties).headers or {}
        except ValueError as error:
            transfer = HeldTransfer(delivery, "", fault=f"The properties cannot be read: {error}")
        else:
            target = (bytes_in(table, headers.TRANSFER_TO) or b"").decode(errors="replace")
            transfer = HeldTransfer(delivery, target)
        self._order.came(transfer.key, transfer)
        self._changed.set()

    async def _pass_on(self, channel: Channel) -> bool:
        """Offer all that waits once; return whether nothing of it is left."""
        moves: list[asyncio.Task[None]] = []
        reason = ""
        while (found := self._order.next()) is not None:
            place, transfer = found
            if channel.is_closed:
                continue  # it comes again
            try:
                publishes, point = await self._publishes_of(transfer)
            except (BrokerError, ServiceBusError) as error:
                self._order.stop(place, transfer.key, transfer)
                reason = reason or f"{transfer.target!r} takes nothing now: {error}"
                log.info("transfer.waits entity=%s error=%s", self._path, error)
            else:
                moves.append(self._moves.start(self._move(place, transfer, publishes, point)))
        if moves:
            await asyncio.wait(moves)  # hand-overs go on when this is cancelled
        if self._order.end_pass():
            self._wait.end()
            return True
        self._wait.begin(reason or "RabbitMQ has not taken what transactions send to others")
        return False

    async def _publishes_of(self, transfer: HeldTransfer) -> tuple[Sequence[Publish], str]:
        """Return a message's publishes, and the site of its hand-over.

        Raises:
            BrokerError, ServiceBusError: it must wait.
        """
        if transfer.tried is not None:
            return transfer.tried
        body = transfer.delivery.body
        try:
            items = _items_in(transfer)
            target = await self._targets.open(transfer.target)
            for size_bytes, session_id in items:
                check_message(target, self._sending.tier, size_bytes, session_id)
            to = Publish(names.front(target.path), "", SILENT_PROPERTIES, body)
            return (to,), "engine.transfer"
        except CannotForward as cause:
            log.warning("transfer.refused entity=%s reason=%s", self._path, cause)
            reason, description = cause.reason, cause.description
        await self._make_dead_letter_queue()
        dead = dead_transfers(self._path, body, reason, description, now_ms())
        return dead, "engine.transfer_refused"

    async def _make_dead_letter_queue(self) -> None:
        if self._has_dead_letters:
            return
        await make_dead_letter_queue(self._connections, self._path)
        self._has_dead_letters = True

    async def _move(
        self, place: int, transfer: HeldTransfer, publishes: Sequence[Publish], point: str
    ) -> None:
        """Hand a message over; what has failed is offered again, unless RabbitMQ has it back."""
        delivery = transfer.delivery
        acks = ((delivery.channel, delivery.tag),)
        is_refused = point == "engine.transfer_refused"
        try:
            if is_refused:
                await self._sender.move(publishes, acks=acks, failpoint="engine.transfer_refused")
            else:
                await self._sender.move(publishes, acks=acks, failpoint="engine.transfer")
        except (BrokerError, ServiceBusError) as error:
            log.info("transfer.failed entity=%s error=%s", self._path, error)
            if isinstance(error, AckLost) or delivery.channel.is_closed:
                return  # it comes again
            if is_refused:
                self._has_dead_letters = False
            is_stored_nowhere = isinstance(error, NotStored | ServiceBusError)
            is_stored_nowhere = is_stored_nowhere and not getattr(error, "is_partial", False)
            transfer.tried = None if is_stored_nowhere else (publishes, point)
            self._targets.doubt(transfer.target)
            self._order.failed(place, transfer.key, transfer)
        else:
            self._counters.forwarded += not is_refused
            self._counters.unforwardable += is_refused


def _items_in(transfer: HeldTransfer) -> list[TransferredItem]:
    """Return what must be known of a transfer's messages; raises `CannotForward`."""
    try:
        if transfer.fault:
            raise ValueError(transfer.fault)
        return transferred_items(transfer.delivery.body)
    except Exception as error:
        # Otherwise it would come again and again, and stop all behind it.
        text = f"The transfer cannot be read: {type(error).__name__}: {error}"
        raise CannotForward(MALFORMED_MESSAGE, text, is_for_good=True) from error
