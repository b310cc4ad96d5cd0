"""Locks that a bridge gives a client: how long the client remembers that a bridge has them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast
from uuid import UUID, uuid4

from bridge.client.core.directory import Directory
from bridge.client.core.publisher import Publisher
from bridge.client.core.remote import KNOWN_S, Remote
from bridge.client.core.wire import Delivery
from bridge.message.received import Received
from bridge.message.shown import encode
from bridge.model.name import EntityPath
from bridge.wire import reply
from bridge.wire.basic import Properties
from bridge.wire.record import Record
from tests.fixtures.scripted_wire import ScriptedWire

PATH = EntityPath("orders")


class Asking:
    """A client, and a bridge that answers its questions."""

    def __init__(self) -> None:
        self.wire = ScriptedWire()
        any_wire = cast(Any, self.wire)
        publisher = Publisher(any_wire)
        directory = Directory(any_wire, publisher, lambda path: (0, 0))
        self.remote = Remote(publisher, directory, self.wire.now_s)
        self._asked = 0

    def receive_deferred(self) -> UUID:
        """Receive a message; return its lock's token."""
        token = uuid4()
        received = Received(
            record=Record(Properties(), b"body"),
            sequence_number=1,
            enqueued_ms=0,
            delivery_count=0,
            lock_token=token,
            locked_until_ms=60_000,
        )
        answer: Future[list[Received]] = Future()
        self.remote.receive_deferred(PATH, [1], True, answer)
        if not self._asked:
            self._answer(reply.encode_found(b"$sb/bridge/00"))
        self._answer(reply.encode_found(encode([received])))
        assert [each.lock_token for each in answer.result(0)] == [token]
        return token

    def renew(self, token: UUID) -> None:
        """Renew a lock."""
        answer: Future[int] = Future()
        self.remote.renew(PATH, token, answer)
        self._answer(reply.encode_done([120_000]))
        assert answer.result(0) == 120_000

    def _answer(self, body: bytes) -> None:
        """Answer the latest question."""
        self._asked += 1
        (channel,) = self.wire.channels
        assert channel.deliver is not None
        properties = Properties(correlation_id=str(self._asked)).encode()
        channel.deliver(Delivery(0, "", properties, body))


def test_a_lock_that_is_surely_over_is_forgotten() -> None:
    """Its message was never settled; so a process that goes on for months keeps no more of it."""
    asking = Asking()
    over = asking.receive_deferred()
    asking.wire.advance(KNOWN_S / 2)
    renewed = asking.receive_deferred()
    asking.wire.advance(KNOWN_S / 2)
    asking.renew(renewed)
    assert asking.remote.holds(over)
    asking.wire.advance(1)
    latest = asking.receive_deferred()
    assert not asking.remote.holds(over)
    asking.wire.advance(KNOWN_S - 1)
    asking.receive_deferred()
    assert asking.remote.holds(renewed)
    assert asking.remote.holds(latest)
