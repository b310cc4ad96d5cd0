"""A client with many single messages under way, which a bridge gathers in envelopes."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.conformance.door import KEY, RULE_NAME
from tests.crash.events import Accepted, Sent
from tests.crash.load import PAUSE_S, Actor, now_ms

IN_FLIGHT = 50
LOOK_S = 0.1


class Bursts(Actor):
    """Sends single messages, up to 50 unconfirmed at a time, in bursts; each has its message id."""

    def run(self) -> None:
        """Connect and send, and connect again after each failure."""
        while not self.ending.is_set():
            with contextlib.suppress(Exception):
                Container(_Connected(self)).run()
            self.ending.wait(PAUSE_S)


class _Connected(MessagingHandler):
    """One connection of a client, until it is lost or the client is to end."""

    def __init__(self, actor: Bursts) -> None:
        super().__init__(prefetch=0)
        self._actor = actor
        self._under_way: dict[Delivery, str] = {}
        self._is_over = False
        self._connection: Any = None
        self._sender: Any = None

    def on_start(self, event: Any) -> None:
        """Connect, once."""
        found = re.search(r"localhost:(\d+)", self._actor.connection_string)
        assert found is not None
        self._connection = event.container.connect(
            f"amqp://{RULE_NAME}:{KEY}@127.0.0.1:{found[1]}",
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            reconnect=False,
        )
        self._sender = event.container.create_sender(self._connection, self._actor.queue)
        event.container.schedule(LOOK_S, self)

    def on_timer_task(self, event: Any) -> None:
        """Begin a burst, or end."""
        if self._is_over:
            return
        if self._actor.ending.is_set():
            self._connection.close()
            return
        self._fill(self._actor.chance.randint(1, IN_FLIGHT))
        event.container.schedule(LOOK_S, self)

    def _fill(self, count: int) -> None:
        while not self._is_over and len(self._under_way) < count and self._sender.credit > 0:
            (identity,) = ids = self._actor.identities(1)
            self._actor.notes.add(Sent(ids, now_ms()))
            message = Message(body=identity.encode(), id=identity, durable=True, inferred=True)
            self._under_way[self._sender.send(message)] = identity

    def on_accepted(self, event: Any) -> None:
        """Note it, and send another one or none."""
        self._actor.notes.add(Accepted((self._under_way.pop(event.delivery),), now_ms()))
        if not self._actor.ending.is_set():
            self._fill(self._actor.chance.randint(0, IN_FLIGHT))

    def on_rejected(self, event: Any) -> None:
        """Whether it is stored is judged as of what was not answered."""
        self._under_way.pop(event.delivery, None)

    def on_transport_error(self, event: Any) -> None:
        """End: the bridge is gone."""
        self._is_over = True

    def on_link_error(self, event: Any) -> None:
        """End: an outcome is unknown."""
        self._is_over = True
        self._connection.close()

    def on_connection_closed(self, event: Any) -> None:
        """End."""
        self._is_over = True
