"""What becomes of a message on its way from one namespace to another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.relay.plan.encoded_map import with_pairs
from bridge.relay.plan.relayed_message import (
    DEAD_LETTER_SOURCE,
    DELIVERY_COUNT,
    ENQUEUE_TIME,
    HOPS_MAX,
    MARKER,
    SEQUENCE,
    Expired,
    Relayed,
    Returned,
    RouteFacts,
    Unfit,
    relayed,
)
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.primitives import encode_list, encode_map, encode_string, encode_timestamp
from bridge.wire.amqp10.scalars import Symbol, Timestamp, Uint
from bridge.wire.amqp10.types import decode
from bridge.wire.mapping.fields import compound_items, map_items, textual
from bridge.wire.mapping.properties import ABSOLUTE_EXPIRY_MAX_MS
from bridge.wire.mapping.sections import (
    APPLICATION_PROPERTIES,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    descriptor,
)
from tests.fixtures.examples import examples
from tests.unit.relay.files import file_of, route
from tests.unit.wire.amqp10.values import SCALARS, VALUES

NOW_MS = 1_800_000_000_000
UINT_MAX = 2**32 - 1
OWN = (SEQUENCE, ENQUEUE_TIME, DELIVERY_COUNT, DEAD_LETTER_SOURCE, MARKER)
FACTS = RouteFacts(source_mark="azure/a", target_mark="local/b")
DROPPED = {
    "x-opt-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-enqueue-sequence-number",
    "x-opt-deadletter-source",
    "x-opt-locked-until",
    "x-opt-lock-token",
    "x-opt-message-state",
    "x-opt-busbridge-source-number",
    "x-opt-busbridge-source-time",
    "x-opt-busbridge-source-lowest",
}


def long_form(raw: bytes) -> bytes:
    """Return an encoded value in a longer form of the same type, where it has one."""
    code = raw[0]
    if code in (0xA0, 0xA1, 0xA3):
        return bytes((code + 0x10,)) + raw[1:2].rjust(4, b"\0") + raw[2:]
    if code in (0x52, 0x43):
        return b"\x70" + raw[1:].rjust(4, b"\0")
    if code in (0x53, 0x44):
        return b"\x80" + raw[1:].rjust(8, b"\0")
    if code in (0x41, 0x42):
        return b"\x56" + (b"\x01" if code == 0x41 else b"\x00")
    if code == 0xC1:
        return b"\xd1" + (raw[1] + 3).to_bytes(4, "big") + raw[2:3].rjust(4, b"\0") + raw[3:]
    return raw


def encoded(values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """Return encoded values, in short and in long forms."""
    short = values.map(writing.encode)
    return short | short.map(long_form)


KEYS = st.text(st.characters(max_codepoint=127), min_size=1, max_size=20)


def pairs(names: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[bytes, bytes]]]:
    """Return encoded pairs with different names."""
    one = st.tuples(names, encoded(VALUES), st.booleans())
    return st.lists(one, max_size=8, unique_by=lambda each: each[0]).map(
        lambda found: [
            ((long_form if is_long else bytes)(writing.encode(name)), value)
            for name, value, is_long in found
        ]
    )


def section(code: int, found: list[tuple[bytes, bytes]], is_long: bool) -> bytes:
    """Return a section that is a map."""
    raw = encode_map(found)
    return descriptor(code) + (long_form(raw) if is_long else raw)


def read_pairs(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Return the encoded pairs of a section."""
    if not raw:
        return []
    return [(raw[a:b], raw[c:d]) for (a, b), (c, d) in map_items(raw, 3)]


def name_of(key: bytes) -> str:
    """Return the text of an encoded key."""
    return (textual(key, 0, len(key)) or b"").decode()


def items_of(raw: bytes) -> list[bytes]:
    """Return the encoded items of a section that is a list."""
    return [raw[start:end] for start, end in compound_items(raw, 3)] if raw else []


def read(message: RemoteMessage) -> RemoteMessage:
    """Return a message as its receiver reads it: whole, and in order."""
    return RemoteMessage.read(message.encode())


@settings(max_examples=examples(150), deadline=None)
@given(
    properties=pairs(KEYS | st.sampled_from(OWN)),
    annotations=pairs(
        KEYS.map(Symbol) | st.sampled_from([*sorted(DROPPED), "x-opt-partition-key"]).map(Symbol)
    ),
    header=st.lists(encoded(SCALARS["boolean"]), max_size=1),
    body=encoded(VALUES).map(lambda raw: descriptor(0x77) + raw),
    footer=pairs(KEYS.map(Symbol)),
    ids=st.tuples(encoded(SCALARS["string"] | SCALARS["uuid"]), encoded(SCALARS["binary"])),
    is_long=st.booleans(),
    is_dead=st.booleans(),
)
def test_what_is_not_touched_keeps_its_bytes(
    properties: list[tuple[bytes, bytes]],
    annotations: list[tuple[bytes, bytes]],
    header: list[bytes],
    body: bytes,
    footer: list[tuple[bytes, bytes]],
    ids: tuple[bytes, bytes],
    is_long: bool,
    is_dead: bool,
) -> None:
    """Body, footer and properties whole; of the maps every pair that is not ours or the source's.

    Keys and values keep their bytes, and with them their types, in any form that AMQP has.
    """
    source = RemoteMessage(
        header=descriptor(HEADER) + encode_list(header),
        annotations=section(MESSAGE_ANNOTATIONS, annotations, is_long),
        properties=descriptor(PROPERTIES) + encode_list(list(ids)),
        application_properties=section(APPLICATION_PROPERTIES, properties, is_long),
        body=body,
        footer=section(0x78, footer, is_long) if footer else b"",
    )
    facts = RouteFacts(source_mark="azure/a", target_mark="local/b", is_dead_letter=is_dead)

    found = relayed(source, facts, NOW_MS)

    if isinstance(found, Unfit):
        assert found.reason == "RelayCircle"  # a marker of many ids was made up
        return
    assert isinstance(found, Relayed)
    sent = read(found.message)
    assert (sent.body, sent.footer, sent.properties) == (body, source.footer, source.properties)
    assert items_of(sent.header) == header
    before = [each for each in properties if name_of(each[0]) not in OWN]
    after = read_pairs(sent.application_properties)
    assert [each for each in after if name_of(each[0]) not in OWN] == before
    names = [name_of(key) for key, _ in after]
    assert len(set(names)) == len(names)
    assert sent.application_property_values[MARKER].split(";")[-1] == "azure/a"
    kept = [each for each in annotations if name_of(each[0]) not in DROPPED]
    assert read_pairs(sent.annotations) == kept


@settings(max_examples=examples(200), deadline=None)
@given(
    found=pairs(KEYS.map(Symbol)),
    more=st.lists(st.tuples(encoded(SCALARS["long"]), encoded(VALUES)), min_size=1, max_size=200),
    is_long=st.booleans(),
)
def test_pairs_that_are_added_leave_those_before_them(
    found: list[tuple[bytes, bytes]], more: list[tuple[bytes, bytes]], is_long: bool
) -> None:
    """In short maps and in long ones, and where a short one becomes long."""
    before = section(MESSAGE_ANNOTATIONS, found, is_long) if found else b""

    assert read_pairs(with_pairs(before, MESSAGE_ANNOTATIONS, more)) == found + more


@settings(max_examples=examples(300), deadline=None)
@given(
    ttl_ms=st.integers(0, 2**40),
    age_ms=st.integers(0, 2**40),
    with_times=st.booleans(),
    is_dead=st.booleans(),
)
def test_the_time_to_live_that_remains_is_exact(
    ttl_ms: int, age_ms: int, with_times: bool, is_dead: bool
) -> None:
    """Also above the header's 32 bits; over, the message does not go; a dead letter has none."""
    enqueued_ms = NOW_MS - age_ms
    has_times = with_times or ttl_ms > UINT_MAX
    source = RemoteMessage.of(
        data=b"x",
        properties=MessageProperties(
            message_id="a",
            absolute_expiry_time=enqueued_ms + ttl_ms if has_times else None,
            creation_time=enqueued_ms if has_times else None,
        ),
        annotations={"x-opt-enqueued-time": Timestamp(enqueued_ms)},
        ttl_ms=min(ttl_ms, UINT_MAX),
        priority=3,
    )
    facts = RouteFacts(source_mark="azure/a", target_mark="local/b", is_dead_letter=is_dead)

    found = relayed(source, facts, NOW_MS)

    if is_dead:
        assert isinstance(found, Relayed)
        assert found.message.header_fields == (None, 3, None, None, None)
        assert found.message.property_fields.absolute_expiry_time is None
        return
    remainder_ms = ttl_ms - age_ms
    if remainder_ms <= 0:
        assert found == Expired(enqueued_ms + ttl_ms)
        return
    assert isinstance(found, Relayed)
    sent = read(found.message)
    assert sent.header_fields == (None, 3, Uint(min(remainder_ms, UINT_MAX)), None, None)
    fields = sent.property_fields
    if has_times or remainder_ms > UINT_MAX:
        assert fields.creation_time == NOW_MS
        assert fields.absolute_expiry_time == NOW_MS + remainder_ms
    else:
        assert (fields.creation_time, fields.absolute_expiry_time) == (None, None)


def test_no_expiry_is_written_that_the_sdks_cannot_have() -> None:
    """A TTL that ends with the year 9999 at its sender began later at the source."""
    last_ms = 253_402_300_799_999
    source = RemoteMessage.of(
        data=b"x",
        properties=MessageProperties(absolute_expiry_time=last_ms, creation_time=NOW_MS - 1_000),
        annotations={"x-opt-enqueued-time": Timestamp(NOW_MS - 500)},
        ttl_ms=UINT_MAX,
    )

    found = relayed(source, FACTS, NOW_MS)

    assert isinstance(found, Relayed)
    fields = found.message.property_fields
    assert (fields.creation_time, fields.absolute_expiry_time) == (NOW_MS, ABSOLUTE_EXPIRY_MAX_MS)


def test_without_a_time_to_live_the_senders_times_stay() -> None:
    """They are the application's."""
    source = RemoteMessage.of(
        data=b"x", properties=MessageProperties(creation_time=5, absolute_expiry_time=7)
    )

    found = relayed(source, FACTS, NOW_MS)

    assert isinstance(found, Relayed)
    assert found.message.properties == source.properties


@settings(max_examples=examples(100), deadline=None)
@given(
    large=st.integers(0, 70_000), limit=st.integers(1_000, 64 * 1024), in_body=st.integers(0, 500)
)
def test_a_message_that_our_pairs_would_make_too_large_goes_without_them(
    large: int, limit: int, in_body: int
) -> None:
    """First the numbers and times go, then the marker; what was too large before goes as it is."""
    source = RemoteMessage.of(
        data=b"x" * in_body,
        application_properties={"large": "x" * large},
        annotations={"x-opt-sequence-number": 7, "x-opt-enqueued-time": NOW_MS},
    )

    for found, size in (
        (relayed(source, FACTS, NOW_MS, properties_bytes_max=limit), "properties"),
        (relayed(source, FACTS, NOW_MS, message_bytes_max=limit), "message"),
    ):
        assert isinstance(found, Relayed)
        sent = found.message

        def fits(message: RemoteMessage, of: str = size) -> bool:
            if of == "message":
                return message.size_bytes <= limit
            return len(message.application_properties) <= limit

        has = set(sent.application_property_values) & set(OWN)
        assert has | set(found.left_out) == {SEQUENCE, ENQUEUE_TIME, MARKER}
        assert has in ({SEQUENCE, ENQUEUE_TIME, MARKER}, {MARKER}, set())
        assert fits(sent) or not has
        if not has:
            assert sent.application_properties == source.application_properties


def test_the_number_and_the_time_of_each_hop_are_appended() -> None:
    """As texts with semicolons, as Azure's replication tasks write them; so is the marker."""
    first = RemoteMessage.of(
        data=b"x",
        application_properties={"colour": "red"},
        annotations={"x-opt-sequence-number": 7, "x-opt-enqueued-time": Timestamp(0)},
    )
    one = relayed(first, FACTS, NOW_MS)
    assert isinstance(one, Relayed)
    arrived = RemoteMessage.read(one.message.encode())
    second = RemoteMessage(
        annotations=RemoteMessage.of(
            annotations={"x-opt-sequence-number": 9, "x-opt-enqueued-time": Timestamp(60_000)}
        ).annotations,
        application_properties=arrived.application_properties,
        body=arrived.body,
    )

    two = relayed(second, RouteFacts(source_mark="local/b", target_mark="other/c"), NOW_MS)

    assert isinstance(two, Relayed)
    assert two.message.application_property_values == {
        "colour": "red",
        SEQUENCE: "7;9",
        ENQUEUE_TIME: "1970-01-01T00:00:00.000Z;1970-01-01T00:01:00.000Z",
        MARKER: "azure/a;local/b",
    }


def test_a_dead_letter_says_how_and_where_it_died() -> None:
    """Reason and description are its application properties, and stay."""
    source = RemoteMessage(
        header=descriptor(HEADER) + encode_list([b"\x41", b"\x40", b"\x40", b"\x40", b"\x52\x0a"]),
        annotations=RemoteMessage.of(annotations={"x-opt-deadletter-source": "sales"}).annotations,
        application_properties=RemoteMessage.of(
            application_properties={"DeadLetterReason": "MaxDeliveryCountExceeded"}
        ).application_properties,
    )
    facts = RouteFacts(source_mark="azure/a", target_mark="local/b", is_dead_letter=True)

    found = relayed(source, facts, NOW_MS)

    assert isinstance(found, Relayed)
    assert found.message.header_fields == (True, None, None, None, None)
    assert found.message.application_property_values == {
        "DeadLetterReason": "MaxDeliveryCountExceeded",
        DELIVERY_COUNT: "10",
        DEAD_LETTER_SOURCE: "sales",
        MARKER: "azure/a",
    }


@pytest.mark.parametrize(("due_ms", "stays"), [(NOW_MS + 1, True), (NOW_MS, False)])
def test_a_scheduled_time_that_is_to_come_goes_along(due_ms: int, stays: bool) -> None:
    """The same instant; one that is over says nothing any more."""
    source = RemoteMessage.of(data=b"x", annotations={"x-opt-scheduled-enqueue-time": due_ms})

    found = relayed(source, FACTS, NOW_MS)

    assert isinstance(found, Relayed)
    assert found.message.annotations == (source.annotations if stays else b"")


def test_a_reply_goes_where_the_file_says() -> None:
    """Other addresses, and all other properties, stay as they are."""
    facts = RouteFacts(
        source_mark="azure/a", target_mark="local/b", reply_to={"replies": "answers", "o": "p"}
    )
    known = RemoteMessage.of(properties=MessageProperties(message_id=7, reply_to="replies"))
    other = RemoteMessage.of(properties=MessageProperties(message_id=7, reply_to="elsewhere"))

    for message, address in ((known, "answers"), (other, "elsewhere")):
        found = relayed(message, facts, NOW_MS)
        assert isinstance(found, Relayed)
        assert found.message.property_fields.reply_to == address
        assert items_of(found.message.properties)[:4] == items_of(message.properties)[:4]


def test_a_dead_letter_of_a_subscription_goes_wherever_it_has_been() -> None:
    """It died here: completed, it would be lost with its only copy."""
    name = "azure/events/Subscriptions/audit"
    alive, dead = file_of(
        route(name, "local/events") + route(f"{name}/$DeadLetterQueue", "local/died")
    ).routes
    source = RemoteMessage.of(data=b"x", application_properties={MARKER: alive.target.mark})

    assert relayed(source, RouteFacts.of(alive), NOW_MS) == Returned()
    assert isinstance(relayed(source, RouteFacts.of(dead), NOW_MS), Relayed)


SUBSCRIPTION = RouteFacts(source_mark="azure/a", target_mark="local/b", is_subscription=True)


@pytest.mark.parametrize("marker", ["local/b", "x/b;LOCAL/B", "local/b;x/y"])
def test_a_message_that_has_been_at_the_target_comes_back_from_a_subscription(marker: str) -> None:
    """There it is completed; from a queue it goes on, as it would be lost with its only copy."""
    source = RemoteMessage.of(data=b"x", application_properties={MARKER: marker})

    assert relayed(source, SUBSCRIPTION, NOW_MS) == Returned()
    assert isinstance(relayed(source, FACTS, NOW_MS), Relayed)


@pytest.mark.parametrize("marker", ["local/c", "local/b2", "x/b", "local", "b", "x;local"])
def test_a_message_that_has_been_at_another_entity_of_the_namespace_goes(marker: str) -> None:
    """The target has never had it: completed, it would be lost."""
    source = RemoteMessage.of(data=b"x", application_properties={MARKER: marker})

    assert isinstance(relayed(source, SUBSCRIPTION, NOW_MS), Relayed)


@pytest.mark.parametrize(
    ("others", "is_heeded"),
    [
        ([("local/Events/Subscriptions/out", "azure/events")], True),
        ([("local/events/Subscriptions/a/$DeadLetterQueue", "azure/died")], True),
        ([("local/events/Subscriptions/out", "azure/events"), ("local/q", "azure/q")], False),
        ([("local/q", "azure/events")], False),
        ([], False),
    ],
)
def test_an_earlier_versions_marker_counts_where_it_can_mean_the_target_alone(
    others: list[tuple[str, str]], is_heeded: bool
) -> None:
    """It names the namespace: where no other entity of it is a source, the message was there."""
    text = route("azure/events/Subscriptions/out", "local/events")
    routes = file_of(text + "".join(route(*each) for each in others)).routes
    facts = RouteFacts.of(routes[0], routes)
    id_ = routes[0].target.side.id.upper()
    source = RemoteMessage.of(data=b"x", application_properties={MARKER: f"x;{id_}"})

    assert isinstance(relayed(source, facts, NOW_MS), Returned if is_heeded else Relayed)


PLACES = st.tuples(st.sampled_from(["one", "two", "three"]), st.sampled_from(["s", "t"])).map(
    "/".join
)


@settings(max_examples=examples(300), deadline=None)
@given(st.sets(st.tuples(PLACES, PLACES), max_size=12), PLACES)
def test_a_message_comes_to_each_topic_that_routes_lead_to_and_never_round(
    routes: set[tuple[str, str]], published: str
) -> None:
    """Whatever circles the subscriptions' routes make: no way leads twice to one topic."""
    reachable = {published}
    while more := {end for start, end in routes if start in reachable} - reachable:
        reachable |= more
    had: set[str] = set()
    under_way = [(published, (published,), RemoteMessage.of(data=b"x"))]
    while under_way:
        at, way, message = under_way.pop()
        had.add(at)
        assert len(set(way)) == len(way)
        for start, end in routes:
            if start == at and start != end:
                facts = RouteFacts(source_mark=start, target_mark=end, is_subscription=True)
                found = relayed(message, facts, NOW_MS)
                assert (found == Returned()) is (end in way)
                if isinstance(found, Relayed):
                    under_way.append((end, (*way, end), found.message))
    assert had == reachable


def test_a_message_that_goes_in_a_circle_of_queues_is_found() -> None:
    """Even where the circle is in no file."""
    found: Any = Relayed(RemoteMessage.of(data=b"x"))
    for _ in range(HOPS_MAX):
        found = relayed(found.message, FACTS, NOW_MS)
        assert isinstance(found, Relayed)

    found = relayed(found.message, FACTS, NOW_MS)

    assert isinstance(found, Unfit)
    assert found.reason == "RelayCircle"


def test_a_way_of_any_length_is_told_within_a_dead_letters_description() -> None:
    """The marker can be anybody's, and the description becomes a property of the message."""
    marker = ";".join(["x" * 3_000] * HOPS_MAX)
    source = RemoteMessage.of(data=b"x", application_properties={MARKER: marker})

    found = relayed(source, FACTS, NOW_MS)

    assert isinstance(found, Unfit)
    assert found.reason == "RelayCircle"
    assert len(found.description) <= 4_096


@pytest.mark.parametrize(
    "message",
    [
        RemoteMessage(unread=b"no message"),
        RemoteMessage(annotations=descriptor(MESSAGE_ANNOTATIONS) + b"\xa1\x01x"),
    ],
)
def test_what_is_no_message_is_named(message: RemoteMessage) -> None:
    """The route's `on-refused` says what becomes of it."""
    found = relayed(message, FACTS, NOW_MS)

    assert isinstance(found, Unfit)
    assert found.reason == "NoMessage"


def test_values_of_other_types_than_the_specifications_are_passed_over() -> None:
    """A number that is a text is none, a time that is a text neither."""
    source = RemoteMessage(
        annotations=descriptor(MESSAGE_ANNOTATIONS)
        + encode_map([(writing.encode(Symbol("x-opt-sequence-number")), encode_string(b"7"))]),
        properties=descriptor(PROPERTIES)
        + encode_list([b"\x40"] * 8 + [encode_string(b"soon"), encode_timestamp(1)]),
    )

    found = relayed(source, FACTS, NOW_MS)

    assert isinstance(found, Relayed)
    assert found.message.properties == source.properties
    assert decode(found.message.application_properties, 3)[0] == {MARKER: "azure/a"}
