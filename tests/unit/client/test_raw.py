"""Both libraries hand on properties as they stand on the wire; what a publish comes to is told."""

from __future__ import annotations

import socket
from contextlib import closing
from functools import partial
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any

import pamqp.frame
import pika.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import SelectConnection, spec
from pika.adapters.utils.io_services_utils import _AsyncPlaintextTransport
from pika.exceptions import AMQPError

from bridge.client.address import parse, rabbitmq_url
from bridge.client.aio.raw import RawProperties as AioProperties
from bridge.client.aio.raw import raw_of, with_id
from bridge.client.core.confirms import Confirms
from bridge.client.core.wire import RefusedPublish, Unroutable
from bridge.client.exceptions import OutcomeUnknownError
from bridge.client.sync.loop import Loop
from bridge.client.sync.raw import RawChannel, RawConnection, RawProperties
from bridge.wire.basic import Properties

TYPED = Properties(
    message_id="id",
    headers={
        "octet": ("B", 7),
        "short": ("s", 7),
        "int": ("I", 7),
        "long": ("l", 7),
        "double": ("d", 1.5),
        "bytes": ("x", b"\xff"),
        "time": ("T", 5),
    },
).encode()


def test_pika_keeps_the_types_of_headers() -> None:
    """A written message is read again, byte for byte, in pieces of any size."""
    wire = pika.frame.Header(3, 10, RawProperties(TYPED)).marshal()
    assert pika.frame.decode_frame(wire)[1].properties.message_id == "id"
    for size in range(len(wire)):
        assert RawConnection._read_frame(SimpleNamespace(_frame_buffer=wire[:size])) == (0, None)
    consumed, found = RawConnection._read_frame(SimpleNamespace(_frame_buffer=wire + b"more"))
    assert (consumed, found.channel_number, found.body_size) == (len(wire), 3, 10)
    assert found.properties.raw == TYPED


def a_message(
    number: int,
    tag: int,
    body: bytes,
    frame_bytes: int,
    *,
    redelivered: bool,
    exchange: str,
    consumer: str,
) -> bytes:
    """A delivery on a channel, as RabbitMQ writes it."""
    names = [each.encode(errors="surrogateescape") for each in (consumer, exchange)]
    deliver = spec.Basic.Deliver(names[0], tag, redelivered, names[1], "key")
    parts = [body[at : at + frame_bytes] for at in range(0, len(body), frame_bytes)]
    frames = [
        pika.frame.Method(number, deliver),
        pika.frame.Header(number, len(body), RawProperties(TYPED)),
        *(pika.frame.Body(number, part) for part in parts),
    ]
    return b"".join(frame.marshal() for frame in frames)


class PikasOwn(RawConnection):
    """A connection that reads one frame after the other, as pika does."""

    def _on_data_available(self, data_in: bytes) -> None:
        SelectConnection._on_data_available(self, data_in)


Found = list[tuple[int, int, bool, str, bytes, bytes]]


def read(made: type[RawConnection], pieces: list[bytes]) -> tuple[Found, int, type | None]:
    """Return what consumers on channels 1 and 2 are given, frames read, and how it ended."""
    found: Found = []
    with closing(Loop()) as loop:
        connection = made(internal_connection_workflow=False, custom_ioloop=loop)
    connection._channels = {1: a_channel(connection, 1, found), 2: a_channel(connection, 2, found)}
    try:
        for piece in pieces:
            connection._on_data_available(piece)
    except AMQPError as error:
        return found, 0, type(error)
    return found, connection.frames_received, None


def a_channel(connection: RawConnection, number: int, found: Found) -> RawChannel:
    """An open channel with a consumer that notes what comes."""
    channel = RawChannel(connection, number, lambda channel: None)
    channel._consumers["window-1"] = lambda *message: found.append((number, *message))
    return channel


MESSAGES = st.builds(
    a_message,
    st.integers(1, 3),
    st.integers(0, 2**63),
    st.binary(max_size=60),
    st.integers(7, 50),
    redelivered=st.booleans(),
    exchange=st.sampled_from(["exchange", "", "\N{EURO SIGN}", "\udcfc"]),
    consumer=st.sampled_from(["window-1", "window-1", "window-2", "\udcff"]),
)

FRAMES = st.lists(MESSAGES | st.just(pika.frame.Heartbeat().marshal()), max_size=6)


@st.composite
def cut(draw: st.DrawFn, frames: st.SearchStrategy[list[bytes]]) -> list[bytes]:
    """The same bytes, cut anywhere."""
    data = b"".join(draw(frames))
    cuts = draw(st.lists(st.integers(0, len(data)), max_size=12))
    if draw(st.booleans()):
        cuts = list(range(len(data)))
    places = [0, *sorted(cuts), len(data)]
    return [data[at:end] for at, end in pairwise(places) if at < end]


@given(cut(FRAMES))
def test_pika_delivers_the_same_however_the_bytes_come(pieces: list[bytes]) -> None:
    """It finds what pika's own reading finds: of one body frame, several or none."""
    ours, theirs = read(RawConnection, pieces), read(PikasOwn, pieces)
    assert ours == theirs
    assert ours[2] is None


@given(cut(st.tuples(MESSAGES, MESSAGES).map(list)), st.data())
def test_a_damaged_frame_ends_the_connection(pieces: list[bytes], data: st.DataObject) -> None:
    """As with pika alone: nothing is read behind it."""
    whole = bytearray(b"".join(pieces))
    ends = [at for at, byte in enumerate(whole) if byte == spec.FRAME_END]
    whole[data.draw(st.sampled_from(ends))] = 0
    sizes = [len(piece) for piece in pieces]
    pieces = [
        bytes(whole[end - size : end]) for size, end in zip(sizes, accumulate(sizes), strict=True)
    ]
    assert read(RawConnection, pieces) == read(PikasOwn, pieces)


def test_aio_pika_keeps_the_types_of_headers() -> None:
    """Beside what pamqp makes of them."""
    header = pamqp.header.ContentHeader(body_size=10, properties=AioProperties(TYPED, "id"))
    _, channel, found = pamqp.frame.unmarshal(pamqp.frame.marshal(header, 3))
    assert (channel, found.body_size, found.properties.message_id) == (3, 10, "id")
    assert raw_of(found) == TYPED


@pytest.mark.parametrize(
    "odd",
    [
        Properties(correlation_id="\udcfcber"),
        Properties(type="\udcff"),
        Properties(headers={"\udcfc": ("S", b"x")}),
    ],
    ids=["correlation id", "type", "header"],
)
def test_what_is_no_utf_8_ends_no_connection(odd: Properties) -> None:
    """aio-pika would connect again and again: the message comes each time."""
    raw = odd.encode()
    header = pamqp.header.ContentHeader(body_size=10, properties=AioProperties(raw, "id"))
    _, channel, found = pamqp.frame.unmarshal(pamqp.frame.marshal(header, 3))
    assert (channel, found.body_size) == (3, 10)
    assert raw_of(found) == raw


def test_what_has_no_id_gets_one() -> None:
    """By it aio-pika knows a message that RabbitMQ returns."""
    assert with_id(TYPED, "new") == (TYPED, "id")
    raw, message_id = with_id(Properties(type="t").encode(), "new")
    assert message_id == "new"
    assert Properties.decode(raw) == Properties(type="t", message_id="new")


def test_each_publish_is_told_once() -> None:
    """Confirmed, alone or with others; returned; refused; or nobody knows."""
    told: dict[str, Any] = {}
    confirms = Confirms()
    for name in ("a", "b", "c", "d", "e"):
        confirms.add("", name, b"", b"", lambda error, name=name: told.setdefault(name, error))
    confirms.on_return("", "b", b"", b"")
    confirms.on_confirm(2, is_multiple=True, is_taken=True)
    assert told["a"] is None
    assert isinstance(told["b"], Unroutable)
    confirms.on_confirm(4, is_multiple=False, is_taken=False)
    assert isinstance(told["d"], RefusedPublish)
    confirms.on_confirm(4, is_multiple=True, is_taken=True)
    assert told["c"] is None
    confirms.lose("the cable")
    assert isinstance(told["e"], OutcomeUnknownError)
    assert set(told) == {"a", "b", "c", "d", "e"}


def test_where_rabbitmq_is() -> None:
    """The argument first, then the connection string, then the environment."""
    azure = "Endpoint=sb://x;SharedAccessKeyName=k;SharedAccessKey=s"
    there = {"BUSBRIDGE_RABBITMQ_URL": "amqp://c"}
    assert rabbitmq_url("amqp://a", "amqp://b", there) == "amqp://b"
    assert rabbitmq_url("amqp://a", None, there) == "amqp://a"
    assert rabbitmq_url(azure, None, there) == "amqp://c"
    with pytest.raises(ValueError, match="BUSBRIDGE_RABBITMQ_URL"):
        rabbitmq_url(azure, None, {})


def test_a_url_is_read() -> None:
    """Login and virtual host are percent-encoded; the password is in no repr."""
    found = parse("amqp://u%40x:p%2Fw@one,[::1]:7000/a%2Fb")
    assert found.hosts == (("one", 5672), ("::1", 7000))
    assert (found.user, found.password, found.vhost) == ("u@x", "p/w", "a/b")
    assert "p/w" not in repr(found)
    assert parse("amqps://one").tls is not None
    for wrong in ("http://x", "amqp://", "amqp://a/b/c", "amqp://a:b:c", "amqp://a/?x=1"):
        with pytest.raises(ValueError, match=r"URL"):
            parse(wrong)


def a_connected(loop: Loop) -> tuple[RawConnection, socket.socket]:
    """A connection whose socket's buffer is small, and the other end."""
    ours, other = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    connection = RawConnection(internal_connection_workflow=False, custom_ioloop=loop)

    def lost(error: object) -> None:
        connection._transport = None

    protocol = SimpleNamespace(connection_lost=lost)
    connection._transport = _AsyncPlaintextTransport(ours, protocol, connection._nbio)
    return connection, other


def turn(loop: Loop) -> None:
    """A turn of the I/O thread."""
    loop.prepare()
    loop.turn(loop.wait())


def test_what_the_kernel_takes_in_parts_arrives_whole() -> None:
    """While the other end does not read nobody is told that it is written."""
    frames = [bytes([number]) * 3_000 for number in range(200)]
    written: list[int] = []
    read = b""
    with closing(Loop()) as loop:
        connection, other = a_connected(loop)
        for number, frame in enumerate(frames):
            connection._output_marshaled_frames([frame[:7], frame[7:]])
            connection.written(partial(written.append, number))
        assert 0 < len(written) < 100
        for _ in range(3):
            turn(loop)
        with closing(other):
            while len(read) < len(b"".join(frames)):
                read += other.recv(50_000)
                turn(loop)
            while len(written) < len(frames):
                turn(loop)
            connection._transport.abort()
            turn(loop)
    assert read == b"".join(frames)
    assert sorted(written) == list(range(200))


def test_nothing_is_written_behind_a_frame_that_was_cut() -> None:
    """A write that was given up half way stays so; its callers are told."""
    written: list[bool] = []
    with closing(Loop()) as loop:
        connection, other = a_connected(loop)
        connection._output_marshaled_frames([b"x" * 1_000_000])
        connection.written(partial(written.append, True))
        connection._transport.abort()
        connection.ack(1, 1)
        with closing(other):
            read = len(other.recv(1 << 20))
            turn(loop)
            while piece := other.recv(1 << 20):
                read += len(piece)
            while not written:
                turn(loop)
        connection.ack(1, 1)
    assert 0 < read < 1_000_000
