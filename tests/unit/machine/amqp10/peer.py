"""The other end of an endpoint: a client made of the codec alone, joined to it by memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.machine.amqp10.endpoint import AmqpEndpoint
from bridge.machine.amqp10.events import Event, LinkAttached, SaslChosen
from bridge.machine.amqp10.limits import Limits
from bridge.machine.amqp10.link import IncomingLink, OutgoingLink
from bridge.wire.amqp10.composite import decode_composite, encode_composite
from bridge.wire.amqp10.frame import AMQP_FRAME, SASL_FRAME, ProtocolHeader, encode_frame
from bridge.wire.amqp10.performatives import (
    Attach,
    Begin,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)

CREDIT = 10
MESSAGE_BYTES_MAX = 1_000

Frame = tuple[int, Any, bytes]


def frame(channel: int, performative: Any, payload: bytes = b"") -> bytes:
    """Return a frame with a payload."""
    body = encode_composite(performative) + payload
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, 0)) + channel.to_bytes(2, "big") + body


class Peer:
    """A client and the endpoint that serves it.

    Attributes:
        frames: (channel, performative, payload) that the endpoint has written, oldest first.
        events: what the endpoint has told its owner.
        links: what the owner has accepted, by handle.
        accepts: whether the owner accepts links by itself.
    """

    def __init__(self, *, limits: Limits | None = None, accepts: bool = True) -> None:
        self.now_ms = 1_000_000
        self.limits = limits or Limits()
        self.endpoint = AmqpEndpoint(
            container_id="server",
            mechanisms=("ANONYMOUS", "PLAIN"),
            limits=self.limits,
            now_ms=self.now_ms,
        )
        self.accepts = accepts
        self.frames: list[Frame] = []
        self.headers: list[bytes] = []
        self.events: list[Event] = []
        self.links: dict[int, IncomingLink | OutgoingLink] = {}
        self.on_event: Callable[[Event], None] | None = None
        self._raw = b""

    def feed(self, data: bytes) -> list[Event]:
        """Give the endpoint bytes; returns the events of these bytes."""
        fresh: list[Event] = []
        for event in self.endpoint.receive(data, self.now_ms):
            fresh.append(event)
            self._own(event)
        self.events += fresh
        self.collect()
        return fresh

    def _own(self, event: Event) -> None:
        if isinstance(event, SaslChosen):
            self.endpoint.sasl_outcome(is_ok=event.mechanism == "ANONYMOUS")
        elif isinstance(event, LinkAttached) and self.accepts:
            self.accept(event.link)
        if self.on_event is not None:
            self.on_event(event)

    def accept(self, link: IncomingLink | OutgoingLink) -> None:
        """Accept a link with this harness's limits."""
        self.links[link.handle] = link
        if isinstance(link, IncomingLink):
            link.accept(credit=CREDIT, message_bytes_max=MESSAGE_BYTES_MAX)
        else:
            link.accept()

    def collect(self) -> list[Frame]:
        """Take what the endpoint has written; returns the new frames."""
        self._raw += self.endpoint.take_output()
        fresh: list[Frame] = []
        while len(self._raw) >= 8:
            if self._raw[:4] == b"AMQP":
                self.headers.append(self._raw[:8])
                self._raw = self._raw[8:]
                continue
            size = int.from_bytes(self._raw[:4], "big")
            assert size <= len(self._raw), "half a frame was written"
            assert self._raw[5] in (AMQP_FRAME, SASL_FRAME)
            channel = int.from_bytes(self._raw[6:8], "big")
            body, self._raw = self._raw[8:size], self._raw[size:]
            if body:
                performative, end = decode_composite(body)
                fresh.append((channel, performative, body[end:]))
            else:
                fresh.append((channel, None, b""))
        self.frames += fresh
        return fresh

    def send(self, performative: Any, payload: bytes = b"", *, channel: int = 0) -> list[Event]:
        """Send one frame."""
        return self.feed(frame(channel, performative, payload))

    def take(self, kind: type) -> list[Any]:
        """Return the performatives of one kind that have come, and forget them."""
        found = [item for _, item, _ in self.frames if isinstance(item, kind)]
        self.frames = [entry for entry in self.frames if not isinstance(entry[1], kind)]
        return found

    # -- common beginnings

    def open(self, **fields: Any) -> Peer:
        """Go through SASL and open the connection."""
        self.feed(ProtocolHeader.SASL.value + encode_frame(0, SaslInit("ANONYMOUS"), frame_type=1))
        self.feed(ProtocolHeader.AMQP.value)
        self.send(Open("client", **fields))
        return self

    def begin(self, channel: int = 0, **fields: Any) -> Peer:
        """Begin a session."""
        values = {"next_outgoing_id": 0, "incoming_window": 100, "outgoing_window": 100}
        self.send(Begin(remote_channel=None, **{**values, **fields}), channel=channel)
        return self

    def attach_sender(self, handle: int = 0, *, channel: int = 0, **fields: Any) -> IncomingLink:
        """Attach a link on which this client sends."""
        attach = Attach(
            name=f"sender-{handle}",
            handle=handle,
            role=False,
            source=Source("client"),
            target=Target("q"),
            initial_delivery_count=0,
        )
        self._attach(attach, channel, fields)
        link = self.links[handle]
        assert isinstance(link, IncomingLink)
        return link

    def attach_receiver(self, handle: int = 0, *, channel: int = 0, **fields: Any) -> OutgoingLink:
        """Attach a link on which this client receives."""
        attach = Attach(
            name=f"receiver-{handle}",
            handle=handle,
            role=True,
            source=Source("q"),
            target=Target("client"),
        )
        self._attach(attach, channel, fields)
        link = self.links[handle]
        assert isinstance(link, OutgoingLink)
        return link

    def _attach(self, attach: Attach, channel: int, fields: dict[str, Any]) -> None:
        for name, value in fields.items():
            setattr(attach, name, value)
        self.send(attach, channel=channel)

    def credit(self, credit: int, *, handle: int = 0, count: int = 0, **fields: Any) -> list[Event]:
        """Grant credit on a link on which this client receives."""
        values = {
            "next_incoming_id": None,
            "incoming_window": 100,
            "next_outgoing_id": 0,
            "outgoing_window": 100,
        }
        flow = Flow(**{**values, **fields}, handle=handle, delivery_count=count, link_credit=credit)
        return self.send(flow)

    def transfer(
        self, delivery_id: int | None, payload: bytes = b"m", *, handle: int = 0, **fields: Any
    ) -> list[Event]:
        """Send one transfer."""
        tag = None if delivery_id is None else delivery_id.to_bytes(4, "big")
        return self.send(Transfer(handle, delivery_id, tag, 0, **fields), payload)
