"""A client's and a server's machine, joined by memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bridge.machine.amqp10.client import ANONYMOUS, CLIENT_LIMITS, ClientEndpoint
from bridge.machine.amqp10.client_link import ClientIncomingLink, ClientOutgoingLink
from bridge.machine.amqp10.client_session import ClientSession
from bridge.machine.amqp10.endpoint import AmqpEndpoint
from bridge.machine.amqp10.events import Event, LinkAttached, SaslChosen
from bridge.machine.amqp10.limits import Limits
from bridge.machine.amqp10.link import IncomingLink, OutgoingLink
from bridge.wire.amqp10.performatives import Source, Target

CREDIT = 10
MESSAGE_BYTES_MAX = 1_000_000


def client_endpoint(
    *, mechanism: str = ANONYMOUS, response: bytes = b"", limits: Limits = CLIENT_LIMITS
) -> ClientEndpoint:
    """Return a client's end."""
    return ClientEndpoint(
        container_id="client",
        hostname="localhost",
        mechanism=mechanism,
        response=response,
        properties={"product": "test"},
        limits=limits,
        now_ms=1_000,
    )


class Pair:
    """Both ends of a connection.

    Attributes:
        events, server_events: what each end has told its owner.
        server_links: the server's links, by name.
        on_server: called with each event of the server's; the owner of its end.
    """

    def __init__(
        self,
        *,
        mechanism: str = ANONYMOUS,
        response: bytes = b"",
        limits: Limits = CLIENT_LIMITS,
        server_limits: Limits | None = None,
        accepts: bool = True,
    ) -> None:
        self.now_ms = 1_000
        self.client = client_endpoint(mechanism=mechanism, response=response, limits=limits)
        self.server = AmqpEndpoint(
            container_id="server",
            mechanisms=("ANONYMOUS", "PLAIN"),
            limits=server_limits or replace(Limits(), frame_bytes_max=4_096),
            now_ms=self.now_ms,
        )
        self.server.is_authenticated = True
        self.accepts = accepts
        self.events: list[Event] = []
        self.server_events: list[Event] = []
        self.server_links: dict[str, IncomingLink | OutgoingLink] = {}
        self.on_server: Callable[[Event], None] | None = None
        self.login: tuple[str, bytes] | None = None

    def pump(self) -> list[Event]:
        """Carry bytes until neither end has any; return the client's new events."""
        known = len(self.events)
        while True:
            up, down = self.client.take_output(), self.server.take_output()
            if not up and not down:
                return self.events[known:]
            for event in self.server.receive(up, self.now_ms):
                self._serve(event)
            self.events += self.client.receive(down, self.now_ms)

    def _serve(self, event: Event) -> None:
        self.server_events.append(event)
        if isinstance(event, SaslChosen):
            self.login = (event.mechanism, event.response)
            self.server.sasl_outcome(is_ok=event.response != b"\0wrong\0key")
        elif isinstance(event, LinkAttached):
            self.server_links[event.link.name] = event.link
            if self.accepts:
                self.accept(event.link)
        if self.on_server is not None:
            self.on_server(event)

    @staticmethod
    def accept(link: IncomingLink | OutgoingLink) -> None:
        """Accept a link at the server's end."""
        if isinstance(link, IncomingLink):
            link.accept(credit=CREDIT, message_bytes_max=MESSAGE_BYTES_MAX)
        else:
            link.accept()

    def take(self, kind: type) -> list[Any]:
        """Return the client's events of a kind, and forget them."""
        found = [each for each in self.events if isinstance(each, kind)]
        self.events = [each for each in self.events if not isinstance(each, kind)]
        return found

    def take_server(self, kind: type) -> list[Any]:
        """Return the server's events of a kind, and forget them."""
        found = [each for each in self.server_events if isinstance(each, kind)]
        self.server_events = [each for each in self.server_events if not isinstance(each, kind)]
        return found

    # -- common beginnings

    def open(self) -> Pair:
        """Go through login and open."""
        self.pump()
        return self

    def begin(self) -> ClientSession:
        """Begin a session."""
        session = self.client.begin()
        self.pump()
        return session

    def receiver(self, session: ClientSession, name: str = "in") -> ClientIncomingLink:
        """Attach a receiver."""
        link = session.attach_receiver(
            name, Source("q"), Target(name), snd_settle_mode=0, rcv_settle_mode=1
        )
        self.pump()
        return link

    def sender(self, session: ClientSession, name: str = "out") -> ClientOutgoingLink:
        """Attach a sender."""
        link = session.attach_sender(
            name, Source(name), Target("q"), snd_settle_mode=0, rcv_settle_mode=0
        )
        self.pump()
        return link

    def server_link(self, name: str) -> Any:
        """Return the server's end of a link."""
        return self.server_links[name]
