"""A Qpid Proton client that sends or receives single messages; prints its rate as JSON.

    python -m tests.bench.singles_client send|receive URL ADDRESS COUNT IN_FLIGHT

URL: amqp://user:password@host:port. IN_FLIGHT: messages unconfirmed at a time, or the credit.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

BODY = b"x" * 1024
WARM = 200
"""Messages before the clock starts."""


class Singles(MessagingHandler):
    """Sends each message by itself, so many unconfirmed at a time.

    Attributes:
        times_ms: how long each message took until it was confirmed.
        begun_s, ended_s: when the first counted message was sent, and the last one confirmed.
    """

    def __init__(self, url: str, address: str, count: int, in_flight: int) -> None:
        super().__init__(prefetch=0)
        self.times_ms: list[float] = []
        self.begun_s = self.ended_s = 0.0
        self._url = url
        self._address = address
        self._count = count + WARM
        self._in_flight = in_flight
        self._sent: dict[Any, float] = {}
        self._told = 0
        self._sender: Any = None

    def on_start(self, event: Any) -> None:
        """Connect."""
        connection = event.container.connect(
            self._url, allowed_mechs="PLAIN", allow_insecure_mechs=True, heartbeat=0
        )
        self._sender = event.container.create_sender(connection, self._address)

    def on_sendable(self, event: Any) -> None:
        """Send as many as may be on their way."""
        self._fill()

    def _fill(self) -> None:
        while (
            self._told + len(self._sent) < self._count
            and len(self._sent) < self._in_flight
            and self._sender.credit > 0
        ):
            if self._told + len(self._sent) == WARM:
                self.begun_s = time.perf_counter()
            message = Message(body=BODY, durable=True)
            self._sent[self._sender.send(message)] = time.perf_counter()

    def on_accepted(self, event: Any) -> None:
        """Note the time, and send the next one."""
        now_s = time.perf_counter()
        self.times_ms.append((now_s - self._sent.pop(event.delivery)) * 1000)
        self._told += 1
        if self._told == self._count:
            self.ended_s = now_s
            event.connection.close()
        else:
            self._fill()

    def on_rejected(self, event: Any) -> None:
        """Fail."""
        raise RuntimeError(f"a message was rejected: {event.delivery.remote.condition}")

    on_released = on_rejected


class Receives(MessagingHandler):
    """Receives messages and accepts each.

    Attributes:
        begun_s, ended_s: when the first counted message came, and the last one.
    """

    def __init__(self, url: str, address: str, count: int, credit: int) -> None:
        super().__init__(prefetch=credit)
        self.begun_s = self.ended_s = 0.0
        self._url = url
        self._address = address
        self._count = count
        self._seen = 0

    def on_start(self, event: Any) -> None:
        """Connect."""
        connection = event.container.connect(
            self._url, allowed_mechs="PLAIN", allow_insecure_mechs=True, heartbeat=0
        )
        event.container.create_receiver(connection, self._address)

    def on_message(self, event: Any) -> None:
        """Count one; it is accepted when this returns."""
        self._seen += 1
        if self._seen == 1:
            self.begun_s = time.perf_counter()
        if self._seen == self._count:
            self.ended_s = time.perf_counter()
            self.accept(event.delivery)
            event.receiver.close()
            event.connection.close()


def main() -> None:
    """Run one scenario."""
    what, url, address, count, in_flight = sys.argv[1:]
    result: dict[str, object] = {}
    if what == "send":
        singles = Singles(url, address, int(count), int(in_flight))
        Container(singles).run()
        result["rate"] = int(count) / (singles.ended_s - singles.begun_s)
        result["ms"] = statistics.median(singles.times_ms[WARM:])
    else:
        receives = Receives(url, address, int(count), int(in_flight))
        Container(receives).run()
        result["rate"] = (int(count) - 1) / (receives.ended_s - receives.begun_s)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
