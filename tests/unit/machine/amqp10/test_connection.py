"""Opening, closing and falling silent; garbage of every kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.amqp10.endpoint import ConnectionState
from bridge.machine.amqp10.events import Closed, LinkDetached, Opened, SaslChosen
from bridge.machine.amqp10.limits import Limits
from bridge.wire.amqp10.frame import EMPTY_FRAME, ProtocolHeader, encode_frame
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
)
from tests.unit.machine.amqp10.peer import Peer, frame

FLOW = Flow(None, 1, 0, 1)


def test_handshake() -> None:
    """SASL, then AMQP; our open and begin say all that a client needs."""
    peer = Peer().open(max_frame_size=4096).begin(channel=3)

    assert peer.headers == [ProtocolHeader.SASL.value, ProtocolHeader.AMQP.value]
    assert peer.take(SaslMechanisms) == [SaslMechanisms(("ANONYMOUS", "PLAIN"))]
    assert peer.take(SaslOutcome) == [SaslOutcome(0)]
    (opened,) = peer.take(Open)
    assert (opened.max_frame_size, opened.channel_max, opened.idle_time_out) == (
        262_144,
        4_999,
        120_000,
    )
    assert peer.frames[0][0] == 3
    (begun,) = peer.take(Begin)
    assert (begun.remote_channel, begun.next_outgoing_id) == (3, 0x40000000)
    assert begun.handle_max is not None
    assert [type(event) for event in peer.events] == [SaslChosen, Opened]


@given(st.data())
def test_bytes_in_any_portions(data: st.DataObject) -> None:
    """It does not matter how the network cuts the bytes."""
    script = (
        ProtocolHeader.SASL.value
        + encode_frame(0, SaslInit("ANONYMOUS"), frame_type=1)
        + ProtocolHeader.AMQP.value
        + frame(0, Open("client"))
        + frame(0, Begin(None, 0, 100, 100))
        + frame(0, Attach("l", 0, False, initial_delivery_count=0))
        + b"".join(frame(0, Transfer(0, i, b"t", 0), b"x" * 50) for i in range(3))
        + frame(0, Close())
    )
    whole, cut = Peer(), Peer()
    whole.feed(script)
    at = 0
    while at < len(script):
        size = data.draw(st.integers(1, 80))
        cut.feed(script[at : at + size])
        at += size

    assert [type(event) for event in cut.events] == [type(event) for event in whole.events]
    assert cut.frames == whole.frames
    assert cut.endpoint.state is ConnectionState.FINISHED


def test_without_sasl() -> None:
    """A client may leave SASL out; it has then proven nothing."""
    peer = Peer()
    peer.feed(ProtocolHeader.AMQP.value)
    peer.send(Open("client"))

    assert peer.headers == [ProtocolHeader.AMQP.value]
    assert peer.endpoint.state is ConnectionState.OPEN


def test_refused_mechanism() -> None:
    """A refused mechanism is told so, and the connection is over."""
    peer = Peer()
    peer.feed(ProtocolHeader.SASL.value + encode_frame(0, SaslInit("PLAIN"), frame_type=1))

    assert peer.take(SaslOutcome) == [SaslOutcome(1)]
    assert peer.endpoint.state is ConnectionState.FINISHED


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"AMQP\x00\x00\x09\x01"],
)
def test_another_protocol(data: bytes) -> None:
    """A client of another protocol gets the header that we would have taken, and no more."""
    peer = Peer()
    peer.feed(data)

    assert peer.headers == [ProtocolHeader.SASL.value]
    assert peer.endpoint.state is ConnectionState.FINISHED


FAULTS: dict[str, tuple[bytes, str]] = {
    "a giant frame": (b"\x7f\xff\xff\xff\x02\x00\x00\x00", "amqp:connection:framing-error"),
    "a tiny frame": (b"\x00\x00\x00\x07\x02\x00\x00\x00", "amqp:connection:framing-error"),
    "a bad offset": (b"\x00\x00\x00\x08\x01\x00\x00\x00", "amqp:connection:framing-error"),
    "an offset beyond": (b"\x00\x00\x00\x08\x03\x00\x00\x00", "amqp:connection:framing-error"),
    "a SASL frame": (b"\x00\x00\x00\x08\x02\x01\x00\x00", "amqp:connection:framing-error"),
    "no performative": (b"\x00\x00\x00\x0c\x02\x00\x00\x00abcd", "amqp:decode-error"),
    "a cut performative": (
        frame(0, FLOW)[:3] + b"\x14" + frame(0, FLOW)[4:20],
        "amqp:decode-error",
    ),
    "a second open": (frame(0, Open("again")), "amqp:illegal-state"),
    "a second begin": (frame(0, Begin(None, 0, 1, 1)), "amqp:illegal-state"),
    "an unbegun channel": (frame(7, FLOW), "amqp:connection:framing-error"),
    "a high channel": (frame(5_000, Begin(None, 0, 1, 1)), "amqp:connection:framing-error"),
    "an answered begin": (frame(1, Begin(4, 0, 1, 1)), "amqp:invalid-field"),
    "a high handle": (frame(0, Attach("x", 5_000, True)), "amqp:connection:framing-error"),
    "an outcome as a frame": (frame(0, Accepted()), "amqp:connection:framing-error"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_costs_the_connection(name: str) -> None:
    """A broken frame closes the connection with the condition that says why."""
    data, condition = FAULTS[name]
    peer = Peer().open().begin()
    link = peer.attach_sender()
    events = peer.feed(data)

    (close,) = peer.take(Close)
    assert close.error.condition == condition
    assert close.error.info == {}
    assert peer.endpoint.state is ConnectionState.FINISHED
    assert next(event for event in events if isinstance(event, LinkDetached)).link is link
    assert [event for event in events if isinstance(event, Closed)] == [Closed(close.error, True)]
    assert peer.feed(frame(0, FLOW)) == []
    assert peer.collect() == []


def test_frame_before_open() -> None:
    """Before open nothing else may come; our open goes in front of our close."""
    peer = Peer()
    peer.feed(ProtocolHeader.AMQP.value + frame(0, Begin(None, 0, 1, 1)))

    assert [type(item) for _, item, _ in peer.frames] == [Open, Close]
    assert peer.take(Close)[0].error.condition == "amqp:illegal-state"


def test_small_max_frame_size() -> None:
    """A max-frame-size below 512 is refused."""
    peer = Peer().open(max_frame_size=511)

    assert peer.take(Close)[0].error.condition == "amqp:invalid-field"


def test_close_by_the_peer() -> None:
    """A close is answered, and everything is over."""
    peer = Peer().open().begin()
    link = peer.attach_receiver()
    events = peer.send(Close(Error("amqp:x", "why")))

    assert peer.take(Close) == [Close()]
    assert events == [
        LinkDetached(link),
        Closed(Error("amqp:x", "why"), False),
    ]


def test_close_by_us() -> None:
    """We close, read past what is still under way, and are done with the peer's close."""
    peer = Peer().open().begin()
    peer.attach_sender()
    peer.endpoint.close("amqp:connection:forced", "enough")
    peer.collect()

    assert peer.take(Close)[0].error.condition == "amqp:connection:forced"
    assert peer.transfer(0) == []
    assert peer.endpoint.state is not ConnectionState.FINISHED
    assert peer.send(Close()) == []
    assert peer.endpoint.state is ConnectionState.FINISHED
    assert peer.take(Close) == []


def test_lost_transport() -> None:
    """A lost transport detaches every link; nothing is written any more."""
    peer = Peer().open().begin()
    link = peer.attach_sender()

    assert peer.endpoint.lost() == [LinkDetached(link), Closed(None, False)]
    link.settle(0, Accepted())
    link.grant(5)
    assert peer.collect() == []


def test_frames_after_end() -> None:
    """Frames on an ended channel are skipped, as the Python SDK needs it."""
    peer = Peer().open().begin()
    peer.attach_sender(2)
    peer.send(End())

    assert peer.take(End) == [End()]
    assert peer.send(Detach(2, False)) == []
    assert peer.take(Close) == []
    peer.begin()
    assert len(peer.take(Begin)) == 2


def test_heartbeats() -> None:
    """We are silent for half of the peer's time-out at most, and for 30 s in any case."""
    for idle_ms, expected_ms in ((60_000, 30_000), (10_000, 5_000), (0, 30_000), (1, 500)):
        peer = Peer().open(idle_time_out=idle_ms)
        peer.frames.clear()
        start_ms = peer.now_ms

        assert peer.endpoint.deadline_ms == start_ms + expected_ms
        assert peer.endpoint.tick(start_ms + expected_ms - 1) == []
        assert peer.endpoint.take_output() == b""
        assert peer.endpoint.tick(start_ms + expected_ms) == []
        assert peer.endpoint.take_output() == EMPTY_FRAME


def test_silent_peer() -> None:
    """A peer that says nothing for twice the time-out is closed; a heartbeat is enough to live."""
    peer = Peer().open()
    peer.now_ms += 200_000
    peer.feed(EMPTY_FRAME)
    assert peer.endpoint.tick(peer.now_ms + 239_999) == []

    (event,) = peer.endpoint.tick(peer.now_ms + 240_000)

    assert isinstance(event, Closed)
    peer.collect()
    assert peer.take(Close)[0].error.condition == "amqp:connection:forced"


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=8))
def test_mutated_bytes(changes: list[tuple[int, int]]) -> None:
    """With any bytes of a conversation changed, nothing is raised and nothing is held."""
    script = bytearray(_script())
    for at, octet in changes:
        script[at % len(script)] = octet
    peer = Peer()

    peer.feed(bytes(script))

    assert peer.endpoint.output_bytes == 0


def _script() -> bytes:
    parts: list[Any] = [
        Open("client"),
        Begin(None, 0, 100, 100),
        Attach("s", 0, False, initial_delivery_count=0),
        Attach("r", 1, True),
        Flow(0, 100, 0, 100, 1, 0, 10),
        Transfer(0, 0, b"t", 0),
        Detach(0, True),
        End(),
        Close(),
    ]
    return (
        ProtocolHeader.SASL.value
        + encode_frame(0, SaslInit("ANONYMOUS"), frame_type=1)
        + ProtocolHeader.AMQP.value
        + b"".join(frame(0, part) for part in parts)
    )


def test_limits_are_told() -> None:
    """The limits that are enforced are those that the peer was told."""
    limits = Limits(frame_bytes_max=1024, channel_max=2, handle_max=1, incoming_window=4)
    peer = Peer(limits=limits).open().begin()

    assert (peer.take(Open)[0].max_frame_size, peer.take(Begin)[0].incoming_window) == (1024, 4)
    peer.send(Attach("x", 2, True))
    assert peer.take(Close)[0].error.condition == "amqp:connection:framing-error"
