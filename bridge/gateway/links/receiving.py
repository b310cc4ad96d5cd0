"""A link on which a client receives messages of an entity.

The link asks the engine for no more messages than the client's credit, and for no more at a time
than the client reads: with too many bytes unread, or with the AMQP session's window shut, it asks
for nothing more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from uuid import UUID

from bridge.engine.api import Disposition, NotTaken, Received, Receiver, Undeliverable
from bridge.engine.texts import RECEIVER_OF_FORWARDED
from bridge.gateway.client.client import Client
from bridge.gateway.client.links import EntityLink
from bridge.gateway.links.messages import message_of
from bridge.gateway.links.outcomes import disposition_of
from bridge.gateway.links.transacted_settlements import begin_settlements
from bridge.machine.amqp10.events import CreditChanged, OutcomeArrived
from bridge.machine.amqp10.faults import make_error
from bridge.machine.amqp10.link import OutgoingDelivery, OutgoingLink
from bridge.model.availability import refusal_of_receives
from bridge.model.entity import Right
from bridge.model.errors import NotAllowed, ServiceBusError
from bridge.model.forwarding import target_of
from bridge.model.name import EntityPath
from bridge.wire.amqp10.performatives import Rejected, TransactionalState

_NUMBER_MASK = 0xFFFF_FFFF_FFFF_FFFF

_MESSAGE_BYTES_GUESS = 16_384
"""Assumed size of a message before the first message of a link."""


def refusal_of(client: Client, path: EntityPath) -> ServiceBusError | None:
    """Return the error for receiving from an entity; `None` when receiving is allowed."""
    try:
        entity = client.namespace.receive_entity(path)
    except ServiceBusError as error:
        return error
    if (refused := refusal_of_receives(entity)) is not None:
        return refused
    return NotAllowed(RECEIVER_OF_FORWARDED) if target_of(entity, path.sub_queue) else None


async def _done(closing: Awaitable[None]) -> None:
    await closing


class ReceivingLink(EntityLink):
    """A client's receiver; `begin` answers the client's attach.

    Args:
        in_session: the messages are those of a session.

    Attributes:
        path: the entity or sub-queue to receive from.
        right: the right that the client's token must give for as long as the link lives.
    """

    link: OutgoingLink
    right = Right.LISTEN

    def __init__(
        self,
        client: Client,
        link: OutgoingLink,
        path: EntityPath,
        *,
        in_session: bool = False,
    ) -> None:
        self.link = link
        self.path = path
        self.client = client
        self._asked = 0
        self._message_bytes = _MESSAGE_BYTES_GUESS
        self._is_withdrawing = False
        self._is_asked_anew = False
        self._receiver: Receiver | None = None
        self._form = client.form
        self._in_session = in_session

    def begin(self, receiver: Receiver, **answer: Any) -> None:
        """Answer the attach, and ask for messages within the credit that the client has granted.

        Args:
            receiver: the engine's receiver, made with `deliver`; it is closed with the link.
            answer: the fields in which the gateway's attach differs from the client's; see
                `OutgoingLink.accept`.
        """
        self._receiver = receiver
        self.link.accept(**answer)
        self.pull()  # a client may have granted credit with its attach, and begun a drain already

    def pull(self) -> None:
        """Ask the engine for messages, within the client's credit and output limits.

        If the client drains, credit that brings no message is given back.
        """
        link, receiver = self.link, self._receiver
        if self._is_withdrawing or not link.is_open or receiver is None:
            return
        if self.client.is_leaving:
            link.drained()
            self.client.flush_soon()
            return
        if link.credit > self._asked:
            if self._is_choked:
                self.client.starved[self] = None
                return
            count = self._portion
            if count > 0:
                self._asked += count
                receiver.add_credit(count)
        if link.is_draining and not self._is_withdrawing:
            self._begin(self._drain(receiver))

    @property
    def _is_choked(self) -> bool:
        high = self.client.settings.output_bytes_high
        return self.client.is_choked or self.link.session.blocked_bytes > high

    @property
    def _portion(self) -> int:
        """How many messages to ask for now."""
        settings = self.client.settings
        fetch_max = min(max(settings.fetch_bytes // self._message_bytes, 1), settings.fetch_max)
        if self.link.credit <= fetch_max:
            return self.link.credit - self._asked
        # In portions: not for one more message with every message sent.
        return fetch_max - self._asked if 2 * self._asked <= fetch_max else 0

    def deliver(self, received: Received) -> None:
        """Send a message from the engine to the client.

        Raises:
            Undeliverable: no client can have the message.
            NotTaken: this client does not get the message, as its link has ended.
        """
        try:
            self._send(received)
        except (Undeliverable, NotTaken):
            raise
        except Exception as error:
            # The engine's other receivers have no part in it.
            self.client.links.fail(self.link, error)
            raise NotTaken from error

    def _send(self, received: Received) -> None:
        self._asked = max(self._asked - 1, 0)
        link = self.link
        if not link.is_open:
            raise NotTaken
        try:
            payload = message_of(received, self._form, in_session=self._in_session)
        except Exception as error:
            raise Undeliverable(f"{type(error).__name__}: {error}") from error
        self._message_bytes = (7 * self._message_bytes + len(payload)) // 8 or 1
        if received.lock_token is not None:
            link.send(received.lock_token.bytes_le, payload, is_settled=False)
        else:
            # Nothing is locked, and the Go SDK complains of a tag of another size.
            tag = (received.sequence_number & _NUMBER_MASK).to_bytes(16, "big")
            link.send(tag, payload, is_settled=True)
            if not link.is_blocked:
                self.on_written()
        if self._asked < link.credit:
            self.pull()
        self.client.flush_soon()

    def on_written(self) -> None:
        """Tell the engine that a received-and-deleted message is in the client's output."""
        if self._receiver is not None:
            self._receiver.taken()

    def on_credit(self, event: CreditChanged) -> None:
        """Handle a change of the client's credit."""
        if self._is_withdrawing or self._receiver is None:
            self._is_asked_anew = True
            return
        if event.credit < self._asked:
            self._begin(self._withdraw(self._receiver))
        else:
            self.pull()

    def leave(self) -> None:
        """Take all credit back from the engine: the client is leaving."""
        if self._receiver is not None and not self._is_withdrawing:
            self._begin(self._withdraw(self._receiver))

    def has_locked(self, is_locked: Callable[[UUID], bool]) -> bool:
        """Whether the client has a message whose lock has not ended."""
        tags = [each.tag for each in self.link.unsettled.values()]
        return any(is_locked(UUID(bytes_le=tag)) for tag in tags)

    def _begin(self, withdrawal: Coroutine[Any, Any, None]) -> None:
        self._is_withdrawing = True
        self.client.links.spawn(self.link, withdrawal)

    async def _withdraw(self, receiver: Receiver) -> None:
        """Take all credit back from the engine, and begin anew: the client has lowered it."""
        try:
            await receiver.withdraw()
        finally:
            self._is_withdrawing = False
            self._asked = 0
        self.pull()

    async def _drain(self, receiver: Receiver) -> None:
        """Wait for available messages; if they used up what was asked for, ask for more.

        Otherwise there are no more, and the client is told so (part 2, section 2.6.7). One that has
        asked again meanwhile may know of messages that have come since.
        """
        self._is_asked_anew = False
        try:
            await receiver.drain()
        finally:
            self._is_withdrawing = False
            unused, self._asked = self._asked, 0
        if not self._is_asked_anew and (unused or not self.link.credit):
            self.link.drained()
        self.pull()
        self.client.flush_soon()

    def on_outcome(self, event: OutcomeArrived) -> None:
        """Settle the client's deliveries in order; answer each when its message is settled."""
        if isinstance(event.outcome, TransactionalState):
            begin_settlements(self, event, event.outcome)
            return
        try:
            disposition, done = disposition_of(event.outcome)
        except ServiceBusError as error:
            self._confirm(event, self.rejected(error))
            return
        for delivery in event.deliveries:
            self._settle(event, delivery, disposition, done)

    def _settle(
        self, event: OutcomeArrived, delivery: OutgoingDelivery, disposition: Disposition, done: Any
    ) -> None:
        def on_settled(error: ServiceBusError | None) -> None:
            self.client.work.count(-1)
            try:
                outcome = done if error is None else self.rejected(error)
                if not event.is_settled:
                    self.link.session.settle_outgoing(delivery, outcome)
                    self.client.flush_soon()
            except Exception as fault:
                # RabbitMQ's channel, on whose word this is called, has others' messages too.
                self.client.links.fail(self.link, fault)

        token = UUID(bytes_le=delivery.tag)
        self.client.work.count(1)
        self.client.namespace.begin_settling(self.path, token, disposition, on_settled)

    def rejected(self, error: ServiceBusError) -> Rejected:
        """Return the outcome that tells an error; it is logged."""
        self.client.log.info("settle.refused", entity=str(self.path), reason=str(error))
        return Rejected(make_error(*self.client.describe(error, str(self.path))))

    def _confirm(self, event: OutcomeArrived, outcome: Any) -> None:
        if not event.is_settled:
            for delivery in event.deliveries:
                self.link.session.settle_outgoing(delivery, outcome)
            self.client.flush_soon()

    def refusal(self) -> ServiceBusError | None:
        """Return the error for receiving any longer; `None` while receiving is allowed."""
        return refusal_of(self.client, self.path)

    def on_detached(self) -> None:
        """Close the receiver of an ended link; its locks stay until settled by token or expired."""
        self.client.starved.pop(self, None)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self.client.links.spawn(self.link, _done(receiver.close()))
