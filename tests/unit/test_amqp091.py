"""Frames and methods: another implementation reads what we write, and we read what it writes."""

from __future__ import annotations

import pamqp.commands as witness
import pamqp.frame
import pamqp.header
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire import amqp091 as wire
from bridge.wire.basic import Properties, long, text

NAMES = {
    value: name
    for name, value in vars(wire).items()
    if isinstance(value, int) and value in wire.METHODS
}

EXAMPLES: dict[str, object] = {
    "o": 9,
    "h": 300,
    "l": 70_000,
    "q": 2**40,
    "s": "orders",
    "S": b"secret",
    "T": {"key": text("value"), "n": long(5)},
    "b": True,
}


def _class_of(method: int) -> type[pamqp.base.Frame]:
    return witness.INDEX_MAPPING[method]


@pytest.mark.parametrize("method", wire.METHODS, ids=NAMES.get)
def test_a_method_survives(method: int) -> None:
    """Every argument is read back as it was written, in every position."""
    arguments = tuple(EXAMPLES[kind] for kind in wire.METHODS[method])

    frame = wire.method_frame(7, method, *arguments)

    assert (1, 7, len(frame) - 8) == wire.FRAME_HEAD.unpack_from(frame)
    assert (method, arguments) == wire.read_method(frame, 7, len(frame) - 1)


@pytest.mark.parametrize("method", wire.METHODS, ids=NAMES.get)
def test_a_method_has_its_number_for_others(method: int) -> None:
    """pamqp knows each number by the name that we have for it."""
    name = _class_of(method).name.replace(".", "").lower()

    assert name == NAMES[method].replace("_", "").lower()


def test_others_read_what_we_write() -> None:
    """pamqp finds each argument of a declare with its flags where we put them."""
    frame = wire.method_frame(
        3, wire.QUEUE_DECLARE, 0, "q", False, True, False, True, False, {"x-n": long(5)}
    )

    size, channel, declare = pamqp.frame.unmarshal(frame)

    assert (len(frame), 3) == (size, channel)
    assert (
        declare.queue,
        declare.passive,
        declare.durable,
        declare.exclusive,
        declare.auto_delete,
    ) == ("q", False, True, False, True)
    assert declare.arguments == {"x-n": 5}


def test_we_read_what_others_write() -> None:
    """A delivery that pamqp wrote has its parts where they belong."""
    frame = pamqp.frame.marshal(witness.Basic.Deliver("tag", 2**33, True, "x", "key"), 5)

    method = wire.read_method(frame, 7, len(frame) - 1)

    assert method == (wire.BASIC_DELIVER, ("tag", 2**33, True, "x", "key"))


@pytest.mark.parametrize("size", [0, 1, 999, 1_000, 1_001, 5_000])
def test_a_body_is_split_at_the_limit(size: int) -> None:
    """pamqp puts header and bodies of any size together again; no frame exceeds the limit."""
    body = bytes(index % 251 for index in range(size))
    properties = Properties(message_id="m").encode()

    raw = b"".join(wire.content_frames(4, properties, body, 1_000))

    bodies = []
    size_read, channel, header = pamqp.frame.unmarshal(raw)
    assert (4, size, "m") == (channel, header.body_size, header.properties.message_id)
    while raw := raw[size_read:]:
        size_read, channel, part = pamqp.frame.unmarshal(raw)
        assert channel == 4
        assert size_read <= 1_008
        bodies.append(part.value)
    assert body == b"".join(bodies)


@pytest.mark.parametrize(
    ("method", "bits", "expected"),
    [
        (wire.BASIC_ACK, 1, witness.Basic.Ack(9, True)),
        (wire.BASIC_REJECT, 1, witness.Basic.Reject(9, True)),
        (wire.BASIC_NACK, 2, witness.Basic.Nack(9, False, True)),
        (wire.BASIC_NACK, 1, witness.Basic.Nack(9, True, False)),
    ],
)
def test_settlements_mean_the_same_to_others(
    method: int, bits: int, expected: pamqp.base.Frame
) -> None:
    """Flags of acks, rejects and nacks stand where pamqp looks for them."""
    _, channel, received = pamqp.frame.unmarshal(wire.settle_frame(2, method, 9, bits))

    assert (2, dict(expected)) == (channel, dict(received))


@given(st.sampled_from(sorted(wire.METHODS)), st.binary(max_size=60))
def test_any_bytes_are_a_method_or_a_value_error(method: int, raw: bytes) -> None:
    """Nothing but ValueError comes out of bytes that are not a method."""
    raw = method.to_bytes(4, "big") + raw
    try:
        wire.read_method(raw, 0, len(raw))
    except ValueError:
        return


def test_an_argument_that_does_not_fit_is_a_value_error() -> None:
    """A name of more than 255 bytes is refused before anything is written."""
    with pytest.raises(ValueError, match="255"):
        wire.method_frame(1, wire.BASIC_GET, 0, "q" * 256, False)
    with pytest.raises(ValueError, match="fit"):
        wire.method_frame(1, wire.BASIC_QOS, 0, 70_000, False)
