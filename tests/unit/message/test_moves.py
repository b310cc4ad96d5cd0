"""What is published when a message leaves its queue, read again as RabbitMQ delivers it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.inbox.publication import Publication
from bridge.machine.queue.second_copies import CopyStatus, SecondCopies
from bridge.machine.queue.settled import SettledMemory
from bridge.message import moves
from bridge.message.message import EXPIRED_REASON, Message, facts
from bridge.model import entity as model
from bridge.topology import names
from bridge.wire import headers, stamp
from bridge.wire.basic import Properties, Table, long, text
from bridge.wire.record import Record

NOW_MS = 1_700_000_000_000
IDENTITY = bytes(range(20))
ORDERS = model.Queue(name="Orders")
SHOP = model.Subscription(topic="Shop", name="all", incarnation="0123456789ab")
OTHER = "of the application's own"


@dataclass(frozen=True)
class At:
    """Where a message is."""

    queue: model.ReceiveEntity
    resource: str
    is_dead_letter: bool = False


ACTIVE = At(ORDERS, names.active_queue("orders"))
DEAD = At(ORDERS, names.dead_letter_queue("orders"), is_dead_letter=True)
OF_TOPIC = At(SHOP, names.active_queue(SHOP.path))

places = st.sampled_from([ACTIVE, DEAD, OF_TOPIC])
ttls = st.none() | st.integers(1, 10**9)
counts = st.integers(0, 9)
changes: st.SearchStrategy[Table] = st.dictionaries(
    st.sampled_from([OTHER, "colour", "kind"]), st.just(("S", b"new")), max_size=3
)


def delivered(ttl_ms: int | None = None, failures: int = 0, **given: object) -> Message:
    """Return a numbered message, as its queue has it."""
    table: Table = {OTHER: ("I", 7), "x-delivery-count": ("l", failures)}
    properties = Properties(message_id="m-1", headers=table | given.pop("table", {}), **given)  # type: ignore[arg-type, operator]
    fields = stamp.active(42, NOW_MS, IDENTITY, ttl_ms)
    raw = stamp.put(properties.encode(), fields, ttl_ms)
    return Message(*facts(raw, b"body", "orders/$active", can_expire=True))


def arrived(publish: Publication, *, can_expire: bool = True) -> Message:
    """Return what a move has published, as it is delivered."""
    return Message(
        *facts(publish.properties, publish.body, publish.exchange, can_expire=can_expire)
    )


def table_of(publish: Publication) -> Table:
    """Return the headers that are published."""
    return Properties.decode(publish.properties).headers or {}


@given(places, ttls, counts, changes)
def test_a_moved_message_stays_the_one_it_was(
    place: At, ttl_ms: int | None, failures: int, changed: Table
) -> None:
    """Number, identity, time of arrival and body are kept, and nothing that only a broker says."""
    message = delivered(ttl_ms, failures)
    for publish, copy in (
        moves.dead_letter(place, message, "why", "because", changed, failures),
        moves.again(place, message, changed, failures + 1, NOW_MS),
        moves.defer(place, message, changed),
    ):
        there = arrived(publish)
        assert (there.number, there.identity, there.enqueued_ms) == (42, IDENTITY, NOW_MS)
        assert publish.body == b"body"
        assert not table_of(publish).keys() & headers.BROKER_ONLY
        assert copy[2:] == publish[2:]
        assert changed.items() <= table_of(publish).items()


@given(places, ttls)
def test_each_move_tells_the_stream_of_moved_messages_where_to(
    place: At, ttl_ms: int | None
) -> None:
    """By a publish of its own: by one to both RabbitMQ confirms what only the stream has taken."""
    message = delivered(ttl_ms)
    for publish, copy in (
        moves.dead_letter(place, message, None, None, {}, 0),
        moves.again(place, message, {}, 1, NOW_MS),
        moves.defer(place, message, {}),
    ):
        assert table_of(publish)[headers.MOVED] == text(publish.routing_key)
        assert (publish.exchange, copy.exchange) == ("", "")
        assert copy.routing_key == names.moved(place.queue.front)


@given(ttls, counts, st.integers(0, 10**9))
def test_what_goes_back_keeps_its_instant_of_expiry_and_its_count(
    ttl_ms: int | None, failures: int, waited_ms: int
) -> None:
    """A TTL counts from the arrival, however often a message is put back."""
    message = delivered(ttl_ms, failures)
    back = arrived(moves.again(ACTIVE, message, {}, failures + 1, NOW_MS + waited_ms)[0])

    assert back.expires_ms == message.expires_ms
    assert back.failures == failures + 1
    assert back.has_come_through("orders/$active")
    left = back.record.properties.expiration
    assert left == (None if ttl_ms is None else str(max(ttl_ms - waited_ms, 0)))


@given(places, ttls, counts)
def test_a_deferred_message_counts_a_delivery_and_says_where_it_belongs(
    place: At, ttl_ms: int | None, failures: int
) -> None:
    """It is told apart from a deferred dead letter, and does not expire."""
    publish, _ = moves.defer(place, delivered(ttl_ms, failures), {})

    assert publish.routing_key == names.deferred_queue(place.queue.path)
    assert arrived(publish).failures == failures + 1
    assert table_of(publish)[headers.DEFERRED] == text(
        "$deadletterqueue" if place.is_dead_letter else ""
    )
    assert Properties.decode(publish.properties).expiration is None


@given(places, ttls, counts)
def test_a_dead_letter_begins_to_count_anew_and_says_why(
    place: At, ttl_ms: int | None, failures: int
) -> None:
    """It has the reason and the description where Azure's SDKs read them."""
    message = delivered(ttl_ms, failures)
    publish, _ = moves.dead_letter(place, message, "why", "because", {}, failures)
    dead = arrived(publish, can_expire=False)

    assert publish.routing_key == names.dead_letter_queue(place.queue.path)
    assert (dead.failures, dead.expires_ms, dead.deaths) == (0, None, 1)
    assert dead.died_after(10) == failures
    assert table_of(publish)[headers.DEAD_LETTER_REASON] == text("why")
    assert table_of(publish)[headers.DEAD_LETTER_ERROR_DESCRIPTION] == text("because")


def test_a_dead_letter_of_rabbitmqs_keeps_its_reason_when_it_is_deferred() -> None:
    """RabbitMQ's header would be lost: it becomes Azure's."""
    message = delivered(table={"x-first-death-reason": text("expired")})

    assert message.death_reason == EXPIRED_REASON
    assert table_of(moves.defer(DEAD, message, {})[0])[headers.DEAD_LETTER_REASON] == text(
        EXPIRED_REASON
    )


def test_what_came_past_the_front_door_goes_back_through_it() -> None:
    """With the user that its publisher gave, and for the one subscription that it lay at."""
    message = Message(*facts(Properties(user_id="guest").encode(), b"b", "", can_expire=True))
    (publish,) = moves.send_back(OF_TOPIC, message)
    properties = Properties.decode(publish.properties)

    assert (publish.exchange, publish.routing_key) == (names.front("shop"), "")
    assert properties.user_id is None
    assert properties.headers is not None
    assert properties.headers[headers.BASIC_USER_ID] == text("guest")
    assert headers.TARGET in properties.headers
    assert message.record.properties.user_id == "guest", "the message itself is as it was"


def test_what_cannot_be_handled_goes_back_with_its_reason() -> None:
    """It is numbered, and then a dead letter; a description of any length is cut."""
    (publish,) = moves.refuse(ACTIVE, delivered(), "Malformed", "x" * 5_000)
    table = table_of(publish)

    assert publish.exchange == names.front("orders")
    assert table[headers.KIND] == text("refused")
    assert table[headers.DEAD_LETTER_REASON] == text("Malformed")
    assert table[headers.DEAD_LETTER_ERROR_DESCRIPTION] == text("x" * 1_000)


@pytest.mark.parametrize("size", [1_000, 200_000])
def test_headers_that_rabbitmq_would_end_the_connection_over_are_left_out(size: int) -> None:
    """A message that the bridge must move keeps what it is, and its reason."""
    message = delivered(table={"large": text("x" * size)})
    publish, _ = moves.fitting(moves.dead_letter(ACTIVE, message, "why", None, {}, 0))

    assert len(publish.properties) <= moves.PROPERTIES_BYTES_MAX
    assert ("large" in table_of(publish)) is (size == 1_000)
    assert table_of(publish)[headers.DEAD_LETTER_REASON] == text("why")
    assert (arrived(publish).number, publish.body) == (42, b"body")


def test_a_requeued_message_in_bytes() -> None:
    """RabbitMQ has these bytes, field by field: a bridge of another version reads them."""
    message = delivered(60_000, 2)
    publish, _ = moves.again(ACTIVE, message, {"colour": text("red")}, 3, NOW_MS + 10_000)

    assert Properties.decode(publish.properties) == Properties(
        message_id="m-1",
        delivery_mode=2,
        expiration="50000",
        headers={
            headers.SEQUENCE_NUMBER: ("l", 42),
            headers.ENQUEUED_TIME: ("l", NOW_MS),
            headers.NUMBERED: ("t", True),
            headers.IDENTITY: ("x", IDENTITY),
            headers.TIME_TO_LIVE: ("l", 60_000),
            OTHER: ("I", 7),
            "colour": ("S", b"red"),
            headers.ORDER: ("x", bytes.fromhex("e698b374 faf865ce")),
            headers.DELIVERED: ("l", 3),
            headers.MOVED: ("S", b"orders"),
        },
    )


@given(counts, counts)
def test_a_dead_letter_that_is_put_back_keeps_the_count_that_it_died_with(
    died_after: int, failures: int
) -> None:
    """Failures in the dead-letter queue are not counted, as Azure has it."""
    letter = arrived(moves.dead_letter(ACTIVE, delivered(), "why", None, {}, died_after)[0])
    letter.failures = letter.died_after(10)
    back = arrived(moves.again(DEAD, letter, {}, failures, NOW_MS)[0], can_expire=False)

    assert back.died_after(10) == died_after


def test_a_dead_letter_is_later_than_all_its_copies_each_time_it_is_published_again() -> None:
    """Else it is taken for the copy of what it replaces, and acked."""
    letter = arrived(moves.dead_letter(ACTIVE, delivered(), "why", None, {}, 3)[0])
    for _ in range(3):
        letter.failures = letter.died_after(10)
        deferred = arrived(moves.defer(DEAD, letter, {})[0])
        generation = moves.next_generation(letter)
        back = arrived(moves.again(DEAD, letter, {}, generation, NOW_MS)[0], can_expire=False)
        assert back.generation > letter.generation
        assert deferred.generation > letter.generation
        letter = back
    assert letter.died_after(10) == 3


def test_each_time_that_a_message_is_dead_lettered_it_is_a_later_one() -> None:
    """Its generation begins anew; who brings it back leaves its number and identity."""
    message = delivered()
    assert message.deaths == 0
    for deaths in range(1, 4):
        message = arrived(moves.dead_letter(ACTIVE, message, "why", None, {}, 0)[0])
        assert (message.deaths, message.generation) == (deaths, 0)
        message = arrived(moves.again(ACTIVE, message, {}, 1, NOW_MS)[0])
        assert message.deaths == deaths


def test_a_dead_letter_that_is_held_without_its_content_is_the_same_one() -> None:
    """Searches by number drop the content of what stands before: it may be held again."""
    dead = delivered(table={headers.DEAD_LETTERED: long(10), headers.DEATHS: long(2)})
    copies: SecondCopies[Message] = SecondCopies(SettledMemory().numbers())
    copies.hold(dead)
    dead.record = Record(Properties(), b"")
    copies.let_go(dead)
    assert copies.status_of(dead) is CopyStatus.NEW
    assert not len(copies)


def test_a_dead_letter_of_an_older_bridge_has_died_once() -> None:
    """It says that, and not how often."""
    assert delivered(table={headers.DEAD_LETTERED: long(0)}).deaths == 1
    assert delivered(table={headers.DEATHS: long(5)}).deaths == 0
    table = {headers.DEAD_LETTERED: long(0), headers.DEATHS: long(-1)}
    assert delivered(table=table).deaths == 1
