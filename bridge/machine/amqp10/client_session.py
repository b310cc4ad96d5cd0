"""Sessions that we begin, and the links that we attach to them.

Our channel numbers and handles are our own, the server's are its own: a link is found by the
server's handle in what comes, and named by ours in what goes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from bridge.machine.amqp10 import serial
from bridge.machine.amqp10.client_link import ClientIncomingLink, ClientOutgoingLink
from bridge.machine.amqp10.events import (
    ClientEvent,
    DeliveriesSettled,
    LinkDetached,
    LinkOpened,
)
from bridge.machine.amqp10.faults import (
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    LinkFault,
    SessionFault,
)
from bridge.machine.amqp10.link import Link
from bridge.machine.amqp10.session import AmqpSession
from bridge.wire.amqp10.performatives import (
    Attach,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Source,
    Target,
    Transfer,
)

if TYPE_CHECKING:
    from bridge.machine.amqp10.endpoint import AmqpEndpoint

_FIRST_ID: Final = 0


class ClientSession(AmqpSession):
    """One session that we have begun.

    Attributes:
        client_events: the endpoint's events.
        error: the error with which the server has ended it.
    """

    def __init__(self, endpoint: AmqpEndpoint, channel: int) -> None:
        super().__init__(endpoint, channel, _FIRST_ID)
        self.client_events = cast("deque[ClientEvent]", endpoint.events)
        self.error: Error | None = None
        self._asked: dict[tuple[str, bool], Link] = {}
        self._received: dict[int, ClientIncomingLink] = {}
        self._handlers = _HANDLERS

    # -- links

    def attach_sender(
        self,
        name: str,
        source: Source,
        target: Target,
        *,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        properties: dict[Any, Any] | None = None,
    ) -> ClientOutgoingLink:
        """Ask for a link on which we send; `LinkOpened` or `LinkDetached` follows.

        Raises:
            LinkFault: the session has ended, or a link of this name and direction is there.
        """
        attach = Attach(
            name=name,
            handle=self._free_handle(name, False),
            role=False,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            source=source,
            target=target,
            initial_delivery_count=0,
            max_message_size=0,
            properties=properties,
        )
        link = ClientOutgoingLink(self, attach)
        self._ask(link, attach)
        return link

    def attach_receiver(
        self,
        name: str,
        source: Source,
        target: Target,
        *,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        properties: dict[Any, Any] | None = None,
    ) -> ClientIncomingLink:
        """Ask for a link on which we receive; see `attach_sender`."""
        attach = Attach(
            name=name,
            handle=self._free_handle(name, True),
            role=True,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            source=source,
            target=target,
            max_message_size=0,
            properties=properties,
        )
        link = ClientIncomingLink(self, attach)
        self._ask(link, attach)
        return link

    def _free_handle(self, name: str, role: bool) -> int:
        if self.is_ended:
            raise LinkFault(ILLEGAL_STATE, "The session has ended.")
        if (name, role) in self._asked:
            raise LinkFault(ILLEGAL_STATE, f"The link {name!r} is asked for already.")
        used = {each.handle for each in (*self.links.values(), *self._asked.values())}
        handle = 0
        while handle in used:
            handle += 1
        return handle

    def _ask(self, link: Link, attach: Attach) -> None:
        self._asked[attach.name, attach.role] = link
        self.write(attach)

    def _on_attach(self, attach: Attach, payload: bytes) -> None:
        if attach.handle in self.links:
            raise SessionFault(HANDLE_IN_USE, f"The handle {attach.handle} is in use.")
        link = self._asked.pop((attach.name, not attach.role), None)
        if link is None:
            text = f"The server has attached a link {attach.name!r} that nobody has asked for."
            raise SessionFault(ILLEGAL_STATE, text)
        self.links[attach.handle] = link
        self.endpoint.link_count += 1
        if link.handle > self._remote_handle_max:
            text = f"The session has {self._remote_handle_max} links at most."
            raise SessionFault(RESOURCE_LIMIT_EXCEEDED, text)
        assert isinstance(link, ClientIncomingLink | ClientOutgoingLink)
        link.take_attach(attach)
        if link.is_open:
            self.client_events.append(LinkOpened(link))

    def _on_detach(self, detach: Detach, payload: bytes) -> None:
        link = self.links.pop(detach.handle, None)
        if link is None:
            raise SessionFault(UNATTACHED_HANDLE, f"No link is attached at handle {detach.handle}.")
        assert isinstance(link, ClientIncomingLink | ClientOutgoingLink)
        self.endpoint.link_count -= 1
        if not link.is_detached:
            self.write(Detach(link.handle, detach.closed))
        self._gone(link, detach.error)

    def _gone(self, link: Link, error: Any) -> None:
        """Tell of a link's end, once, with the error that the server gave first."""
        assert isinstance(link, ClientIncomingLink | ClientOutgoingLink)
        if link.error is None and isinstance(error, Error):
            link.error = error
        link.is_answered = True
        link.is_detached = True
        link.forget()
        if not link.is_told:
            link.is_told = True
            self.events.append(LinkDetached(link))

    def detach(self, link: Link, error: Error | None) -> None:
        """Detach a link, for its owner or for a fault; its handle is free when it is answered."""
        assert isinstance(link, ClientIncomingLink | ClientOutgoingLink)
        if link.is_detached or self.is_ended:
            return
        if error is not None:
            link.error = error if link.error is None else link.error
            link.is_told = True  # by whoever has found the fault
        link.is_detached = True
        self.write(Detach(link.handle, True, error))
        link.forget()

    def _on_end(self, end: End, payload: bytes) -> None:
        if isinstance(end.error, Error) and self.error is None:
            self.error = end.error
        super()._on_end(end, payload)

    def end(self, error: Error | None) -> None:
        """End the session, with an error or without."""
        if error is not None and self.error is None:
            self.error = error
        super().end(error)

    def close_links(self) -> None:
        """Forget all links, with an event for each that was not gone."""
        asked, self._asked = list(self._asked.values()), {}
        self._received.clear()
        super().close_links()
        for link in asked:
            self._close_link(link)

    def _close_link(self, link: Link) -> None:
        self._gone(link, self.error)

    # -- deliveries that came

    def note_received(self, link: ClientIncomingLink, delivery_id: int) -> None:
        """Keep a delivery that the server has not settled."""
        self._received[delivery_id] = link

    def forget_received(self, delivery_id: int) -> None:
        """Forget a delivery that came."""
        self._received.pop(delivery_id, None)

    def tell_outcome(self, delivery_id: int, outcome: Any, *, is_settled: bool) -> None:
        """Write the outcome of a delivery that came.

        Args:
            is_settled: settled by that, and forgotten; else the server settles it, and
                `DeliveriesSettled` follows.
        """
        self._dispose(True, delivery_id, outcome, is_settled)

    def _on_disposition(self, disposition: Disposition, payload: bytes) -> None:
        if disposition.role:
            super()._on_disposition(disposition, payload)
            return
        if not disposition.settled:
            return
        by_link: dict[ClientIncomingLink, list[int]] = {}
        for delivery_id in self._received_in(disposition):
            link = self._received.pop(delivery_id)
            link.unsettled.pop(delivery_id, None)
            by_link.setdefault(link, []).append(delivery_id)
        for link, ids in by_link.items():
            self.client_events.append(DeliveriesSettled(link, ids, disposition.state))

    def _received_in(self, disposition: Disposition) -> list[int]:
        """Return those deliveries of a range that are not settled; a wide range costs no more."""
        first, received = disposition.first, self._received
        if disposition.last is None:
            return [first] if first in received else []
        count = serial.distance(first, disposition.last) + 1
        if count <= len(received):
            ids = [serial.add(first, each) for each in range(count)]
            return [each for each in ids if each in received]
        return [each for each in received if 0 <= serial.distance(first, each) < count]


_HANDLERS: Final[dict[type, Callable[[Any, Any, bytes], None]]] = {
    Attach: ClientSession._on_attach,
    Flow: ClientSession._on_flow,
    Transfer: ClientSession._on_transfer,
    Disposition: ClientSession._on_disposition,
    Detach: ClientSession._on_detach,
    End: ClientSession._on_end,
}
