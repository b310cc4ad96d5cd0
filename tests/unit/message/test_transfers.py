"""What is stored of a transaction's message for another entity, and of one that is refused."""

from __future__ import annotations

from bridge.machine.inbox.forwarded import KEPT_MIN_OF_TRANSFERS, Forwarded
from bridge.message.message import Message, facts
from bridge.message.transfers import dead_transfers, number_of, transfer_of
from bridge.model import entity as model
from bridge.topology import names
from bridge.wire import envelope, forwarded, headers
from bridge.wire.basic import Properties
from tests.integration.door import outgoing

TRANSACTION = bytes(range(16))
TARGET = model.Queue(name="Target")


def made(place: int = 0, transaction: bytes = TRANSACTION) -> envelope.Envelope:
    """Return the envelope of a transfer."""
    transfer = transfer_of(TARGET, outgoing("a", ttl_ms=9), transaction, place, b"pinned")
    assert transfer.path == "Target"
    return envelope.decode(transfer.body)


def test_a_transfer_has_an_identity_by_its_transaction_and_its_place() -> None:
    """The same whenever it is made; and the journal of its target tells its source."""
    assert made().identity == made().identity
    assert len({made(0).identity, made(1).identity, made(0, bytes(16)).identity}) == 3
    (item,) = made().items
    table = Properties.decode(item.properties).headers or {}
    assert item.source == forwarded.transfers_of(b"pinned") == forwarded.last_source(table)
    assert item.source not in (
        forwarded.source_of(b"pinned", is_dead_letter=False),
        forwarded.source_of(b"pinned", is_dead_letter=True),
    )
    assert forwarded.hops_of(table) == 0


def dead(body: bytes, now_ms: int = 5) -> Message:
    """Return the dead letter of a transfer."""
    (publication,) = dead_transfers("Orders", body, "Reason", "text", now_ms)
    assert publication.routing_key == names.transfer_dead_letter_queue("orders")
    return Message(*facts(publication.properties, publication.body, "", can_expire=False))


def test_a_refused_transfer_is_a_dead_letter_with_one_number_however_often_it_is_made() -> None:
    """With its content, and without an end of its time."""
    body = transfer_of(TARGET, outgoing("a", ttl_ms=9), TRANSACTION, 0, b"pinned").body
    first, again = dead(body), dead(body, 6)
    table = first.record.properties.headers or {}
    assert table[headers.DEAD_LETTER_REASON] == ("S", b"Reason")
    assert table[headers.DEAD_LETTER_ERROR_DESCRIPTION] == ("S", b"text")
    assert (first.record.body, first.record.properties.message_id) == (b"a", "a")
    assert (first.number, first.identity) == (again.number, again.identity)
    assert (first.enqueued_ms, first.time_to_live_ms, first.expires_ms) == (5, 9, None)
    assert 1 <= first.number < 2**53
    assert number_of(b"a") != number_of(b"b")


def test_what_is_no_envelope_is_a_dead_letter_as_it_is() -> None:
    """Somebody has published it into the transfer queue."""
    found = dead(b"nonsense")
    table = found.record.properties.headers or {}
    assert found.record.body == b"nonsense"
    assert b"no envelope" in bytes(table[headers.DEAD_LETTER_ERROR_DESCRIPTION][1])  # type: ignore[arg-type]


def test_a_target_recognizes_as_many_transfers_as_a_killed_leader_may_repeat() -> None:
    """Beside many other sources."""
    seen, source = Forwarded(), forwarded.transfers_of(b"pinned")
    for other in range(400):
        seen.note(b"%06d\0" % other, bytes(16))
    ids = [each.to_bytes(16, "big") for each in range(KEPT_MIN_OF_TRANSFERS)]
    for each in ids:
        seen.note(source, each)
    assert all(seen.has(source, each) for each in ids)
