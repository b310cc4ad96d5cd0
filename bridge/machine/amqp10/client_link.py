"""Links that we attach: `ClientIncomingLink` receives, `ClientOutgoingLink` sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.machine.amqp10 import serial
from bridge.machine.amqp10.events import Drained
from bridge.machine.amqp10.link import IncomingLink, OutgoingLink
from bridge.wire.amqp10.performatives import Attach, Error, Flow, Transfer

if TYPE_CHECKING:
    from bridge.machine.amqp10.client_session import ClientSession


class ClientIncomingLink(IncomingLink):
    """A link on which the server sends.

    Attributes:
        peer: the server's attach, once it has answered; ours before.
        error: why the link has ended: the server's error, or that of the fault it made.
        is_detached: a detach was written.
        is_told: its end was told.
        unsettled: the tag of each delivery that is not settled, by its id.
        is_draining: we have asked for unused credit back.
    """

    def __init__(self, session: ClientSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self.client_session = session
        self.error: Error | None = None
        self.is_detached = False
        self.is_told = False
        self.unsettled: dict[int, bytes] = {}
        self.is_draining = False
        self._delivery_id = 0

    def take_attach(self, attach: Attach) -> None:
        """Take the server's answer; without a source it is a refusal, and a detach follows."""
        self.peer = attach
        self.is_answered = True
        self.is_open = attach.source is not None and not self.is_detached
        self.delivery_count = attach.initial_delivery_count or 0

    def end(self) -> None:
        """Detach the link; what comes from now on is ignored."""
        self.session.detach(self, None)

    def drain(self) -> None:
        """Ask for unused credit back; `Drained` follows behind the messages that came before."""
        if self.is_open:
            self.is_draining = True
            self.session.write_flow(self, drain=True)

    def tell_outcome(self, delivery_id: int, outcome: Any, *, is_settled: bool) -> None:
        """Tell the outcome of a delivery; see `ClientSession.tell_outcome`."""
        if not self.is_open:
            return
        if is_settled:
            self.unsettled.pop(delivery_id, None)
            self.client_session.forget_received(delivery_id)
        self.client_session.tell_outcome(delivery_id, outcome, is_settled=is_settled)

    def on_flow(self, flow: Flow) -> None:
        """Take a flow of the server, which gives credit back when it was drained."""
        if flow.delivery_count is not None:
            step = serial.distance(self.delivery_count, flow.delivery_count)
            if step > 0:
                self.credit = max(self.credit - step, 0)
                self.delivery_count = flow.delivery_count
        if self.is_draining and (self.credit == 0 or flow.link_credit == 0):
            self.is_draining = False
            self.credit = 0
            self.client_session.client_events.append(Drained(self))
        super().on_flow(flow)

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take a message, or a part of one; see `IncomingLink.on_transfer`."""
        if not self.is_open:
            return
        if self._first is None and transfer.delivery_id is not None:
            self._delivery_id = transfer.delivery_id
            self.unsettled[transfer.delivery_id] = transfer.delivery_tag or b""
            self.client_session.note_received(self, transfer.delivery_id)
        delivery_id = self._delivery_id
        super().on_transfer(transfer, payload)
        if transfer.settled or transfer.aborted:
            self.unsettled.pop(delivery_id, None)
            self.client_session.forget_received(delivery_id)

    def forget(self) -> None:
        """Drop the content of the link."""
        super().forget()
        for delivery_id in self.unsettled:
            self.client_session.forget_received(delivery_id)
        self.unsettled.clear()


class ClientOutgoingLink(OutgoingLink):
    """A link on which we send.

    Attributes:
        peer: the server's attach, once it has answered; ours before.
        error: why the link has ended: the server's error, or that of the fault it made.
        is_detached: a detach was written.
        is_told: its end was told.
    """

    def __init__(self, session: ClientSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self.error: Error | None = None
        self.is_detached = False
        self.is_told = False

    def take_attach(self, attach: Attach) -> None:
        """Take the server's answer; without a target it is a refusal, and a detach follows."""
        self.peer = attach
        self.is_answered = True
        self.is_open = attach.target is not None and not self.is_detached

    def end(self) -> None:
        """Detach the link; deliveries without an outcome are forgotten."""
        self.session.detach(self, None)
