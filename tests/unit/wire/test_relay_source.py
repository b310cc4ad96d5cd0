"""A relay's annotations are taken off a message, and nothing else of it changes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.errors import InvalidField
from bridge.remote.message import RemoteMessage
from bridge.wire import relay_source
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.primitives import encode_long, encode_map, encode_timestamp
from bridge.wire.amqp10.scalars import Long, Symbol, Timestamp
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.inward import record_from_message
from bridge.wire.mapping.relayed import without_source
from bridge.wire.mapping.sections import MESSAGE_ANNOTATIONS, descriptor
from bridge.wire.relay_source import copy_annotations, digest_of, read, say

SOURCE = digest_of("one/orders")
NUMBERS = st.integers(0, 2**63 - 1)


def symbol(name: str, *, is_long: bool) -> bytes:
    """Encode a symbol in its short or its long form."""
    raw = name.encode()
    return b"\xb3" + struct.pack(">I", len(raw)) + raw if is_long else bytes((0xA3, len(raw))) + raw


@given(
    number=NUMBERS,
    back=st.integers(0, 2**47),
    at_ms=st.integers(0, 2**47),
    own=st.lists(st.sampled_from(["a", "x-opt-partition-key", "x-opt-own"]), unique=True),
    chance=st.randoms(use_true_random=False),
    is_long=st.booleans(),
)
def test_what_a_relay_says_is_taken_off(
    number: int, back: int, at_ms: int, own: list[str], chance: object, is_long: bool
) -> None:
    """In any order among the sender's annotations, which keep their bytes and theirs."""
    lowest = max(number - back, number >> 48 << 48)
    pairs = [(symbol(name, is_long=is_long), writing.write_string(name)) for name in own]
    said = copy_annotations(number, at_ms, lowest)
    ours = [
        (symbol(name, is_long=is_long), encode_long(value))
        if isinstance(value, Long)
        else (symbol(name, is_long=is_long), encode_timestamp(value))
        for name, value in said.items()
    ]
    mixed = [*pairs, *ours]
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    kept = [each for each in mixed if each not in ours]
    message = RemoteMessage.of(data=b"body", application_properties={"a": Long(2**40)})
    rest = message.encode()

    def section(each: list[tuple[bytes, bytes]]) -> bytes:
        return descriptor(MESSAGE_ANNOTATIONS) + encode_map(each) if each else b""

    bare, found = without_source(section(mixed) + rest, SOURCE)
    assert bare == section(kept) + rest
    assert read(found) == (SOURCE, number, at_ms, lowest)
    record_from_message(bare, new_message_id="x")


@given(st.binary(max_size=80), st.booleans())
def test_bytes_that_are_no_copy_are_refused(raw: bytes, is_cut: bool) -> None:
    """Whatever they are, by a word."""
    whole = RemoteMessage.of(data=raw, annotations=copy_annotations(1, 1, 1)).encode()
    spoilt = whole[: len(raw)] if is_cut else raw
    with pytest.raises((MappingError, InvalidField)):
        without_source(spoilt, SOURCE)


@pytest.mark.parametrize(
    ("number", "at_ms", "lowest"),
    [(-1, 1, -1), (1, 1, 2), (1 << 48, 1, 1), (1, -1, 1), (1, 2**60, 1)],
)
def test_what_no_source_says_is_no_identity(number: int, at_ms: int, lowest: int) -> None:
    """A negative number, a lowest above it or of another partition, a time that is none."""
    with pytest.raises(ValueError, match="number"):
        say(SOURCE, number, at_ms, lowest)


def test_the_annotations_have_the_types_that_are_told() -> None:
    """A client writes them so."""
    assert copy_annotations(1, 2, 3) == {
        Symbol("x-opt-busbridge-source-number"): Long(1),
        Symbol("x-opt-busbridge-source-time"): Timestamp(2),
        Symbol("x-opt-busbridge-source-lowest"): Long(3),
    }
    assert relay_source.SAID_BYTES == 40
