"""WebSocket frames: what a client may send, cut anywhere, and what it may not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.websocket import BINARY, Input, WebSocketError, WebSocketReader, frame_head
from tests.conformance.web import CLOSE, PING, PONG, masked

PAYLOADS = st.binary(max_size=300) | st.sampled_from([bytes(126), bytes(65_535), b"x" * 65_536])


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """Return data in pieces that end at these places."""
    ends = sorted({min(each, len(data)) for each in at} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@given(st.lists(st.tuples(PAYLOADS, st.booleans()), max_size=6), st.lists(st.integers(0, 1_000)))
def test_payload_comes_whole_however_it_is_cut(
    frames: list[tuple[bytes, bool]], at: list[int]
) -> None:
    """Messages of one frame or several, with pings between, cut into reads anywhere."""
    said = b""
    is_in_message = False
    for payload, is_last in frames:
        said += masked(payload, opcode=0 if is_in_message else BINARY, first=0x80 * is_last)
        said += masked(b"hello", opcode=PING)
        is_in_message = not is_last
    reader = WebSocketReader()
    read = [reader.feed(piece) for piece in cut(said, at)]

    assert b"".join(each.payload for each in read) == b"".join(payload for payload, _ in frames)
    assert [each.ping for each in read if each.ping is not None][-1:] == [b"hello"][: len(frames)]


def test_payload_is_handed_on_before_its_frame_is_whole() -> None:
    """A frame of 4 EB makes a reader hold nothing."""
    reader = WebSocketReader()
    head = bytes((0x82, 0xFF)) + (1 << 62).to_bytes(8, "big") + bytes(4)

    assert reader.feed(head + b"abc").payload == b"abc"
    assert reader.feed(b"d").payload == b"d"
    assert reader._rest == b""


def test_nothing_is_read_behind_a_close() -> None:
    """Bytes with a close or after it are skipped."""
    reader = WebSocketReader()

    read = reader.feed(masked(b"a") + masked(b"\x03\xe8", opcode=CLOSE) + masked(b"b"))

    assert read == Input(b"a", None, b"\x03\xe8")
    assert reader.feed(masked(b"c")).payload == b""


def test_the_last_ping_is_the_one_to_answer() -> None:
    """Of many at once; an unasked pong is passed over."""
    said = masked(b"1", opcode=PING) + masked(b"2", opcode=PING) + masked(b"x", opcode=PONG)

    assert WebSocketReader().feed(said).ping == b"2"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"\x82\x03abc", 1002),
        (masked(b"a", first=0xC0), 1002),
        (masked(b"a", first=0xA0), 1002),
        (masked(b"a", opcode=1), 1003),
        (masked(b"a", opcode=3), 1002),
        (masked(b"a", opcode=11), 1002),
        (masked(b"a", opcode=0), 1002),
        (masked(b"a", first=0) + masked(b"b"), 1002),
        (masked(b"a", opcode=PING, first=0), 1002),
        (masked(bytes(126), opcode=PING), 1002),
        (bytes((0x82, 0xFF)) + b"\xff" * 8 + bytes(4), 1002),
    ],
    ids=[
        *("not masked", "compressed", "reserved bit", "text", "unknown", "unknown control"),
        *("goes on without a begin", "begins twice", "control in parts", "long control", "size"),
    ],
)
def test_what_may_not_be_sent(said: bytes, code: int) -> None:
    """It is refused with the code that the close says."""
    with pytest.raises(WebSocketError) as refused:
        WebSocketReader().feed(said)

    assert refused.value.code == code


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(said: bytes) -> None:
    """Nothing else comes of them, and no more is kept than a head and a control frame."""
    reader = WebSocketReader()
    try:
        reader.feed(said)
    except WebSocketError:
        return
    assert len(reader._rest) < 140


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 1 << 20])
def test_what_is_written(size: int) -> None:
    """A head says its frame's size as short as it can."""
    head = frame_head(BINARY, size)

    assert head[0] == 0x82
    assert len(head) == (2 if size < 126 else 4 if size < 65_536 else 10)
    assert int.from_bytes(head[2:] or head[1:], "big") == size


def test_a_large_frame_in_many_reads_takes_time_that_grows_with_its_size() -> None:
    """8 MB by 1 kB; were each read joined with those before it, it would be minutes."""
    reader = WebSocketReader()
    begin_s = time.process_time()
    reader.feed(bytes((0x82, 0xFF)) + (8 << 20).to_bytes(8, "big") + b"abcd")
    for _ in range(8 << 10):
        reader.feed(bytes(1_024))

    assert time.process_time() - begin_s < 2
