"""Messages of two sides beside each other: what is missing, and what differs, by number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.operations.migration.verification import (
    MESSAGE_PARTS,
    SIDES,
    Fingerprint,
    MessageComparison,
    MessageDifference,
    OutOfOrder,
    Side,
    fingerprint,
)
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.scalars import Int, Long, Symbol, Timestamp, Uint

ANNOTATIONS = {
    "x-opt-sequence-number": Long(7),
    "x-opt-enqueued-time": Timestamp(1_000),
    "x-opt-partition-key": "red",
}
MESSAGE = RemoteMessage.of(
    data=b"order",
    properties=MessageProperties(message_id="a", subject="order"),
    application_properties={"size": Long(5), "color": "red"},
    annotations=ANNOTATIONS,
    ttl_ms=60_000,
)


def differing(one: RemoteMessage, other: RemoteMessage, *left_out: str) -> list[str]:
    """The parts in which two messages of one number differ."""
    comparison = MessageComparison(left_out)
    found = [*comparison.add("source", [fingerprint(one, is_dead=False)])]
    found += comparison.add("target", [fingerprint(other, is_dead=False)])
    return [part for each in found for part in each.parts]


def with_header(message: RemoteMessage, delivery_count: int) -> RemoteMessage:
    """The message, delivered so often."""
    from bridge.wire.amqp10 import writing
    from bridge.wire.mapping.sections import HEADER, descriptor

    fields = [None, None, Uint(60_000), None, Uint(delivery_count)]
    return replace(message, header=descriptor(HEADER) + writing.encode(fields))


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        (MESSAGE, []),
        (RemoteMessage.of(data=b"Order"), ["body"]),
        (RemoteMessage.of(value=b"order"), ["body"]),
        (RemoteMessage.of(data=[b"or", b"der"]), ["body"]),
        (RemoteMessage.of(properties=MessageProperties(message_id="b", subject="order")),
         ["properties"]),
        (RemoteMessage.of(application_properties={"size": Int(5), "color": "red"}),
         ["application_properties"]),
        (RemoteMessage.of(application_properties={"size": Long(5)}), ["application_properties"]),
        (RemoteMessage.of(ttl_ms=60_001), ["header"]),
        (RemoteMessage.of(annotations=ANNOTATIONS | {"x-opt-partition-key": "blue"}),
         ["annotations"]),
        (RemoteMessage.of(annotations=ANNOTATIONS | {"x-opt-enqueued-time": Timestamp(1_001)}),
         ["enqueued_time"]),
        (RemoteMessage.of(annotations=ANNOTATIONS | {"x-opt-message-state": Int(1)}), ["state"]),
        (RemoteMessage.of(annotations=ANNOTATIONS | {"x-opt-locked-until": Timestamp(9)}), []),
        (with_header(RemoteMessage.of(), 2), ["delivery_count"]),
    ],
)  # fmt: skip
def test_each_part_that_differs_is_named(other: RemoteMessage, parts: list[str]) -> None:
    """And nothing else; a lock is of one delivery alone."""
    names = ("header", "annotations", "properties", "application_properties", "body")
    given = {name: getattr(other, name) for name in names if getattr(other, name)}
    if parts != ["body"] or "body" not in given:
        given.pop("body", None)
    changed = replace(MESSAGE, **given)
    assert differing(MESSAGE, changed) == parts
    assert differing(changed, MESSAGE) == parts
    assert differing(MESSAGE, changed, *parts) == []


def test_the_order_of_keys_and_the_form_of_their_bytes_do_not_matter() -> None:
    """A namespace may write a map anew."""
    turned = RemoteMessage.of(application_properties={"color": "red", "size": Long(5)})
    assert turned.application_properties != MESSAGE.application_properties
    other = replace(MESSAGE, application_properties=turned.application_properties)
    assert differing(MESSAGE, other) == []
    long_string = bytes.fromhex("0053 77 b1 00000005") + b"order"
    short_string = bytes.fromhex("0053 77 a1 05") + b"order"
    assert differing(
        replace(MESSAGE, body=long_string), replace(MESSAGE, body=short_string)
    ) == []  # fmt: skip


def test_bytes_that_are_no_message_are_compared_as_bytes() -> None:
    """So is one whose sections cannot be read."""
    broken = replace(MESSAGE, properties=MESSAGE.properties[:-1])
    assert fingerprint(broken, is_dead=False).digests.keys() == {"body"}
    assert fingerprint(broken, is_dead=False).number == 7
    one, other = (
        fingerprint(RemoteMessage(unread=raw), is_dead=True) for raw in (b"\x00", b"\x01")
    )
    assert one.digests["body"] != other.digests["body"]
    assert one.state == "dead_letter"


def plain(number: int, digest: bytes = b"a") -> Fingerprint:
    """A message of which the body alone counts."""
    return Fingerprint(number, "active", {"body": digest})


def test_a_message_of_number_zero_is_compared() -> None:
    """As the first of its side."""
    comparison = MessageComparison()
    first = RemoteMessage.of(data=b"a", annotations={"x-opt-sequence-number": Long(0)})
    assert list(comparison.add("source", [fingerprint(first, is_dead=False)])) == []
    found = [each for side in SIDES for each in comparison.add(side, [])]
    assert found == [MessageDifference(0, ("source",))]


def test_a_side_that_goes_back_is_refused() -> None:
    """A message could be missed."""
    comparison = MessageComparison()
    assert [*comparison.add("source", [plain(5), plain(3)])] == []
    with pytest.raises(OutOfOrder, match="the source shows number 5 behind 5"):
        [*comparison.add("source", [plain(5)])]


def test_no_more_than_a_page_of_each_side_is_kept() -> None:
    """A side is asked again only when all of its messages are compared."""
    comparison = MessageComparison()
    found: list[MessageDifference] = []
    pages: dict[Side, int] = {"source": 0, "target": 0}
    while (side := comparison.wants) is not None:
        first = pages[side] * 100 + 1
        pages[side] += 1
        page = [plain(number) for number in range(first, first + 100)] if first < 10_000 else []
        found += comparison.add(side, page)
        assert abs(pages["source"] - pages["target"]) <= 1
    assert found == []
    assert comparison.counts["source"] == {"active": 10_000} == comparison.counts["target"]


MESSAGES = st.dictionaries(
    st.integers(1, 2**62), st.tuples(st.sampled_from(("active", "deferred")), st.binary(max_size=1))
)


@given(MESSAGES, MESSAGES, MESSAGES, st.data())
def test_every_difference_is_found_whatever_the_pages_are(
    shared: dict[int, tuple[str, bytes]],
    ours: dict[int, tuple[str, bytes]],
    theirs: dict[int, tuple[str, bytes]],
    data: st.DataObject,
) -> None:
    """As two dictionaries tell it; pages end anywhere, and turns come as the comparison asks."""
    sides: dict[Side, dict[int, tuple[str, bytes]]] = {
        "source": shared | ours,
        "target": shared | theirs,
    }
    left = {
        side: [
            Fingerprint(number, state, {"body": body})  # type: ignore[arg-type]
            for number, (state, body) in sorted(messages.items())
        ]
        for side, messages in sides.items()
    }
    comparison = MessageComparison()
    found: list[MessageDifference] = []
    while (side := comparison.wants) is not None:
        size = data.draw(st.integers(1, 4))
        page, left[side] = left[side][:size], left[side][size:]
        found += comparison.add(side, page)
    source, target = sides["source"], sides["target"]
    expected = []
    for number in sorted(source.keys() | target.keys()):
        if number not in target:
            expected.append(MessageDifference(number, ("source",)))
        elif number not in source:
            expected.append(MessageDifference(number, ("target",)))
        elif source[number] != target[number]:
            state, body = (
                one != other for one, other in zip(source[number], target[number], strict=True)
            )
            parts = tuple(
                part for part in MESSAGE_PARTS if {"state": state, "body": body}.get(part)
            )
            expected.append(MessageDifference(number, ("source", "target"), parts))
    assert found == expected
    assert comparison.differing == len(expected)
    for side, messages in sides.items():
        assert comparison.counts[side].total() == len(messages)
        states = [state for state, _ in messages.values()]
        assert comparison.counts[side]["deferred"] == states.count("deferred")


def test_a_symbol_is_no_string() -> None:
    """Types are kept, and compared."""
    one = RemoteMessage.of(application_properties={"kind": Symbol("x")})
    other = RemoteMessage.of(application_properties={"kind": "x"})
    assert differing(
        replace(MESSAGE, application_properties=one.application_properties),
        replace(MESSAGE, application_properties=other.application_properties),
    ) == ["application_properties"]
