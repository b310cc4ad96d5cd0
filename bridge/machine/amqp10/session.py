"""Sessions: numbered transfers under two windows, and the links among them (part 2, section 2.5).

A session is begun by the peer. Its channel number and handles are the peer's in both directions;
`client_session` has those that we begin.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from bridge.machine.amqp10 import serial
from bridge.machine.amqp10.events import (
    LinkAttached,
    LinkDetached,
    MessageWritten,
    OperationMissed,
    OutcomeArrived,
)
from bridge.machine.amqp10.faults import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    ConnectionFault,
    LinkFault,
    SessionFault,
)
from bridge.machine.amqp10.limits import DELIVERY_ID_FIRST
from bridge.machine.amqp10.link import (
    IncomingLink,
    Link,
    OutgoingDelivery,
    OutgoingLink,
)
from bridge.wire.amqp10.frame import (
    encode_disposition,
    encode_frame,
    encode_transfer,
    transfer_overhead,
)
from bridge.wire.amqp10.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Received,
    TransactionalState,
    Transfer,
)

if TYPE_CHECKING:
    from bridge.machine.amqp10.endpoint import AmqpEndpoint


_SENT_SPARE = 1_024
"""Ids of settled deliveries that are kept before they are removed."""


class _Blocked:
    """A delivery of which some bytes wait for the peer's window."""

    __slots__ = (
        "at",
        "delivery_id",
        "is_late",
        "is_settled",
        "link",
        "message_format",
        "payload",
        "tag",
    )

    def __init__(
        self,
        link: OutgoingLink,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        is_settled: bool,
        message_format: int,
    ) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.payload = payload
        self.is_settled = is_settled
        self.message_format = message_format
        self.is_late = False
        self.at = 0


class _GivenBack:
    """Credit that is given back behind a link's messages that wait for the peer's window."""

    __slots__ = ("count", "fields", "link")

    def __init__(self, link: OutgoingLink, count: int, fields: dict[str, Any]) -> None:
        self.link = link
        self.count = count
        self.fields = fields


class AmqpSession:
    """One session of a connection.

    Args:
        first_id: the id of our first transfer and delivery.

    Attributes:
        channel: the channel on which we write.
        events: the endpoint's events.
        is_ended: we have written the end; further input is skipped.
        blocked_bytes: payload that waits for the peer's window.
    """

    def __init__(
        self, endpoint: AmqpEndpoint, channel: int, first_id: int = DELIVERY_ID_FIRST
    ) -> None:
        self.endpoint = endpoint
        self.channel = channel
        self.events = endpoint.events
        self.links: dict[int, Link] = {}
        self.is_ended = False
        self.blocked_bytes = 0
        self._next_incoming_id = 0
        self._incoming_window = endpoint.limits.incoming_window
        self._first_id = first_id
        self._next_outgoing_id = first_id
        self._next_delivery_id = first_id
        self._remote_window = 0
        self._remote_handle_max = 0
        self._unsettled: dict[int, OutgoingDelivery] = {}  # only deliveries without an outcome
        self._sent: list[int] = []  # ids in the order of sending: all of `_unsettled`, and others
        self._blocked: deque[_Blocked | _GivenBack] = deque()
        self._pending: Disposition | None = None
        self._handlers = _HANDLERS

    def take_begin(self, begin: Begin) -> None:
        """Take what the peer's begin says of its end."""
        self._next_incoming_id = begin.next_outgoing_id
        self._remote_window = begin.incoming_window
        self._remote_handle_max = begin.handle_max

    def write_begin(self, remote_channel: int | None) -> None:
        """Write our begin; `remote_channel` is the channel of the begin that it answers."""
        limits = self.endpoint.limits
        self.write(
            Begin(
                remote_channel=remote_channel,
                next_outgoing_id=self._first_id,
                incoming_window=limits.incoming_window,
                outgoing_window=limits.outgoing_window,
                handle_max=limits.handle_max,
            )
        )

    def __repr__(self) -> str:
        return (
            f"<AmqpSession {self.channel} links={len(self.links)} in={self._incoming_window} "
            f"out={self._remote_window} blocked={len(self._blocked)}>"
        )

    # -- performatives from the peer

    def on_frame(self, performative: Any, payload: bytes) -> None:
        """Take one performative of the session.

        Raises:
            SessionFault, ConnectionFault: see `faults`.
        """
        handler = self._handlers.get(type(performative))
        if handler is None:
            raise ConnectionFault(
                FRAMING_ERROR, f"A {type(performative).__name__} cannot stand in a session."
            )
        handler(self, performative, payload)

    def _on_attach(self, attach: Attach, payload: bytes) -> None:
        handle = attach.handle
        if handle > min(self.endpoint.limits.handle_max, self._remote_handle_max):
            raise ConnectionFault(
                FRAMING_ERROR,
                "Cannot allocate more handles. The maximum number of handles is "
                f"{self.endpoint.limits.handle_max}.",
            )
        if handle in self.links:
            raise SessionFault(HANDLE_IN_USE, f"The handle {handle} is in use.")
        self.endpoint.attached()
        link = (OutgoingLink if attach.role else IncomingLink)(self, attach)
        self.links[handle] = link
        self.events.append(LinkAttached(link))

    def _link(self, handle: int) -> Link:
        link = self.links.get(handle)
        if link is None:
            raise SessionFault(UNATTACHED_HANDLE, f"No link is attached at handle {handle}.")
        return link

    def _on_flow(self, flow: Flow, payload: bytes) -> None:
        base = self._first_id if flow.next_incoming_id is None else flow.next_incoming_id
        unseen = serial.distance(base, self._next_outgoing_id)
        self._remote_window = max(flow.incoming_window - unseen, 0)
        if self._blocked:
            self._unblock()
        if flow.handle is not None:
            self._link(flow.handle).on_flow(flow)
        elif flow.echo:
            self.write_flow(None)

    def _on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        if self._incoming_window <= 0:
            raise SessionFault(WINDOW_VIOLATION, "More transfers came than the window allows.")
        self._next_incoming_id = serial.add(self._next_incoming_id, 1)
        self._incoming_window -= 1
        link = self._link(transfer.handle)
        if not isinstance(link, IncomingLink):
            raise SessionFault(
                UNATTACHED_HANDLE, f"The link at handle {transfer.handle} takes no transfers."
            )
        if not link.is_open and transfer.state is not None:
            self.note_missed(transfer.state, f"The link {link.name!r} has ended.")
        try:
            link.on_transfer(transfer, payload)
        except LinkFault as fault:
            self.note_missed(transfer.state, str(fault))
            self.detach(link, fault.error)
            self.events.append(LinkDetached(link))
        if self._incoming_window <= self.endpoint.limits.incoming_window // 2:
            self._incoming_window = self.endpoint.limits.incoming_window
            self.write_flow(None)

    def _on_disposition(self, disposition: Disposition, payload: bytes) -> None:
        if not disposition.role or isinstance(disposition.state, Received):
            return  # about the peer's messages, which we settle at once and then forget
        if disposition.state is None and not disposition.settled:
            return
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        if first == last:
            found = self._unsettled.pop(first, None)
            deliveries = [] if found is None else [found]
        else:
            deliveries = self._take_range(first, serial.distance(first, last) + 1)
        if disposition.settled:
            for delivery in deliveries:
                self._forget_delivery(delivery)
        if disposition.state is None:
            return
        if len(deliveries) <= serial.distance(first, last):
            self.note_missed(disposition.state, "A message was settled already, or its link ended.")
        by_link: dict[OutgoingLink, list[OutgoingDelivery]] = {}
        for delivery in deliveries:
            by_link.setdefault(delivery.link, []).append(delivery)
        for link, group in by_link.items():
            self.events.append(OutcomeArrived(link, group, disposition.state, disposition.settled))

    def _take_range(self, first: int, count: int) -> list[OutgoingDelivery]:
        """Take out the deliveries of a range of ids, each once.

        The ids of the range are removed: many wide ranges cost no more than one.
        """
        sent = self._sent
        if not sent:
            return []
        origin = sent[0]

        def place(each: int) -> int:
            return serial.distance(origin, each)

        begin = bisect_left(sent, place(first), key=place)
        end = bisect_left(sent, place(first) + count, key=place)
        ids = sent[begin:end]
        del sent[begin:end]
        taken = [self._unsettled.pop(each, None) for each in ids]
        return [delivery for delivery in taken if delivery is not None]

    def _on_detach(self, detach: Detach, payload: bytes) -> None:
        link = self.links.pop(detach.handle, None)
        if link is None:
            raise SessionFault(UNATTACHED_HANDLE, f"No link is attached at handle {detach.handle}.")
        self.endpoint.link_count -= 1
        was_alive = link.is_alive
        if was_alive:
            link.give_up()
            self.write(Detach(link.handle, detach.closed))
        link.forget()
        if was_alive:
            self.events.append(LinkDetached(link))

    def _on_end(self, end: End, payload: bytes) -> None:
        if not self.is_ended:
            self.write(End())
        self.close_links()

    def note_missed(self, state: Any, reason: str) -> None:
        """Tell that something in the state of a transaction is not carried out."""
        if isinstance(state, TransactionalState):
            self.events.append(OperationMissed(state.txn_id, reason))

    # -- calls of the owner

    def settle_incoming(self, delivery_id: int, outcome: Any) -> None:
        """Write the outcome of a message that the peer sent."""
        self._dispose(True, delivery_id, outcome)

    def settle_outgoing(self, delivery: OutgoingDelivery, outcome: Any) -> None:
        """Confirm the outcome of a message that we sent, and forget the delivery."""
        self._forget_delivery(delivery)
        if delivery.link.is_open:
            self._dispose(False, delivery.id, outcome)

    def _dispose(self, role: bool, delivery_id: int, outcome: Any, is_settled: bool = True) -> None:
        """Write a disposition, or extend the last unwritten disposition by one delivery."""
        if self.is_ended:
            return
        pending = self._pending
        if pending is not None:
            last = pending.first if pending.last is None else pending.last
            if (
                pending.role is role
                and pending.settled is is_settled
                and delivery_id == serial.add(last, 1)
                and pending.state == outcome
            ):
                pending.last = delivery_id
                return
            self.flush()
        self._pending = Disposition(role, delivery_id, None, is_settled, outcome)
        self.endpoint.sessions_to_flush[self] = None

    def flush(self) -> None:
        """Write the disposition that was waiting for a longer range."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self.endpoint.write(encode_disposition(self.channel, pending))

    def write(self, performative: Any) -> None:
        """Write a performative on the session's channel."""
        self.flush()
        self.endpoint.write(encode_frame(self.channel, performative))

    def write_flow(self, link: Link | None, *, drain: bool = False) -> None:
        """Write the session's windows and, if given, the link's credit."""
        if not self.is_ended:
            self._write_flow(link.flow_fields() if link is not None else {}, drain=drain)

    def _write_flow(self, fields: dict[str, Any], *, drain: bool) -> None:
        self.write(
            Flow(
                next_incoming_id=self._next_incoming_id,
                incoming_window=self._incoming_window,
                next_outgoing_id=self._next_outgoing_id,
                outgoing_window=self.endpoint.limits.outgoing_window,
                drain=drain,
                **fields,
            )
        )

    def give_back(self, link: OutgoingLink) -> None:
        """Give a link's credit back, and tell the peer so behind the link's messages.

        It gives up on those that have not come by then.
        """
        if self.is_ended:
            return
        count, link.credit = link.credit, 0
        link.delivery_count = serial.add(link.delivery_count, count)
        fields = {"handle": link.handle, "delivery_count": link.delivery_count, "link_credit": 0}
        if any(item.link is link for item in self._blocked):
            self._blocked.append(_GivenBack(link, count, fields))
            link.unwritten += count
        else:
            self._write_flow(fields, drain=True)

    def detach(self, link: Link, error: Error | None) -> None:
        """Detach a link; its handle is free again when the peer has answered."""
        self.write(Detach(link.handle, True, error))
        link.is_answered = True
        link.forget()

    def end(self, error: Error | None) -> None:
        """End the session, with an error or without."""
        if not self.is_ended:
            self.write(End(error))
            self.is_ended = True
            self.close_links()

    def close_links(self) -> None:
        """Forget all links, with an event for each link that was alive."""
        self.is_ended = True
        links, self.links = list(self.links.values()), {}
        self.endpoint.link_count -= len(links)
        self._blocked.clear()
        self._unsettled.clear()
        self._sent.clear()
        self.blocked_bytes = 0
        for link in links:
            self._close_link(link)

    def _close_link(self, link: Link) -> None:
        """Forget a link of a session that has ended."""
        was_alive = link.is_alive
        link.is_answered = True
        link.forget()
        if was_alive:
            self.events.append(LinkDetached(link))

    # -- transfers out

    def send(
        self,
        link: OutgoingLink,
        tag: bytes,
        payload: bytes,
        is_settled: bool,
        message_format: int,
    ) -> OutgoingDelivery | None:
        """Write a message, as far as the peer's window allows; the rest follows by itself.

        Raises:
            LinkFault: the link has `unsettled_max` deliveries. None of them may be forgotten: their
                outcomes must be carried out, and answered.
        """
        unsettled_max = self.endpoint.limits.unsettled_max
        if not is_settled and len(link.unsettled) >= unsettled_max:
            raise LinkFault(
                RESOURCE_LIMIT_EXCEEDED,
                f"The link {link.name!r} has {unsettled_max} unsettled deliveries, which is the "
                "most. Settle messages before more are received.",
            )
        delivery_id = self._next_delivery_id
        self._next_delivery_id = serial.add(delivery_id, 1)
        delivery = None
        if not is_settled:
            delivery = OutgoingDelivery(link, delivery_id, tag)
            self._unsettled[delivery_id] = link.unsettled[delivery_id] = delivery
            self._sent.append(delivery_id)
            if len(self._sent) > 2 * len(self._unsettled) + _SENT_SPARE:
                self._sent = [each for each in self._sent if each in self._unsettled]
        room = self.endpoint.frame_out_bytes - transfer_overhead(tag)
        if self._remote_window > 0 and len(payload) <= room:
            self._remote_window -= 1
            self._next_outgoing_id = serial.add(self._next_outgoing_id, 1)
            if self._pending is not None:
                self.flush()
            self.endpoint.write(
                *encode_transfer(
                    self.channel,
                    link.handle,
                    delivery_id,
                    tag,
                    message_format,
                    is_settled=is_settled,
                    is_more=False,
                    payload=payload,
                )
            )
            return delivery
        blocked = _Blocked(link, delivery_id, tag, payload, is_settled, message_format)
        self._blocked.append(blocked)
        link.unwritten += 1
        self.blocked_bytes += len(payload)
        self._unblock()
        blocked.is_late = True
        return delivery

    @property
    def last_blocked(self) -> OutgoingLink | None:
        """The link of the message that waits last for the peer's window; `None` if none waits."""
        return self._blocked[-1].link if self._blocked else None

    def _unblock(self) -> None:
        self.flush()
        while self._blocked:
            item = self._blocked[0]
            if isinstance(item, _GivenBack):
                self._blocked.popleft()
                item.link.unwritten -= item.count
                self._write_flow(item.fields, drain=True)
                continue
            if self._remote_window <= 0:
                return
            is_first = item.at == 0
            tag = item.tag if is_first else None
            room = self.endpoint.frame_out_bytes - transfer_overhead(tag)
            part = item.payload[item.at : item.at + room]
            item.at += len(part)
            self.blocked_bytes -= len(part)
            is_more = item.at < len(item.payload)
            self.endpoint.write(
                *encode_transfer(
                    self.channel,
                    item.link.handle,
                    item.delivery_id if is_first else None,
                    tag,
                    item.message_format if is_first else None,
                    is_settled=item.is_settled,
                    is_more=is_more,
                    payload=part,
                )
            )
            self._remote_window -= 1
            self._next_outgoing_id = serial.add(self._next_outgoing_id, 1)
            if is_first:
                item.link.unwritten -= 1
            if not is_more:
                self._blocked.popleft()
                if item.is_late and item.is_settled:
                    self.events.append(MessageWritten(item.link))

    def _forget_delivery(self, delivery: OutgoingDelivery) -> None:
        self._unsettled.pop(delivery.id, None)
        delivery.link.unsettled.pop(delivery.id, None)

    def forget_deliveries(self, link: OutgoingLink) -> None:
        """Drop the unsettled and the unsent deliveries of a link that has ended."""
        for delivery_id in link.unsettled:
            self._unsettled.pop(delivery_id, None)
        link.unsettled.clear()
        if any(item.link is link for item in self._blocked):
            self._blocked = deque(item for item in self._blocked if item.link is not link)
            self.blocked_bytes = sum(
                len(item.payload) - item.at for item in self._blocked if isinstance(item, _Blocked)
            )


_HANDLERS: Final[dict[type, Callable[[Any, Any, bytes], None]]] = {
    Attach: AmqpSession._on_attach,
    Flow: AmqpSession._on_flow,
    Transfer: AmqpSession._on_transfer,
    Disposition: AmqpSession._on_disposition,
    Detach: AmqpSession._on_detach,
    End: AmqpSession._on_end,
}
