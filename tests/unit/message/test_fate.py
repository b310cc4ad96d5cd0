"""Whether a receiver may have a message, and what becomes of it if none may."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.queue.fate import UNLIMITED, Fate
from bridge.message.end_rules import death_of, fate_of_failed, is_stray, rules_of
from bridge.message.message import DELIVERY_COUNT_EXCEEDED, EXPIRED, Message
from bridge.model.entity import Queue
from bridge.wire.basic import Properties, Table
from bridge.wire.record import Record
from tests.unit.message.test_moves import ACTIVE, DEAD, NOW_MS, ORDERS

ACTIVE_EXCHANGE = "orders/$active"


def message(
    ttl_ms: int | None = None,
    failures: int = 0,
    *,
    number: int = 1,
    exchange: str = ACTIVE_EXCHANGE,
    table: Table | None = None,
) -> Message:
    """Return a message that arrived at `NOW_MS`."""
    return Message(
        number,
        None if ttl_ms is None else NOW_MS + ttl_ms,
        exchange,
        Record(Properties(headers=table), b""),
        NOW_MS,
        ttl_ms,
        0,
        failures,
        0,
        (number, NOW_MS),
    )


@given(st.none() | st.integers(0, 100), st.integers(0, 12), st.integers(0, 100))
def test_a_receiver_never_has_what_is_over(
    ttl_ms: int | None, failures: int, waited_ms: int
) -> None:
    """Expired at its instant, exhausted at the entity's count; a TTL of 0 needs a receiver."""
    fate = rules_of(ORDERS).of_message(message(ttl_ms, failures), NOW_MS + waited_ms)

    if ttl_ms and waited_ms >= ttl_ms:
        assert fate is Fate.EXPIRED
    elif failures >= ORDERS.max_delivery_count:
        assert fate is Fate.DELIVERY_COUNT_EXCEEDED
    else:
        assert fate is Fate.AVAILABLE


@given(st.integers(0, 12))
def test_the_delivery_that_fails_last_is_the_one_before_the_count(failures: int) -> None:
    """An entity of ten deliveries gives a message ten times."""
    is_last = failures + 1 >= ORDERS.max_delivery_count
    expected = Fate.DELIVERY_COUNT_EXCEEDED if is_last else Fate.AVAILABLE
    assert fate_of_failed(message(None, failures), ACTIVE, NOW_MS) is expected


def test_a_message_that_expires_while_it_is_locked_does_not_come_back() -> None:
    """Not even when it was its first delivery."""
    assert fate_of_failed(message(1_000), ACTIVE, NOW_MS + 1_000) is Fate.EXPIRED


def test_a_dead_letter_is_never_dead_lettered_again() -> None:
    """This holds however often it fails."""
    rules = rules_of(ORDERS, is_dead_letter=True)
    assert rules.of_message(message(None, 99), NOW_MS) is Fate.AVAILABLE
    assert fate_of_failed(message(None, 99), DEAD, NOW_MS) is Fate.AVAILABLE


def test_a_message_that_waits_to_be_forwarded_has_no_delivery_limit() -> None:
    """Being forwarded is no delivery; a receiver's delivery that fails still is one."""
    rules = rules_of(Queue(name="orders", max_delivery_count=3, forward_to="target"))
    assert rules.of_waiting(None, 99, NOW_MS) is Fate.AVAILABLE
    assert rules.of_failed(None, 2, NOW_MS) is Fate.DELIVERY_COUNT_EXCEEDED
    assert rules.waiting_max == UNLIMITED


def test_an_expired_message_is_a_dead_letter_if_its_entity_keeps_them() -> None:
    """One that failed too often always is."""
    keeps, drops = (
        Queue(name="orders", dead_lettering_on_message_expiration=each) for each in (True, False)
    )
    assert (death_of(Fate.EXPIRED, keeps), death_of(Fate.EXPIRED, drops)) == (EXPIRED, None)
    for entity in (keeps, drops):
        assert death_of(Fate.DELIVERY_COUNT_EXCEEDED, entity) == DELIVERY_COUNT_EXCEEDED


def test_what_was_published_straight_into_a_queue_is_a_stray() -> None:
    """Without a number, or with one that somebody has copied; what a bridge put back is none."""
    assert not is_stray(message(), ACTIVE, ACTIVE_EXCHANGE)
    assert is_stray(message(number=-1), ACTIVE, ACTIVE_EXCHANGE)
    assert is_stray(message(exchange=""), ACTIVE, ACTIVE_EXCHANGE)
    put_back: Table = {"x-busbridge-delivered": ("l", 1)}
    assert not is_stray(message(exchange="", table=put_back), ACTIVE, ACTIVE_EXCHANGE)
    expired: Table = {"x-first-death-reason": ("S", b"expired")}
    assert is_stray(message(number=-1, table=expired), DEAD, ACTIVE_EXCHANGE)
    assert not is_stray(message(number=-1), DEAD, ACTIVE_EXCHANGE)
