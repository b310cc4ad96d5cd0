"""SIGTERM while clients work on messages: they finish what they have before the bridge is gone."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.error import HTTPError

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSender

from tests.acceptance.sdk import client_of, expect_silence, receive, send, take, texts
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::ResourceWarning")]
"""The SDK leaves sockets behind when its connection is cut."""

ENTITIES = {
    "orders": {"LockDuration": "PT1M"},
    "sessions": {"LockDuration": "PT1M", "RequiresSession": True},
}

DRAIN = ("--drain", "180")

UNDRAINED_S = 6.0
"""A stop that waits for nobody is over by then."""


@pytest.fixture(autouse=True)
def _no_sockets_left() -> Iterator[None]:
    """Collect them here, where their warnings are expected."""
    yield
    gc.collect()


class Stop(threading.Thread):
    """A stop by SIGTERM that goes on while the test does.

    Attributes:
        code: the bridge's exit code; `None` while it goes on.
    """

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(daemon=True)
        self.code: int | None = None
        self._bridge = bridge
        self.start()
        eventually(self._has_begun, "nobody else comes in")

    def run(self) -> None:
        """Stop the bridge."""
        self.code = self._bridge.stop(within_s=120)

    def _has_begun(self) -> bool:
        with (
            suppress(ConnectionRefusedError),
            socket.create_connection(("127.0.0.1", self._bridge.port)),
        ):
            return False
        return True

    @property
    def goes_on(self) -> bool:
        """Whether the bridge waits for a client."""
        self.join(UNDRAINED_S)
        return self.code is None

    def ended(self) -> int | None:
        """Wait for the end; return the exit code."""
        self.join(120)
        return self.code


def test_a_message_is_settled_before_the_bridge_is_gone(start_bridge: StartBridge) -> None:
    """A client renews and settles its message while the bridge ends; nobody receives it again."""
    bridge = start_bridge(*DRAIN)
    with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
        send(client, "orders", "a", "b")
        (first,) = receive(receiver)
        stop = Stop(bridge)
        with pytest.raises(HTTPError) as unready:
            bridge.get("/health/ready")
        assert "The bridge is stopping." in unready.value.read().decode()
        receiver.renew_message_lock(first)
        assert stop.goes_on
        receiver.complete_message(first)
        assert stop.ended() == 0
    bridge.start()
    with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
        (second,) = take(receiver)
        assert (str(second), second.delivery_count) == ("b", 0)
        expect_silence(receiver)


def test_a_session_is_kept_while_a_message_of_it_is_worked_on(start_bridge: StartBridge) -> None:
    """With its lock and its state; the rest of the session is for another bridge."""
    bridge = start_bridge(*DRAIN)
    with (
        client_of(bridge) as client,
        client.get_queue_sender("sessions") as sender,
        client.get_queue_receiver("sessions", session_id="one") as receiver,
    ):
        _send_in_session(sender, "a", "b")
        (first,) = receive(receiver)
        stop = Stop(bridge)
        receiver.session.renew_lock()
        receiver.session.set_state(b"a was seen")
        assert stop.goes_on
        receiver.complete_message(first)
        assert stop.ended() == 0
    bridge.start()
    with (
        client_of(bridge) as client,
        client.get_queue_receiver("sessions", session_id="one") as receiver,
    ):
        assert receiver.session.get_state() == b"a was seen"
        assert texts(take(receiver)) == ["b"]
        expect_silence(receiver)


def test_a_session_is_kept_at_another_bridge_too(start_bridge: StartBridge) -> None:
    """The bridge that owns the session waits for a client that is not its own."""
    owner = start_bridge(*DRAIN, "--session-shards", "1")
    with (
        client_of(owner) as client,
        client.get_queue_receiver("sessions", session_id="another"),  # keeps the ownership here
    ):
        other = start_bridge()
        with (
            client_of(other) as client,
            client.get_queue_sender("sessions") as sender,
            client.get_queue_receiver("sessions", session_id="one") as receiver,
        ):
            _send_in_session(sender, "a", "b")
            (first,) = receive(receiver)
            stop = Stop(owner)
            receiver.session.renew_lock()
            assert stop.goes_on
            receiver.complete_message(first)
            assert stop.ended() == 0
    with (
        client_of(other) as client,
        client.get_queue_receiver("sessions", session_id="one") as receiver,
    ):
        assert texts(take(receiver)) == ["b"]
        expect_silence(receiver)


def _send_in_session(sender: ServiceBusSender, *bodies: str) -> None:
    for body in bodies:
        sender.send_messages(ServiceBusMessage(body, session_id="one"))
