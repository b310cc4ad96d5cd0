"""What a peer may send before and after it is known, and how much it may leave unfinished."""

from __future__ import annotations

from bridge.machine.amqp10.events import MessageArrived, MessageRefused
from bridge.machine.amqp10.limits import Limits
from bridge.machine.amqp10.link import IncomingLink
from bridge.wire.amqp10.performatives import Attach, Close, Detach, Source, Target
from tests.unit.machine.amqp10.peer import Peer

SMALL = Limits(
    frame_bytes_max=4_096,
    unauthenticated_frame_bytes_max=600,
    unauthenticated_message_bytes_max=1_000,
)


def unauthenticated(limits: Limits = SMALL) -> tuple[Peer, IncomingLink]:
    """Return a peer that has proven nothing, and its link, which takes 3,000 bytes a message."""
    peer = Peer(limits=limits, accepts=False).open().begin()
    peer.send(Attach("tokens", 0, False, source=Source("me"), target=Target("$cbs")))
    link = peer.endpoint.sessions[0].links[0]
    assert isinstance(link, IncomingLink)
    link.accept(credit=10, message_bytes_max=3_000)
    return peer, link


def test_frame_of_an_unauthenticated_peer() -> None:
    """A frame above its limit costs the connection before its body has come."""
    peer, _ = unauthenticated()
    peer.feed((601).to_bytes(4, "big") + b"\x02\x00\x00\x00")

    assert peer.take(Close)[0].error.condition == "amqp:connection:framing-error"


def test_frame_of_a_known_peer() -> None:
    """Once known, a peer sends frames as large as it was told; from the next frame on."""
    peer, _ = unauthenticated()
    peer.endpoint.authenticated()
    events = peer.transfer(0, bytes(2_000))

    assert [type(event) for event in events] == [MessageArrived]
    assert peer.take(Close) == []


def test_known_before_open() -> None:
    """A key in SASL comes before any frame: the limit is the known peer's from the first."""
    peer = Peer(limits=SMALL)
    peer.endpoint.authenticated()
    peer.open(properties={"x": "y" * 2_000})

    assert peer.take(Close) == []
    assert peer.endpoint.is_authenticated


def test_message_of_an_unauthenticated_peer() -> None:
    """A message in parts above its limit is refused, and nothing of it is kept."""
    peer, link = unauthenticated()
    for part in range(4):
        events = peer.transfer(None if part else 0, bytes(400), more=part < 3)
        assert link.held_bytes <= 1_000

    assert events == [MessageRefused(link)]
    assert peer.endpoint.held_bytes == 0

    peer.endpoint.authenticated()
    assert [type(event) for event in peer.transfer(1, bytes(3_000))] == [MessageArrived]
    assert [type(event) for event in peer.transfer(2, bytes(3_001))] == [MessageRefused]


def test_message_that_began_before_its_peer_was_known() -> None:
    """A message that was too large stays so: its first parts are not kept."""
    peer, link = unauthenticated()
    for part in range(3):
        peer.transfer(None if part else 0, bytes(400), more=True)
    peer.endpoint.authenticated()

    assert peer.transfer(None, bytes(400)) == [MessageRefused(link)]


def test_unfinished_messages_are_counted() -> None:
    """The bytes of unfinished messages are counted over all links, and given back with each."""
    peer = Peer().open().begin()
    peer.endpoint.authenticated()
    for handle in range(3):
        peer.attach_sender(handle)
        peer.transfer(handle, bytes(100), more=True, handle=handle)
    assert peer.endpoint.held_bytes == 300

    peer.transfer(None, b"x", handle=0)
    assert peer.endpoint.held_bytes == 200
    peer.transfer(None, b"", handle=1, aborted=True)
    assert peer.endpoint.held_bytes == 100
    peer.send(Detach(2, True))
    assert peer.endpoint.held_bytes == 0


def test_too_many_unfinished_bytes() -> None:
    """More of them than the limit costs the connection."""
    peer = Peer(limits=Limits(held_bytes_max=250)).open().begin()
    for handle in range(3):
        peer.attach_sender(handle)
        peer.transfer(handle, bytes(100), more=True, handle=handle)

    assert peer.take(Close)[0].error.condition == "amqp:resource-limit-exceeded"
    assert peer.endpoint.held_bytes == 0
