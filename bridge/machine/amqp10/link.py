"""Links: credit and deliveries in one direction (part 2, section 2.6).

The peer attaches a link; then the owner of the endpoint accepts or refuses it. `IncomingLink`
receives (the peer sends), `OutgoingLink` sends. Neither reads messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.machine.amqp10 import serial, termini
from bridge.machine.amqp10.events import CreditChanged, MessageArrived, MessageRefused
from bridge.machine.amqp10.faults import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    ConnectionFault,
    LinkFault,
    SessionFault,
    make_error,
)
from bridge.wire.amqp10.performatives import Attach, Flow, Rejected, Target, Transfer

if TYPE_CHECKING:
    from bridge.machine.amqp10.session import AmqpSession

_Said = Mapping[Any, Any] | None


class Link:
    """The common part of both directions.

    Attributes:
        peer: the attach that the peer sent.
        is_answered: the link was accepted or refused.
        is_open: accepted, and detached by neither side.
        unwritten: the part of the delivery count that the peer has not: it waits for its window.
        owner: whatever the owner of the endpoint keeps with the link.
    """

    def __init__(self, session: AmqpSession, peer: Attach) -> None:
        self.session = session
        self.peer = peer
        self.name = peer.name
        self.handle = peer.handle
        self.delivery_count = 0
        self.credit = 0
        self.unwritten = 0
        self.is_answered = False
        self.is_open = False
        self.owner: Any = None

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed" if self.is_answered else "asked"
        return f"<{type(self).__name__} {self.name!r} {state} credit={self.credit}>"

    @property
    def is_alive(self) -> bool:
        """Whether the link is open, or still waits to be accepted or refused."""
        return self.is_open or not self.is_answered

    def _answer(
        self,
        *,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        source: Any = None,
        target: Any = None,
        max_message_size: int = 0,
        properties: _Said = None,
    ) -> None:
        """Write our attach. It says what is in force, whatever the peer has asked for."""
        self.is_answered = True
        self.session.write(
            Attach(
                name=self.name,
                handle=self.handle,
                role=not self.peer.role,
                snd_settle_mode=snd_settle_mode,
                rcv_settle_mode=rcv_settle_mode,
                source=source,
                target=target,
                initial_delivery_count=0 if self.peer.role else None,
                max_message_size=max_message_size,
                properties=None if properties is None else dict(properties),
            )
        )

    def refuse(self, condition: str, description: str) -> None:
        """Refuse a link: write an attach without source and target, then a detach.

        So does Azure; with one of them alone the Go client reports a lost connection.
        """
        if self.session.is_ended or self.is_answered:
            return
        self._answer_without_termini()
        self.session.detach(self, make_error(condition, description))

    def give_up(self) -> None:
        """Answer a link that the peer detached first: an attach without source and target."""
        if not self.is_answered:
            self._answer_without_termini()

    def _answer_without_termini(self) -> None:
        peer = self.peer
        self._answer(snd_settle_mode=peer.snd_settle_mode, rcv_settle_mode=peer.rcv_settle_mode)

    def detach(self, condition: str, description: str) -> None:
        """End the link with an error; no more events come from it."""
        if self.session.is_ended:
            return
        if not self.is_answered:
            self.refuse(condition, description)
        elif self.is_open:
            self.session.detach(self, make_error(condition, description))

    def forget(self) -> None:
        """Drop the content of a link that has ended."""
        self.is_open = False

    def on_flow(self, flow: Flow) -> None:
        """Take a flow of the peer; only a flow with `echo` needs an answer."""
        if flow.echo and self.is_open:
            self.session.write_flow(self)

    def flow_fields(self) -> dict[str, Any]:
        """Return the link's part of a flow."""
        return {
            "handle": self.handle,
            "delivery_count": serial.add(self.delivery_count, -self.unwritten),
            "link_credit": self.credit + self.unwritten,
        }


class IncomingLink(Link):
    """A link on which the peer sends.

    Attributes:
        credit: how many more messages the peer may begin.
        message_bytes_max: a larger message is skipped and rejected.
        target: the target that we answer; `None` for the one that the peer has named.
    """

    def __init__(self, session: AmqpSession, peer: Attach) -> None:
        super().__init__(session, peer)
        self.target: Target | None = None
        self.message_bytes_max = 0
        self._credit_max = 0
        self._limit = 0
        self._parts = bytearray()
        self._parts_bytes = 0
        self._first: Transfer | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes kept of a message that has not come whole."""
        return len(self._parts)

    def accept(self, *, credit: int, message_bytes_max: int, properties: _Said = None) -> None:
        """Accept the link, with a credit of `credit` messages, and properties of our attach."""
        if self.session.is_ended or self.is_answered:
            return
        self.is_open = True
        self.message_bytes_max = message_bytes_max
        self._credit_max = credit
        self.delivery_count = self.peer.initial_delivery_count or 0
        self._answer(
            snd_settle_mode=self.peer.snd_settle_mode,  # each message says whether it is settled
            rcv_settle_mode=termini.FIRST,
            source=termini.their_source(self.peer.source),
            target=self.target or termini.target(self.peer.target),
            max_message_size=message_bytes_max,
            properties=properties,
        )
        self.grant(credit)

    def grant(self, credit: int) -> None:
        """Take `credit` messages from now on, in place of the earlier credit."""
        if self.is_open:
            self.credit = credit
            self.session.write_flow(self)

    def renew(self, under_way: int) -> None:
        """Grant credit again when much of it is used; messages under way count as used."""
        free, most = self._credit_max - under_way, self._credit_max
        if self.credit <= most // 2 and self.credit + most // 4 <= free:
            self.grant(free)

    def settle(self, delivery_id: int, outcome: Any) -> None:
        """Write the outcome of a message that came."""
        self.session.settle_incoming(delivery_id, outcome)

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take a message, or a part of one.

        Raises:
            LinkFault: more messages than credit, or a settled message that is too large.
            SessionFault: parts of different deliveries are mixed.
            ConnectionFault: the connection holds too many unfinished bytes.
        """
        if not self.is_open:
            return
        first = self._first
        if first is None:
            first = transfer
            if transfer.delivery_id is None:
                raise SessionFault(INVALID_FIELD, "The first transfer of a delivery has no id.")
            if self.credit <= 0:
                raise LinkFault(
                    TRANSFER_LIMIT_EXCEEDED, f"The link {self.name!r} has no credit left."
                )
            self.credit -= 1
            self.delivery_count = serial.add(self.delivery_count, 1)
            self._limit = self._bytes_max()
        elif transfer.delivery_id not in (None, first.delivery_id):
            raise SessionFault(INVALID_FIELD, "A delivery begins before the one before it ended.")
        if transfer.aborted:
            self._drop_parts()
            return
        size = self._parts_bytes + len(payload)
        limit = self._limit
        is_too_large = 0 < limit < size
        if is_too_large:
            self._drop_payload()
        if first is not transfer:
            first = first.joined(transfer)
        is_settled = bool(first.settled)
        if transfer.more:
            if self._first is None:
                self.session.endpoint.unfinished[self] = self.session.endpoint.now_ms
            self._first = first
            self._parts_bytes = size
            if not is_too_large:
                self._hold(payload)
            return
        if self._parts:
            payload = b"".join((self._parts, payload))
        self._drop_parts()
        assert first.delivery_id is not None
        if is_too_large:
            self._refuse_too_large(first, size, is_settled=is_settled)
            return
        number, form, state = first.delivery_id, first.message_format or 0, first.state
        self.session.events.append(MessageArrived(self, number, form, payload, is_settled, state))

    def _bytes_max(self) -> int:
        """Return the size limit of a message that begins now; 0: any size."""
        of_link, general = self.message_bytes_max, self.session.endpoint.message_bytes_max
        return min(of_link, general) if of_link and general else of_link or general

    def _hold(self, payload: bytes) -> None:
        endpoint = self.session.endpoint
        self._parts += payload
        endpoint.held_bytes += len(payload)
        if endpoint.held_bytes > endpoint.limits.held_bytes_max:
            raise ConnectionFault(
                RESOURCE_LIMIT_EXCEEDED,
                f"{endpoint.held_bytes} bytes of unfinished messages are on the connection; "
                f"{endpoint.limits.held_bytes_max} is the most.",
            )

    def _refuse_too_large(self, first: Transfer, size: int, *, is_settled: bool) -> None:
        """Reject a skipped message that was too large; a settled message ends the link."""
        fault = LinkFault(
            MESSAGE_SIZE_EXCEEDED,
            f"The received message (delivery-id:{first.delivery_id}, size:{size} bytes) "
            f"exceeds the limit ({self._limit} bytes) currently allowed on the link.",
        )
        self.session.note_missed(first.state, str(fault))
        if is_settled:
            raise fault
        assert first.delivery_id is not None
        self.settle(first.delivery_id, Rejected(fault.error))
        self.session.events.append(MessageRefused(self))

    def _drop_payload(self) -> None:
        if self._parts:
            self.session.endpoint.held_bytes -= len(self._parts)
            self._parts = bytearray()

    def _drop_parts(self) -> None:
        if self._first is not None:
            self.session.endpoint.unfinished.pop(self, None)
        self._first = None
        self._parts_bytes = 0
        self._drop_payload()

    def forget(self) -> None:
        """Drop the content of the link: a message that has not come whole is missed."""
        super().forget()
        if self._first is not None:
            self.session.note_missed(self._first.state, f"The link {self.name!r} has ended.")
        self._drop_parts()


@dataclass(slots=True, eq=False)
class OutgoingDelivery:
    """A message that we sent and the peer has not settled."""

    link: OutgoingLink
    id: int
    tag: bytes


class OutgoingLink(Link):
    """A link on which we send.

    Attributes:
        credit: how many more messages the peer takes.
        is_draining: the peer wants unused credit back.
    """

    def __init__(self, session: AmqpSession, peer: Attach) -> None:
        super().__init__(session, peer)
        self.is_draining = False
        self.unsettled: dict[int, OutgoingDelivery] = {}

    @property
    def wants_settled(self) -> bool:
        """Whether the peer wants its messages settled when they are sent."""
        return self.peer.snd_settle_mode == termini.SETTLED

    def accept(
        self,
        *,
        is_settled: bool | None = None,
        filters: Mapping[Any, Any] | None = None,
        properties: _Said = None,
    ) -> None:
        """Accept the link.

        Args:
            is_settled: whether messages are sent settled; by default as the peer wants.
            filters: the filters in force, by name.
            properties: the properties of our attach.
        """
        if self.session.is_ended or self.is_answered:
            return
        self.is_open = True
        peer = self.peer
        settled = self.wants_settled if is_settled is None else is_settled
        self._answer(
            snd_settle_mode=termini.SETTLED if settled else termini.UNSETTLED,
            rcv_settle_mode=peer.rcv_settle_mode,
            source=termini.our_source(peer.source, filters),
            target=termini.target(peer.target),
            properties=properties,
        )

    def send(
        self, tag: bytes, payload: bytes, message_format: int = 0, *, is_settled: bool
    ) -> OutgoingDelivery | None:
        """Send a message; return the delivery if the peer is to settle it. See `AmqpSession.send`.

        A message that was on its way when the peer took its credit back may be sent all the same.
        """
        if not self.is_open:
            return None
        delivery = self.session.send(self, tag, payload, is_settled, message_format)
        self.credit = max(self.credit - 1, 0)
        self.delivery_count = serial.add(self.delivery_count, 1)
        return delivery

    @property
    def is_blocked(self) -> bool:
        """Whether the message that was sent last waits for the peer's window, or a part of it.

        If it was settled, `MessageWritten` tells when it is in the output.
        """
        return self.session.last_blocked is self

    def drained(self) -> None:
        """Give back the remaining credit, if the peer asked for it; also when none remains.

        .NET drains a session's link after each receive that brought less than it asked for, and
        waits a minute for the answer, whatever its credit.
        """
        if self.is_draining and self.is_open:
            self.is_draining = False
            self.session.give_back(self)

    def on_flow(self, flow: Flow) -> None:
        """Take a flow of the peer, which grants or takes back credit."""
        if flow.link_credit is not None:
            unseen = serial.distance(flow.delivery_count or 0, self.delivery_count)
            self.credit = max(flow.link_credit - unseen, 0)
            self.is_draining = flow.drain
            if self.is_open:
                self.session.events.append(CreditChanged(self, self.credit, flow.drain))
        super().on_flow(flow)

    def forget(self) -> None:
        """Drop the content of the link."""
        super().forget()
        self.session.forget_deliveries(self)
